"""Whatever a message says, to publish it as a dead letter ends nothing."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.broker.cluster import callbacks
from tests.wire.kernel import frames as f
from warren_broker.cluster.client.dead_letters import TURN_MESSAGES, DeadLetters, Letters
from warren_broker.cluster.client.routed_runs import PublishedRun
from warren_broker.cluster.leader.leader_effects import LeaderEffects
from warren_broker.cluster.leader.set_aside import LINES_MAX, SetAsideCounts
from warren_broker.counting.counters import Counters
from warren_machines.queue.effects import DeadLetter, Expired
from warren_raft.machine import Applied, Meta
from warren_wire.amqp091 import fields, properties
from warren_wire.amqp091.fields import Field
from warren_wire.block.block import Block, encode
from warren_wire.kernel import CC, HAS_DEATHS, MessageTable, Route, set_deaths_apart
from warren_wire.kernel.properties import examine
from warren_wire.queue_values.config import QueueConfig

GROUP = 7
NO_UTF8 = f.properties(expiration=b"\xff\xfe1")
MALFORMED = {
    "no property bytes": b"",
    "half a word of flags": b"\x80",
    "an unknown flag": b"\x00\x01",
    "a string beyond the end": b"\x80\x00\x09x",
    "a table beyond the end": b"\x20\x00\x00\x00\x00\x09\x01aV",
    "bytes left over": b"\x00\x00\x00",
}


class Loop:
    """Its time stands still; what is due is done by `turn`."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.clock = SimpleNamespace(epoch_ms=lambda: 1_000_000)
        self.later: list[Any] = []

    def call_later(self, delay_ms: int, call: Any) -> None:
        self.later.append(call)

    def turn(self) -> None:
        calls, self.later = self.later, []
        for call in calls:
            call()


class World:
    """A queue with a dead letter exchange, led here, and what is published to it."""

    def __init__(self, blocks: dict[int, Block], config: dict[str, Any] | None = None) -> None:
        self.config = QueueConfig("/", "q", dead_letter_exchange="dlx", **(config or {}))
        self.queue = SimpleNamespace(name="q", vhost="/", group=GROUP, config=self.config)
        host = SimpleNamespace(
            node_id="a", state=lambda group: SimpleNamespace(config=self.config, uplinks={})
        )
        self.loop = Loop()
        self.cluster: Any = SimpleNamespace(
            loop=self.loop,
            host=host,
            handlers={},
            on_peer_up=[],
            on_peer_down=[],
            counters=Counters(),
            leader_of=lambda group: "a",
            stored=SimpleNamespace(get=lambda group, index, last: blocks[index]),
        )
        self.cluster.set_aside = self.aside = SetAsideCounts(self.cluster)
        self.published: list[tuple[bytes, properties.Properties]] = []
        self.batches: list[int] = []
        self.faults = 0
        definitions = SimpleNamespace(
            state=SimpleNamespace(groups={GROUP: self.queue}),
            exchange=lambda vhost, name: True,
            call_at_ready=lambda call: call(),
        )
        queues: Any = SimpleNamespace(cluster=self.cluster, definitions=definitions)
        self.shares: dict[object, Any] = {}
        shares = SimpleNamespace(
            of=lambda key: self.shares.setdefault(key, SimpleNamespace(busy=False))
        )
        publishing: Any = SimpleNamespace(publish=self.publish, shares=shares)
        self.letters = DeadLetters(queues, publishing, 4096)

    def publish(
        self,
        vhost: str,
        table: MessageTable,
        first: int,
        last: int,
        run: PublishedRun,
        *more: object,
    ) -> None:
        _, share = more
        assert (first, last, run.confirms) == (0, table.count, False)
        assert share is self.shares["dead letters", GROUP]
        if self.faults:
            self.faults -= 1
            raise RuntimeError("routing failed")
        self.batches.append(table.count)
        self.published += [
            (table.body(i), properties.decode(table.properties_of(i))) for i in range(table.count)
        ]

    def die(self, *runs: tuple[int, int, int]) -> None:
        self.letters.publish(GROUP, DeadLetter("expired", runs))


