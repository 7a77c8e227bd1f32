"""The ends over AMQP 1.0, against a peer in the same process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from proton import Condition, Delivery, Event, Message, Terminus, symbol

from tests.broker.clients10.test_endings import transfer
from warren_broker.transfers.shovel.end10 import BLOCKED_S, Source10, Target10
from warren_broker.transfers.shovel.ends import Answers
from warren_broker.transfers.shovel.received import KEPT_BYTES, Received091, Received10
from warren_broker.transfers.shovel.sections import Stamps
from warren_wire.amqp10.engine import Engine
from warren_wire.links.definition import ShovelDefinition, parse_shovel
from warren_wire.sessions.locate import OwnNode
from warren_wire.sessions.pika_properties import MessageProperties

OWN = OwnNode("amqp", "127.0.0.1", 5672, 16 << 20)
BARE = b"\x00\x53\x75\xa0\x01x"


class Services:
    """Timers that a test lets pass by hand; the peer is reached by `write`."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []
        self.late: list[Callable[[], None]] = []

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        (self.late if delay_s else self.due).append(call)

    def wait(self) -> None:
        """Let the time pass."""
        late, self.late = self.late, []
        self.due += late


class Peer:
    """A broker's engine without a socket; `end` is the shovel's side.

    refusing  attaches links without a terminus, as one does that refuses them
    drains    answers drains; detaches: and detaches
    ended     how the shovel has ended its link: the condition, or "closed"
    """

    def __init__(self, end: Any, refusing: bool = False) -> None:
        self.end = end
        self.refusing = refusing
        self.link: Any = None
        self.hostname = ""
        self.closed = self.aborted = False
        self.capabilities: list[str] = []
        self.drains = self.detaches = True
        self.ended: Any = None
        self.outcomes: list[tuple[Any, bool]] = []
        self._engine = Engine(server=True, container="peer")
        self._engine.transport.sasl().allow_insecure_mechs = True
        self._received: list[bytes] = []
        end._services = self.services = Services()
        self._engine.bind()

    def connect(self) -> None:
        """Reach the peer, which speaks without SASL here."""
        self.end.uri.options["sasl"] = "none"
        self._engine = Engine(server=True, container="peer")
        self._engine.bind()
        self.end.connection_made(self)
        self.turn()

    # ------------------------------------------------------------ the transport

    def write(self, data: bytes) -> None:
        self._received.append(data)

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self._received))

    def abort(self) -> None:
        self.aborted = True

    # ------------------------------------------------------------ the broker

    def turn(self) -> None:
        """Let both sides speak until neither has anything to say."""
        while True:
            due, self.services.due = self.services.due, []
            for call in due:
                call()
            received, self._received = self._received, []
            for data in received:
                for _ in self._engine.receive(data):
                    self._events()
            self._events()
            answer = b"".join(self._engine.output())
            if answer:
                self.end.data_received(answer)
            if not due and not received and not answer:
                return

    def _events(self) -> None:
        for event in self._engine.events():
            if event.type == Event.CONNECTION_REMOTE_OPEN:
                self.hostname = event.connection.remote_hostname
                event.connection.offered_capabilities = [symbol(one) for one in self.capabilities]
                event.connection.open()
            elif event.type == Event.SESSION_REMOTE_OPEN:
                event.session.incoming_capacity = 64 << 20
                event.session.open()
            elif event.type == Event.LINK_REMOTE_OPEN:
                self._attach(event.link)
            elif event.type == Event.DELIVERY:
                self._delivery(event.delivery)
            elif event.type == Event.LINK_FLOW and event.link.is_sender:
                if self.drains:
                    event.link.drained()
            elif event.type == Event.LINK_REMOTE_CLOSE:
                self.ended = event.link.remote_condition or "closed"
                assert not self.closed
                if self.detaches:
                    event.link.close()
            elif event.type == Event.CONNECTION_REMOTE_CLOSE:
                self.closed = True
                event.connection.close()

    def _attach(self, link: Any) -> None:
        self.link = link
        if self.refusing:
            link.source.type = Terminus.UNSPECIFIED
        else:
            link.source.copy(link.remote_source)
            link.target.copy(link.remote_target)
        link.open()

    def _delivery(self, delivery: Any) -> None:
        if delivery.link.is_sender and delivery.updated:
            failed = delivery.remote_state == Delivery.MODIFIED and delivery.remote.failed
            self.outcomes.append((delivery.remote_state, failed))
            delivery.settle()

    def send(self, *bodies: bytes) -> None:
        """Deliver messages, in frames of the smallest size."""
        for body in bodies:
            self.link.delivery(str(len(self.outcomes)) + body[:8].hex())
            self.link.stream(bytes(Message(body=body, inferred=True).encode()))
            self.link.advance()
        self.turn()

    def received(self) -> list[Any]:
        """Take the deliveries that have arrived."""
        found = []
        while (delivery := self.link.current) is not None and delivery.readable:
            self.link.recv(delivery.pending)
            self.link.advance()
            found.append(delivery)
        return found

    def end_link(self, name: str, text: str) -> None:
        """Close the link with an error."""
        self.link.condition = Condition(name, text)
        self.link.close()
        self.turn()


