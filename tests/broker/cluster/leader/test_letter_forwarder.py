"""Dead letters that are kept: what their forwarder publishes, settles, and tries again."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.wire.kernel import frames as f
from warren_broker.cluster.client.routed_runs import PublishedRun, QueuePart
from warren_broker.cluster.leader.letter_forwarder import (
    PROBE_MS,
    LetterForwarders,
    warn_of_fallback,
)
from warren_broker.cluster.leader.set_aside import SetAsideCounts
from warren_broker.config import Queues
from warren_broker.counting.counters import Counters
from warren_machines.queue.annotations import Annotations
from warren_machines.queue.commands import SettleLetters
from warren_machines.queue.effects import LettersDue, LettersGone
from warren_machines.queue.letters.letter_queue import LetterQueue
from warren_raft.storage.errors import EntryDamaged
from warren_wire.amqp091 import properties
from warren_wire.block.block import Block, BlockError, encode
from warren_wire.kernel import MessageTable, Selection
from warren_wire.queue_values.config import QueueConfig

GROUP = 7
BLOCK = Block.decode(encode([b"%d" % i for i in range(100)], [f.PLAIN] * 100, (b"x", b"k")))
Published = tuple[str, list[bytes]]


class World:
    """A queue that is led here, its letters, and queues that may take them.

    routes     the queues of every letter
    published  (queue, bodies) in their order; `answer` confirms or refuses the oldest
    """

    def __init__(self, prefetch: int = 4, **config: Any) -> None:
        settings = {
            "dead_letter_exchange": "",
            "dead_letter_strategy": "at-least-once",
            "overflow": "reject-publish",
            **config,
        }
        self.config = QueueConfig("/", "q", **settings)
        self.letters = LetterQueue()
        self.annotations = Annotations()
        self.routes = ["target"]
        self.stores: list[str] = []
        self.exchanges = {""}
        self.published: list[Published] = []
        self.slow: list[Any] | None = None
        self.tables: list[MessageTable] = []
        self.asked: list[Any] = []
        self.settles: list[SettleLetters] = []
        self.timers: list[Any] = []
        self.leading, self.term, self.damaged = True, 3, False
        self.unreadable = False
        self.healed: list[Any] = []
        host = SimpleNamespace(
            node_id="a",
            is_leader=lambda group: self.leading,
            term=lambda group: self.term,
            state=lambda group: SimpleNamespace(
                config=self.config, letters=self.letters, annotations=self.annotations
            ),
            repair=SimpleNamespace(when=lambda group, index, call: self.healed.append(call)),
        )
        self.cluster: Any = SimpleNamespace(
            counters=Counters(),
            loop=SimpleNamespace(now_ms=0, call_later=self.later, call_soon=lambda call: call()),
            host=host,
            handlers={},
            on_leader=[],
            on_hand_over=[],
            leader_of=lambda group: "a",
            stored=SimpleNamespace(get=self.stored),
            effects=SimpleNamespace(command=lambda group, command: self.settles.append(command)),
        )
        self.cluster.set_aside = SetAsideCounts(self.cluster)
        queue = SimpleNamespace(name="q", vhost="/", group=GROUP, config=self.config)
        definitions = SimpleNamespace(
            state=SimpleNamespace(groups={GROUP: queue}, queue=lambda vhost, name: name),
            exchange=lambda vhost, name: True if name in self.exchanges else None,
            call_at_ready=lambda call: call(),
        )
        queues: Any = SimpleNamespace(cluster=self.cluster, definitions=definitions)
        settings_of_node = Queues(dead_letter_worker_consumer_prefetch=prefetch)
        publishing: Any = SimpleNamespace(
            publish=self.publish,
            delays=lambda store: store == "delays",
            shares=SimpleNamespace(of=lambda key: key),
        )
        self.forwarders = LetterForwarders(queues, publishing, 4096, settings_of_node)

    def later(self, delay_ms: int, call: Any) -> Any:
        timer = SimpleNamespace(call=call, delay_ms=delay_ms, cancel=lambda: None)
        self.timers.append(timer)
        return timer

    def stored(self, group: int, index: int, last: int) -> Block:
        if self.unreadable:
            raise BlockError("wrongly compressed")
        if self.damaged:
            raise EntryDamaged("wal", 0, "a test", group, index, 0, 1)
        return BLOCK

    def publish(
        self, vhost: str, table: MessageTable, first: int, last: int, run: PublishedRun, *more: Any
    ) -> None:
        """Answer at once, or in a later turn where `slow` is a list."""
        whole = Selection(table, first, last)
        parts = [QueuePart(name, whole, whole, name in self.stores) for name in self.routes]
        assert run.at_once, "a fault is contained in the turn of the routing"
        if self.slow is None:
            run.guarded(lambda: self.send(run, parts))
        else:
            self.slow.append(lambda: run.guarded(lambda: self.send(run, parts)))

    def send(self, run: PublishedRun, routed: list[QueuePart]) -> None:
        assert run.strict, "a queue that is deleted meanwhile has not taken a letter"
        for number, part in enumerate(run.routed(routed)):
            table = part.selection.table
            self.tables.append(table)
            self.published.append((part.name, [table.body(i) for i in part.selection]))
            self.asked.append(partial(run.confirmed, number, part))

    # -------------------------------------------------------- what happens

    def die(self, first: int, last: int, reason: Any = "expired", died_ms: int = 5_000) -> None:
        self.letters.add(1, first, last, reason, died_ms)
        self.forwarders.carry_out(GROUP, LettersDue(((reason, last - first + 1),)))

    def answer(self, ok: bool = True, refused: list[int] | None = None) -> None:
        self.asked.pop(0)(ok, refused)

    def applied(self) -> None:
        """The oldest proposal to settle is applied."""
        size = 0
        for number, first, last in self.settles.pop(0).letters:
            size += sum(b - a + 1 for _, a, b in self.letters.remove(number, first, last))
        self.forwarders.carry_out(GROUP, LettersGone(size, size))

    def retry(self) -> None:
        self.timers.pop(0).call()

    def heard(self) -> list[Published]:
        said, self.published = self.published, []
        return said


def test_a_letter_is_settled_when_every_queue_has_confirmed_it() -> None:
    world = World()
    world.routes = ["a", "b"]
    world.die(0, 1)
    assert world.heard() == [("a", [b"0", b"1"]), ("b", [b"0", b"1"])]
    world.answer()
    assert not world.settles, "b has not confirmed"
    world.answer()
    assert world.settles == [SettleLetters(((1, 0, 1),))]
    world.applied()
    assert not world.letters.count and not world.timers


@pytest.mark.specification(
    "quorum-queues: It uses a prefetch size of 32 messages",
    "at-least-once-dead-lettering: The current default retry interval is 3 minutes",
)
def test_without_settings_32_are_under_way_and_tried_again_after_three_minutes() -> None:
    world = World(prefetch=Queues().dead_letter_worker_consumer_prefetch)
    world.die(0, 99)
    assert world.heard() == [("target", [b"%d" % number for number in range(32)])]
    assert world.forwarders.retry_ms == 3 * 60 * 1000


@pytest.mark.specification(
    "quorum-queues: It uses a prefetch size of 32 messages",
    "quorum-queues: That prefetch size can be increased",
    "at-least-once-dead-lettering: the dead letter consumer process will prefetch and buffer",
)
def test_no_more_are_under_way_than_the_prefetch() -> None:
    world = World(prefetch=3)
    world.die(0, 9)
    assert world.heard() == [("target", [b"0", b"1", b"2"])]
    world.die(10, 10)
    assert not world.heard()
    world.answer()
    assert not world.heard(), "the settle is not applied"
    world.applied()
    assert world.heard() == [("target", [b"3", b"4", b"5"])]


def test_a_refused_letter_waits_and_goes_to_those_that_lack_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.routes = ["a", "full"]
    world.die(0, 2)
    world.heard()
    world.answer()
    world.answer(ok=False, refused=[1, 2])
    assert world.settles == [SettleLetters(((1, 0, 0),))]
    assert [timer.delay_ms for timer in world.timers] == [PROBE_MS]
    for _ in range(2):
        world.retry()
        assert world.heard() == [("full", [b"1"])], "a has it; one is tried for all that wait"
        world.answer(ok=False)
    assert caplog.text.count("queue 'full' has not taken them") == 1
    assert "exchange '' with routing key 'k'" in caplog.text and "'q' in vhost '/'" in caplog.text
    world.retry()
    world.answer()
    assert world.heard() == [("full", [b"1"]), ("full", [b"2"])], "it has room for the others"
    world.answer()
    assert world.settles[-2:] == [SettleLetters(((1, at, at),)) for at in (1, 2)]


def test_letters_that_are_long_routed_are_neither_tried_again_nor_sent_after_a_purge() -> None:
    world = World()
    world.slow = []
    world.die(0, 1)
    assert not world.heard() and not world.timers, "they are being routed"
    world.slow.pop()()
    assert world.heard() == [("target", [b"0", b"1"])]
    world.answer()
    assert world.settles == [SettleLetters(((1, 0, 1),))]
    world.applied()
    world.die(2, 2)
    world.forwarders.carry_out(GROUP, LettersGone(1, 1, dropped=True))
    world.slow.pop()()
    assert not world.heard() and not world.timers


@pytest.mark.specification(
    "quorum-queues: The configured dead-letter exchange does not exist",
)
def test_a_letter_without_a_route_or_an_exchange_waits(caplog: pytest.LogCaptureFixture) -> None:
    world = World(dead_letter_exchange="gone")
    world.die(0, 0)
    assert not world.heard() and "exchange 'gone' does not exist" in caplog.text
    world.exchanges.add("gone")
    world.routes = []
    world.retry()
    assert "'gone' with routing key 'k': no queue is bound" in caplog.text
    world.routes = ["target"]
    world.retry()
    assert world.heard() == [("target", [b"0"])]
    world.answer()
    assert world.settles == [SettleLetters(((1, 0, 0),))] and len(caplog.records) == 2


def test_a_route_that_is_gone_is_not_waited_for() -> None:
    """One target has confirmed, the other is not bound any more: as in RabbitMQ that is enough."""
    world = World()
    world.routes = ["a", "b"]
    world.die(0, 0)
    world.answer()
    world.answer(ok=False)
    world.routes = ["a"]
    world.heard()
    world.retry()
    assert not world.heard() and world.settles == [SettleLetters(((1, 0, 0),))]


def test_a_history_is_no_way_and_a_delay_is_one() -> None:
    world = World()
    world.stores = ["history", "delays"]
    world.routes = ["history"]
    world.die(0, 0)
    assert not world.heard(), "its queues would never get it"
    world.routes = ["delays"]
    world.retry()
    assert world.heard() == [("delays", [b"0"])]
    world.answer()
    assert world.settles == [SettleLetters(((1, 0, 0),))]
    world.routes = ["target", "history"]
    world.die(1, 1)
    assert world.heard() == [("target", [b"1"]), ("history", [b"1"])]


def test_a_cycle_without_a_reject_waits_and_one_with_it_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.routes = ["q"]
    world.die(0, 0)
    assert not world.heard() and "it would die in 'q' again" in caplog.text
    world.die(1, 1, "rejected")
    assert world.heard() == [("q", [b"1"])]


def test_the_headers_are_those_of_the_death_at_every_attempt() -> None:
    world = World(dead_letter_routing_key="other")
    world.die(4, 4, "delivery_limit", 77_000)
    world.answer(ok=False)
    world.retry()
    first, again = (properties.headers(table.properties_of(0)) for table in world.tables)
    assert first == again
    (death,) = first["x-death"].value
    assert (int(death["time"]), death["reason"], death["queue"]) == (77, "delivery_limit", "q")
    assert death["count"] == 1 and "k" in str(death["routing-keys"])
    assert world.tables[0].route(0).routing_key == b"other"


def test_a_change_of_the_settings_tries_again_at_once() -> None:
    world = World()
    world.routes = []
    world.die(0, 0)
    world.routes = ["target"]
    world.forwarders.carry_out(GROUP, LettersDue((), changed=True))
    assert world.heard() == [("target", [b"0"])]


def test_a_lost_leadership_ends_it_and_the_next_term_begins_from_the_state() -> None:
    world = World()
    world.die(0, 1)
    world.heard()
    world.leading = False
    world.answer()
    assert not world.settles, "another node leads: it forwards them"
    world.cluster.on_leader[0](GROUP)
    world.leading, world.term = True, 4
    world.forwarders.carry_out(GROUP, LettersDue())
    assert world.heard() == [("target", [b"0", b"1"])]


def test_dropped_letters_are_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.die(0, 1)
    world.letters.clear()
    world.config = msgspec.structs.replace(world.config, overflow="drop-head")
    with caplog.at_level("INFO"):
        world.forwarders.carry_out(GROUP, LettersGone(2, 20, dropped=True))
    assert "dropped 2 dead letters, 20 bytes, of queue 'q'" in caplog.text
    world.answer()
    assert not world.settles
    world.config = msgspec.structs.replace(world.config, overflow="reject-publish")
    world.heard()
    world.die(5, 5)
    assert world.heard() == [("target", [b"5"])]


def test_a_damaged_entry_is_waited_for() -> None:
    world = World()
    world.damaged = True
    world.die(0, 0)
    assert not world.heard() and world.healed
    world.damaged = False
    world.healed[0]()
    world.timers.pop().call()
    assert world.heard() == [("target", [b"0"])]


def test_a_block_that_cannot_be_read_stays_and_delays_no_other() -> None:
    world = World()
    world.unreadable = True
    world.die(0, 0)
    assert not world.heard() and world.cluster.set_aside.count(GROUP) == 1
    world.retry()
    assert world.cluster.set_aside.count(GROUP) == 1, "counted once"
    world.unreadable = False
    world.die(1, 1)
    assert world.heard() == [("target", [b"1"])]
    world.answer()
    assert world.settles == [SettleLetters(((1, 1, 1),))]


@pytest.mark.parametrize(
    "config, text",
    [
        ({"overflow": "drop-head"}, "Falling back to dead-letter-strategy at-most-once for queue"),
        ({"dead_letter_exchange": None}, "because dead-letter-exchange is not configured."),
        ({}, ""),
        ({"dead_letter_strategy": "at-most-once", "overflow": "drop-head"}, ""),
    ],
)
def test_a_fallback_is_logged(
    config: dict[str, Any], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_fallback(World(**config).config)
    assert text in caplog.text and bool(caplog.text) is bool(text)


class HandOver:
    """Asks a world to finish before its leadership is handed over; `done` counts the answers."""

    def __init__(self, world: World) -> None:
        self.done = 0
        (self.finish,) = world.cluster.on_hand_over
        self.waits = self.finish(GROUP, 500, self._done)

    def _done(self) -> None:
        self.done += 1


def test_a_leadership_is_handed_over_when_the_letters_under_way_are_removed() -> None:
    world = World(prefetch=2)
    world.die(0, 3)
    assert world.heard() == [("target", [b"0", b"1"])]
    handed = HandOver(world)
    assert handed.waits and not handed.done
    world.answer()
    assert world.settles and not handed.done, "the next leader would forward them again"
    world.applied()
    assert handed.done == 1 and not world.heard(), "no more are taken"


def test_a_leadership_with_nothing_under_way_is_handed_over_at_once() -> None:
    world = World()
    assert not HandOver(world).waits
    world.die(0, 0)
    world.answer(ok=False)
    assert not HandOver(world).waits, "a letter that waits is with no queue"


def test_a_letter_without_an_answer_keeps_a_leadership_for_a_time_only() -> None:
    world = World(prefetch=1)
    world.die(0, 1)
    handed = HandOver(world)
    (limit,) = world.timers
    assert limit.delay_ms == 500
    limit.call()
    assert handed.done == 1
    world.heard()
    world.answer()
    world.applied()
    assert handed.done == 1 and not world.heard()
    world.timers[-1].call()
    assert world.heard() == [("target", [b"1"])], "the leadership has stayed here"


def test_a_letter_that_is_being_routed_is_under_way() -> None:
    world = World()
    world.slow = []
    world.die(0, 0)
    handed = HandOver(world)
    assert handed.waits and not handed.done
    world.slow.pop()()
    world.answer()
    world.applied()
    assert handed.done == 1
