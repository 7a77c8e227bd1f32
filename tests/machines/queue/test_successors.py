"""A queue that was deleted and declared again: no claim or epoch of the old one is of the new."""

from __future__ import annotations

import pytest

from machines.metadata.world import World
from machines.queue.world import Queue
from warren_machines.metadata import commands
from warren_machines.metadata.records import numbered_above
from warren_machines.queue import commands as c
from warren_machines.queue.machine import QueueMachine

BYTES = 1 << 20


def declared(world: World) -> Queue:
    """The queue as the definitions have it now, with 10 messages."""
    definition = world.state.queue("/", "q")
    assert definition is not None
    queue = Queue(definition.config)
    queue.machine = QueueMachine(definition.config, numbered_above(definition.group))
    queue.state = queue.machine.init()
    queue.put(10)
    return queue


def successors() -> tuple[Queue, Queue]:
    """Two queues of one name, the second declared when the first was deleted."""
    world = World()
    world.declare("q")
    old = declared(world)
    world.do(commands.DeleteQueue("/", "q"))
    world.declare("q")
    return old, declared(world)


def opened(queue: Queue) -> tuple[int, int]:
    """A driver's epoch and its first claim, of 10 messages."""
    queue.do(c.RegisterReader("r"))
    reader = queue.do(c.RegisterReader("r"))  # so that its epoch is not the number of its claim
    assert isinstance(reader, c.ReaderReply)
    number = reader.settled + 1
    claim = queue.do(c.OpenClaim("r", number, reader.epoch, 10, BYTES))
    assert isinstance(claim, c.ClaimReply) and claim.messages == 10
    return reader.epoch, number


def test_epochs_and_claims_of_a_successor_are_above_all_of_the_old_queue() -> None:
    old, new = successors()
    old_epoch, old_number = opened(old)
    new_epoch, new_number = opened(new)
    assert new_epoch > old_epoch + (1 << 31) and new_number > old_number + (1 << 31)


@pytest.mark.parametrize("registered", [False, True], ids=["nobody", "another driver"])
def test_no_command_of_a_driver_of_the_old_queue_is_carried_out(registered: bool) -> None:
    old, new = successors()
    epoch, number = opened(old)
    if registered:
        opened(new)
    claimed, ready = new.state.claimed, new.state.order.count
    late: list[c.AnyCommand] = [
        c.OpenClaim("r", number, epoch, 10, BYTES),
        c.OpenClaim("r", number + 1, epoch, 10, BYTES),
        c.RenewClaims("r", epoch),
        c.SettleClaims("r", number, epoch),
        c.SettleClaims("r", number, epoch),
        c.ReleaseClaim("r", number, epoch),
        c.ReleaseClaim("r", 0, epoch),
    ]
    for command in late:
        refused = new.do(command)
        assert isinstance(refused, c.Refused), command
        assert refused.reason == ("fenced" if registered else "unknown_reader"), command
    assert (new.state.claimed, new.state.order.count) == (claimed, ready)


def test_going_on_after_a_claim_of_the_old_queue_passes_over_none_of_the_new() -> None:
    old, new = successors()
    _, number = opened(old)
    epoch, newer = opened(new)
    reply = new.do(c.RegisterReader("r", go_on_after=number))
    assert reply == c.ReaderReply(epoch + 1, newer - 1, 3)
    assert new.do(c.SettleClaims("r", newer, epoch + 1)) == c.Count(10)


def test_numbers_go_on_from_a_snapshot() -> None:
    _, new = successors()
    epoch, number = opened(new)
    new.state = new.machine.restore(new.machine.snapshot(new.state))
    assert new.do(c.RegisterReader("r")) == c.ReaderReply(epoch + 1, number - 1, 3)
    assert new.do(c.RegisterReader("s")) == c.ReaderReply(epoch + 2, number - 1, 1)
