"""The cluster of a node that traces: replication as spans, on the node of the queue's leader.

1. The publishers' node tells the leader which traces a submission belongs to, before it sends it.
2. The leader's node records a span for each when it answers the submission, which a majority has on
disk and the queue has applied.  What it is not told, or not asked to answer any more since another
node leads, is no span.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final, NamedTuple

from warren_broker.cluster import messages
from warren_broker.cluster.client.queue_client import GroupClient
from warren_broker.cluster.cluster import Cluster
from warren_broker.tracing.spans import Span, Tracing, message_facts, shown
from warren_machines.queue.commands import SubmissionReply
from warren_wire.trace_context import SPAN_ID_BYTES, TRACE_ID_BYTES, TraceContext

TRACES_SINCE: Final = 2
"""The version of a link from which on a peer knows `TracedSubmission`."""
CONTEXTS_MAX: Final = 16
"""Traces of one submission that are followed."""
REPLICATING_MAX: Final = 1_024
"""Submissions that are followed at once; the oldest is forgotten for another one."""
_BYTES: Final = TRACE_ID_BYTES + SPAN_ID_BYTES


class _Replicating(NamedTuple):
    """A submission that is being replicated; node: its publishers'."""

    told: messages.TracedSubmission
    node: str
    start_ns: int


class TracedCluster(Cluster):
    """Invariant: at most REPLICATING_MAX submissions are followed."""

    def __init__(self, tracing: Tracing, *values: Any) -> None:
        """values: as of `Cluster`."""
        super().__init__(*values)
        self._tracing = tracing
        self._replicating: OrderedDict[tuple[int, int, int], _Replicating] = OrderedDict()
        self.handlers[messages.TracedSubmission] = self._on_traced

    def trace(self, client: GroupClient, queue: str, contexts: list[TraceContext]) -> None:
        """Have the leader of a queue record the replication of what was just added to its uplink.

        contexts  not empty; of the first CONTEXTS_MAX
        """
        leader = self.leader_of(client.group)
        of = b"".join([one.trace_id + one.span_id for one in contexts[:CONTEXTS_MAX]])
        seq = client.uplink.last_seq
        told = messages.TracedSubmission(client.group, self.host.boot_id, seq, queue, of)
        if leader == self.host.node_id:
            self._follow(leader, told)
        elif leader is not None and self.host.link_version(leader) >= TRACES_SINCE:
            self.host.send(leader, messages.encode(told))

    def _on_traced(self, node: str, message: messages.TracedSubmission, rest: memoryview) -> None:
        size = len(message.contexts)
        if not size or size % _BYTES or size > CONTEXTS_MAX * _BYTES:
            raise messages.MalformedPeerMessage(f"from {node}: {size} bytes of trace contexts")
        self._follow(node, message)

    def _follow(self, node: str, told: messages.TracedSubmission) -> None:
        if len(self._replicating) >= REPLICATING_MAX:
            self._replicating.popitem(last=False)
        now_ns = self._tracing.now_ns()
        self._replicating[told.uplink, told.group, told.seq] = _Replicating(told, node, now_ns)

    def reply_to(self, group: int, index: int, reply: SubmissionReply) -> bool:
        """See `Cluster`; a submission that is followed has been replicated."""
        if self._replicating and not reply.expected_seq:
            one = self._replicating.pop((reply.uplink, group, reply.seq), None)
            if one is not None:
                self._replicated(one, index)
        return super().reply_to(group, index, reply)

    def _replicated(self, one: _Replicating, index: int) -> None:
        tracing, told = self._tracing, one.told
        end_ns, queue = tracing.now_ns(), shown(told.queue)
        facts = message_facts("replicate", "send", queue)
        facts |= {"warren.raft.group": told.group, "warren.raft.index": index}
        facts["warren.publisher.node"] = one.node
        for at in range(0, len(told.contexts), _BYTES):
            if not tracing.take():
                return
            trace_id = told.contexts[at : at + TRACE_ID_BYTES]
            around = told.contexts[at + TRACE_ID_BYTES : at + _BYTES]
            context = tracing.new_context(trace_id)
            times = (one.start_ns, end_ns)
            tracing.record(Span(f"replicate {queue}", "INTERNAL", context, around, *times, facts))
