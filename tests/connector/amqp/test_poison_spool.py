"""isolatePoison and onBatchFailure with a spool: any messages, ends of the driver at any step."""

from __future__ import annotations

import logging
from random import Random
from typing import Any

import pytest

from connector.amqp.poison_world import PoisonSpoolWorld
from pyspark_warren.errors import OptionError
from pyspark_warren.spool.giving_up import Tried, Tries, give_up, given_up_file
from pyspark_warren.spool.receiver_process import Unacknowledged
from pyspark_warren.spool.search import NO_SEARCH, Decided, DecidedRows, Part, Search


def one_batch(patch: pytest.MonkeyPatch, count: int, *bad: int, **more: Any) -> PoisonSpoolWorld:
    world = PoisonSpoolWorld(patch, **more)
    world.put(count, bad)
    return world


def test_one_message_of_a_hundred_is_dead_lettered_in_few_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = one_batch(monkeypatch, 100, 37)
    world.until_done()
    world.check()
    assert world.rows() == [b"%d" % at for at in range(100) if at != 37]
    # 3 tries of the batch, one each of its parts of 50, 25, 13, 6, 3 and 1 messages, and 3 of the
    # message alone.
    assert world.failures == 3 + 6 + 3
    assert world.backlog["given_up"]["way"] == "reject"
    assert world.backlog["given_up"]["position"] == "(index 37, ordinal 0)"
    assert world.backlog["given_up"]["tries"] == 3


@pytest.mark.parametrize("bad", [(0,), (99,), (98, 10), (0, 1, 2), (49, 50), (5, 25, 45, 65, 85)])
@pytest.mark.parametrize("prefetch", ["100", "1000"])
def test_wherever_the_messages_are(
    monkeypatch: pytest.MonkeyPatch, bad: tuple[int, ...], prefetch: str
) -> None:
    world = one_batch(monkeypatch, 100, *bad, batchTriesMax="1", prefetch=prefetch)
    world.until_done()
    world.check()


def test_messages_at_fault_at_the_end_leave_room_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They wait until another one passes, and the prefetch is full of what was in their batch."""
    world = one_batch(monkeypatch, 20, 18, 19, batchTriesMax="1", prefetch="20")
    world.until_done()
    assert not world.dead()
    world.put(1)
    world.until_done()
    world.check()


def test_messages_that_wait_and_take_the_whole_prefetch_stopped_the_query_without_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing that could pass behind them is delivered."""
    world = one_batch(monkeypatch, 10, 4, 5, 6, 7, 8, 9, batchTriesMax="1", prefetch="3")
    with pytest.raises(OptionError, match=r"prefetch=3 .* 3 messages .* a prefetch above 3"):
        world.until_done()
    world.given["prefetch"] = "4"
    with pytest.raises(OptionError, match=r"prefetch=4 .* 4 messages .* a prefetch above 4"):
        world.until_done()
    world.given["prefetch"] = "20"
    world.until_done()
    world.put(1)
    world.until_done()
    world.check()


def test_a_smaller_prefetch_amid_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    world = one_batch(monkeypatch, 4, 1, 2, 3, batchTriesMax="1", prefetch="11")
    world.until_done()
    world.put(5)
    world.given["prefetch"] = "3"
    with pytest.raises(OptionError, match="prefetch=3"):
        world.run()
    world.given["prefetch"] = "11"
    world.until_done()
    world.check()


@pytest.mark.parametrize(
    ("bad", "tries", "every"),
    [((2,), 2, 3), pytest.param((2,), 1, 1, marks=pytest.mark.long), ((1, 3), 1, 7)],
    ids=str,
)
def test_a_driver_that_ends_at_any_step_of_the_search(
    monkeypatch: pytest.MonkeyPatch, bad: tuple[int, ...], tries: int, every: int
) -> None:
    """At every step of the store, the broker and Spark's logs, or at each `every`-th."""
    given = {"batchTriesMax": str(tries)}
    whole = one_batch(monkeypatch, 5, *bad, **given)
    whole.until_done()
    for at in range(whole.runs):
        dies_in, died = 0, True
        while died:
            world = one_batch(monkeypatch, 5, *bad, **given)
            for _ in range(at):
                world.run()
            failures = world.failures
            died = not world.run(dies_in) and world.failures == failures
            world.until_done()
            world.put(1)  # the last two messages may wait for it
            world.until_done()
            world.check()
            dies_in += every


def test_a_whole_batch_is_rejected_and_the_next_ones_are_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"isolatePoison": "false", "batchTriesMax": "2", "maxMessagesPerTrigger": "10"}
    world = one_batch(monkeypatch, 40, 13, failuresInRowMax="1", **options)
    world.until_done()
    assert world.dead() == [b"%d" % at for at in range(10, 20)]
    assert len(world.rows()) == 30 and not world.broker.held()
    world = one_batch(monkeypatch, 100, failuresInRowMax="3", **options)
    world.down = True
    for _ in range(60):
        assert not world.run()
    assert len(world.dead()) == 30, "three batches in a row, and no more"
    said = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "3 messages alone, or batches, of reader" in said[-1].getMessage()
    world.down = False
    world.until_done()
    assert len(world.rows()) == 70 and not world.broker.held()


