"""Which right each operation needs: one table, asked of both protocols.

The rights are those of RabbitMQ's table in its guide on access control; test_access_rights.py in
tests/live asks the rows of AMQP 0.9.1 of a running broker, RabbitMQ included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pamqp.commands as spec
import pytest

from broker.clients091.peer import Peer, Rights
from machines.metadata.world import World as Metadata
from warren_broker.access import requests as asked
from warren_broker.access.message_checks import KEYED_BYTES_PER_READ
from warren_broker.access.requests import ExchangeFacts
from warren_broker.admin import resources
from warren_broker.admin.caller import Asker
from warren_broker.clients.protocol_client import ProtocolClient
from warren_broker.clients10 import connection_requests as amqp10_requests
from warren_broker.clients10.blocks10 import BLOCK_HANDLERS
from warren_broker.clients10.link_requests import PublishMessages, PublishOutcomes
from warren_broker.clients10.links10 import LINK_HANDLERS
from warren_broker.clients10.views10 import VIEW_HANDLERS
from warren_broker.cluster.client.reads import ReadFailed
from warren_broker.cluster.turn_shares import TurnShares
from warren_broker.counting.counters import Counters
from warren_broker.counting.message_stats import MessageCounts
from warren_machines.metadata.permissions import Permissions
from warren_machines.queue.commands import Count
from warren_machines.routing.surroundings import AbsentNodes, RoutingNode
from warren_machines.routing.topology import Topology
from warren_wire import errors
from warren_wire.admin import claims as claim_resource
from warren_wire.admin import delayed as delayed_resource
from warren_wire.admin import exchanges
from warren_wire.admin import exchanges as bindings
from warren_wire.admin import members as members
from warren_wire.admin import queues as queue_resource
from warren_wire.admin.browse import BrowseRequest
from warren_wire.admin.queues import (
    ForgetSinkRequest,
    ListSinksRequest,
    ReleaseRelayRequest,
    ViewEdgesRequest,
)
from warren_wire.amqp091 import properties
from warren_wire.amqp10.addresses import ClaimSource, StageTarget, ViewSource
from warren_wire.block.block import FORM_AMQP10, Block, encode
from warren_wire.kernel import MessageTable, Route, Selection

HANDLERS: dict[type, Any] = {
    **resources.HANDLERS,
    **BLOCK_HANDLERS,
    **VIEW_HANDLERS,
}
USER = "guest"
VHOST = "/"

Right = tuple[str, str, str]
"""(permission, kind, name)"""

QUEUE: tuple[Right, ...] = (("configure", "queue", "q"),)
WRITE_DIRECT: tuple[Right, ...] = (("write", "exchange", "amq.direct"),)
WRITE_DEFAULT: tuple[Right, ...] = (("write", "exchange", "amq.default"),)
WRITE_TOPIC: tuple[Right, ...] = (("write", "exchange", "amq.topic"),)
READ_QUEUE: tuple[Right, ...] = (("read", "queue", "q"),)
BIND_QUEUE: tuple[Right, ...] = (("write", "queue", "q"), ("read", "exchange", "amq.direct"))
BIND_EXCHANGE: tuple[Right, ...] = (("write", "exchange", "d"), ("read", "exchange", "amq.direct"))
DEAD_LETTERS = {"x-dead-letter-exchange": "dlx"}
ALTERNATE = {"alternate-exchange": "ae"}
DECLARE_DLX: tuple[Right, ...] = (
    ("configure", "queue", "n"),
    ("read", "queue", "n"),
    ("write", "exchange", "dlx"),
)
DECLARE_AE: tuple[Right, ...] = (
    ("configure", "exchange", "n"),
    ("read", "exchange", "n"),
    ("write", "exchange", "ae"),
)

CLIENT091: tuple[tuple[str, tuple[Right, ...], Any], ...] = (
    ("declare a queue", (("configure", "queue", "n"),), spec.Queue.Declare(queue="n")),
    (
        "declare a queue with dead letters",
        DECLARE_DLX,
        spec.Queue.Declare(queue="n", arguments=DEAD_LETTERS),
    ),
    ("delete a queue", QUEUE, spec.Queue.Delete(queue="q")),
    ("purge", READ_QUEUE, spec.Queue.Purge(queue="q")),
    ("declare an exchange", (("configure", "exchange", "n"),), spec.Exchange.Declare(exchange="n")),
    (
        "declare an exchange with an alternate",
        DECLARE_AE,
        spec.Exchange.Declare(exchange="n", arguments=ALTERNATE),
    ),
    ("delete an exchange", (("configure", "exchange", "d"),), spec.Exchange.Delete(exchange="d")),
    ("bind a queue", BIND_QUEUE, spec.Queue.Bind(queue="q", exchange="amq.direct")),
    ("unbind a queue", BIND_QUEUE, spec.Queue.Unbind(queue="q", exchange="amq.direct")),
    ("bind an exchange", BIND_EXCHANGE, spec.Exchange.Bind(destination="d", source="amq.direct")),
    (
        "unbind an exchange",
        BIND_EXCHANGE,
        spec.Exchange.Unbind(destination="d", source="amq.direct"),
    ),
    ("publish", WRITE_DIRECT, ("amq.direct", "q", {})),
    ("publish to the default exchange", WRITE_DEFAULT, ("", "q", {})),
    ("consume", READ_QUEUE, spec.Basic.Consume(queue="q")),
    ("get", READ_QUEUE, spec.Basic.Get(queue="q")),
)
"""(operation, the rights it needs, what an AMQP 0.9.1 client sends)"""


def block(key: str = "q", exchange: str = "", **given: Any) -> bytes:
    """A block of one message."""
    raw = properties.encode(properties.Properties(**given))
    return encode([b"body"], [raw], (exchange.encode(), key.encode()), 4, None)


def stage(exchange: str, data: bytes) -> amqp10_requests.StageBlock:
    """A block for a stage."""
    target = StageTarget(exchange, "sink", "run", 1, 1, 0, 0, 1)
    return amqp10_requests.StageBlock(target, 1, data)


FORGET_SINK: tuple[Right, ...] = (*READ_QUEUE, ("write", "queue", "q"))
BINDING_QUEUE = bindings.BindingInfo("amq.direct", "q", "queue", "q")
BINDING_EXCHANGE = bindings.BindingInfo("amq.direct", "d", "exchange", "q")
VIEW = ViewSource("q", ("ready", "dead"), 0, 9, 0, True, True)
CLIENT10: tuple[tuple[str, tuple[Right, ...], Any], ...] = (
    ("declare a queue", (("configure", "queue", "n"),), queue_resource.DeclareQueueRequest("n")),
    (
        "declare a queue with dead letters",
        DECLARE_DLX,
        queue_resource.DeclareQueueRequest("n", arguments=DEAD_LETTERS),
    ),
    ("delete a queue", QUEUE, queue_resource.DeleteQueueRequest("q")),
    ("purge", READ_QUEUE, queue_resource.PurgeQueueRequest("q")),
    ("retry delayed messages", READ_QUEUE, queue_resource.RetryDelayedRequest("q")),
    ("list delayed messages", READ_QUEUE, delayed_resource.ListDelayedRequest("q", 5)),
    ("end a delay", READ_QUEUE, delayed_resource.EndDelayRequest("q", "1-1-0", True)),
    ("list sinks", READ_QUEUE, ListSinksRequest("q", "", "", 5)),
    ("forget a sink", FORGET_SINK, ForgetSinkRequest("q", "s", "", True)),
    ("release a relay", READ_QUEUE, ReleaseRelayRequest("q", "r")),
    ("look at a queue", READ_QUEUE, queue_resource.GetQueueRequest("q")),
    ("look at a queue's members", READ_QUEUE, members.GetMembersRequest("q")),
    (
        "declare an exchange",
        (("configure", "exchange", "n"),),
        exchanges.DeclareExchangeRequest("n"),
    ),
    (
        "declare an exchange with an alternate",
        DECLARE_AE,
        exchanges.DeclareExchangeRequest("n", arguments=ALTERNATE),
    ),
    (
        "delete an exchange",
        (("configure", "exchange", "d"),),
        exchanges.DeleteExchangeRequest("d"),
    ),
    ("bind a queue", BIND_QUEUE, bindings.BindRequest("amq.direct", "q", "", "q")),
    ("unbind a queue", BIND_QUEUE, bindings.UnbindRequest(bindings.binding_segment(BINDING_QUEUE))),
    ("bind an exchange", BIND_EXCHANGE, bindings.BindRequest("amq.direct", "", "d", "q")),
    (
        "unbind an exchange",
        BIND_EXCHANGE,
        bindings.UnbindRequest(bindings.binding_segment(BINDING_EXCHANGE)),
    ),
    ("publish a block", WRITE_DIRECT, amqp10_requests.PublishBlock("", "amq.direct", block())),
    ("publish a block to a queue", WRITE_DEFAULT, amqp10_requests.PublishBlock("q", "", block())),
    (
        "publish a block to the default exchange",
        WRITE_DEFAULT,
        amqp10_requests.PublishBlock("", "", block()),
    ),
    ("stage", WRITE_DIRECT, stage("amq.direct", block())),
    ("stage for the default exchange", WRITE_DEFAULT, stage("", block())),
    (
        "publish a batch",
        (("write", "queue", "q"),),
        claim_resource.PublishBatchRequest("sink", "run", 1, 1, (("q", ()),)),
    ),
    (
        "drop a batch",
        (("write", "queue", "q"),),
        claim_resource.DropBatchRequest("sink", "run", 1, 1, (("q", ()),)),
    ),
    ("browse", READ_QUEUE, amqp10_requests.Browse("q", None, 1, 1)),
    ("look at messages", READ_QUEUE, BrowseRequest("q")),
    ("view", READ_QUEUE, amqp10_requests.ViewQueue(VIEW, None, 1)),
    ("cut a view", READ_QUEUE, ViewEdgesRequest("q", ("ready", "dead"), 3)),
    ("fetch a claim", READ_QUEUE, amqp10_requests.FetchClaim(ClaimSource("q", "r", 1, 0, 1), 1)),
    ("register a reader", READ_QUEUE, claim_resource.RegisterReaderRequest("q", "r")),
    ("open a claim", READ_QUEUE, claim_resource.OpenClaimRequest("q", "r", 1, 1, 1, 1)),
    ("renew claims", READ_QUEUE, claim_resource.RenewClaimsRequest("q", "r", 1)),
    ("settle claims", READ_QUEUE, claim_resource.SettleClaimsRequest("q", "r", 1, 1)),
    ("release a claim", READ_QUEUE, claim_resource.ReleaseClaimRequest("q", "r", 1, 1)),
)
"""(operation, the rights it needs, what an AMQP 1.0 client asks)"""


def granted(rights: tuple[Right, ...]) -> Permissions:
    """Exactly these."""
    patterns = {}
    for permission in ("configure", "write", "read"):
        names = [name for each, _, name in rights if each == permission]
        patterns[permission] = f"^({'|'.join(names)})$" if names else "^$"
    return Permissions(**patterns)


# ------------------------------------------------------------------ AMQP 0.9.1


def try091(
    operation: Any,
    held: Permissions | None,
    topics: Permissions | None = None,
    tags: tuple[str, ...] = (),
) -> errors.Refusal | None:
    """What an open channel answers; None: it asked the broker for it."""
    peer = Peer().connect().open()
    peer.view.exchanges["d"] = ExchangeFacts(kind="direct")
    peer.view.held, peer.view.topics, peer.view.user_tags = held, topics, tags
    if isinstance(operation, tuple):
        exchange, key, given = operation
        peer.publish(exchange=exchange, key=key, **given)
    else:
        peer.send(operation)
    made = peer.asked()
    closes = [frame for _, frame in peer.got() if isinstance(frame, spec.Channel.Close)]
    if not closes:
        assert len(made) == 1 and not isinstance(made[0], asked.SessionDownRequest), made
        return None
    assert [type(each) for each in made] == [asked.SessionDownRequest], made
    kind = {403: errors.AccessRefused, 406: errors.PreconditionFailed, 404: errors.NotFound}
    return kind[closes[0].reply_code](closes[0].reply_text.partition(" - ")[2])


# ------------------------------------------------------------------ AMQP 1.0


@dataclass
class Broker10(Rights):
    """What stands behind a 1.0 connection: real definitions and routes, queues that take it all.

    done  what was asked of queues or definitions: empty when an operation was refused
    """

    held: Permissions | None
    topics: Permissions | None = None
    user_tags: tuple[str, ...] = ()
    done: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        made = Metadata()
        made.declare("q")
        made.exchange("d")
        made.exchange("inner", internal=True)
        made.exchange("chance", "x-random")
        made.exchange("by-id", "x-consistent-hash", arguments={"hash-property": "message_id"})
        for exchange in ("amq.direct", "amq.topic", "inner"):
            made.bind(exchange, "q", "q")
        state = made.state
        self.definitions = SimpleNamespace(
            state=state,
            topology=Topology(state.scopes, RoutingNode("a", AbsentNodes(), lambda bound: 0)),
            submit=self._submit,
        )
        self.settings = SimpleNamespace(
            limits=SimpleNamespace(message_size_max=1000, frame_max=4096),
            queues=SimpleNamespace(stage_ttl_ms=0, reader_idle_ms=1000),
            node="a",
        )
        self.queues = SimpleNamespace(
            find=lambda vhost, name, connection=0, store=False: state.queue(vhost, name),
            absent=lambda queue: False,
            client=lambda queue: SimpleNamespace(with_messages=self._with_messages),
            ask=self._ask,
        )
        self.publishing = SimpleNamespace(
            shares=TurnShares(SimpleNamespace(turn=1))  # type: ignore[arg-type]
        )
        failed = ReadFailed("no claim", False)
        self.reading = SimpleNamespace(
            runs=lambda *given: self._did(given, failed),
            delayed=lambda *given: self._did(given, failed),
            sinks=lambda *given: self._did(given, failed),
        )
        self.viewing = SimpleNamespace(
            view=lambda *given: self._did(given, failed),
            when_current=lambda group, done: done(True),
            browse=lambda *given: self._did(given, failed),
        )
        self.cluster = SimpleNamespace(
            leader_of=lambda group: "a",
            counters=Counters(),
            queue_counts=MessageCounts(),
            loop=SimpleNamespace(clock=SimpleNamespace(epoch_ms=lambda: 1)),
        )
        self.membership = SimpleNamespace(queue_status=lambda *given: self._did(given, "status"))

    def exchange(self, vhost: str, name: str) -> ExchangeFacts | None:
        found = self.definitions.state.exchange(vhost, name)
        return None if found is None else ExchangeFacts(found.kind, found.internal)

    def exchange_declaration(self, *given: Any) -> Any:
        return given

    def bind(self, command: Any, done: Callable[[Any], None]) -> None:
        self._submit(command, done)

    def declare_queue(self, *given: Any, done: Callable[[Any], None], **more: Any) -> None:
        self._did((given, done), errors.NotFound("made"))

    def queue_counts(self, *given: Any) -> None:
        self._did(given, errors.NotFound("counted"))

    def delete_queue(self, *given: Any) -> None:
        self._did(given, Count(0))

    def purge_queue(self, *given: Any, store: bool) -> None:
        self._did(given, Count(0))

    def _did(self, given: tuple[Any, ...], result: Any) -> None:
        self.done.append(given)
        given[-1](result)

    def reply_queue_exists(self, name: str) -> bool:
        """No name for replies is known."""
        return False

    def _submit(self, command: Any, done: Callable[[Any], None]) -> None:
        self._did((command, done), None)

    def _with_messages(
        self, command: Any, part: Selection, done: Callable[[Any, int], None]
    ) -> None:
        self._did((command, part, lambda reply: done(reply, 1)), None)

    def _ask(self, queue: Any, command: Any, done: Callable[[Any], None]) -> None:
        self._did((queue, command, done), errors.NotFound("asked"))


def try10(
    request: Any,
    held: Permissions | None,
    topics: Permissions | None = None,
    tags: tuple[str, ...] = (),
) -> errors.Refusal | None:
    """What the request is refused with; None: it was carried out."""
    broker = Broker10(held, topics, tags)
    asker = Asker(broker, VHOST, USER, 1, lambda call: call)  # type: ignore[arg-type]
    answers: list[Any] = []
    try:
        HANDLERS[type(request)](asker, request, answers.append)
    except errors.Refusal as refusal:
        assert not broker.done and not answers
        return refusal
    if not broker.done and isinstance(answers[0], errors.Refusal):
        (refused,) = answers
        return refused
    assert broker.done and len(answers) == 1, (request, answers)
    return None


# ------------------------------------------------------------------ the table

BOTH = [(try091, *row) for row in CLIENT091] + [(try10, *row) for row in CLIENT10]
NAMES = [f"0.9.1: {name}" for name, _, _ in CLIENT091] + [f"1.0: {name}" for name, _, _ in CLIENT10]


@pytest.mark.parametrize(("attempt", "name", "needs", "operation"), BOTH, ids=NAMES)
def test_an_operation_needs_exactly_its_rights(
    attempt: Callable[..., errors.Refusal | None],
    name: str,
    needs: tuple[Right, ...],
    operation: Any,
) -> None:
    assert attempt(operation, granted(needs)) is None
    for missing in needs:
        others = tuple(right for right in needs if right != missing)
        refusal = attempt(operation, granted(others))
        permission, kind, shown = missing
        assert type(refusal) is errors.AccessRefused
        assert refusal.detail == (
            f"{permission} access to {kind} '{shown}' in vhost '/' refused for user 'guest'"
        )
    for one in ("configure", "write", "read"):  # everything else of all kinds does not help
        if any(permission == one for permission, _, _ in needs):
            rest = {each: ".*" for each in ("configure", "write", "read") if each != one}
            assert isinstance(attempt(operation, Permissions(**rest)), errors.AccessRefused)


@pytest.mark.parametrize(("attempt", "name", "needs", "operation"), BOTH, ids=NAMES)
def test_nobody_does_anything_in_a_vhost_without_permissions_there(
    attempt: Callable[..., errors.Refusal | None], name: str, needs: Any, operation: Any
) -> None:
    for tags in ((), ("management",), ("impersonator",)):
        assert isinstance(attempt(operation, None, tags=tags), errors.AccessRefused)


# ------------------------------------------------------------------ what a message says itself

EVERYTHING = Permissions(".*", ".*", ".*")


def ways(exchange: str, key: str, given: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    """Every way to publish a message with that key and these properties."""
    found: list[tuple[Any, Any]] = [
        (try091, (exchange, key, dict(given))),
        (try10, amqp10_requests.PublishBlock("", exchange, block(key, **given))),
        (try10, stage(exchange, block(key, **given))),
    ]
    if exchange == "":
        found.append((try10, amqp10_requests.PublishBlock(key, "", block("any", **given))))
    return found


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({}, None),
        ({"headers": {"CC": ["q", "q"]}}, None),
        ({"headers": {"CC": ["q", "secret"]}}, "secret"),
        ({"headers": {"BCC": ["secret"]}}, "secret"),
    ],
)
def test_topic_permissions_hold_for_every_key_of_a_message(
    at: int, given: dict[str, Any], refused: str | None
) -> None:
    attempt, operation = ways("amq.topic", "q", given)[at]
    found = attempt(operation, granted(WRITE_TOPIC), Permissions(write="^q$"))
    if refused is None:
        assert found is None
        return
    assert type(found) is errors.AccessRefused
    assert found.detail == (
        f"write access to topic '{refused}' in exchange 'amq.topic' in vhost '/' refused "
        "for user 'guest'"
    )
    assert attempt(operation, granted(WRITE_TOPIC)) is None  # none set: all are allowed


@pytest.mark.parametrize("at", [0, 1, 2])
def test_topic_permissions_hold_for_the_routing_key(at: int) -> None:
    attempt, operation = ways("amq.topic", "q", {})[at]
    for pattern, allowed in (("^q$", True), ("^{username}$", False), ("^$", False), ("", False)):
        found = attempt(operation, granted(WRITE_TOPIC), Permissions(write=pattern, read=".*"))
        assert (found is None) is allowed, (pattern, found)
    other, operation = ways("amq.direct", "q", {})[at]
    assert other(operation, granted(WRITE_DIRECT), Permissions()) is None  # not a topic exchange


@pytest.mark.parametrize(
    ("attempt", "operation"),
    [
        (try091, spec.Queue.Bind(queue="q", exchange="amq.topic", routing_key="k")),
        (try091, spec.Queue.Unbind(queue="q", exchange="amq.topic", routing_key="k")),
        (try091, spec.Exchange.Bind(destination="d", source="amq.topic", routing_key="k")),
        (
            try10,
            bindings.BindRequest("amq.topic", "q", "", "k"),
        ),
        (
            try10,
            bindings.UnbindRequest(
                bindings.binding_segment(bindings.BindingInfo("amq.topic", "q", "queue", "k"))
            ),
        ),
        (
            try10,
            bindings.BindRequest("amq.topic", "", "d", "k"),
        ),
    ],
)
def test_topic_permissions_hold_for_bindings(attempt: Any, operation: Any) -> None:
    assert attempt(operation, EVERYTHING, Permissions(read="^k$")) is None
    refusal = attempt(operation, EVERYTHING, Permissions(write=".*", read="^other$"))
    assert type(refusal) is errors.AccessRefused
    assert refusal.detail.startswith("read access to topic 'k' in exchange")


@pytest.mark.parametrize("at", [0, 1, 2])
def test_nobody_publishes_to_an_internal_exchange(at: int) -> None:
    attempt, operation = ways("inner", "q", {})[at]
    for tags in ((), ("administrator",)):
        refusal = attempt(operation, EVERYTHING, tags=tags)
        assert type(refusal) is errors.AccessRefused
        assert refusal.detail == "cannot publish to internal exchange 'inner' in vhost '/'"


@pytest.mark.parametrize("at", [0, 1, 2])
def test_publishing_to_an_exchange_that_is_not_there(at: int) -> None:
    attempt, operation = ways("nope", "q", {})[at]
    assert type(attempt(operation, EVERYTHING)) is errors.NotFound
    assert type(attempt(operation, Permissions())) is errors.AccessRefused  # which comes first


@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_a_user_id_is_the_users_own(at: int) -> None:
    for given, tags, allowed in (
        ("guest", (), True),
        ("other", (), False),
        ("other", ("administrator",), False),
        ("other", ("impersonator",), True),
    ):
        attempt, operation = ways("", "q", {"user_id": given})[at]
        refusal = attempt(operation, EVERYTHING, tags=tags)
        assert (refusal is None) is allowed, (given, tags)
        if refusal is not None:
            assert isinstance(refusal, errors.PreconditionFailed)
            assert refusal.reply_code == 406
            if attempt is try10:
                assert refusal.condition == "amqp:unauthorized-access"
            assert refusal.detail == (
                f"user_id property set to '{given}' but authenticated user was 'guest'"
            )


def test_one_message_of_a_block_with_another_user_id_refuses_the_block() -> None:
    raw = [
        properties.encode(
            properties.Properties(
                user_id=user, headers={"n": 1}, priority=3, timestamp=1, content_type="x"
            )
        )
        for user in ("guest", "guest", "other")
    ]
    data = encode([b"a", b"b", b"c"], raw, (b"", b"q"), 4, None)
    assert isinstance(
        try10(amqp10_requests.PublishBlock("", "", data), EVERYTHING), errors.PreconditionFailed
    )
    data = encode([b"a", b"b"], raw[:2], (b"", b"q"), 4, None)
    assert try10(amqp10_requests.PublishBlock("", "", data), EVERYTHING) is None


def test_a_block_in_a_form_that_no_check_can_read_is_refused() -> None:
    data = encode([b"a"], [b""], (b"", b"q"), 4, None, form=FORM_AMQP10)
    assert Block.decode(data).form == FORM_AMQP10
    for request in (amqp10_requests.PublishBlock("", "", data), stage("", data)):
        refusal = try10(request, EVERYTHING)
        assert isinstance(refusal, errors.InvalidArgument) and "form 1" in refusal.detail


@pytest.mark.parametrize("exchange", ["chance", "by-id", "amq.headers"])
def test_a_block_is_not_routed_by_content_or_chance(exchange: str) -> None:
    data = block(exchange=exchange)
    for request in (amqp10_requests.PublishBlock("", exchange, data), stage(exchange, data)):
        refusal = try10(request, EVERYTHING)
        assert isinstance(refusal, errors.NotImplementedHere) and exchange in refusal.detail


def test_only_an_administrator_deletes_a_queue_without_asking_it() -> None:
    operation = queue_resource.DeleteQueueRequest("q", force=True)
    assert isinstance(try10(operation, EVERYTHING), errors.AccessRefused)
    assert isinstance(
        try10(operation, Permissions(), tags=("administrator",)), errors.AccessRefused
    )


def test_a_permission_is_looked_up_at_each_operation() -> None:
    peer = Peer().connect().open()
    peer.publish()
    peer.the(asked.PublishRequest)
    peer.view.held = Permissions()
    peer.publish()
    peer.channel_closed(403, "write access to exchange 'amq.default'")


# ------------------------------------------------------------------ what checking takes


@pytest.mark.parametrize("queue", ["", "q"])
def test_the_right_is_asked_before_a_block_is_unpacked(queue: str) -> None:
    exchange = "" if queue else "amq.direct"
    for request in (
        amqp10_requests.PublishBlock(queue, exchange, b"no block"),
        stage(exchange, b"no block"),
    ):
        assert isinstance(try10(request, EVERYTHING), errors.InvalidArgument)
        assert isinstance(try10(request, granted(())), errors.AccessRefused)


class CountedRights(Broker10):
    """Counts how often a right was looked up."""

    lookups = 0

    def permissions(self, vhost: str, user: str) -> Permissions | None:
        self.lookups += 1
        return super().permissions(vhost, user)


def test_refused_messages_are_each_looked_at_twice() -> None:
    """A message that was refused had all behind it looked at again: millions of lookups a read."""
    count, table = 2_000, MessageTable()
    for at in range(count):
        table.append(
            Route(b"e%d" % at, b"k", False), properties.encode(properties.Properties()), b""
        )
    broker = CountedRights(granted(()))
    asker = Asker(broker, VHOST, USER, 1, lambda call: call)  # type: ignore[arg-type]
    answers: list[PublishOutcomes] = []
    request = PublishMessages(table, 0, settled=False, anonymous=True)
    LINK_HANDLERS[PublishMessages](asker, request, answers.append)
    assert [at for answer in answers for at, _ in answer.refused] == list(range(count))
    assert [answer.last for answer in answers] == [False] * (count - 1) + [True]
    assert broker.lookups <= 2 * count


@pytest.mark.parametrize("octets", [100 << 10, 200 << 10])
def test_long_keys_are_read_in_small_pieces(octets: int) -> None:
    stream = SimpleNamespace(read_little=lambda: pieces.append(octets))
    pieces: list[int] = []
    client: Any = SimpleNamespace(_stream=stream)
    peer = Peer().connect().open()
    for _ in range(20):
        peer.publish(exchange="amq.topic", headers={"CC": ["k" * 250] * (octets // 20 // 256)})
    state = peer.conn.state
    assert abs(state.keyed_bytes - octets) < octets // 10
    ProtocolClient._read_less(client, state)
    assert pieces == [octets] * (octets > KEYED_BYTES_PER_READ)
    assert state.keyed_bytes == 0
