"""A claim of many small blocks takes what it would take run by run."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.machines.queue.world import Queue
from warren_machines.queue.commands import Get, OpenClaim, RegisterReader, Return, SettleClaims
from warren_machines.queue.ready import limits

KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"kind": "classic"},
    {"kind": "classic", "priority_max": 9},
)


SEEDS = 12


def one_by_one(context: Any, count: int, size_bytes: int) -> tuple[list[Any], int]:
    """`limits.take_whole` that takes nothing: `take` does all of it."""
    return [], 0


def world(seed: int, settings: dict[str, Any]) -> tuple[list[Any], bytes]:
    """Fill, return and claim at random; give the claims' replies and the state at the end."""
    random = Random(seed)
    queue = Queue(stride=random.choice((1, 7)), **settings)
    queue.do(RegisterReader("r"))
    replies = []
    number = 0
    for _ in range(6):
        queue.checked = False
        for _ in range(random.randrange(40)):
            count = random.choice((1, 1, 1, 5))
            size: Any = random.choice((0, 10, 10, 50))
            if random.random() < 0.2:
                size = [random.randrange(SEEDS) for _ in range(count)]
            ttls = [90_000] * count if random.random() < 0.01 else None
            queue.put(count, size=size, priorities=random.choice((0, 4, 4, 4, 9)), ttls_ms=ttls)
        queue.checked = True
        for _ in range(random.randrange(4)):
            queue.do(Get(random.randrange(1, 1 << 30), 1))
        if random.random() < 0.5:
            queue.do(Return(1, ((0, 1 << 20),), True))
        number += 1
        most, most_bytes = random.choice((1, 7, 30, 1000)), random.choice((1, 100, 333, 10**6))
        reply = queue.do(OpenClaim("r", number, 1, most, most_bytes))
        replies.append(reply)
        if getattr(reply, "messages", 0):
            replies.append(queue.do(SettleClaims("r", number, 1)))
        else:
            number -= 1
    return replies, queue.digest()


@pytest.mark.parametrize("settings", KINDS, ids=("quorum", "classic", "priorities"))
def test_runs_taken_together_are_those_taken_one_by_one(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, few_pages_unpacked: None
) -> None:
    together = [world(seed, settings) for seed in range(SEEDS)]
    monkeypatch.setattr(limits, "take_whole", one_by_one)
    assert [world(seed, settings) for seed in range(SEEDS)] == together


def test_a_backlog_of_single_messages_is_not_taken_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # 50,000 messages that were published one at a time held the queue's leader for 0.2 s.
    queue = Queue()
    for _ in range(120):
        queue.put(1)
    queue.do(RegisterReader("r"))
    taken: list[int] = []
    take: Callable[..., Any] = limits.take

    def counted(context: Any, count: int, size_bytes: int = -1) -> Any:
        taken.append(count)
        return take(context, count, size_bytes)

    monkeypatch.setattr(limits, "take", counted)
    assert queue.do(OpenClaim("r", 1, 1, 100, 10**6)).messages == 100
    assert taken == []
    assert queue.do(OpenClaim("r", 1, 1, 100, 10**6)).messages == 100
