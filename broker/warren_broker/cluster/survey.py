"""One question to several nodes, and the answers of those that give one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, TypeAlias

from warren_broker.cluster import messages
from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.request_timeouts import RequestTimeouts

SURVEY_PATIENCE_MS = 500
"""A node that hangs delays the result this long; a suspected one does not delay it."""

Answers: TypeAlias = dict[str, Any]
"""The answer of each node that gave one; the others are missing."""


@dataclass(slots=True)
class _Waiting:
    missing: dict[str, None]
    call: Callable[[Answers], None]
    answers: Answers = field(default_factory=dict)


class Survey:
    """Questions of one kind to other nodes.

    question  makes the message from its number; answer: the type of the messages that answer it
    """

    def __init__(
        self,
        cluster: Cluster,
        question: Callable[..., messages.PeerMessage],
        answer: type[messages.Numbered],
        patience_ms: int = SURVEY_PATIENCE_MS,
    ) -> None:
        self._cluster = cluster
        self._question = question
        self._timeouts = RequestTimeouts(cluster.loop, patience_ms)
        self._waiting: dict[int, _Waiting] = {}
        cluster.handlers[answer] = self._on_answer
        cluster.on_peer_down.append(self._peer_silent)
        cluster.on_peer_suspected.append(self._peer_silent)

    def ask(self, nodes: Iterable[str], call: Callable[[Answers], None], *values: Any) -> None:
        """Call back when each node has answered, disconnected, is suspected or timed out.

        values  of the question
        """
        number = self._timeouts.add(lambda: self._finish(number))
        question = messages.encode(self._question(number, *values))
        host = self._cluster.host
        missing = {node: None for node in nodes if host.send(node, list(question))}
        self._waiting[number] = _Waiting(missing, call)
        if not missing:
            self._finish(number)

    def _finish(self, number: int) -> None:
        self._timeouts.answered(number)
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            waiting.call(waiting.answers)

    def _on_answer(self, node: str, message: messages.Numbered, rest: memoryview) -> None:
        waiting = self._waiting.get(message.request)
        if waiting is not None and node in waiting.missing:
            waiting.answers[node] = message
            self._told(node, message.request)

    def _told(self, node: str, number: int) -> None:
        waiting = self._waiting.get(number)
        if waiting is not None:
            waiting.missing.pop(node, None)
            if not waiting.missing:
                self._finish(number)

    def _peer_silent(self, node: str) -> None:
        for number in list(self._waiting):
            self._told(node, number)


class DefinitionBarrier:
    """Waits until the reachable nodes have applied a definition; answers them the same question.

    1. A client declares a queue on one node.  2. Another client, connected to another node, learns
    of it.  3. That client publishes: if its node does not know the queue yet, the message is
    unroutable and is confirmed as such.  So a declaration is answered when every reachable node has
    applied it.

    applied  this node's applied index in the metadata group
    _asked   (index, number, node, request) of questions for indexes that are not, a heap: a client
             may have thousands of declarations under way
    """

    def __init__(self, cluster: Cluster, applied: Callable[[], int]) -> None:
        self._cluster = cluster
        self._applied = applied
        self._survey = Survey(cluster, messages.HaveYouSeen, messages.HasSeen)
        self._asked: list[tuple[int, int, str, int]] = []
        self._numbers = count()
        cluster.handlers[messages.HaveYouSeen] = self._on_asked
        cluster.on_peer_down.append(self._peer_down)

    def call_when_seen(
        self, nodes: Iterable[str], index: int, call: Callable[[Answers], None]
    ) -> None:
        """Call back when each of these nodes has applied `index`, disconnected, or timed out.

        A node answers when it has started and stopped its members by it.
        """
        self._survey.ask(nodes, call, index)

    def _peer_down(self, node: str) -> None:
        self._asked = [asked for asked in self._asked if asked[2] != node]
        heapify(self._asked)

    def _on_asked(self, node: str, message: messages.HaveYouSeen, rest: memoryview) -> None:
        heappush(self._asked, (message.index, next(self._numbers), node, message.request))
        self.answer()

    def answer(self) -> None:
        """Answer the waiting questions for indexes that this node has applied by now."""
        if not self._asked:
            return
        applied = self._applied()
        while self._asked and self._asked[0][0] <= applied:
            _, _, node, request = heappop(self._asked)
            self._cluster.host.send(node, messages.encode(messages.HasSeen(request)))
