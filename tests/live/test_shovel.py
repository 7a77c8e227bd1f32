"""Shovels on real nodes: within a cluster, between two, with nodes and processes killed."""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from typer.testing import CliRunner, Result

from live.conftest import Broker, eventually
from live.shovels import clean, fill, gone, shows, taken, worker_pids
from warren.admin import Admin
from warren.cli.app import app
from warren.connection import Connection
from warren.errors import AccessRefused, NotFound, PeerError, WarrenError
from warren.local import LocalCluster
from warren.uri import Address
from warren_broker.transfers.shovel.shovels import shovel_owner
from warren_wire.amqp091.fields import Timestamp
from warren_wire.sessions.pika_properties import MessageProperties

pytestmark = pytest.mark.live
SECRET = "never-shown"
SOMEWHERE = {"dest-uri": "amqp://", "dest-queue": "b"}


@pytest.fixture
def admin(admin: Admin) -> Iterator[Admin]:
    """It deletes all shovels and their queues after the test."""
    yield admin
    clean(admin)


def test_a_shovel_moves_messages_as_they_are_and_ends_with_the_queues_length(
    broker: Broker, admin: Admin
) -> None:
    bodies = fill(broker, "shovel-a", 60, message_id="m", headers={"k": 1}, priority=3)
    value = {
        "src-uri": "amqp://",
        "src-queue": "shovel-a",
        "src-delete-after": "queue-length",
        "dest-uri": ["amqp://127.0.0.1:1", *broker.uris],
        "dest-queue": "shovel-b",
        "dest-publish-properties": {"app_id": "mover"},
        "dest-add-forward-headers": True,
    }
    admin.parameters.put("shovel", "/", "once", value)
    eventually(lambda: gone(admin, "once") or None, "everything is moved")
    found = taken(broker, "shovel-b")
    assert sorted(body for _, body in found) == sorted(bodies)
    properties = found[0][0]
    assert (properties.message_id, properties.priority, properties.app_id) == ("m", 3, "mover")
    (journey,) = properties.headers.pop("x-shovelled")
    assert properties.headers == {"k": 1}
    assert (journey["shovel-name"], journey["src-queue"]) == ("once", "shovel-a")
    assert "guest" not in json.dumps(journey)
    assert admin.queues.get("shovel-a").messages == 0


def test_a_command_moves_what_is_in_a_queue_and_waits_for_the_end(
    broker: Broker, admin: Admin
) -> None:
    assert broker.cluster is not None
    uri = broker.cluster.uri

    def command(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["queues", "move", *arguments, "--uri", uri])

    bodies = fill(broker, "shovel-a", 60)
    for arguments, why in (
        (("shovel-a", "shovel-a"), "name another queue"),
        (("shovel-a", "shovel-missing"), "shovel-missing"),
        (("shovel-missing", "shovel-a"), "shovel-missing"),
    ):
        refused = command(*arguments)
        assert why in str(refused.exception), refused.output
    admin.queues.declare("shovel-b")
    admin.queues.declare("shovel-c")
    full = {"max-length": 0, "overflow": "reject-publish"}
    admin.policies.put("/", "shovel-full", "^shovel-c$", full, apply_to="queues")
    stuck = command("shovel-a", "shovel-c", "--wait", "--timeout", "2")
    assert "continues in the background" in str(stuck.exception), "the queue takes none"
    other = command("shovel-a", "shovel-b", "--wait")
    assert "moves messages of 'shovel-a' to 'shovel-c'" in str(other.exception)
    begun = command("shovel-a", "shovel-c")
    assert begun.exit_code == 0 and "warren shovel status" in begun.output
    admin.policies.delete("/", "shovel-full")
    assert command("shovel-a", "shovel-c", "--wait").exit_code == 0, "it joins in"
    done = command("shovel-c", "shovel-b", "--wait", "--json")
    assert done.exit_code == 0, done.output
    said = {"shovel": "Move from shovel-c", "ended": True, "left": 0, "duplicates_dropped": 0}
    assert json.loads(done.stdout) == said
    eventually(lambda: not admin.shovels.list("/"), "no shovel is left")
    assert sorted(body for _, body in taken(broker, "shovel-b")) == sorted(bodies)


