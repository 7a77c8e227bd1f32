"""isolatePoison and onBatchFailure=reject on the queue machine: any messages, ends at any step."""

from __future__ import annotations

import logging
from random import Random
from typing import Any

import pytest
from poison.run import parsed
from spark_world.poison import Name, PoisonWorld

from warren_machines.queue import commands as c

SINKS = ("file", "settling")


def one_block(count: int, *bad: int, sink: str = "file", **options: Any) -> PoisonWorld:
    world = PoisonWorld(sink, **options)
    world.put(count, bad)
    return world


def passed(world: PoisonWorld, count: int) -> None:
    """Everything but the messages at fault is in the output, once and in order."""
    world.check()
    good = [(1, at) for at in range(count) if (1, at) not in world.poison]
    assert world.rows() == good
    assert world.machine.stat().messages_claimed == world.machine.stat().messages_ready == 0


def test_one_message_of_a_hundred_is_dead_lettered_in_few_starts() -> None:
    world = one_block(100, 37)
    world.until_done()
    passed(world, 100)
    assert set(world.dead) == world.poison
    # 3 tries of the batch, one each of its parts of 50, 25, 13, 6, 3 and 1 messages, and 3 of the
    # message alone.
    assert world.failures == 3 + 6 + 3
    assert world.backlog["given_up"]["way"] == "reject"
    assert world.backlog["given_up"]["position"].startswith("(index 1, ordinal 37)")


@pytest.mark.parametrize("bad", [(0,), (99,), (98, 10), (0, 1, 2), (49, 50), (5, 25, 45, 65, 85)])
@pytest.mark.parametrize("sink", SINKS)
def test_wherever_the_messages_are(sink: str, bad: tuple[int, ...]) -> None:
    world = one_block(100, *bad, sink=sink, batchTriesMax="1")
    world.until_done()
    passed(world, 100)
    assert set(world.dead) == world.poison


@pytest.mark.parametrize(
    ("sink", "bad", "tries"), [("file", (2,), 2), ("settling", (2,), 1), ("file", (1, 3), 1)]
)
def test_a_driver_that_ends_at_any_step_of_the_search(
    sink: str, bad: tuple[int, ...], tries: int
) -> None:
    whole = one_block(5, *bad, sink=sink, batchTriesMax=str(tries))
    whole.until_done()
    for at in range(whole.runs):
        dies_in, died = 0, True
        while died:
            world = one_block(5, *bad, sink=sink, batchTriesMax=str(tries))
            for _ in range(at):
                world.run()
            failures = world.failures
            died = not world.run(dies_in) and world.failures == failures
            world.until_done()
            other = world.put(1)  # the last two messages may wait for it
            world.until_done()
            world.check()
            assert set(world.dead) == world.poison, (at, dies_in)
            # A message that was alone when the driver ended is read again behind the others.
            good = [(1, i) for i in range(5) if i not in bad]
            assert sorted(world.rows()) == [*good, (other, 0)]
            dies_in += 1


def test_starts_of_other_queries_are_no_tries() -> None:
    """A batch that was interrupted twice is not rejected because another query was restarted."""
    world = one_block(10, isolatePoison="false", batchTriesMax="3")
    world.down = True
    assert not world.run()
    for _ in range(5):
        world.apply(c.RegisterReader("other"))
    assert not world.run()
    world.down = False
    world.until_done()
    passed(world, 10)


def test_new_messages_of_the_queue_wait_until_the_search_is_over() -> None:
    world = one_block(40, 7, batchTriesMax="1")
    assert not world.run()
    later = world.put(5, priorities=31)
    world.until_done()
    world.check()
    good = [(1, at) for at in range(40) if at != 7]
    assert world.rows() == good + [(later, at) for at in range(5)]
    assert world.dead == [(1, 7)]


def test_released_messages_are_counted_and_the_others_pass() -> None:
    world = one_block(
        60, 30, onBatchFailure="release", batchTriesMax="1", queue={"delivery_limit": 2}
    )
    world.put(60)
    world.until_done()
    world.check()
    assert world.dead == [(1, 30)] and len(world.rows()) == 119


