"""What nodes ask each other about declarations costs a sum of steps, whatever waits."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tests.line_steps import growth
from warren_broker.cluster import messages
from warren_broker.cluster.survey import DefinitionBarrier


def waiting(count: int) -> Callable[[], object]:
    """A node that is asked for so many indexes it has not applied, and then applies them."""
    sent: list[str] = []
    node = SimpleNamespace(
        loop=SimpleNamespace(now_ms=0, call_later=lambda *_: None),
        handlers={},
        on_peer_down=[],
        on_peer_suspected=[],
        host=SimpleNamespace(send=lambda node, buffers: sent.append(node)),
    )
    applied = [0]
    barrier = DefinitionBarrier(node, lambda: applied[0])  # type: ignore[arg-type]
    ask: Any = node.handlers[messages.HaveYouSeen]

    def asked() -> None:
        for index in range(1, count + 1):
            ask("b", messages.HaveYouSeen(index, index), memoryview(b""))
        for applied[0] in range(1, count + 1):
            barrier.answer()
            assert len(sent) == applied[0]

    return asked


def test_questions_that_wait_are_not_looked_through() -> None:
    """Before: all of them for each question, and for each definition that is applied."""
    assert growth(waiting, 200) < 2.5
