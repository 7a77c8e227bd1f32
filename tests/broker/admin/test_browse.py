"""Looking at messages: what is shown of them, what matches, and where a page ends."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from types import SimpleNamespace
from typing import Any

import pytest

from tests.machines.queue.world import Queue
from warren_broker.access.access import NO_BROWSE, Access
from warren_broker.admin import browse
from warren_broker.cluster.client.reads import ReadFailed, Runs
from warren_broker.cluster.client.view_reads import Kept
from warren_broker.cluster.messages import ViewIs
from warren_broker.cluster.turn_shares import TurnShares
from warren_machines.metadata.permissions import ALL
from warren_machines.queue.annotations import read_annotations
from warren_machines.queue.commands import Checkout, Enqueue, Modify
from warren_machines.queue.places import page_of
from warren_wire import errors
from warren_wire.admin.browse import BrowsedMessage, BrowsedPage, BrowseRequest
from warren_wire.amqp091 import properties
from warren_wire.amqp091.properties import Properties
from warren_wire.amqp10.message.received import read_message
from warren_wire.amqp10.proton import Message, symbol
from warren_wire.block.block import Block, concat, encode

NOW_MS = 1_000_000


class World:
    """A queue, its blocks, and a loop that runs what is due at once, later."""

    def __init__(self) -> None:
        self.queue = Queue()
        self.blocks: dict[int, Block] = {}
        self.times: dict[int, int] = {}
        self.gone: set[int] = set()
        self.damaged: set[int] = set()
        self.due: list[Callable[[], None]] = []
        self.turns = 0
        clock = SimpleNamespace(epoch_ms=lambda: NOW_MS, monotonic_ms=self.monotonic_ms)
        self.loop: Any = SimpleNamespace(clock=clock, call_soon=self.due.append, turn=1)
        shares = SimpleNamespace(shares=TurnShares(self.loop))
        viewing = SimpleNamespace(
            when_current=lambda group, done: done(True), browse=self.places, kept=self.kept
        )
        self.tags: tuple[str, ...] = ()
        view = SimpleNamespace(tags=lambda user: self.tags, permissions=lambda vhost, user: ALL)
        self.asker: Any = SimpleNamespace(
            broker=SimpleNamespace(
                cluster=SimpleNamespace(loop=self.loop), viewing=viewing, publishing=shares
            ),
            guard=lambda call: call,
            access=Access(view, "/", "guest"),  # type: ignore[arg-type]
            queue=lambda name, store: SimpleNamespace(group=3),
        )

    def monotonic_ms(self) -> int:
        self.turns += 1
        return self.turns

    def put(self, *messages: tuple[bytes, Properties], age_ms: int = 0, priority: int = 4) -> int:
        """Publish a block; its index."""
        heads = [properties.encode(said) for _, said in messages]
        data = encode([body for body, _ in messages], heads, (b"x", b"key"), priority, None)
        self.queue.do(Enqueue(), data, 9)
        self.blocks[self.queue.index] = Block.decode(data)
        self.times[self.queue.index] = NOW_MS - age_ms
        return self.queue.index

    def places(
        self, group: int, states: Any, after: Any, origin: int, count: int, done: Any
    ) -> None:
        found = page_of(self.queue.state, frozenset(states), after, count, origin == 7)
        done(ViewIs(0, (), (), (), found, 7))

    def kept(self, group: int, runs: Runs, most: int, *rest: Any) -> None:
        *_, done = rest
        gone = tuple(dict.fromkeys(run[0] for run in runs if run[0] in self.gone))
        left = [run for run in runs if run[0] not in self.gone][:2]
        if left and left[0][0] in self.damaged:
            done(ReadFailed("entry cannot be read", False))
            return
        left = list(takewhile(lambda run: run[0] not in self.damaged, left))
        parts = [(self.blocks[run[0]], run[1], run[2] + 1) for run in left]
        data = concat(parts) if parts else b""
        taken = sum(last - first for _, first, last in parts)
        done(Kept(gone, taken, tuple((run[0], self.times[run[0]]) for run in left), data))

    def page(self, **asked: Any) -> BrowsedPage:
        """What a request is answered."""
        answers: list[Any] = []
        browse._browse(self.asker, BrowseRequest("q", **asked).checked(), answers.append)
        while self.due:
            self.turn()
        (answer,) = answers
        if isinstance(answer, errors.Refusal):
            raise answer
        assert isinstance(answer, BrowsedPage)
        return answer

    def turn(self) -> None:
        self.loop.turn += 1
        calls, self.due[:] = list(self.due), []
        for call in calls:
            call()

    def all(self, **asked: Any) -> list[BrowsedMessage]:
        """The messages of all pages."""
        page = self.page(**asked)
        found = [*page.messages]
        while page.next:
            page = self.page(**{**asked, "after": page.next})
            found += page.messages
        return found


def bodies(found: list[BrowsedMessage]) -> list[str]:
    return [one.body for one in found]


@pytest.fixture
def world() -> World:
    """Twelve messages: a old, b young, c of priority 9."""
    made = World()
    made.put(*[(b"a%d" % n, Properties(headers={"n": n})) for n in range(5)], age_ms=60_000)
    made.put(*[(b"b%d" % n, Properties(message_id=f"id{n}")) for n in range(4)], age_ms=10)
    made.put(*[(b"c%d" % n, Properties(type="order")) for n in range(3)], priority=9)
    return made


def test_what_is_shown_of_a_message(world: World) -> None:
    said = Properties(content_type="text/plain", headers={"k": b"\xff", "t": {"deep": [1.5, None]}})
    world.put((b"\xff\xfe" + bytes(98), said), ("äöü".encode() * 9, Properties()))
    first, second = world.all(body_bytes=5)[-2:]
    assert (first.body, first.encoding, first.body_bytes) == ("//4AAAA=", "base64", 100)
    assert (second.body, second.encoding, second.body_bytes) == ("äö", "text", 54)
    assert first.properties == {"content_type": "text/plain"}
    assert first.headers == {"k": "\\xff", "t": {"deep": [1.5, None]}}
    assert (first.exchange, first.routing_key, first.priority) == ("x", "key", 4)
    assert (first.state, first.published_at, first.delivery_count) == ("ready", NOW_MS, 0)


def test_one_browser_of_a_node_matches_in_a_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many ask: each may take MATCHING_MS."""
    looks: list[int] = []
    look = browse.Browsing._look

    def noted(self: Any, *given: Any) -> None:
        looks.append(world.loop.turn)
        look(self, *given)

    monkeypatch.setattr(browse.Browsing, "_look", noted)
    monkeypatch.setattr(browse, "MATCHING_MS", 0)
    answers: list[Any] = []
    for _ in range(5):
        asked = BrowseRequest("q", contains="none").checked()
        browse._browse(world.asker, asked, answers.append)
    while world.due:
        world.turn()
    assert len(answers) == 5 and all(not one.messages and not one.next for one in answers)
    assert len(looks) == 5 * 12 and len(set(looks)) == len(looks), "looks of a turn"


