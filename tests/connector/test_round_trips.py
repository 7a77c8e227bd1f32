"""What a micro-batch costs the queue: one request settles it and opens the next one's claim."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from spark_world import fake
from spark_world.fake_reader import FakeReader
from spark_world.offsets import only

from connector.test_driver import World, first_batch, started, with_messages
from pyspark_warren.errors import ClaimLostError
from warren import Admin
from warren import errors as client_errors
from warren.claims import Claim, ClaimReader, ReaderStep, StepTaken, take_steps
from warren.local import LocalCluster
from warren.outgoing import SEND_WINDOW_BYTES, BlockSender
from warren_wire.block.block import encode


class Counted(FakeReader):
    """A reader that notes its round trips."""

    trips: ClassVar[list[str]] = []

    def settle_and_open(self, number: int, **limits: Any) -> tuple[int, Claim | None]:
        self.trips.append("settle and open")
        before = len(self.trips)
        both = super().settle_and_open(number, **limits)
        del self.trips[before:]
        return both

    def open(self, number: int, **limits: Any) -> Claim:
        self.trips.append("open")
        return super().open(number, **limits)

    def settle(self, number: int) -> int:
        self.trips.append("settle")
        return super().settle(number)


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The requests of claims, as they are made."""
    monkeypatch.setattr(fake, "FakeReader", Counted)
    Counted.trips.clear()
    yield Counted.trips


def test_a_batch_costs_one_round_trip_to_the_queue(trips: list[str]) -> None:
    world = with_messages(35)
    driver = world.driver()
    at = started(world, driver)
    for _ in range(4):
        start, at = at, driver.latest(at, 10)
        driver.plan(start, at)
        assert list(world.state["claims"]["r1"]) == [only(at).number]  # of one batch, never more
        driver.settle(start)  # commit(end) comes late
    assert trips == ["open", *["settle and open"] * 3]
    assert driver.latest(at, 10) is at  # and finds nothing
    assert trips[4:] == ["settle and open"] and world.state["acknowledged"] == 35
    assert driver.latest(at, 10) is at
    assert len(trips) == 5


@pytest.mark.parametrize("options", [{"minMessagesPerTrigger": "8"}, {}])
def test_what_is_committed_is_settled_although_the_next_claim_must_wait(
    trips: list[str], options: dict[str, str]
) -> None:
    world = World(**options)
    driver, _, end = first_batch(world, 10)
    if not options:  # availableNow has read what was there
        driver.prepare_available_now()
    world.publish(3)
    assert driver.latest(end, 10) is end
    assert trips[1:] == ["settle"] and world.state["acknowledged"] == 10


def test_an_open_that_overtook_its_settlement_is_repeated(
    trips: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    driver, _, end = first_batch(world, 25)

    def overtaken(reader: FakeReader, number: int, **limits: Any) -> tuple[int, None]:
        with pytest.raises(client_errors.ClaimLost):
            FakeReader.open(reader, number + 1, **limits)  # which the machine refuses, too
        return FakeReader.settle(reader, number - 1), None

    monkeypatch.setattr(Counted, "settle_and_open", overtaken)
    assert only(driver.latest(end, 10)).claims[0].messages == 10
    assert trips == ["open", "open"] and world.state["acknowledged"] == 10


def test_a_claim_lost_between_its_settlement_and_the_next_one_is_not_told_as_doubled() -> None:
    world = World()
    driver, _, end = first_batch(world, 25)
    driver.settle(end)
    opened = world.driver()
    opened.latest(end, 10)
    world.broker.release_claims("q")
    with pytest.raises(ClaimLostError) as told:
        world.driver().latest(end, 10)
    assert "second time" not in str(told.value)


@pytest.mark.live
def test_settling_and_opening_at_once_are_one_entry_of_the_log(cluster: LocalCluster) -> None:
    batches = 40
    with cluster.connect() as connection:
        admin = Admin(connection)
        admin.queues.declare("rounds")
        sender = BlockSender.to_exchange(
            connection, "", window_bytes=SEND_WINDOW_BYTES, timeout_s=120
        )
        sender.send(encode([b"row"] * batches, [b"\0\0"] * batches, (b"", b"rounds")))
        sender.flush()
        sender.close()
        reader = ClaimReader(connection, "rounds", "r")
        at = reader.register().settled + 1
        assert reader.open(at, max_messages=1, max_bytes=100).messages == 1
        before = admin.members.get("rounds").last_index
        for number in range(at + 1, at + batches):
            step = ReaderStep("rounds", "r", reader.registered_epoch(), number - 1, number, 1, 100)
            (taken,) = take_steps(connection, [step])
            assert isinstance(taken, StepTaken), taken
            assert taken.claim is not None and (taken.messages, taken.claim.messages) == (1, 1)
        # A request that the node reads a moment after the other one is an entry of its own.
        assert admin.members.get("rounds").last_index - before < 2 * (batches - 1)
        assert reader.settle(at + batches - 1) == 1
        admin.queues.delete("rounds")
