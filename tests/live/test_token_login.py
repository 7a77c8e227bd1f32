"""Logins with tokens at real nodes: rights, ends, renewals, in both protocols."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pika
import pytest
from pamqp import commands as spec
from pika import exceptions

from live.conftest import STRICT, eventually
from live.http_client import SETTINGS, HttpClient, http_client
from live.raw_client import RawClient
from tests.patience import PATIENCE_S, TooSlow, in_time, with_time_enough
from tests.signing_key import SigningKey
from warren.admin import Admin
from warren.claims import ClaimReader
from warren.connection import Connection, _Receiver
from warren.errors import AccessRefused, WarrenError
from warren.local import LocalCluster
from warren.stages import SinkDriver, StagedPart, StageWriter, draw_epoch, publish_batch
from warren.uri import Address
from warren_wire.block.block import encode

if not os.environ.get(STRICT):
    pytest.importorskip("jwt")

pytestmark = [pytest.mark.live, pytest.mark.slow]
QUORUM = {"x-queue-type": "quorum"}


class TokenNode:
    """A node that takes tokens of a key."""

    def __init__(self, directory: Path) -> None:
        self.key = SigningKey(directory)
        table = {"resource_server_id": "rabbitmq", "signing_keys": {"k1": str(self.key.public)}}
        self.cluster = LocalCluster(
            1,
            directory / "cluster",
            settings={"auth_oauth2": {**table, "default_key": "k1"}, **SETTINGS},
        )

    def pika(self, password: str, user: str = "ignored") -> pika.BlockingConnection:
        """Connect with AMQP 0.9.1."""
        login = pika.PlainCredentials(user, password)
        port = self.cluster.nodes[0].amqp_port
        return pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", port, credentials=login)
        )

    def address(self, password: str, user: str = "ignored") -> Address:
        """Return an address for AMQP 1.0."""
        found = self.cluster.address.with_credentials(user, password)
        return Address(found.hosts, user=user, password=password, request_timeout_s=PATIENCE_S)

    def logged(self, text: str) -> None:
        """Wait for a line of the node's log."""
        eventually(lambda: text in self.cluster.log(0), f"{text!r} in the log")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenNode]:
    made = TokenNode(tmp_path_factory.mktemp("tokens"))
    with made.cluster:
        with made.pika("guest", "guest") as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True)
            channel.queue_declare("hidden", durable=True)
            channel.exchange_declare("t", "topic")
        yield made


def refused(connection: pika.BlockingConnection, act: Any) -> str:
    channel = connection.channel()
    channel.confirm_delivery()
    with pytest.raises(exceptions.ChannelClosedByBroker) as told:
        act(channel)
    return str(told.value)


def test_the_rights_are_those_of_the_token(node: TokenNode) -> None:
    scope = ["rabbitmq.read:*/q", "rabbitmq.write:*/amq.default", "rabbitmq.write:*/t/a.*"]
    with node.pika(node.key.token(scope=scope)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"one")
        assert channel.basic_get("q", auto_ack=True)[2] == b"one"
        channel.basic_publish("t", "a.b", b"")
        user = "refused for user 'spark'"
        assert user in refused(connection, lambda each: each.basic_get("hidden"))
        assert user in refused(connection, lambda each: each.queue_declare("new"))
        assert user in refused(connection, lambda each: each.basic_publish("t", "b.a", b""))
    node.logged("user 'spark' authenticated and granted access to vhost '/'")


def test_a_user_of_the_same_name_has_nothing_to_do_with_it(node: TokenNode) -> None:
    """Neither do its rights count, nor does its end concern the token's connection."""
    with Connection(node.address("guest", "guest")) as connection:
        admin = Admin(connection)
        admin.users.put("spark", password="secret", tags=("administrator",))
        admin.permissions.put("/", "spark", configure=".*", write=".*", read=".*")
        token = node.key.token(scope="rabbitmq.read:*/q")
        with node.pika(token) as by_token, Connection(node.address(token)) as by_token10:
            assert "refused" in refused(by_token, lambda each: each.basic_get("hidden"))
            assert Admin(by_token10).whoami().tags == ()
            with pytest.raises(AccessRefused, match="read access to queue 'hidden'"):
                Admin(by_token10).queues.get("hidden")
            with pytest.raises(AccessRefused, match="administrator"):
                Admin(by_token10).users.put("x", password="y")
            with node.pika("secret", "spark") as by_password:
                by_password.channel().basic_get("hidden")
                admin.users.delete("spark")
                deadline = time.monotonic() + PATIENCE_S
                with pytest.raises(exceptions.ConnectionClosedByBroker, match="is deleted"):
                    while time.monotonic() < deadline:
                        by_password.process_data_events(0.1)
            by_token.channel().basic_get("q")
            assert Admin(by_token10).queues.get("q").name == "q"