def test_released_messages_come_back_as_new_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    world = one_batch(monkeypatch, 20, 7, onBatchFailure="release", batchTriesMax="1")
    for _ in range(30):
        world.run()
    assert not world.dead() and [each.body for each in world.broker.ready] == [b"7"]
    assert sorted(map(int, world.rows())) == [at for at in range(20) if at != 7]
    world.poison.clear()  # mended
    world.put(1)
    world.until_done()
    world.check()


def test_a_whole_batch_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    world = one_batch(
        monkeypatch, 20, 7, onBatchFailure="release", isolatePoison="false", batchTriesMax="2"
    )
    for _ in range(3):
        assert not world.run()
    assert world.backlog["given_up"]["way"] == "release"
    assert len(world.broker.ready) == 20 and not world.rows()
    world.poison.clear()
    world.until_done()
    world.check()


def test_a_sink_that_is_down_rejects_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = one_batch(monkeypatch, 100, batchTriesMax="2", failuresInRowMax="4")
    world.down = True
    for _ in range(60):
        assert not world.run()
    assert not world.dead() and not world.rows()
    said = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert said and "4 messages alone, or batches" in said[-1].getMessage()
    world.down = False
    world.until_done()
    world.check()


def test_another_option_at_the_next_start_continues_what_was_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = one_batch(monkeypatch, 64, 9, batchTriesMax="1")
    for _ in range(4):
        world.run()
    isolating = world.given
    names = ("queue", "broker", "spoolLocation")
    world.given = {name: isolating[name] for name in names}
    for _ in range(5):
        assert not world.run()
    assert not world.dead()
    world.given = isolating
    world.until_done()
    world.check()


def test_messages_that_are_equal_and_have_no_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that passed are acknowledged: what is delivered again is not taken for one of them."""
    world = PoisonSpoolWorld(monkeypatch, batchTriesMax="1")
    world.with_ids = False
    world.put(12, (5,))
    world.until_done()
    world.check()


def test_what_a_task_of_an_earlier_try_says_late_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its batch was planned with its rows since; they may be written."""
    place = PoisonSpoolWorld(monkeypatch).place
    tries = Tries(place, "r")
    tries.note("12-0", 1)
    late = given_up_file("12-0", 1, "divide", 4)
    tries.note("12-0", 2)
    give_up(place, "r", late)
    assert tries.of("12-0") == Tried(2, None, 0)
    give_up(place, "r", given_up_file("12-0", 2, "reject", 4))
    assert tries.of("12-0") == Tried(2, "reject", 4)
    tries.keep_only("12-1")
    assert tries.of("12-0") == Tried()


def test_the_mode_of_acknowledgement_stays_until_the_search_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = one_batch(monkeypatch, 8, 3, batchTriesMax="1")
    for _ in range(3):
        world.run()
    searching = world.given
    world.given = {name: searching[name] for name in ("queue", "broker", "spoolLocation")}
    world.given["ackMode"] = "spool"
    bad, world.poison = world.poison, set()
    with pytest.raises(OptionError, match="searches for messages at fault.*ackMode=commit until"):
        world.run()
    world.poison = bad - set(world.rows())
    world.given = searching
    world.until_done()
    world.check()


def test_decisions_leave_out_what_waits_and_what_was_given_up() -> None:
    waits = (Part(30, 40, 1), Part(10, 11, 2))
    search = Search(3, None, waits, 1, True, (Decided(2, 4, "reject"), Decided(20, 21, "release")))
    assert search.settled(50) == 10
    assert search.decisions(50) == (
        Decided(2, 4, "reject"),
        Decided(11, 20, "passed"),
        Decided(20, 21, "release"),
        Decided(21, 30, "passed"),
        Decided(40, 50, "passed"),
    )
    assert NO_SEARCH.decisions(50) == ()


def test_deliveries_of_decided_rows_are_cut_out_of_the_others() -> None:
    held = Unacknowledged()
    held.add(range(1, 11), range(100, 110))
    held.add([11, 12], [50, 51])
    decided = DecidedRows([(51, 52, "reject"), (102, 104, "passed"), (109, 200, "release")])
    assert held.pop_decided(decided) == [(3, 2, "passed"), (10, 1, "release"), (12, 1, "reject")]
    assert held.count == 8
    assert held.pop_until(60) == 0, "a row that waits was delivered before"
    assert held.pop_decided(DecidedRows([(0, 60, "passed")])) == [(11, 1, "passed")]
    assert held.pop_until(200) == 9 and held.count == 0


@pytest.mark.parametrize("seed", range(40))
def test_any_messages_and_any_ends(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """The messages that are dead-lettered are those at fault; the others are written once.

    A run is ended by force at most batchTriesMax times: more can look like a message's fault.
    """
    random = Random(seed)
    tries = random.randint(1, 3)
    world = PoisonSpoolWorld(
        monkeypatch,
        seed,
        batchTriesMax=str(tries),
        maxMessagesPerTrigger=str(random.choice((1, 7, 30, 500))),
        failuresInRowMax="1000",
        prefetch=str(random.choice((5, 60, 1000))),
    )
    for _ in range(random.randint(1, 4)):
        count = random.randint(1, 60)
        world.put(count, random.sample(range(count), random.randint(0, min(count, 4))))
    kills = tries
    for _ in range(400):
        dies_in = 1 << 40
        if kills and random.random() < 0.3:
            dies_in, kills = random.randint(0, 200), kills - 1
        if world.run(dies_in) and not kills:
            break
    for _ in range(2):  # what waits for another message that passes
        world.put(1)
        world.until_done()
    world.check()