def test_values_of_headers_that_pika_cannot_read_stay_what_they_are(
    broker: Broker, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error in the shovel's process would fail all that is under way, again and again."""
    monkeypatch.setitem(pika.spec.props, pika.BasicProperties.INDEX, MessageProperties)
    late = Timestamp((1 << 64) - 1)
    headers = {"half": 2.5, "large": 1e300, "infinite": math.inf, "late": late}
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": 2}
    admin.queues.declare("shovel-a", arguments=arguments)
    bodies = [str(i).encode() for i in range(20)]
    with broker.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for body in bodies:
            given = MessageProperties(headers=headers, timestamp=int(late))
            channel.basic_publish("", "shovel-a", body, given)
    over_10 = {"dest-protocol": "amqp10", "dest-address": "/queues/shovel-c"}
    admin.queues.declare("shovel-c")
    for name, source, more in (
        ("plain", "shovel-a", {"dest-queue": "shovel-b"}),
        ("over-10", "shovel-b", over_10),
    ):
        value = {"src-uri": "amqp://", "src-queue": source, "dest-uri": "amqp://", **more}
        admin.parameters.put("shovel", "/", name, {**value, "src-delete-after": 20})
        eventually(lambda name=name: gone(admin, name) or None, "everything is moved")
    found = taken(broker, "shovel-c")
    assert sorted(body for _, body in found) == sorted(bodies)
    del headers[
        "infinite"
    ]  # which an AMQP 1.0 end does not pass on (docs/reference/compatibility.md)
    assert [properties.headers for properties, _ in found] == [headers] * 20


def test_a_number_of_messages_is_exact_and_the_rest_stays(broker: Broker, admin: Admin) -> None:
    fill(broker, "shovel-a", 30)
    ends = {"src-uri": "amqp://", "src-queue": "shovel-a", "dest-uri": "amqp://"}
    value = {**ends, "dest-queue": "shovel-b", "src-delete-after": 11, "ack-mode": "on-confirm"}
    admin.parameters.put("shovel", "/", "eleven", value)
    eventually(lambda: gone(admin, "eleven") or None, "eleven are moved")
    counts = [admin.queues.get(name).messages for name in ("shovel-a", "shovel-b")]
    assert counts == [19, 11]
    value = {**ends, "dest-exchange": "", "dest-exchange-key": "shovel-b", "ack-mode": "on-publish"}
    admin.parameters.put("shovel", "/", "rest", {**value, "src-delete-after": "queue-length"})
    eventually(lambda: gone(admin, "rest") or None, "the rest is moved without confirms")
    eventually(lambda: admin.queues.get("shovel-b").messages == 30 or None, "they arrive")


def test_an_exchange_is_a_source_and_each_messages_exchange_a_target(
    broker: Broker, admin: Admin
) -> None:
    admin.vhosts.put("shovel-far")
    try:
        admin.permissions.put("shovel-far", "guest", configure=".*", write=".*", read=".*")
        far = Broker((f"{broker.uri.rpartition('/')[0]}/shovel-far",))
        with far.connect() as connection:
            channel = connection.channel()
            channel.queue_declare("shovel-all", durable=True)
            channel.queue_bind("shovel-all", "amq.topic", "a.#")
        value = {"src-uri": "amqp://", "src-exchange": "amq.topic", "src-exchange-key": "a.#"}
        admin.parameters.put("shovel", "/", "topic", {**value, "dest-uri": "amqp:///shovel-far"})
        shows(admin, "topic", lambda one: one.state == "running", "it has bound its queue")
        with broker.connect() as connection:
            channel = connection.channel()
            for key in ("a.b", "b.a", "a.c"):
                channel.basic_publish("amq.topic", key, key.encode())
        shows(admin, "topic", lambda one: one.forwarded == 2, "what is bound is forwarded")
        assert [body for _, body in taken(far, "shovel-all")] == [b"a.b", b"a.c"]
    finally:
        admin.shovels.delete("/", "topic")
        admin.vhosts.delete("shovel-far")


def test_what_is_wrong_is_said_in_words_and_ends_no_node(broker: Broker, admin: Admin) -> None:
    fill(broker, "shovel-a", 1)
    place = broker.cluster.addresses[0]
    wrong: dict[str, tuple[dict[str, Any], str]] = {
        "login": ({"src-uri": f"amqp://guest:{SECRET}@{place}"}, "user or password is refused"),
        "host": ({"src-uri": "amqp://no.invalid"}, "amqp://guest@no.invalid:5672/%2F: "),
        "port": ({"src-uri": "amqp://127.0.0.1:1"}, "Connection refused"),
        "queue": ({"src-queue": "shovel-none", "src-predeclared": True}, "no queue 'shovel-none'"),
        "exchange": ({"dest-queue": None, "dest-exchange": "none"}, "no exchange 'none'"),
        "file": (
            {"src-uri": "amqps://127.0.0.1:1?cacertfile=/none"},
            "cannot read cacertfile='/none'",
        ),
        "itself": ({"dest-uri": broker.uris[1], "dest-queue": "shovel-a"}, "are the same"),
    }
    for name, (more, _) in wrong.items():
        value: dict[str, Any] = {"src-uri": "amqp://", "src-queue": "shovel-a"}
        value |= {"dest-uri": "amqp://", "dest-queue": "shovel-b", **more}
        kept = {key: one for key, one in value.items() if one is not None}
        admin.parameters.put("shovel", "/", name, kept)
    for name, (_, reason) in wrong.items():
        found = shows(
            admin, name, lambda one, reason=reason: reason in one.reason, f"{name}: {reason}"
        )  # type: ignore[misc]
        assert found.forwarded == 0
    with pytest.raises(PeerError, match='user "guest" may not connect to vhost "none"'):
        admin.parameters.put(
            "shovel", "/", "vhost", {"src-uri": "amqp:///none", "src-queue": "a", **SOMEWHERE}
        )
    with pytest.raises(PeerError, match="src-protocol 'local' is not supported"):
        value = {"src-protocol": "local", "src-uri": "amqp://", "src-queue": "a"}
        admin.parameters.put("shovel", "/", "one", {**value, "dest-uri": "amqp://"})
    assert gone(admin, "one")
    listed = json.dumps([one.value for one in admin.parameters.list("shovel", "/")])
    shown = " ".join(map(str, admin.shovels.list()))
    logs = "".join(broker.cluster.log(i) for i in range(3))
    for text in (listed, shown, logs):
        assert "login" in text or "guest" in text
        assert SECRET not in text
    exported = admin.definitions.export().document["parameters"]
    assert SECRET in json.dumps(exported), "an export can be imported"
    assert admin.queues.get("shovel-a").messages == 1


def test_a_queue_that_vanishes_loses_nothing(broker: Broker, admin: Admin) -> None:
    fill(broker, "shovel-a", 5)
    admin.queues.declare("shovel-b")
    value: dict[str, Any] = {"src-uri": "amqp://", "src-queue": "shovel-a", "dest-uri": "amqp://"}
    value |= {"dest-queue": "shovel-b", "dest-predeclared": True}
    admin.parameters.put("shovel", "/", "vanishing", value)
    shows(admin, "vanishing", lambda one: one.forwarded == 5, "five are moved")
    admin.queues.delete("shovel-b")
    fill(broker, "shovel-a", 3)
    shows(admin, "vanishing", lambda one: "shovel-b" in one.reason, "the reason is told")
    eventually(lambda: admin.queues.get("shovel-a").messages == 3 or None, "they are still there")
    admin.queues.declare("shovel-b", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    shows(admin, "vanishing", lambda one: one.blocked_status == "refused", "it is full")
    assert admin.queues.get("shovel-a").messages >= 1, "what is refused is not acknowledged"
    with broker.connect() as connection:
        channel = connection.channel()

        def moved() -> bool | None:
            channel.queue_purge("shovel-b")
            return admin.queues.get("shovel-a").messages == 0 or None

        eventually(moved, "refused messages are published again")


def test_the_command_line_shows_restarts_and_deletes(broker: Broker, admin: Admin) -> None:
    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, [*arguments, "--uri", broker.cluster.uri])
        assert done.exit_code == 0, done.output
        return done.output

    fill(broker, "shovel-a", 2)
    value = {"src-uri": f"amqp://guest:guest@{broker.cluster.addresses[0]}", "dest-uri": "amqp://"}
    value = {**value, "src-queue": "shovel-a", "dest-queue": "shovel-b"}
    run("parameters", "set", "shovel", "mine", json.dumps(value))
    found = shows(admin, "mine", lambda one: one.forwarded == 2, "two are moved")
    (shown,) = json.loads(run("shovel", "status", "--json"))
    assert (shown["name"], shown["state"], shown["node"]) == ("mine", "running", found.node)
    node = broker.cluster.pid([one.name for one in broker.cluster.nodes].index(found.node))
    (worker,) = worker_pids(node)
    os.kill(worker, signal.SIGKILL)
    eventually(lambda: worker not in worker_pids(node) or None, "the process is gone")
    fill(broker, "shovel-a", 1)
    eventually(
        lambda: admin.queues.get("shovel-b").messages == 3 or None, "another process goes on"
    )
    (worker,) = worker_pids(node)
    run("shovel", "restart", "mine")
    eventually(lambda: worker not in worker_pids(node) and worker_pids(node), "it is a new one")
    run("shovel", "delete", "mine")
    eventually(lambda: not worker_pids(node) or None, "its process has ended")
    for call in (admin.shovels.restart, admin.shovels.delete, admin.shovels.get):
        with pytest.raises(NotFound, match="no shovel 'mine' in vhost '/'"):
            call("/", "mine")
    admin.users.put("shovel-watcher", password="p", tags=["monitoring"])
    admin.permissions.put("/", "shovel-watcher", configure="", write="", read="")
    hosts = broker.cluster.address.hosts
    with Connection(Address(hosts=hosts, user="shovel-watcher", password="p")) as connection:
        assert Admin(connection).shovels.list() == []
        with pytest.raises(AccessRefused):
            Admin(connection).shovels.delete("/", "mine")
    admin.users.delete("shovel-watcher")


def test_a_message_that_the_destination_refuses_is_dead_lettered_alone(
    broker: Broker, admin: Admin
) -> None:
    admin.users.put("shovel-mover", password="p")
    admin.permissions.put("/", "shovel-mover", configure=".*", write=".*", read=".*")
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "shovel-letters"}
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": 2, **letters}
    admin.queues.declare("shovel-a", arguments=arguments)
    admin.queues.declare("shovel-letters")
    admin.queues.declare("shovel-b")
    with broker.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(40):
            refused = {"user_id": "guest", "message_id": "bad"} if number == 15 else {}
            properties = pika.BasicProperties(**refused)
            channel.basic_publish("", "shovel-a", f"{number}".encode(), properties)
    value = {"src-uri": "amqp://", "src-queue": "shovel-a", "dest-queue": "shovel-b"}
    admin.parameters.put("shovel", "/", "mine", {**value, "dest-uri": "amqp://shovel-mover:p@/%2F"})
    named = "it refuses the message of 2 bytes with routing key 'shovel-b', message_id 'bad'"
    shows(admin, "mine", lambda one: named in one.reason, "the message is named")
    eventually(lambda: admin.queues.get("shovel-a").messages == 0 or None, "the others are moved")
    assert [body for _, body in taken(broker, "shovel-letters")] == [b"15"]
    found = {body for _, body in taken(broker, "shovel-b")}
    assert found == {f"{number}".encode() for number in range(40)} - {b"15"}
    admin.users.delete("shovel-mover")


