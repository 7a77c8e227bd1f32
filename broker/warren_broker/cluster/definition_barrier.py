"""A barrier: wait until the reachable nodes have applied a definition.

1. A client declares a queue on one node.  2. Another client, connected to another node, learns of
it.  3. That client publishes: if its node does not know the queue yet, the message is unroutable
and is confirmed as such.  So a declaration is answered when every reachable node has applied it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from warren_broker.cluster import messages
from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.survey import Survey


class DefinitionBarrier:
    """Asks other nodes what they have applied, and answers the same question from them.

    applied  this node's applied index in the metadata group
    """

    def __init__(self, cluster: Cluster, applied: Callable[[], int]) -> None:
        self._cluster = cluster
        self._applied = applied
        self._survey = Survey(cluster, messages.HaveYouSeen, messages.HasSeen)
        self._asked: list[tuple[str, messages.HaveYouSeen]] = []
        cluster.handlers[messages.HaveYouSeen] = self._on_asked
        cluster.on_peer_down.append(self._peer_down)

    def call_when_seen(self, nodes: Iterable[str], index: int, call: Callable[[], None]) -> None:
        """Call back when each of these nodes has applied `index`, disconnected, or timed out."""
        self._survey.ask(nodes, lambda answers: call(), index)

    def _peer_down(self, node: str) -> None:
        self._asked = [asked for asked in self._asked if asked[0] != node]

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
