"""Requests of the administration about one node, which another node is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from warren_broker.cluster import messages
from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.request_timeouts import RequestTimeouts
from warren_broker.cluster.survey import Answers, Survey
from warren_wire.admin.requests import AnyAdminRequest

SINCE: Final = 2
"""The version of a link from which on a peer knows the question."""
QUESTION_PATIENCE_MS: Final = 5_000
"""How long a node may take, which may look into files for the answer."""
Told: TypeAlias = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class _Known:
    """A type of request; answering: called with the request, and what to call with the answer."""

    kind: type[AnyAdminRequest]
    answer: Any
    answering: Callable[[Any, Told], None]


class NodeQuestions:
    """Asks nodes, this one included, and answers for this one.

    The rights of the user were checked by the node that asks. What a node does not know, as one of
    an earlier version, it does not answer.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[str, _Known] = {}
        self._survey = Survey(cluster, messages.AskNode, messages.NodeSays, QUESTION_PATIENCE_MS)
        self._timeouts = RequestTimeouts(cluster.loop, QUESTION_PATIENCE_MS)
        cluster.handlers[messages.AskNode] = self._on_ask

    def answers(
        self, kind: type[AnyAdminRequest], answer: Any, answering: Callable[[Any, Told], None]
    ) -> None:
        """Have this node answer requests of a type.

        answer     the type of the answers
        answering  calls what it is given once, on the loop's thread, soon or never
        """
        self._known[kind.__name__] = _Known(kind, answer, answering)

    def ask(self, request: AnyAdminRequest, nodes: Iterable[str], told: Told) -> None:
        """Call back with the answers of these nodes by name; those that give none are missing."""
        known, here = self._known[type(request).__name__], self._cluster.host.node_id
        others, found = [*nodes], dict[str, Any]()
        open_parts = 1 + (here in others)

        def ended() -> None:
            nonlocal open_parts
            open_parts -= 1
            if not open_parts:
                told(found)

        def from_others(answers: Answers) -> None:
            for node, says in answers.items():
                with suppress(msgspec.DecodeError):  # of a newer node: as if it gave none
                    found[node] = msgspec.msgpack.decode(says.answer, type=known.answer)
            ended()

        if here in others:
            others.remove(here)
            number = self._timeouts.add(ended)

            def own(answer: Any) -> None:
                if self._timeouts.answered(number):
                    found[here] = answer
                    ended()

            known.answering(request, own)
        asked = (type(request).__name__, msgspec.msgpack.encode(request))
        host = self._cluster.host
        knowing = [node for node in others if host.link_version(node) >= SINCE]
        self._survey.ask(knowing, from_others, *asked)

    def _on_ask(self, node: str, message: messages.AskNode, rest: memoryview) -> None:
        known = self._known.get(message.kind)
        if known is None:
            return

        def told(answer: Any) -> None:
            says = messages.NodeSays(message.request, msgspec.msgpack.encode(answer))
            self._cluster.host.send(node, messages.encode(says))

        try:
            request = msgspec.msgpack.decode(message.fields, type=known.kind)
        except msgspec.DecodeError:
            return  # of a newer node
        known.answering(request, told)