def test_tags_are_those_of_the_token(node: TokenNode) -> None:
    scope = "rabbitmq.tag:administrator rabbitmq.read:*/*"
    with Connection(node.address(node.key.token(scope=scope))) as connection:
        found = Admin(connection).whoami()
        assert (found.name, found.tags) == ("spark", ("administrator",))
        Admin(connection).users.put("made", password="by-token")
    with pytest.raises(exceptions.ProbableAccessDeniedError, match="530.*vhost '/' refused"):
        node.pika("by-token", "made")


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"life_s": -30.0}, "token refused: it has expired, "),
        ({"aud": ["another"]}, "token refused: its audience"),
        ({"key_id": "k9"}, "token refused: no key has its id"),
    ],
)
def test_a_token_that_is_refused_logs_why_and_not_itself(
    node: TokenNode, claims: dict[str, Any], why: str
) -> None:
    token = node.key.token(**claims)
    with pytest.raises(exceptions.ProbableAuthenticationError, match="ACCESS_REFUSED"):
        node.pika(token)
    with pytest.raises(AccessRefused), Connection(node.address(token)) as connection:
        Admin(connection).whoami()
    node.logged(why)
    assert token not in node.cluster.log(0)


EARLY_S = 1.0
"""A token's end is a whole second: it may be that much before its life is over."""


def test_a_connection_ends_with_its_token(node: TokenNode) -> None:
    with_time_enough(lambda life_s: _ends_with_its_token(node, life_s), 4.0)


def _ends_with_its_token(node: TokenNode, life_s: float) -> None:
    over = time.monotonic() + life_s - EARLY_S
    token = node.key.token(life_s)
    with ExitStack() as opened:
        with in_time(over):
            connection10 = opened.enter_context(Connection(node.address(token)))
            connection = opened.enter_context(node.pika(token))
            assert Admin(connection10).whoami().name == "spark"
            connection.channel().basic_consume("q", lambda *_: None)
        with pytest.raises(exceptions.ConnectionClosedByBroker) as told:
            while time.monotonic() < over + PATIENCE_S:
                connection.process_data_events(0.1)
        assert time.monotonic() >= over
        assert (told.value.reply_code, told.value.reply_text) == (
            320,
            "CONNECTION_FORCED - credential expired",
        )
        eventually(lambda: connection10._wire is None or _ended(connection10), "1.0 ended, too")
        with pytest.raises(AccessRefused):
            Admin(connection10).whoami()


def _ended(connection: Connection) -> bool:
    assert connection._wire is not None
    connection._wire.poll()
    return connection._wire.lost is not None


def test_a_connection_outlives_its_tokens_when_they_are_renewed(node: TokenNode) -> None:
    """Eleven seconds with tokens of five, in both protocols; the last one's rights count."""
    with_time_enough(lambda life_s: _outlives_its_tokens(node, life_s), 5.0)


def _outlives_its_tokens(node: TokenNode, life_s: float) -> None:
    key = node.key
    begun = renewed = time.monotonic()
    over = begun + life_s - EARLY_S
    with ExitStack() as opened:
        with in_time(over):
            connection10 = opened.enter_context(Connection(node.address(key.token(life_s))))
            connection = opened.enter_context(node.pika(key.token(life_s)))
            Admin(connection10).whoami()
        wire = connection10._wire
        while time.monotonic() < begun + 2.2 * life_s:
            with in_time(over):
                connection.process_data_events(0.1)
                if time.monotonic() > renewed + 0.4 * life_s:
                    renewed = time.monotonic()
                    connection.update_secret(key.token(life_s), "next")
                    connection10.renew_token(key.token(life_s))
            over = renewed + life_s - EARLY_S
        with in_time(over):
            connection.channel().basic_get("hidden")
            assert Admin(connection10).whoami().name == "spark" and connection10._wire is wire
            less = key.token(scope="rabbitmq.read:*/q")
            connection.update_secret(less, "less")
            connection10.request("PUT", "/auth/tokens", less.encode())
        assert "refused" in refused(connection, lambda each: each.basic_get("hidden"))
        with pytest.raises(AccessRefused):
            Admin(connection10).queues.get("hidden")