def shovel(**more: Any) -> ShovelDefinition:
    """A shovel between two places."""
    value = {
        "src-protocol": "amqp10",
        "src-uri": "amqp://far",
        "src-address": "/queues/a",
        "dest-protocol": "amqp10",
        "dest-uri": "amqp://far/v",
        "dest-address": "/queues/b",
    }
    return parse_shovel("/", "s", {**value, **more})


@pytest.fixture
def failures() -> list[str]:
    return []


@pytest.fixture
def source(failures: list[str]) -> Source10:
    end = shovel().source
    return Source10(end, end.uris[0], OWN, "shovel s", failures.append)


def consuming(source: Source10, limit: int) -> tuple[Peer, list[Received10]]:
    """A source that consumes, and what it has passed on."""
    peer, found = Peer(source), []
    begun: list[bool] = []

    def attached(count: int) -> None:
        take: Any = found.append
        source.consume(limit, take, lambda: begun.append(True), "")

    source._opened = lambda: source.find(attached)
    peer.connect()
    assert begun and peer.link.remote_source.address == "/queues/a"
    return peer, found


def test_a_source_has_no_more_under_way_than_its_limit(source: Source10) -> None:
    peer, found = consuming(source, 3)
    assert (peer.hostname, peer.link.credit) == ("far", 3)
    peer.send(b"1", b"2", b"3")
    assert [each.tag for each in found] == [1, 2, 3] and peer.link.credit == 0
    source.acknowledge(2, True)
    peer.turn()
    assert peer.outcomes == [(Delivery.ACCEPTED, False)] * 2 and peer.link.credit == 2
    source.limit(5)
    peer.turn()
    assert peer.link.credit == 4
    source.acknowledge(3, False)
    peer.turn()
    assert (len(peer.outcomes), peer.link.credit) == (3, 5)


def test_a_message_in_many_frames_is_one_message(source: Source10) -> None:
    peer, found = consuming(source, 3)
    body = bytes(3 << 20)
    peer.send(body)
    (received,) = found
    assert received.as_091().body == body


def test_what_comes_after_the_stop_goes_back_uncounted(source: Source10) -> None:
    peer, found = consuming(source, 3)
    peer.send(b"1")
    stopped: list[bool] = []
    peer.drains = False
    source.stop(lambda: stopped.append(True))
    peer.turn()
    assert not stopped, "two may be on their way"
    peer.send(b"2", b"3")
    assert stopped
    assert len(found) == 1
    assert peer.outcomes == [(Delivery.RELEASED, False)] * 2
    source.acknowledge(1, False)
    ended: list[bool] = []
    source.close(lambda: ended.append(True))
    peer.turn()
    assert peer.outcomes[2:] == [(Delivery.ACCEPTED, False)] and ended and peer.aborted


@pytest.mark.parametrize("answers", [True, False])
def test_a_source_that_stops_gives_its_credit_back(source: Source10, answers: bool) -> None:
    """A peer that does not answer is not waited for."""
    peer, found = consuming(source, 3)
    peer.drains = answers
    stopped: list[bool] = []
    source.stop(lambda: stopped.append(True))
    peer.turn()
    assert bool(stopped) is answers
    peer.services.wait()
    peer.turn()
    assert stopped == [True] and (peer.link.credit == 0) is answers
    source.close()
    peer.turn()
    assert peer.closed and found == []


@pytest.mark.parametrize("answers", [True, False])
def test_the_link_ends_before_the_connection(source: Source10, answers: bool) -> None:
    """What the end of a connection returns counts as failed, what a detach returns does not."""
    peer, _ = consuming(source, 3)
    peer.send(b"1")
    peer.detaches = answers
    ended: list[bool] = []
    source.close(lambda: ended.append(True))
    peer.turn()
    assert peer.ended == "closed" and peer.outcomes == [(Delivery.RELEASED, False)]
    assert peer.closed is answers
    peer.services.wait()
    peer.turn()
    assert peer.closed and ended == [True]