def block(*raw: bytes) -> Block:
    return Block.decode(encode([b"%d" % i for i in range(len(raw))], list(raw), (b"x", b"k")))


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_properties_are_replaced_and_counted(case: str) -> None:
    """Such a block was accepted from any client, and ended the process of the queue's leader."""
    world = World({1: block(f.PLAIN, MALFORMED[case], f.PLAIN)})
    world.die((1, 0, 2))
    assert [body for body, _ in world.published] == [b"0", b"1", b"2"]
    headers = world.published[1][1].headers or {}
    assert headers["x-unreadable-properties"] == MALFORMED[case]
    assert headers["x-first-death-queue"] == "q" and len(headers["x-death"]) == 1
    assert world.aside.count(GROUP) == 1


def test_an_expiration_that_is_no_utf8(caplog: pytest.LogCaptureFixture) -> None:
    world = World({1: block(NO_UTF8)})
    world.die((1, 0, 0))
    death = (world.published[0][1].headers or {})["x-death"][0]
    assert death["original-expiration"] == b"\xff\xfe1"
    assert world.published[0][1].expiration is None


@pytest.mark.parametrize("value", [b"V", b"S\0\0\0\1x", b"F\0\0\0\0", b"A\0\0\0\1V"])
def test_a_cc_that_is_no_list_of_keys_is_shown_and_not_used(value: bytes) -> None:
    """As in RabbitMQ, of a message over AMQP 1.0 with a property of that name."""
    given = f.properties(headers=f.table((b"CC", value), (b"BCC", b"S\0\0\0\1b")))
    world = World({1: block(given)})
    world.die((1, 0, 0))
    shown = world.published[0][1].headers or {}
    before = properties.decode(given).headers or {}
    assert (shown["CC"], shown["BCC"]) == (before["CC"], "b")
    letters = Letters(world.queue, world.config, 4076)  # type: ignore[arg-type]
    letters.add(block(given), 0, "expired", 5)
    assert not letters.flags


def test_the_history_stays_within_a_frame() -> None:
    entries = [f.death(b"older%d" % i, more=bytes(300)) for i in range(40)]
    raw = f.properties(headers=f.table((b"x-death", f.deaths(*entries)), (b"mine", b"t\1")))
    world = World({1: block(raw)})
    world.die((1, 0, 0))
    given = world.published[0][1]
    deaths = [death["queue"] for death in (given.headers or {})["x-death"]]
    assert deaths[0] == "q" and deaths[1:] == [f"older{i}" for i in range(len(deaths) - 1)]
    assert 5 < len(deaths) < 20
    assert len(properties.encode(given)) <= 4076


def test_the_newest_death_stays_for_cycles_to_end() -> None:
    large = f.table((b"h", b"x" + (4040).to_bytes(4, "big") + bytes(4040)))
    world = World({1: block(f.properties(headers=large))})
    world.die((1, 0, 0))
    assert [d["queue"] for d in (world.published[0][1].headers or {})["x-death"]] == ["q"]


def test_an_entry_that_fails_costs_its_own_messages(caplog: pytest.LogCaptureFixture) -> None:
    world = World({1: block(f.PLAIN), 2: block(f.PLAIN), 3: block(f.PLAIN)})
    world.faults = 1
    world.die((1, 0, 0), (2, 0, 0), (4, 0, 0), (3, 0, 0))
    assert len(world.published) == 2, "the first failed, entry 4 is not there"
    assert world.aside.count(GROUP) == 1
    assert "dead letters 0 to 0 of entry 1" in caplog.text and "routing failed" in caplog.text


def test_a_million_dead_letters_are_published_over_many_turns() -> None:
    """A queue that expired as a whole stopped the node for as long as all of it took."""
    world = World({1: block(*[f.PLAIN] * 5000), 2: block(f.PLAIN)})
    world.die((1, 0, 4999))
    world.die((2, 0, 0))
    assert sum(world.batches) == TURN_MESSAGES
    while world.loop.later:
        before = sum(world.batches)
        world.loop.turn()
        assert sum(world.batches) - before <= TURN_MESSAGES
    bodies = [body for body, _ in world.published]
    assert bodies == [b"%d" % i for i in range(5000)] + [b"0"], "in order"