def test_the_client_logs_in_again_with_the_token_that_it_was_given(node: TokenNode) -> None:
    with Connection(node.address(node.key.token(2.0))) as connection:
        connection.renew_token(node.key.token(sub="first"))  # before the first use
        assert Admin(connection).whoami().name == "first"
        with pytest.raises(WarrenError, match="New secret was refused"):
            connection.renew_token(node.key.token(sub="second"))
        assert Admin(connection).whoami().name == "first"
        connection.renew_token(
            node.key.token(sub="first", scope="rabbitmq.tag:monitoring rabbitmq.read:*/q")
        )
        assert connection._wire is not None
        connection._wire.abandon()
        assert Admin(connection).whoami().tags == ("monitoring",)


def test_a_next_token_with_fewer_rights_ends_what_it_does_not_permit(node: TokenNode) -> None:
    """Consumers of both protocols go; those that the next token permits stay, and get messages."""
    key = node.key
    both = ["rabbitmq.read:*/q", "rabbitmq.read:*/hidden", "rabbitmq.write:*/amq.default"]
    cancelled: list[str] = []
    got: list[bytes] = []
    with (
        node.pika(key.token(scope=both)) as connection,
        Connection(node.address(key.token(scope=both))) as connection10,
    ):
        channel = connection.channel()
        channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
        channel.basic_consume("hidden", lambda *_: None, consumer_tag="hidden")
        channel.basic_consume("q", lambda *given: got.append(given[3]), True, consumer_tag="q")
        link = _Link(connection10, "hidden")
        connection.update_secret(key.token(scope=both[0]), "less")
        connection10.request("PUT", "/auth/tokens", key.token(scope=both[0]).encode())
        with node.pika("guest", "guest") as guest:
            guest.channel().basic_publish("", "q", b"still")
            guest.channel().basic_publish("", "hidden", b"not")
            deadline = time.monotonic() + PATIENCE_S
            while not (cancelled and got):
                assert time.monotonic() < deadline
                connection.process_data_events(0.1)
            assert (cancelled, got) == (["hidden"], [b"still"])
            eventually(lambda: isinstance(link.refused(), AccessRefused), "the link ends")
            eventually(
                lambda: guest.channel().basic_get("hidden", True)[2] == b"not",
                "no consumer has the message",
            )


class _Link:
    """A consuming link on a client's connection."""

    def __init__(self, connection: Connection, queue: str) -> None:
        self._wire = connection.use(lambda wire, _: wire)
        self._receiver = _Receiver.attach(self._wire, f"/queues/{queue}")
        eventually(lambda: self._polled() and self._receiver.attached, "the link is attached")

    def _polled(self) -> bool:
        self._wire.poll()
        return True

    def refused(self) -> WarrenError | None:
        """Return why the node has ended it; None: it has not."""
        self._wire.poll()
        return self._receiver.failure


def test_nothing_confirmed_is_lost_when_a_token_ends(node: TokenNode) -> None:
    """A publisher and a consumer of one connection continue until the node ends it."""
    with_time_enough(lambda life_s: _confirmed_until_its_end(node, life_s), 3.0)


def _confirmed_until_its_end(node: TokenNode, life_s: float) -> None:
    guest = Connection(node.address("guest", "guest"))
    with node.pika("guest", "guest") as owner, guest:
        channel = owner.channel()
        channel.queue_declare("life", durable=True)
        channel.queue_purge("life")
        over = time.monotonic() + life_s - EARLY_S
        with in_time(over):
            connection = node.pika(node.key.token(life_s))
            publishing, consuming = connection.channel(), connection.channel()
            publishing.confirm_delivery()
        confirmed: list[int] = []
        acked: list[int] = []

        def take(channel: Any, method: Any, _: Any, body: bytes) -> None:
            channel.basic_ack(method.delivery_tag)
            acked.append(int(body))

        with pytest.raises(exceptions.ConnectionClosedByBroker, match="credential expired"):
            consuming.basic_qos(prefetch_count=10)
            consuming.basic_consume("life", take)
            for number in range(1_000_000):
                publishing.basic_publish("", "life", str(number).encode())
                confirmed.append(number)
                connection.process_data_events(0)

        def returned() -> bool:
            shown = Admin(guest).queues.get("life")
            return shown.messages == shown.messages_ready

        eventually(returned, "what the consumer had is in the queue again")
        left = []
        while (found := channel.basic_get("life", auto_ack=True))[2] is not None:
            left.append(int(found[2]))
        assert set(confirmed) <= set(acked) | set(left)
        assert sorted(set(left) & set(acked)) == left[: len(set(left) & set(acked))], "in order"
        if len(confirmed) <= 10 or len(acked) <= 10:
            raise TooSlow


