"""One read through an exchange with many queues: its copies are made a little per turn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from broker.cluster.test_turn_shares import Turns
from warren_broker.cluster.client.publisher import PART_STEPS, STEP_BYTES, Publisher
from warren_broker.cluster.client.routed_runs import PublishedRun, QueuePart
from warren_broker.cluster.turn_shares import ROUND_STEPS, SHARE_STEPS
from warren_wire.kernel import MessageTable, Route, Selection
from warren_wire.queue_values.config import QueueConfig

QUEUES = 1_000
BODY = bytes(256 << 10)


class Queues:
    """The clients of queues; `copied` is what each was given, in bytes, in order."""

    def __init__(self, loop: Turns) -> None:
        config = QueueConfig(name="q", vhost="/", kind="quorum")
        self.copied: list[tuple[str, int]] = []
        self.cluster = SimpleNamespace(loop=loop)
        self.definitions = SimpleNamespace(
            state=SimpleNamespace(
                queue=lambda vhost, name: SimpleNamespace(name=name, vhost=vhost, config=config)
            ),
            policies=lambda vhost: SimpleNamespace(config_of=lambda queue: config),
        )

    def absent(self, queue: Any) -> bool:
        return False

    def client(self, queue: Any) -> Any:
        def publish(stored: Selection, size: int, on_reply: Any) -> None:
            self.copied.append((queue.name, size))

        return SimpleNamespace(publish=publish)


class Sent(PublishedRun):
    def __init__(self, loop: Turns) -> None:
        self.loop = loop

    def sent(self, touched: Any) -> None:
        self.loop.told.append(touched)


def fan_out(loop: Turns, queues: Queues) -> Publisher:
    """A run for every queue, and one for the first queue alone, of a client that hangs up."""
    publisher = Publisher(queues, None)  # type: ignore[arg-type]
    share = publisher.shares.open(1, lambda: None, lambda fault: None)
    table = MessageTable()
    table.append(Route(b"x", b"", False), b"\0\0", BODY)
    whole = Selection(table, 0, 1)
    parts = [QueuePart(f"q{number}", whole, whole) for number in range(QUEUES)]
    for run in (parts, parts[:1]):
        publisher._submit("/", run, Sent(loop), share)
    return publisher


def test_a_read_for_many_queues_was_copied_for_all_of_them_in_one_turn() -> None:
    loop = Turns()
    queues = Queues(loop)
    fan_out(loop, queues)
    turns = [len(queues.copied)]
    while loop.soon:
        loop.run()
        turns.append(len(queues.copied) - sum(turns))
    steps = PART_STEPS + len(BODY) // STEP_BYTES
    assert 1 <= turns[0] <= SHARE_STEPS // steps + 1
    assert max(turns) * steps < ROUND_STEPS + SHARE_STEPS + 2 * steps
    names = [name for name, _ in queues.copied]
    assert names == [*(f"q{number}" for number in range(QUEUES)), "q0"], "in the client's order"
    assert [len(touched) for touched in loop.told] == [QUEUES, 1]


def test_queues_did_not_get_a_message_that_others_had_when_its_client_hung_up() -> None:
    loop = Turns()
    queues = Queues(loop)
    publisher = fan_out(loop, queues)
    assert 0 < len(queues.copied) < QUEUES
    publisher.shares.of(1).close()
    while loop.soon:
        loop.run()
    assert len(queues.copied) == QUEUES + 1 and not loop.told
