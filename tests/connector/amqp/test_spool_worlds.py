"""The spool, in random lives of drivers, receivers, broker and disk; and bugs that these find."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from pyspark_warren.errors import WarrenSparkError
from pyspark_warren.spool import lane, recognise
from pyspark_warren.spool.files import LaneFolder
from pyspark_warren.spool.lane import LaneWriter
from pyspark_warren.spool.layout import Roster
from pyspark_warren.spool.recognise import RowMemory
from tests.connector.amqp.spool_world import EqualMessages, Faults, World

SEEDS = range(25)
PLANT_SEEDS = range(150)
SOUND = Faults()


@pytest.mark.parametrize("seed", SEEDS)
def test_no_message_is_lost_or_doubled(seed: int) -> None:
    World(seed).run()


@pytest.mark.parametrize("seed", SEEDS)
def test_nor_where_the_broker_marks_nothing(seed: int) -> None:
    World(seed, marks=False).run()


def test_a_receiver_that_believes_such_a_broker_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RowMemory, "_match_unmarked", lambda *_: None)
    with pytest.raises(AssertionError):
        for seed in PLANT_SEEDS:
            World(seed, marks=False).run()


@pytest.mark.parametrize("counts", [False, True], ids=["classic", "quorum"])
@pytest.mark.parametrize("seed", SEEDS)
def test_equal_messages_that_others_looked_at_have_a_row_each(seed: int, counts: bool) -> None:
    """A message that equals the only row and was looked at was acknowledged without a row."""
    EqualMessages(seed, counts).run()


@pytest.mark.parametrize("counts", [False, True], ids=["classic", "quorum"])
def test_a_receiver_that_does_not_know_its_broker_takes_equal_messages_for_one(
    counts: bool,
) -> None:
    with pytest.raises(AssertionError):
        for seed in PLANT_SEEDS:
            EqualMessages(seed, counts, known=False).run()


def found(faults: Faults = SOUND) -> bool:
    """Whether a world finds what is wrong."""
    for seed in PLANT_SEEDS:
        try:
            World(seed, faults).run()
        except (AssertionError, WarrenSparkError):
            return True
    return False


def nothing(*arguments: object, **more: object) -> None:
    """What a program does that forgets it."""


def unchecked(*places: str) -> Callable[..., None]:
    """`lane._check_owner` without the checks in these functions."""
    check = lane._check_owner

    def checking(folder: Any, epoch: Any) -> None:
        if sys._getframe(1).f_code.co_name not in places:
            check(folder, epoch)

    return checking


def every_file_valid(real: Any) -> Callable[..., Any]:
    """`LaneFolder._valid` with a roster that names whatever is there."""

    def valid(self: LaneFolder, listing: Any, roster: Any) -> Any:
        if roster is not None:
            names = tuple(listing.sizes)
            roster = Roster(roster.epoch, roster.start, roster.settled, names)
        return real(self, listing, roster)

    return valid


def only_due(self: RowMemory, identity: bytes, session: int, counts: object) -> int | None:
    """`RowMemory.match` for rows of ended sessions only."""
    row = self._due(identity, self._indexed_rows().get(identity, []))
    if row is not None:
        self._held[row] = session
    return row


def unmarked(real: Any) -> Callable[..., None]:
    """`LaneWriter._mark` that writes the mark after the files are gone: here, never."""

    def mark(self: LaneWriter, position: int) -> None:
        self._marks.append(lane.SpoolFile(position, 0, self._epoch, "settled"))

    return mark


PLANTS: dict[str, tuple[object, str, Any]] = {
    "acknowledged without a look at the claims": (lane, "_check_owner", unchecked("_append")),
    "files removed without a look at the claims": (lane, "_check_owner", unchecked("settle")),
    "files removed without a mark": (LaneWriter, "_mark", unmarked(LaneWriter._mark)),
    "files valid that are on no roster": (
        LaneFolder,
        "_valid",
        every_file_valid(LaneFolder._valid),
    ),
    "identities of earlier rows not read": (LaneWriter, "_remember", nothing),
    "rows of live sessions not recognised": (RowMemory, "match", only_due),
    "unmarked repeats not recognised": (RowMemory, "match_first", nothing),
    "rows of ended sessions forgotten": (recognise, "_PINNED_PER_KEPT", 0),
    "torn files kept": (lane, "_without_torn", lambda folder, files, use: files),
}


@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(plant, marks=pytest.mark.long if plant == "torn files kept" else ())
        for plant in PLANTS
    ],
)
def test_the_worlds_find(plant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, replacement = PLANTS[plant]
    monkeypatch.setattr(where, name, replacement)
    assert found(), plant


@pytest.mark.parametrize(
    "faults", [Faults(acknowledges_first=True), Faults(takes_after_end=True)], ids=str
)
def test_the_worlds_find_a_receiver_that(faults: Faults) -> None:
    assert found(faults), faults