def test_a_token_that_ends_before_the_vhost_is_open(node: TokenNode) -> None:
    """No connection is left over by a client that logs in and waits."""
    for stage in ("started", "tuned"):
        with_time_enough(lambda life_s, stage=stage: _ends_at(node, stage, life_s), 2.5)


def _ends_at(node: TokenNode, stage: str, life_s: float) -> None:
    address = ("127.0.0.1", node.cluster.nodes[0].amqp_port)
    with ExitStack() as opened:
        with in_time(time.monotonic() + life_s - EARLY_S):
            made = RawClient(address, stage, node.key.token(life_s), user="any")
            client = opened.enter_context(made)
        assert "credential expired" in client.find(spec.Connection.Close).reply_text


def test_claims_stages_and_management_by_token(node: TokenNode) -> None:
    """What Spark does has the rights of the token: reading by claims, publishing by stages."""
    with node.pika("guest", "guest") as guest:
        guest.channel().queue_declare("claimed", durable=True, arguments=QUORUM)
        guest.channel().basic_publish("", "claimed", b"one")
    key = node.key
    reads = key.token(scope="rabbitmq.read:*/claimed")
    writes = key.token(scope="rabbitmq.write:*/claimed")
    with Connection(node.address(reads)) as reading, Connection(node.address(writes)) as writing:
        reader = ClaimReader(reading, "claimed", "r")
        first = reader.register().settled + 1
        assert reader.open(first, max_messages=10, max_bytes=1 << 20).messages == 1
        reader.settle(first)
        with pytest.raises(AccessRefused, match="read access to queue 'claimed'"):
            ClaimReader(writing, "claimed", "w").register()
        staged = encode([b"two"], [b"\0\0"], (b"", b"claimed"))
        with pytest.raises(AccessRefused, match="write access to exchange 'amq.default'"):
            _stage(writing, staged)
        writing.request("PUT", "/auth/tokens", node.key.token().encode())
        driver, part = _stage(writing, staged)
        publish_batch(writing, driver, 1, [part])
        with pytest.raises(AccessRefused, match="write access to queue 'claimed'"):
            Admin(reading).sinks.forget("claimed", "s")
        for refused in (
            lambda: Admin(reading).nodes.list(),
            lambda: Admin(reading).users.list(),
            lambda: Admin(reading).vhosts.put("by-token"),
        ):
            with pytest.raises(AccessRefused):
                refused()
        reading.request("PUT", "/auth/tokens", key.token(scope="rabbitmq.read:*/q").encode())
        with pytest.raises(AccessRefused, match="read access to queue 'claimed'"):
            reader.open(first + 1, max_messages=10, max_bytes=1 << 20)


def _stage(connection: Connection, block: bytes) -> tuple[SinkDriver, StagedPart]:
    driver = SinkDriver("s", "run", draw_epoch(connection))
    with StageWriter(connection, driver, batch=1, partition=0) as writer:
        writer.write(block)
        return driver, writer.finish()


def test_vhosts_by_token(node: TokenNode) -> None:
    """A token sees the vhosts of its scopes; the user of its name gets nothing by it."""
    scope = "rabbitmq.tag:administrator rabbitmq.read:%2F/* rabbitmq.read:seen/*"
    with (
        Connection(node.address("guest", "guest")) as guest,
        Connection(node.address(node.key.token(sub="guest2", scope=scope))) as connection,
    ):
        Admin(guest).users.put("guest2", password="x")
        Admin(connection).vhosts.put("seen")
        assert "guest2" not in {one.user for one in Admin(guest).permissions.list(vhost="seen")}
        less = scope.replace("administrator", "management")
        Admin(guest).vhosts.put("unseen")
        Admin(guest).permissions.put("unseen", "guest2", configure="", write="", read=".*")
        connection.request("PUT", "/auth/tokens", node.key.token(sub="guest2", scope=less).encode())
        assert {one.name for one in Admin(connection).vhosts.list()} == {"/", "seen"}


