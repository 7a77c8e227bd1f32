"""Questions about one node between nodes of different releases."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec

from warren_broker.cluster import messages
from warren_broker.cluster.node_questions import NodeQuestions
from warren_wire.admin.audit import FoundRecords, ListAuditRequest


class World:
    """Node a, and what it sends to its peer b."""

    def __init__(self) -> None:
        self.sent = list[bytes]()
        loop: Any = SimpleNamespace(
            now_ms=0, call_later=lambda ms, call: SimpleNamespace(cancel=lambda: None)
        )
        host = SimpleNamespace(node_id="a", link_version=lambda node: 2, send=self.send)
        cluster: Any = SimpleNamespace(
            loop=loop, host=host, handlers={}, on_peer_down=[], on_peer_suspected=[]
        )
        self.handlers: dict[type, Any] = cluster.handlers
        self.questions = NodeQuestions(cluster)
        self.asked = list[Any]()
        self.questions.answers(
            ListAuditRequest, FoundRecords, lambda request, told: self.asked.append(request)
        )

    def send(self, node: str, parts: list[bytes]) -> bool:
        self.sent += parts
        return True


def question(fields: bytes) -> messages.AskNode:
    return messages.AskNode(1, "ListAuditRequest", fields)


def test_a_question_of_a_newer_node_is_not_answered() -> None:
    world = World()
    for fields in (b"", b"\xc1", msgspec.msgpack.encode({"kind": "of the future"})):
        world.handlers[messages.AskNode]("b", question(fields), memoryview(b""))
    assert not world.asked and not world.sent
    world.handlers[messages.AskNode]("b", question(msgspec.msgpack.encode({})), memoryview(b""))
    assert world.asked == [ListAuditRequest()]


def test_an_answer_of_a_newer_node_is_missing() -> None:
    world, told = World(), list[Any]()
    for number, answer in enumerate((b"\xc1", msgspec.msgpack.encode({"records": ()})), 1):
        world.questions.ask(ListAuditRequest(), ["b"], told.append)
        world.handlers[messages.NodeSays]("b", messages.NodeSays(number, answer), memoryview(b""))
    assert told == [{}, {"b": FoundRecords(())}]