def test_a_paused_shovel_moves_nothing_on_any_node_until_it_is_resumed(
    broker: Broker, admin: Admin
) -> None:
    def run(*arguments: str) -> None:
        done = CliRunner().invoke(app, ["shovel", *arguments, "--uri", broker.cluster.uri])
        assert done.exit_code == 0, done.output

    def workers() -> list[int]:
        return [pid for node in range(3) for pid in worker_pids(broker.cluster.pid(node))]

    fill(broker, "shovel-a", 5)
    ends = {"src-uri": "amqp://", "src-queue": "shovel-a", "dest-uri": "amqp://"}
    admin.parameters.put("shovel", "/", "mine", {**ends, "dest-queue": "shovel-b"})
    shows(admin, "mine", lambda one: one.forwarded == 5, "five are moved")
    run("pause", "mine")
    shows(admin, "mine", lambda one: one.state == "paused", "it is paused")
    eventually(lambda: not workers() or None, "its process has ended")
    fill(broker, "shovel-a", 3)
    run("restart", "mine")
    run("pause", "mine")
    found = shows(admin, "mine", lambda one: one.state == "paused", "it stays so")
    assert not workers() and (found.src_queue, found.dest_queue) == ("shovel-a", "shovel-b")
    assert [admin.queues.get(name).messages for name in ("shovel-a", "shovel-b")] == [3, 5]
    run("resume", "mine")
    eventually(lambda: admin.queues.get("shovel-b").messages == 8 or None, "it runs again")
    (kept,) = admin.parameters.list("shovel", "/")
    assert set(kept.value) == {*ends, "dest-queue"}, "a key that RabbitMQ does not know is gone"
    for paused in (True, False):
        with pytest.raises(NotFound, match="no shovel 'other' in vhost '/'"):
            admin.shovels.pause("/", "other", paused)