@pytest.mark.parametrize(
    ("claims", "says"),
    [
        ({"sub": "other"}, "New secret was refused"),
        ({"life_s": -5.0}, "New secret was refused"),
        ({"scope": "rabbitmq.read:v/*"}, "access to vhost '/' refused for user 'spark'"),
    ],
)
def test_a_next_token_that_is_refused_ends_the_connection(
    node: TokenNode, claims: dict[str, Any], says: str
) -> None:
    connection = node.pika(node.key.token())
    with pytest.raises(exceptions.ConnectionClosedByBroker, match=f"530.*{says}"):
        connection.update_secret(node.key.token(**claims), "next")
    with Connection(node.address(node.key.token())) as connection10:
        bad = node.key.token(**claims).encode()
        with pytest.raises(WarrenError, match=says):
            connection10.request("PUT", "/auth/tokens", bad)
        assert Admin(connection10).whoami().name == "spark", "the one before is still good"


def test_long_tokens(node: TokenNode) -> None:
    """One with many scopes logs in, as long as there are tokens, and a next one may be longer.

    A node closed the connection of one with more than about 8,000 bytes without a word.
    """

    def token(size: int) -> str:
        scope = ["rabbitmq.read:*/q", *(f"other.read:*/{i:032}" for i in range(size // 64))]
        return node.key.token(scope=scope)

    login, following, too_long = token(40_000), token(56_000), token(80_000)
    assert 32_768 < len(login) < len(following) < 65_536 < len(too_long)
    with node.pika(login) as connection, Connection(node.address(login)) as connection10:
        connection.update_secret(following, "longer")
        connection.channel().basic_get("q")
        assert Admin(connection10).whoami().name == "spark"
        connection10.renew_token(following)
        assert Admin(connection10).queues.get("q").name == "q"
    with pytest.raises(exceptions.AMQPConnectionError):
        node.pika(too_long)
    with pytest.raises(WarrenError), Connection(node.address(too_long)) as connection10:
        connection10.use(lambda wire, _: wire, timeout_s=2.0)
    with node.pika(login) as connection:
        connection.channel().basic_get("q")


def test_passwords_still_log_in_also_those_that_look_like_tokens(node: TokenNode) -> None:
    odd = "eyJh.bbb.ccc"
    with Connection(node.address("guest", "guest")) as connection:
        Admin(connection).users.put("odd", password=odd)
        Admin(connection).permissions.put("/", "odd", configure="", write="", read=".*")
    with node.pika(odd, "odd") as connection:
        connection.channel().basic_get("hidden")
        connection.update_secret("anything", "of a user with a password")


def test_the_http_api_has_the_rights_of_the_token(node: TokenNode) -> None:
    """As a bearer token and as the password of basic authentication; a user of its name is none."""
    base = http_client(node.cluster).base
    with Connection(node.address("guest", "guest")) as connection:
        admin = Admin(connection)
        admin.users.put("lookalike", password="secret", tags=("administrator",))
        admin.permissions.put("/", "lookalike", configure=".*", write=".*", read=".*")
    named = {"sub": "lookalike", "client_id": "lookalike"}
    reading = ["rabbitmq.tag:management", "rabbitmq.read:*/q", "rabbitmq.write:*/amq.default"]
    token = node.key.token(scope=reading, **named)
    for client in (HttpClient(base, bearer=token), HttpClient(base, f"anybody:{token}")):
        whoami = {"name": "lookalike", "tags": ["management"], "is_internal_user": False}
        assert client.get("/whoami") == whoami
        assert client("GET", "/users").status == 401
        assert client.get("/queues/%2F/q")["name"] == "q"
        assert client("PUT", "/queues/%2F/new", {}).status == 401
        sent = {"properties": {}, "routing_key": "q", "payload": "1", "payload_encoding": "string"}
        assert client("POST", "/exchanges/%2F/amq.default/publish", sent).body == {"routed": True}
        taking = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
        assert [m["payload"] for m in client("POST", "/queues/%2F/q/get", taking).body] == ["1"]
        refusal = client("POST", "/queues/%2F/hidden/get", taking)
        assert refusal.status in (400, 401) and "refused" in str(refusal.body), refusal
    for unusable in (
        node.key.token(scope=["rabbitmq.read:*/q"], **named),  # without a tag of management
        node.key.token(life_s=-60, scope=reading, **named),
        token[:-8] + "AAAAAAAA",
        "",
    ):
        assert HttpClient(base, "", unusable)("GET", "/whoami").status == 401