def test_a_message_alone_in_its_queue_waits_for_another_one() -> None:
    world = one_block(1, 0, batchTriesMax="1")
    assert not world.run()
    assert world.run() and world.machine.stat().messages_claimed == 1
    assert world.run() and not world.dead
    other = world.put(1)
    world.until_done()
    assert world.rows() == [(other, 0)] and world.dead == [(1, 0)]


@pytest.mark.parametrize("sink", SINKS)
def test_a_sink_that_is_down_rejects_nothing(sink: str, caplog: pytest.LogCaptureFixture) -> None:
    world = one_block(100, sink=sink, batchTriesMax="2", failuresInRowMax="4")
    world.down = True
    for _ in range(60):
        assert not world.run()
    assert not world.dead and [
        (of.name, of.in_parts, of.part_due, of.failed_in_row) for of in world.machine.stat().readers
    ] == [("r", 99, True, 4)]
    said = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert said and "4 messages alone, or batches" in said[-1].getMessage()
    world.down = False
    world.until_done()
    world.check()
    assert not world.dead and sorted(world.rows()) == [(1, at) for at in range(100)]


def test_a_sink_that_goes_down_in_a_search_costs_no_message() -> None:
    world = one_block(100, 70, batchTriesMax="2")
    while len(world.rows()) < 60:
        world.run()
    world.down = True
    for _ in range(40):
        world.run()
    assert not world.dead
    world.down = False
    world.until_done()
    world.check()
    assert world.dead == [(1, 70)] and len(world.rows()) == 99


def test_whole_batches_are_rejected_without_isolation_but_not_all_of_them() -> None:
    options = {"isolatePoison": "false", "maxMessagesPerTrigger": "10", "batchTriesMax": "2"}
    world = one_block(100, 33, 38, 71, **options)
    world.until_done()
    world.check()
    assert {at for _, at in world.dead} == {*range(30, 40), *range(70, 80)}
    assert len(world.rows()) == 80
    world = one_block(100, failuresInRowMax="3", **options)
    world.down = True
    for _ in range(60):
        world.run()
    assert len(world.dead) == 30, "three batches in a row, and no more"


def test_another_option_at_the_next_start_continues_what_was_begun() -> None:
    world = one_block(64, 9, batchTriesMax="1")
    for _ in range(4):
        world.run()
    isolating = world.given
    world.given = {"queue": "q", "readerId": "r"}
    for _ in range(5):
        assert not world.run()
    assert not world.dead
    world.check()
    world.given = isolating
    world.until_done()
    passed(world, 64)
    assert world.dead == [(1, 9)]


@pytest.mark.parametrize("seed", range(40))
def test_any_messages_and_any_ends(seed: int) -> None:
    """The messages that are dead-lettered are those at fault; the others are written once.

    A run is ended by force at most batchTriesMax times: more can look like a message's fault.
    """
    random = Random(seed)
    tries = random.randint(1, 3)
    world = PoisonWorld(
        random.choice(SINKS),
        batchTriesMax=str(tries),
        maxMessagesPerTrigger=str(random.choice((1, 7, 30, 500))),
        failuresInRowMax="1000",
    )
    world.shuffle = random
    published: set[Name] = set()
    for _ in range(random.randint(1, 4)):
        count = random.randint(1, 60)
        bad = tuple(random.sample(range(count), random.randint(0, min(count, 4))))
        index = world.put(count, bad, priorities=random.choice((0, 4, 9)))
        published |= {(index, at) for at in range(count)}
    kills = tries
    for _ in range(400):
        dies_in = 1 << 40
        if kills and random.random() < 0.3:
            dies_in, kills = random.randint(0, 60), kills - 1
        if world.run(dies_in) and not kills:
            break
    for _ in range(2):  # what waits for another message that passes
        published.add((world.put(1), 0))
        world.until_done()
    world.check()
    assert set(world.dead) == world.poison
    assert set(world.rows()) == published - world.poison
    assert not world.left()


def test_a_sink_that_the_broker_does_not_have_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        parsed(["queue", "--broker", "amqp"])
    assert "no sink 'queue' with --broker amqp: parquet" in capsys.readouterr().err
    assert parsed(["queue"]).sinks == ["queue"]