def test_what_matches(world: World) -> None:
    assert bodies(world.all(count=2)) == ["c0", "c1", "c2"] + [
        *(f"a{n}" for n in range(5)),
        *(f"b{n}" for n in range(4)),
    ]
    assert bodies(world.all(filter="n >= 3")) == ["a3", "a4"]
    assert bodies(world.all(filter="p.message_id LIKE 'id%'", count=1)) == ["b0", "b1", "b2", "b3"]
    assert bodies(world.all(priority=9, count=1)) == ["c0", "c1", "c2"]
    assert bodies(world.all(contains="2")) == ["c2", "a2", "b2"]
    assert bodies(world.all(older_ms=1_000)) == [f"a{n}" for n in range(5)]
    assert bodies(world.all(newer_ms=1_000, priority=4)) == [f"b{n}" for n in range(4)]
    assert world.all(states="held,dead") == []


def test_a_page_ends_at_its_bound_of_work(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browse, "MESSAGES_LOOKED_MAX", 3)
    page = world.page(filter="p.message_id = 'id3'")
    assert page.next and not page.messages and page.looked == 3
    assert bodies(world.all(filter="p.message_id = 'id3'")) == ["b3"]
    monkeypatch.setattr(browse, "MESSAGES_LOOKED_MAX", 100)
    monkeypatch.setattr(browse, "BROWSED_ANSWER_PARTS", 1)
    assert len(world.page().messages) == 1 and len(world.all()) == 12


