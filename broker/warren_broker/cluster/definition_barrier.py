"""A barrier: wait until the reachable nodes have applied a definition.

1. A client declares a queue on one node.  2. Another client, connected to another node, learns of
it.  3. That client publishes: if its node does not know the queue yet, the message is unroutable
and is confirmed as such.  So a declaration is answered when every reachable node has applied it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from warren_broker.cluster import messages
from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.request_timeouts import RequestTimeouts

BARRIER_PATIENCE_MS = 500
"""A node that hangs delays a declaration this long; a suspected one does not delay it."""


@dataclass(slots=True)
class _Waiting:
    missing: dict[str, None]
    call: Callable[[], None]


class DefinitionBarrier:
    """Asks other nodes what they have applied, and answers the same question from them.

    applied  this node's applied index in the metadata group
    """

    def __init__(self, cluster: Cluster, applied: Callable[[], int]) -> None:
        self._cluster = cluster
        self._applied = applied
        self._timeouts = RequestTimeouts(cluster.loop, BARRIER_PATIENCE_MS)
        self._waiting: dict[int, _Waiting] = {}
        self._asked: list[tuple[str, messages.HaveYouSeen]] = []
        cluster.handlers[messages.HaveYouSeen] = self._on_asked
        cluster.handlers[messages.HasSeen] = self._on_seen
        cluster.on_peer_down.append(self._peer_down)
        cluster.on_peer_suspected.append(self._peer_silent)

    def call_when_seen(self, nodes: Iterable[str], index: int, call: Callable[[], None]) -> None:
        """Call back when each of these nodes has applied `index`, disconnected, or timed out."""
        number = self._timeouts.add(lambda: self._finish(number))
        question = messages.encode(messages.HaveYouSeen(number, index))
        host = self._cluster.host
        missing = {node: None for node in nodes if host.send(node, list(question))}
        self._waiting[number] = _Waiting(missing, call)
        if not missing:
            self._finish(number)

    def _finish(self, number: int) -> None:
        self._timeouts.answered(number)
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            waiting.call()

    def _on_seen(self, node: str, message: messages.HasSeen, rest: memoryview) -> None:
        self._told(node, message.request)

    def _told(self, node: str, number: int) -> None:
        waiting = self._waiting.get(number)
        if waiting is not None:
            waiting.missing.pop(node, None)
            if not waiting.missing:
                self._finish(number)

    def _peer_down(self, node: str) -> None:
        self._asked = [asked for asked in self._asked if asked[0] != node]
        self._peer_silent(node)

    def _peer_silent(self, node: str) -> None:
        for number in list(self._waiting):
            self._told(node, number)

    # ------------------------------------------------------------ others wait for this node

    def _on_asked(self, node: str, message: messages.HaveYouSeen, rest: memoryview) -> None:
        self._asked.append((node, message))
        self.answer()

    def answer(self) -> None:
        """Answer the waiting questions for indexes that this node has applied by now."""
        if not self._asked:
            return
        applied = self._applied()
        asked, self._asked = self._asked, []
        for node, message in asked:
            if message.index <= applied:
                self._cluster.host.send(node, messages.encode(messages.HasSeen(message.request)))
            else:
                self._asked.append((node, message))