FIXED = "fixed"


@pytest.mark.specification("reliability-guide: When using the shovel, it is possible to specify")
@pytest.mark.long
def test_each_message_comes_once_when_the_node_of_a_shovel_between_clusters_is_killed(
    broker: Broker, admin: Admin, tmp_path: Path
) -> None:
    """One is dynamic and over AMQP 0.9.1, one static and over AMQP 1.0, both on that node."""
    prefetch, count = 50, 1_500
    admin.queues.declare("shovel-near-10")
    static = {
        "src-protocol": "amqp10",
        "src-uri": "amqp://",
        "src-address": "/queues/shovel-far-10",
        "src-prefetch-count": prefetch,
        "dest-protocol": "amqp10",
        "dest-uri": broker.uri,
        "dest-address": "/queues/shovel-near-10",
    }
    value = {
        "src-uri": "amqp://",
        "src-queue": "shovel-far",
        "src-prefetch-count": prefetch,
        "dest-uri": list(broker.uris),
        "dest-queue": "shovel-near",
    }
    settings = {"shovels": {FIXED: static}}
    with LocalCluster(nodes=3, directory=tmp_path, settings=settings) as cluster:
        uris = tuple(f"amqp://guest:guest@{host}/%2F" for host in cluster.addresses)
        source = Broker(uris, cluster)
        nodes = [node.name for node in cluster.nodes]
        owner = str(shovel_owner("", FIXED, nodes))
        names = (f"far {i}" for i in range(1_000))
        name = next(each for each in names if shovel_owner("/", each, nodes) == owner)
        bodies = [fill(source, queue, count) for queue in ("shovel-far", "shovel-far-10")]
        with cluster.connect() as connection:
            far = Admin(connection)
            far.parameters.put("shovel", "/", name, value)
            eventually(lambda: arrived(admin) > 100 or None, "both are under way")
            assert {one.node for one in far.shovels.list()} == {owner}
            check_static(far)
            for pid in worker_pids(cluster.pid(owner)):
                os.kill(pid, signal.SIGKILL)
            before = arrived(admin)
            eventually(lambda: arrived(admin) > before + 100 or None, "another process moves them")
            cluster.kill(owner)

            def left() -> bool | None:
                try:
                    empty = [
                        far.queues.get(one).messages for one in ("shovel-far", "shovel-far-10")
                    ]
                    return empty == [0, 0] or None
                except WarrenError:
                    return None  # a queue has no leader yet

            eventually(left, "other nodes move the rest")
            assert owner not in {one.node for one in far.shovels.list()}
            check_a_changed_configuration(cluster, far, owner)
    found = [body for _, body in taken(broker, "shovel-near")]
    assert sorted(found) == sorted(bodies[0]), "none is lost, none comes twice"
    found = [body for _, body in taken(broker, "shovel-near-10")]
    assert sorted(found) == sorted(bodies[1]), "nor does one over AMQP 1.0"