def test_what_left_meanwhile_and_what_cannot_be_read(world: World) -> None:
    indexes = sorted(world.blocks)
    world.gone.add(indexes[0])
    world.damaged.add(indexes[1])
    found = world.all()
    assert bodies(found) == ["c0", "c1", "c2", "", "", "", ""]
    assert [one.unreadable for one in found[3:]] == ["entry cannot be read"] * 4
    assert bodies(world.all(contains="c")) == ["c0", "c1", "c2"]
    world.gone.update(indexes)
    assert world.all() == []


def test_who_has_it_and_what_a_consumer_has_annotated(world: World) -> None:
    world.queue.do(Checkout(1, 5, "worker", 4))
    pairs, _ = read_annotations(b"\xc1\x0d\x02\xa3\x05x-why\xa1\x03bad")
    world.queue.do(Modify(1, ((3, 3),), True, False, pairs))
    held = world.all(states="held")
    assert {(one.holder, one.node, one.session) for one in held} == {("worker", "n1", 5)}
    (back,) = [one for one in world.all() if one.annotations]
    assert back.annotations == {"x-why": "bad"} and back.delivery_count == 1


def test_what_a_publisher_over_amqp_1_0_has_annotated(world: World) -> None:
    sent = Message(
        id="m1",
        body=b"typed",
        properties={"shop": "north"},
        annotations={symbol("x-mine"): 5, symbol("x-list"): [True, "t"]},
    )
    sent.inferred = True
    read = read_message(memoryview(sent.encode()))
    data = encode([bytes(read.body)], [bytes(read.properties)], (b"x", b"key"), 4, None)
    world.queue.do(Enqueue(), data, 9)
    world.blocks[world.queue.index] = Block.decode(data)
    world.times[world.queue.index] = NOW_MS
    (found,) = world.all(filter="shop = 'north'")
    assert found.annotations == {"x-mine": 5, "x-list": [True, "t"]}
    assert (found.body, found.headers["shop"]) == ("typed", "north")
    assert found.properties["message_id"] == "m1"


def test_requests_that_are_refused(world: World) -> None:
    for asked, text in (
        ({"filter": "n ="}, "filter: "),
        ({"filter": "UTC() > 1"}, "UTC() changes with the time"),
        ({"after": "nonsense!"}, "give `next` of an earlier page"),
        ({"after": "gg"}, "give `next` of an earlier page"),
        ({"states": "ready,lost"}, "'lost' is none of a message's"),
    ):
        with pytest.raises(errors.InvalidArgument) as refused:
            world.page(**asked)
        assert text in refused.value.detail
    beyond = browse.encode_after(
        7, browse.BrowsePlace(0, "", (64, 1 << 60, 9, 5, 1 << 61, 1 << 30))
    )
    assert len(world.page(after=beyond).messages) == 12, "what came back is before the lanes"
    beyond = browse.encode_after(7, browse.BrowsePlace(4, "", (1 << 60, 1, 1)))
    assert world.page(after=beyond) == BrowsedPage((), "", 0, True)
    world.tags = ("administrator", NO_BROWSE)
    with pytest.raises(errors.AccessRefused, match="'no-browse'"):
        world.page()