def test_no_effect_of_a_queue_ends_its_leader(caplog: pytest.LogCaptureFixture) -> None:
    world = World({})
    did: list[str] = []

    def fails(group: int, effect: DeadLetter) -> None:
        raise ValueError("a fault of ours")

    leading = LeaderEffects(
        world.cluster,
        replace(
            callbacks.LEADER,
            dead_letter=fails,
            expired=lambda group, reason: did.append(reason),
        ),
    )
    effects = (DeadLetter("expired", ((1, 0, 0),)), Expired("expires"))
    leading.applied(GROUP, Meta(5, 1, 1000), b"", Applied(None, effects))
    assert did == ["expires"], "what follows is carried out"
    assert world.aside.count(GROUP) == 1
    assert "queue 'q' in vhost '/': DeadLetter set aside" in caplog.text


def test_the_log_is_not_flooded(caplog: pytest.LogCaptureFixture) -> None:
    world = World({1: block(*[b""] * 1000)})
    world.die((1, 0, 999))
    assert len(world.published) == 1000 == world.aside.count(GROUP)
    assert caplog.text.count("set aside") == LINES_MAX
    world.loop.now_ms = 20_000
    world.aside.note(GROUP, "entry 9", "no reason")
    assert f"{1000 - LINES_MAX} more messages" in caplog.text


def test_letters_keep_what_they_are_given() -> None:
    queue = World({}).queue
    letters = Letters(queue, queue.config, 4076)  # type: ignore[arg-type]
    letters.add(block(f.properties(message_id=b"id", priority=9)), 0, "rejected", 5)
    assert properties.decode(letters.table.properties_of(0)).message_id == "id"
    assert letters.table.priority(0) == 9


def dies(raw: bytes, failures: int = 0, key: str | None = "k") -> tuple[dict[str, Any], int]:
    """Headers and flags of a letter; key: the queue's own routing key for its letters."""
    queue = World({}).queue
    config = QueueConfig("/", "q", dead_letter_exchange="", dead_letter_routing_key=key)
    letters = Letters(queue, config, 4076)  # type: ignore[arg-type]
    letters.add(block(raw), 0, "rejected", 5, failures)
    headers = properties.decode(letters.table.properties_of(0)).headers
    return dict(headers or {}), letters.table.flags(0)


def counted(raw: bytes, failures: int) -> tuple[Any, Any]:
    """The two counts that a letter shows; None: none."""
    headers, _ = dies(raw, failures)
    return headers.get("x-acquired-count"), headers.get("x-delivery-count")


def again(headers: dict[str, Any]) -> bytes:
    """The properties of a letter, as they are stored in the next queue."""
    return properties.encode(properties.Properties(headers=headers))


def test_a_letter_shows_how_often_its_delivery_failed_in_all_queues() -> None:
    assert counted(f.PLAIN, 0) == (None, None)
    assert counted(f.PLAIN, 3) == (3, 3)
    first, _ = dies(f.PLAIN, 3)
    assert counted(again(first), 0) == (3, 3), "of the queue before"
    assert counted(again(first), 2) == (5, 5)
    second, _ = dies(again(first), 0)
    assert counted(again(second), 1) == (4, 4)


@pytest.mark.parametrize("value", [7, -1, 1 << 40, "x", [1], None])
def test_counts_that_a_client_wrote_do_not_count(value: Any) -> None:
    raw = again({"x-delivery-count": value})
    assert counted(raw, 2) == (2, 2)
    headers, _ = dies(raw, 0)
    assert "x-acquired-count" not in headers


@pytest.mark.parametrize("value", [-1, 1 << 40, "x", [1], None])
def test_counts_of_a_letter_that_are_no_counts(value: Any) -> None:
    letter, _ = dies(f.PLAIN, 1)
    assert counted(again({**letter, "x-delivery-count": value}), 2) == (2, 2)


def test_further_keys_do_not_route_a_letter_with_a_key() -> None:
    published = again({"CC": ["other"], "h": 1})
    headers, flags = dies(published)
    assert headers["CC"] == ["other"] and not flags
    assert headers["x-death"][0]["routing-keys"] == ["k", "other"]
    headers, flags = dies(again(headers), key=None)
    assert headers["CC"] == ["other"] and not flags, "nor by the next queue"
    assert headers["x-death"][0]["count"] == 2
    headers, flags = dies(published, key=None)
    assert headers["CC"] == ["other"] and flags == CC
    headers, flags = dies(again(headers), key=None)
    assert headers["CC"] == ["other"] and flags == CC, "in the next queue, too"
    headers, flags = dies(again({**dies(f.PLAIN)[0], "CC": ["new"]}), key=None)
    assert flags == CC, "a client added it to a letter"