def check_static(far: Admin) -> None:
    """It is shown, restarted by its name, and not changed by a request."""
    (shown,) = [one for one in far.shovels.list() if one.type == "static"]
    assert (shown.vhost, shown.name, shown.src_address) == ("", FIXED, "/queues/shovel-far-10")
    assert far.shovels.get("/", FIXED).type == "static"
    assert FIXED not in [one.name for one in far.shovels.list("/")]
    for call in (
        far.shovels.delete,
        far.shovels.pause,
        lambda vhost, name: far.shovels.pause(vhost, name, False),
    ):
        with pytest.raises(PeerError, match="shovel 'fixed' is static: it is changed in the conf"):
            call("/", FIXED)
    far.shovels.restart("/", FIXED)
    assert FIXED not in json.dumps(far.definitions.export().document)


def check_a_changed_configuration(cluster: LocalCluster, far: Admin, owner: str) -> None:
    """The node comes back with another definition: the others say so, and it runs its own."""
    (node,) = [one for one in cluster.nodes if one.name == owner]
    text = node.config_file.read_text()
    assert "shovel-near-10" in text
    node.config_file.write_text(text.replace("/queues/shovel-near-10", "/queues/shovel-other"))
    cluster.restart(owner)

    def moved() -> bool | None:
        try:
            one = far.shovels.get("/", FIXED)
        except WarrenError:
            return None
        return (one.node == owner and one.dest_address == "/queues/shovel-other") or None

    eventually(moved, "it runs on the node that it belongs to, as that node has it")

    def told() -> bool | None:
        logs = [cluster.log(i) for i, one in enumerate(cluster.nodes) if one.name != owner]
        return all(f"defined differently on node {owner}" in log for log in logs) or None

    eventually(told, "the others have asked it, and say so")


def arrived(admin: Admin) -> int:
    """Messages in that destination which has fewer."""
    found = [queue.messages for queue in admin.queues.list("^shovel-near")]
    return min(found) if len(found) > 1 else 0
