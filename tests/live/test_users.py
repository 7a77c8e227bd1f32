"""Users, vhosts, permissions of a running cluster: managed, and what clients notice at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pamqp.commands as spec
import pika
import pytest
from pika.exceptions import AMQPError, ChannelClosedByBroker, ConnectionClosedByBroker
from typer.testing import CliRunner, Result

from live.conftest import eventually
from live.raw_client import RawClient
from warren.admin import Admin
from warren.cli.app import app
from warren.connection import Connection
from warren.errors import AccessRefused, Conflict, NotFound, PeerError, WarrenError
from warren.local import LocalCluster
from warren.uri import Address

pytestmark = pytest.mark.live


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[Admin]:
    with Connection(cluster.address) as connection:
        yield Admin(connection)


def connect(
    cluster: LocalCluster, user: str, password: str = "p", vhost: str = "/", node: int = 0
) -> pika.BlockingConnection:
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            "127.0.0.1", cluster.nodes[node].amqp_port, vhost, pika.PlainCredentials(user, password)
        )
    )


def as_user(cluster: LocalCluster, user: str, vhost: str = "/") -> Address:
    return Address(hosts=cluster.address.hosts, user=user, password="p", vhost=vhost)


def test_a_user_from_its_making_to_its_end(cluster: LocalCluster, admin: Admin) -> None:
    admin.users.put("ann", password="p", tags=["management"])
    with pytest.raises(AMQPError):  # no permissions anywhere
        connect(cluster, "ann")
    admin.permissions.put("/", "ann", configure="^ann", write=".*", read="^ann")
    clients = [connect(cluster, "ann", node=node) for node in range(3)]
    channel = clients[1].channel()
    channel.queue_declare("ann.q")
    with pytest.raises(ChannelClosedByBroker) as refused:
        clients[1].channel().queue_declare("other")
    assert refused.value.reply_code == 403
    assert "configure access to queue 'other'" in refused.value.reply_text

    with Connection(as_user(cluster, "ann")) as connection:
        own = Admin(connection)
        assert (own.whoami().name, own.whoami().tags) == ("ann", ("management",))
        assert [vhost.name for vhost in own.vhosts.list()] == ["/"]
        with pytest.raises(AccessRefused):
            own.users.put("ann", tags=["administrator"])
        with pytest.raises(AccessRefused):
            own.users.list()

        # A change holds for the next operation of clients that are connected.
        admin.permissions.put("/", "ann", configure="^$", write="^$", read="^ann")
        with pytest.raises(ChannelClosedByBroker) as refused:
            channel.queue_declare("ann.p")
        assert refused.value.reply_code == 403
        with pytest.raises(AccessRefused):
            own.queues.declare("ann.r")

        # A password change leaves them connected; the old one is refused.
        admin.users.put("ann", password="new")
        clients[2].channel().basic_get("ann.q")
        with pytest.raises(AMQPError):
            connect(cluster, "ann")
        connect(cluster, "ann", "new").close()

        # Its end is theirs, on every node, over both protocols.
        admin.users.delete("ann")
        for client in clients:

            def ended(client: pika.BlockingConnection = client) -> str | None:
                try:
                    client.process_data_events(0.05)
                except ConnectionClosedByBroker as closed:
                    return f"{closed.reply_code} {closed.reply_text}"
                return None

            assert eventually(ended, "the end of a deleted user's connection") == (
                "320 CONNECTION_FORCED - user 'ann' is deleted"
            )
        with pytest.raises(WarrenError):
            own.whoami()
    assert not admin.permissions.list(user=None, vhost="/")[1:]
    with pytest.raises(NotFound):
        admin.users.get("ann")
    admin.queues.delete("ann.q")


def test_a_vhosts_clients_go_with_it(cluster: LocalCluster, admin: Admin) -> None:
    admin.vhosts.put("short lived", description="for a test")
    assert admin.vhosts.get("short lived").description == "for a test"
    assert [one.user for one in admin.permissions.list(vhost="short lived")] == ["guest"]
    address = ("127.0.0.1", cluster.nodes[2].amqp_port)
    with (
        RawClient(address, vhost="short lived") as client,
        connect(cluster, "guest", "guest", "short lived") as other,
    ):
        other.channel().queue_declare("q", durable=True)
        admin.vhosts.delete("short lived")
        close = client.find(spec.Connection.Close)
        assert (close.reply_code, close.reply_text) == (
            320,
            "CONNECTION_FORCED - vhost 'short lived' is deleted",
        )
        with pytest.raises(AMQPError):
            while True:
                other.process_data_events(0.05)
    with pytest.raises(AMQPError):
        connect(cluster, "guest", "guest", "short lived")
    admin.overview()  # the client that asked for it continues


def test_the_last_administrator_cannot_be_lost(admin: Admin) -> None:
    with pytest.raises(Conflict, match="last one with the tag 'administrator'"):
        admin.users.delete("guest")
    with pytest.raises(Conflict, match="last one"):
        admin.users.put("guest", tags=["monitoring"])
    assert admin.whoami().tags == ("administrator",)


def test_a_hash_that_rabbitmq_exported_lets_its_user_in(
    cluster: LocalCluster, admin: Admin
) -> None:
    hashed = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
    admin.users.put(
        "imported", password_hash=hashed, hashing_algorithm="rabbit_password_hashing_sha256"
    )
    admin.permissions.put("/", "imported", configure="", write="", read="")
    connect(cluster, "imported", "test12").close()
    admin.users.delete("imported")
    with pytest.raises(PeerError):
        admin.users.put("imported", password_hash="nonsense")


def test_a_vhosts_default_queue_type_is_that_of_durable_queues_that_name_none(
    cluster: LocalCluster, admin: Admin
) -> None:
    def kinds() -> dict[str, str]:
        with Connection(Address(hosts=cluster.address.hosts, vhost="typed")) as connection:
            return {queue.name: queue.type for queue in Admin(connection).queues.list()}

    admin.vhosts.put("typed", default_queue_type="classic")
    with pytest.raises(WarrenError, match="unsupported default queue type 'stream'"):
        admin.vhosts.put("typed", default_queue_type="stream")
    with connect(cluster, "guest", "guest", "typed", node=1) as client:
        channel = client.channel()
        channel.queue_declare("first", durable=True)
        channel.queue_declare("named", durable=True, arguments={"x-queue-type": "quorum"})
        assert kinds() == {"first": "classic", "named": "quorum"}
        admin.vhosts.put("typed", default_queue_type="quorum")
        assert admin.vhosts.get("typed").default_queue_type == "quorum"
        channel.queue_declare("first", durable=True)  # what there is stays, and is equivalent
        channel.queue_declare("second", durable=True)
        channel.queue_declare("passing", auto_delete=True)
        assert kinds() == {
            "first": "classic",
            "named": "quorum",
            "second": "quorum",
            "passing": "classic",
        }
    admin.vhosts.delete("typed")


def test_the_command_line(cluster: LocalCluster, admin: Admin) -> None:
    def run(*arguments: str, given: str | None = None) -> Result:
        return CliRunner().invoke(
            app,
            arguments,
            input=given,
            env={"WARREN_URI": cluster.uri, "COLUMNS": "200", "TERM": "dumb"},
        )

    def ok(*arguments: str, given: str | None = None) -> str:
        done = run(*arguments, given=given)
        assert done.exit_code == 0, (arguments, done.output, done.exception)
        return done.output

    ok("users", "add", "bob", given="p\n")
    assert isinstance(run("users", "add", "bob", "q").exception, WarrenError)
    ok("users", "set-tags", "bob", "monitoring", "x")
    assert "monitoring, x" in ok("users", "list")
    ok("vhosts", "add", "v", "--description", "bob's", "--default-queue-type", "classic")
    assert "classic" in ok("vhosts", "list")
    ok("permissions", "set", "bob", "^bob", ".*", ".*", "-p", "v")
    ok("permissions", "set-topic", "bob", "amq.topic", "^k", ".*", "-p", "v")
    assert "^bob" in ok("permissions", "list", "-p", "v", "--user", "bob")
    assert "amq.topic" in ok("permissions", "list-topic")
    connect(cluster, "bob", "p", "v").close()
    ok("permissions", "set", "bob", "", "", "")
    assert "can log in; tags: monitoring, x" in ok("users", "authenticate", "bob", "p")
    assert run("users", "authenticate", "bob", "wrong").exit_code == 1
    ok("users", "change-password", "bob", "other")
    assert run("users", "authenticate", "bob", "p").exit_code == 1
    assert isinstance(run("users", "change-password", "nobody", "x").exception, NotFound)
    ok("permissions", "clear-topic", "bob", "-p", "v")
    ok("permissions", "clear", "bob", "-p", "v")
    assert [one.vhost for one in admin.permissions.list(user="bob")] == ["/"]
    assert "v" in ok("vhosts", "list", "--json")
    assert run("vhosts", "delete", "v", given="n\n").exit_code == 1
    ok("vhosts", "protect", "v")
    assert admin.vhosts.get("v").protected_from_deletion
    refused = run("vhosts", "delete", "v", "--yes").exception
    assert isinstance(refused, Conflict) and "protected from deletion" in str(refused)
    ok("vhosts", "unprotect", "v")
    ok("vhosts", "delete", "v", "--yes")
    ok("users", "delete", "bob")
    assert "bob" not in ok("users", "list", "--json")


def test_a_vhost_is_either_protected_or_deleted_by_two_nodes(
    cluster: LocalCluster, admin: Admin
) -> None:
    """Before, the node that was asked to delete it did not know yet that it was protected."""
    with Connection(Address(hosts=cluster.address.hosts[1:2])) as connection:
        other = Admin(connection)
        for number in range(40):
            name = f"both{number}"
            admin.vhosts.put(name)
            eventually(
                lambda name=name: name in [one.name for one in other.vhosts.list()], "it is there"
            )
            with ThreadPoolExecutor(2) as threads:
                kept = threads.submit(admin.vhosts.protect, name)
                time.sleep(0.001 * (number % 5))
                deleted = threads.submit(other.vhosts.delete, name)
            errors = [one.exception() for one in (kept, deleted)]
            if errors[0] is None:
                assert isinstance(errors[1], Conflict), (number, errors)
                assert admin.vhosts.get(name).protected_from_deletion
                admin.vhosts.protect(name, False)
                admin.vhosts.delete(name)
            else:
                assert isinstance(errors[0], NotFound) and errors[1] is None, (number, errors)


def test_a_user_without_a_tag_sees_its_own_queues_and_no_more(
    cluster: LocalCluster, admin: Admin
) -> None:
    """It listed all queues, exchanges, bindings and nodes, over AMQP 1.0; over HTTP it may not."""
    admin.users.put("plain", password="p")
    admin.permissions.put("/", "plain", configure="^mine", write="^mine|^amq", read="^mine|^amq")
    for name in ("mine", "mine-too", "theirs"):
        admin.queues.declare(name)
    with Connection(as_user(cluster, "plain")) as connection:
        plain = Admin(connection)
        assert [one.name for one in plain.queues.list()] == ["mine", "mine-too"]
        assert [one.name for one in plain.queues.list("too|theirs")] == ["mine-too"]
        assert plain.queues.get("mine").name == "mine"
        for refused in (
            lambda: plain.queues.get("theirs"),
            lambda: connection.request("GET", "/queues?name=theirs"),
            plain.overview,
            plain.exchanges.list,
            lambda: plain.bindings.list(source="amq.direct"),
            lambda: plain.bindings.list(source="amq.direct", queue="theirs"),
            plain.nodes.list,
        ):
            with pytest.raises(AccessRefused):
                refused()
        plain.queues.declare("mine-new")
        plain.bindings.put("amq.direct", destination_queue="mine-new", routing_key="k")
        found = plain.bindings.list(source="amq.direct", queue="mine-new")
        assert [one["binding_key"] for one in found] == ["k"]
        plain.bindings.delete("amq.direct", destination_queue="mine-new", routing_key="k")
        plain.queues.delete("mine-new")
    admin.users.put("plain", tags=["management"])
    with Connection(as_user(cluster, "plain")) as connection:
        assert {"mine", "theirs"} <= {one.name for one in Admin(connection).queues.list()}
        assert Admin(connection).exchanges.list() and Admin(connection).overview()["node"]
    for name in ("mine", "mine-too", "theirs"):
        admin.queues.delete(name)
    admin.users.delete("plain")