def test_a_message_above_the_limit_is_counted_alone_and_ends_the_link(
    source: Source10, failures: list[str]
) -> None:
    """Before: the shovel's process took whatever came, of any length."""
    peer, found = consuming(source, 5)
    peer.send(b"1")
    delivery = peer.link.delivery("large")
    for _ in range(17):
        peer.link.stream(bytes(1 << 20))
        peer.turn()
        assert len(source._part) <= 16 << 20
    assert failures and "amqp:link:message-size-exceeded: a message of 17," in failures[0]
    assert delivery.remote_state == Delivery.MODIFIED and delivery.remote.failed
    source.close()
    peer.turn()
    assert peer.ended.name == "amqp:link:message-size-exceeded"
    assert sorted(peer.outcomes, key=str) == sorted(
        [(Delivery.MODIFIED, True), (Delivery.RELEASED, False)], key=str
    )
    assert len(found) == 1 and peer.closed


def test_messages_that_there_is_no_credit_for_end_the_link_in_the_end(
    source: Source10, failures: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: they were held, however many. RabbitMQ 3.10 sends some now and then."""
    monkeypatch.setattr(
        "warren_broker.transfers.shovel.received.OVERRUN_BYTES", 2 * (len(BARE) + KEPT_BYTES)
    )
    peer, found = consuming(source, 2)
    for number in range(4):
        source.data_received(transfer(0, number))
    assert not failures and len(found) == 4
    source.data_received(transfer(0, 4))
    assert len(found) == 4 and "amqp:link:transfer-limit-exceeded" in failures[0]
    source.close()
    peer.turn()
    assert peer.ended.name == "amqp:link:transfer-limit-exceeded" and peer.closed


def test_a_message_that_cannot_be_passed_on_is_counted_and_others_are_not(
    source: Source10,
) -> None:
    peer, _ = consuming(source, 1)
    peer.send(b"1")
    source.fail_held()
    source.close()
    peer.turn()
    assert peer.outcomes == [(Delivery.MODIFIED, True)] and peer.closed


def test_what_is_held_goes_back_uncounted_at_the_end(source: Source10) -> None:
    peer, _ = consuming(source, 3)
    peer.send(b"1", b"2")
    source.close()
    peer.turn()
    assert peer.outcomes == [(Delivery.RELEASED, False)] * 2 and peer.closed


@pytest.mark.parametrize("refusing", [True, False])
def test_the_peers_words_end_a_source(
    source: Source10, failures: list[str], refusing: bool
) -> None:
    peer = Peer(source, refusing)
    attached: list[bool] = []
    source._opened = lambda: source.consume(
        1, lambda received: None, lambda: attached.append(True), ""
    )
    peer.connect()
    assert bool(attached) is not refusing
    peer.end_link("amqp:not-found", "no queue 'a'")
    peer.end_link("amqp:not-found", "again")
    assert failures == ["src-uri amqp://guest@far:5672/%2F: amqp:not-found: no queue 'a'"]
    assert source.refuses is not refusing


class Told:
    """What a destination has told."""

    def __init__(self, failures: list[str], confirms: bool = True, **more: Any) -> None:
        self.accepted: list[Answers] = []
        self.refused: list[Answers] = []
        made = shovel(**more)
        stamps = Stamps(made, "here", made.source.uris[0], made.destination.uris[0])
        self.target = Target10(
            stamps,
            OWN,
            "shovel s",
            failures.append,
            confirms,
            self.accepted.append,
            self.refused.append,
        )
        self.peer = Peer(self.target)
        attached: list[bool] = []
        self.target._opened = lambda: self.target.find(lambda: attached.append(True))
        self.peer.connect()
        assert attached and self.peer.link.remote_target.address == "/queues/b"

    def publish(self, *numbers: int) -> None:
        """Publish messages with these numbers."""
        for number in numbers:
            self.target.publish(number, self.target.prepare(Received10(number, BARE)), None)
        self.peer.turn()


def test_a_destination_sends_within_its_credit_and_tells_each_outcome(
    failures: list[str],
) -> None:
    told = Told(failures)
    assert told.peer.hostname == "vhost:v"
    told.publish(1, 2, 3, 4, 5)
    assert told.peer.received() == [] and told.target.unsent_bytes() == 5
    told.peer.link.flow(4)
    told.peer.turn()
    first, *others = told.peer.received()
    assert (first.tag, len(others), told.target.unsent_bytes()) == ("1", 3, 1)
    for delivery, outcome in zip(
        (first, *others),
        (Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED, Delivery.ACCEPTED),
        strict=True,
    ):
        delivery.update(outcome)
        delivery.settle()
    told.peer.turn()
    assert told.accepted == [[(1, False), (4, False)]] and told.refused == [
        [(2, False), (3, False)]
    ]
    told.peer.link.flow(1)
    told.peer.turn()
    assert [delivery.tag for delivery in told.peer.received()] == ["5"] and not failures


def test_a_destination_without_credit_counts_as_blocked_after_a_while(
    failures: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [1000.0]
    monkeypatch.setattr("warren_broker.transfers.shovel.end10.time.monotonic", lambda: now_s[0])
    told = Told(failures)
    now_s[0] += 10 * BLOCKED_S
    told.publish(1)
    assert not told.target.blocked
    now_s[0] += 2 * BLOCKED_S
    assert told.target.blocked
    told.peer.link.flow(1)
    told.peer.turn()
    assert not told.target.blocked


def test_without_confirms_messages_leave_settled(failures: list[str]) -> None:
    told = Told(failures, confirms=False)
    told.peer.link.flow(2)
    told.peer.turn()
    told.publish(1)
    (delivery,) = told.peer.received()
    assert delivery.settled and told.target.unsent_bytes() == 0 and told.accepted == []


def test_marks_are_annotations_with_rabbitmqs_names(failures: list[str]) -> None:
    marks = {"dest-add-forward-headers": True, "dest-add-timestamp-header": True}
    told = Told(failures, **marks)
    found = Message()
    found.decode(b"".join(told.target.prepare(Received10(1, BARE)).pieces))
    assert found.annotations.pop("x-opt-shovelled-timestamp") > 1_700_000_000_000
    assert found.annotations == {
        "x-opt-shovelled-by": "here",
        "x-opt-shovel-type": "dynamic",
        "x-opt-shovel-name": "s",
    }


@pytest.mark.parametrize(
    ("address", "stays"),
    [
        ("/queues/b", False),
        ("/exchanges/x/k", True),
        *(("/queue/b", False), ("/amq/queue/b", False), ("b", False)),
        *(("/exchange/x/k", True), ("/topic/k", True)),
    ],
)
def test_a_message_for_one_queue_names_no_further_ones(address: str, stays: bool) -> None:
    """Before, the queues that its publisher had named in x-cc got it a second time."""
    made = shovel(**{"dest-address": address})
    stamps = Stamps(made, "here", made.source.uris[0], made.destination.uris[0])

    def nothing(*_: Any) -> None: ...

    target = Target10(stamps, OWN, "shovel s", nothing, True, nothing, nothing)
    here = Message(body=b"x", annotations={symbol("x-cc"): ["c"], symbol("x-a"): symbol("q")})
    there = Received091(1, "", "a", False, MessageProperties(headers={"CC": ["c"]}), b"x")
    for received in (Received10(1, bytes(here.encode())), there):
        found = Message()
        found.decode(b"".join(target.prepare(received).pieces))
        assert (symbol("x-cc") in (found.annotations or {})) is stays
        assert len(found.annotations) == 2 + stays - (received is not there)


def test_a_link_that_ends_with_an_error_refuses_a_message(failures: list[str]) -> None:
    told = Told(failures)
    told.peer.link.flow(1)
    told.peer.turn()
    told.publish(1)
    told.peer.end_link("amqp:link:message-size-exceeded", "too large")
    assert told.target.refuses
    assert failures == [
        "dest-uri amqp://guest@far:5672/v: amqp:link:message-size-exceeded: too large"
    ]


def test_messages_that_the_peer_aborts_use_up_no_credit(source: Source10) -> None:
    peer, found = consuming(source, 3)
    for number in range(7):
        delivery = peer.link.delivery(f"aborted {number}")
        peer.link.stream(b"\x00\x53\x75")
        peer.turn()
        delivery.abort()
        peer.turn()
    assert found == [] and peer.link.credit == 3
    peer.send(b"1", b"2")
    assert [received.as_091().body for received in found] == [b"1", b"2"]


def test_links_that_the_peer_attaches_itself_are_none_of_the_shovels(
    source: Source10, failures: list[str]
) -> None:
    peer, found = consuming(source, 3)
    own = peer.link
    for kind in ("sender", "receiver"):
        other = getattr(own.session, kind)(f"of the peer, {kind}")
        other.source.address = other.target.address = "/queues/other"
        other.open()
        peer.turn()
        if kind == "receiver":
            other.flow(5)
        else:
            other.offered(1)
        peer.turn()
        assert other.remote_condition.name == "amqp:not-allowed"
        other.close()
        peer.turn()
    peer.link = own
    peer.send(b"1")
    assert len(found) == 1 and failures == []


def test_a_message_that_the_link_does_not_take_is_not_sent(failures: list[str]) -> None:
    told = Told(failures)
    told.peer.link.flow(2)
    told.peer.turn()
    told.publish(1)
    assert len(told.peer.received()) == 1
    told.target.link = _Limited(told.target.link, len(BARE) - 1)
    told.publish(2)
    assert told.peer.received() == [] and told.target.refuses
    assert failures == [
        "dest-uri amqp://guest@far:5672/v: amqp:link:message-size-exceeded: a message of 6 bytes; "
        "it takes 5"
    ]


class _Limited:
    """A link of which the peer has said a max-message-size."""

    def __init__(self, link: Any, size: int) -> None:
        self._link = link
        self.remote_max_message_size = size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)
