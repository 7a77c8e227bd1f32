"""What a relay is told of a message that a queue refuses, and of one of which nothing is known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sim.told import Told
from warren_broker.cluster.client.publisher import Publisher
from warren_broker.cluster.client.routed_runs import QueuePart
from warren_machines.queue.commands import Done, Refused
from warren_wire import errors
from warren_wire.kernel import MessageTable, Route, Selection
from warren_wire.queue_values.config import QueueConfig
from warren_wire.relay_names import RelayedName

FULL = Refused("queue_full", "queue 'q' is full")
SILENT = errors.Unavailable("queue 'q' is on a node that is down")


class OneQueue:
    """The clients of the queues, with one queue; it keeps what it is to tell."""

    def __init__(self, absent: bool = False) -> None:
        config = QueueConfig(name="q", vhost="/", kind="quorum")
        record = SimpleNamespace(name="q", vhost="/", config=config, store_of="")
        self.definitions = SimpleNamespace(
            state=SimpleNamespace(queue=lambda vhost, name: record),
            policies=lambda vhost: SimpleNamespace(config_of=lambda queue: config),
        )
        self.cluster = SimpleNamespace(loop=None)
        self.absent = lambda queue: absent
        self.replies: list[Any] = []
        self.client = lambda queue: SimpleNamespace(
            with_block=lambda command, block, on_reply: self.replies.append(on_reply)
        )


def publish(queues: OneQueue) -> tuple[list[tuple[bool, list[int] | None]], list[str]]:
    """What a relay is told of one message, and that its fate is unknown."""
    table = MessageTable()
    table.append(Route(b"", b"q", False), b"\0\0", b"body")
    whole = Selection(table, 0, 1)
    told: list[tuple[bool, list[int] | None]] = []
    unknown: list[str] = []

    class Relayed(Told):
        def unknown(self) -> bool:
            unknown.append("unknown")
            return True

    names = {0: RelayedName(7, 1, 1)}
    run = Relayed(lambda number, ok, refused: told.append((ok, refused)), names)
    Publisher(queues, None).send("/", [QueuePart("q", whole, whole)], run)  # type: ignore[arg-type]
    return told, unknown


@pytest.mark.parametrize(
    ("reply", "said", "ends"),
    [(Done(), [(True, None)], []), (FULL, [(False, None)], []), (SILENT, [], ["unknown"])],
)
def test_a_nack_says_that_the_queue_does_not_have_the_message(
    reply: Any, said: list[Any], ends: list[str]
) -> None:
    """1. A queue's only node hangs, with a message on its way to it.  2. Publishers are answered by
    nack.  3. A shovel gives the message to other consumers.  4. The node is back, and has it."""
    queues = OneQueue()
    told, unknown = publish(queues)
    (on_reply,) = queues.replies
    on_reply(reply, 1)
    assert (told, unknown) == (said, ends)


def test_what_was_not_sent_to_a_queue_is_nacked() -> None:
    assert publish(OneQueue(absent=True)) == ([(False, None)], [])