def test_types_inside_of_headers_are_kept() -> None:
    # The count of an earlier death came back as 4 bytes, which clients in Java read as Integer.
    given = {"n": {"eight": Field("l", 5), "few": [Field("s", 1), Field("f", 0.5)]}}
    kept = fields.field(given["n"])
    queue, raw = World({}).queue, again(given)
    for queue.name in ("q1", "q2", "q3"):
        letters = Letters(queue, queue.config, 4076)  # type: ignore[arg-type]
        letters.add(block(raw), 0, "rejected", 5)
        raw = letters.table.properties_of(0)
    assert kept in raw
    assert raw.count(b"\x05count" + fields.field(Field("l", 1))) == 3


def published(raw: bytes) -> bytes:
    """The properties of a client's message, as they are stored."""
    table = MessageTable()
    table.append(Route(b"x", b"k", False), raw, b"", flags=examine(raw) >> 40)
    assert table.flags(0) & HAS_DEATHS
    set_deaths_apart(table, 0, 1)
    assert properties.decode(table.properties_of(0)) == properties.decode(raw)
    return table.properties_of(0)


def test_a_letter_that_a_client_publishes_again_has_no_history() -> None:
    # As in RabbitMQ 4. Its deaths were counted on, and a queue that it had died in lost it.
    letter, _ = dies(f.PLAIN, 3)
    for _ in range(2):
        letter, _ = dies(published(again(letter)), 1)
        assert [death["count"] for death in letter["x-death"]] == [1]
        assert letter["x-delivery-count"] == 1
    letter, _ = dies(again(letter))
    assert letter["x-death"][0]["count"] == 2, "the broker's own is a history"


def test_counts_of_a_letter_that_a_client_publishes_again_are_not_counted_on() -> None:
    """They were, from the second death on, when none had failed until the first one."""
    letter, _ = dies(f.PLAIN, 3)
    first, _ = dies(published(again(letter)))
    assert first["x-delivery-count"] == 3, "shown as it came"
    second, _ = dies(again(first), 1)
    assert second["x-death"][0]["count"] == 2
    assert (second["x-acquired-count"], second["x-delivery-count"]) == (1, 1)


def test_a_property_x_death_of_amqp_10_is_no_history() -> None:
    """It may stand before others, and is no list."""
    first, _ = dies(again({"x-death": "none", "x-delivery-count": 7}))
    assert first["x-delivery-count"] == 7
    second, _ = dies(again(first), 1)
    assert second["x-delivery-count"] == 1 and second["x-death"][0]["count"] == 2


def test_the_further_keys_of_a_letter_that_a_client_publishes_again_are_used() -> None:
    """The order of the headers said that they were only to be shown, and the copy was lost."""
    shown, flags = dies(again({"CC": ["other"]}))
    assert not flags
    headers, flags = dies(published(again(shown)), key=None)
    assert flags == CC and headers["x-death"][0]["routing-keys"] == ["k", "other"]
    mine = again({"CC": ["other"], "x-last-death-exchange": "e"})
    headers, flags = dies(mine, key=None)
    assert flags == CC, "a client's order of headers says nothing"


@pytest.mark.parametrize("value", ["none", [{"queue": "other", "count": 3}], 7])
def test_deaths_that_a_client_invented_are_no_history(value: Any) -> None:
    raw = published(again({"x-death": value, "x-first-death-queue": "mine", "CC": ["c"]}))
    headers, _ = dies(raw)
    assert [death["queue"] for death in headers["x-death"]] == ["q"]
    assert headers["x-first-death-queue"] == "q" and headers["CC"] == ["c"]


def test_a_republished_letter_is_no_cycle() -> None:
    queue = World({}).queue
    expired = {"x-death": [{"queue": "q2", "reason": "expired", "count": 1}]}
    for raw, kept in (
        (again(expired | {"x-last-death-queue": "q2"}), False),
        (again(expired), True),
    ):
        letters = Letters(queue, queue.config, 4076)  # type: ignore[arg-type]
        letters.add(block(published(raw) if kept else raw), 0, "expired", 5)
        assert letters.wants("q2", 0) is kept
