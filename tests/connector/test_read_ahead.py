"""The slices of a task are requested at once, and read as one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from spark_world.fake import FakeBroker, FakeClient

from pyspark_warren.claims.plan import GivenUp, Slice
from pyspark_warren.claims.reader import read_task
from pyspark_warren.errors import BrokerRefusedError, ClaimLostError
from pyspark_warren.options.options import Options, parse_options
from pyspark_warren.rows.decode import ARROW_TYPES
from warren.claims import ClaimSlice, FetchedBlock
from warren_wire.queue_values.give_up_command import Way

SCHEMA = pa.schema([pa.field(name, ARROW_TYPES[name]) for name in ("body", "queue")])
QUEUES = 12
MESSAGES = 900
"""More than one piece of the fake broker."""


class Client(FakeClient):
    """Notes what was requested at once."""

    def __init__(self, call: Any) -> None:
        super().__init__(call)
        self.at_once: list[int] = []

    def fetch_slices(
        self, slices: Sequence[ClaimSlice], areas: int
    ) -> Iterator[tuple[int, FetchedBlock]]:
        if len(slices) > 1:
            self.at_once.append(len(slices))
        return super().fetch_slices(slices, areas)


class World:
    """Queues with an open claim each."""

    def __init__(self) -> None:
        self.broker = FakeBroker()
        self.client = Client(lambda name, *args: getattr(self.broker, name)(*args))
        self.parts = []
        for number in range(QUEUES):
            name = f"q{number}"
            count = MESSAGES if number % 3 == 0 else 1 + number
            self.broker.declare(name)
            self.broker.publish(name, [b"%d %d" % (number, i) for i in range(count)])
            reader = self.client.reader(name, "r")
            reader.register()
            reader.open(1, max_messages=count, max_bytes=1 << 30)
            self.parts.append(Slice(name, "r", 1, 0, count))

    def options(self, **more: str) -> Options:
        return parse_options({"queuePattern": "^q", **more}, "read")

    def task(self, parts: Sequence[Slice] | None = None, **more: str) -> list[dict[str, Any]]:
        chosen = self.parts if parts is None else parts
        found = read_task(lambda _: self.client, self.options(**more), chosen, SCHEMA)
        return [row for rows in found for row in rows.to_pylist()]

    def one_by_one(self, **more: str) -> list[dict[str, Any]]:
        return [
            row
            for part in self.parts
            for rows in read_task(lambda _: self.client, self.options(**more), [part], SCHEMA)
            for row in rows.to_pylist()
        ]


def test_a_task_has_the_rows_of_its_slices_in_their_order() -> None:
    world = World()
    assert world.task() == world.one_by_one()
    assert world.client.at_once == [QUEUES]
    assert world.task(world.parts[:1]) == world.one_by_one()[:MESSAGES]
    assert world.task([]) == []
    assert world.client.at_once == [QUEUES]


def test_a_filter_keeps_the_same_rows() -> None:
    world = World()
    assert world.task(filter="n = 1") == []
    kept = world.task(filter="n IS NULL")
    assert kept == world.one_by_one(filter="n IS NULL") == world.one_by_one()
    assert world.client.at_once == [QUEUES] * 2


@pytest.mark.parametrize("lost", [0, 4, 5, QUEUES - 1])
def test_a_lost_claim_is_named_or_skipped_and_the_others_are_read(lost: int) -> None:
    world = World()
    expected = [row for row in world.one_by_one() if row["queue"] != f"q{lost}"]
    world.broker.release_claims(f"q{lost}")
    with pytest.raises(ClaimLostError, match=f"queue 'q{lost}'"):
        world.task()
    assert world.task(onClaimLost="continue") == expected


def test_two_lost_claims_are_skipped() -> None:
    world = World()
    for name in ("q4", "q5"):
        world.broker.release_claims(name)
    rows = world.task(onClaimLost="continue")
    assert {row["queue"] for row in rows} == {f"q{n}" for n in range(QUEUES)} - {"q4", "q5"}


def test_a_claim_that_is_shorter_than_its_slice_is_named() -> None:
    world = World()
    part = world.parts[5]
    world.parts[5] = Slice(part.queue, "r", 1, 0, part.last + 1)
    with pytest.raises(BrokerRefusedError, match="queue 'q5' .*6 messages came instead of 7"):
        world.task()


def test_a_slice_that_is_given_up_is_not_fetched() -> None:
    world = World()
    given_up: list[str] = []
    world.client.give_up = (  # type: ignore[method-assign]
        lambda queue, *_: given_up.append(queue)
    )
    way: Way = "reject"
    world.parts[4] = Slice("q4", "r", 1, 0, 5, given_up=GivenUp(way, 1, False, 1))
    rows = world.task()
    assert given_up == ["q4"] and world.client.at_once == [4, QUEUES - 5]
    assert {row["queue"] for row in rows} == {f"q{n}" for n in range(QUEUES)} - {"q4"}
