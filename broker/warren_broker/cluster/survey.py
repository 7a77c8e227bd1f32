"""One question to several nodes, and the answers of those that give one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
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
        question: Callable[..., messages.AnyPeerMessage],
        answer: type[messages.Numbered],
    ) -> None:
        self._cluster = cluster
        self._question = question
        self._timeouts = RequestTimeouts(cluster.loop, SURVEY_PATIENCE_MS)
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
