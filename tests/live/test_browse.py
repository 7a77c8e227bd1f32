"""Looking at the messages of a queue on three nodes: everything is shown, and nothing changes."""

from __future__ import annotations

import json
import shlex
import uuid
from collections.abc import Iterator
from typing import Any

import msgspec
import pika
import pytest
from typer.testing import CliRunner

from live.conftest import eventually
from live.http_client import SETTINGS, HttpClient, add_user, http_client, quoted
from warren.admin import Admin
from warren.claims import ClaimReader
from warren.cli.app import app
from warren.connection import Connection
from warren.errors import AccessRefused, NotFound, PeerError
from warren.local import LocalCluster
from warren_wire.admin.browse import BrowsedMessage, BrowseRequest

pytestmark = pytest.mark.live
ARGUMENTS = {
    "x-queue-type": "quorum",
    "x-delayed-retry-type": "failed",
    "x-delayed-retry-min": 3_600_000,
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": "absent",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}
RUN = CliRunner()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3, settings=SETTINGS) as made:
        yield made


@pytest.fixture
def http(cluster: LocalCluster) -> HttpClient:
    return http_client(cluster)


def uri(cluster: LocalCluster, node: int, user: str = "guest:guest") -> str:
    return f"amqp://{user}@{cluster.addresses[node]}/%2F"


@pytest.fixture
def admins(cluster: LocalCluster) -> Iterator[list[Admin]]:
    """The administration at each node."""
    made = [Connection(uri(cluster, node)) for node in range(3)]
    yield [Admin(one) for one in made]
    for one in made:
        one.close()


def declared(cluster: LocalCluster, **more: Any) -> tuple[pika.BlockingConnection, Any, str]:
    """A connection, its channel, and a queue of twelve messages."""
    connection = pika.BlockingConnection(pika.URLParameters(uri(cluster, 0)))
    channel, name = connection.channel(), f"q-{uuid.uuid4().hex[:8]}"
    channel.confirm_delivery()
    channel.queue_declare(name, durable=True, arguments={**ARGUMENTS, **more})
    for n in range(12):
        said = pika.BasicProperties(headers={"n": n}, type="order", delivery_mode=2)
        channel.basic_publish("", name, b"body %d" % n, said)
    return connection, channel, name


def test_every_state_on_every_node_and_nothing_changes(
    cluster: LocalCluster, admins: list[Admin], http: HttpClient
) -> None:
    connection, channel, name = declared(cluster)
    with connection:
        channel.basic_get(name)
        rejected, _, _ = channel.basic_get(name)
        channel.basic_reject(rejected.delivery_tag, requeue=False)
        failed, _, _ = channel.basic_get(name)
        channel.basic_reject(failed.delivery_tag, requeue=True)
        reader = ClaimReader(admins[0].connection, name, "spark")
        number = reader.register().settled + 1
        reader.open(number, max_messages=2, max_bytes=1 << 20)
        eventually(lambda: admins[0].queues.get(name).messages_dlx == 1, "a letter is kept")
        before = admins[0].queues.get(name)
        shown = [
            [msgspec.structs.replace(one, place="") for one in admin.queues.browse(name)]
            for admin in admins
        ]
        assert shown[0] == shown[1] == shown[2]
        by = {one.body: one for one in shown[0]}
        assert len(by) == 12 == len(shown[0])
        states = [by[f"body {n}"].state for n in range(12)]
        assert states == ["held", "dead", "delayed", "claimed", "claimed", *["ready"] * 7]
        held, dead, delayed, claimed = (by[f"body {n}"] for n in range(4))
        assert held.node and held.session and held.since
        assert dead.reason == "rejected"
        assert delayed.delivery_count == 1 and delayed.next_at > delayed.published_at
        assert (claimed.holder, claimed.claim) == ("spark", number)
        assert by["body 9"].headers == {"n": 9} and by["body 9"].properties["type"] == "order"
        assert by["body 9"].published_at and by["body 9"].routing_key == name
        pages = [page.messages for page in admins[1].queues.pages(name, filter="n > 6")]
        assert [one.body for page in pages for one in page] == [f"body {n}" for n in range(7, 12)]
        _over_http(http, name, by)
        _over_the_command_line(cluster, name, by)
        after = admins[0].queues.get(name)
        moving = {"readers": (), "leader": ""}
        assert msgspec.structs.replace(after, **moving) == msgspec.structs.replace(before, **moving)
        got, properties, body = channel.basic_get(name, auto_ack=True)
        assert body == b"body 5" and not got.redelivered
        assert properties.headers == {"n": 5}
        channel.queue_delete(name)


def _over_http(http: HttpClient, name: str, by: dict[str, BrowsedMessage]) -> None:
    path = f"/queues/{quoted('/')}/{name}/messages"
    page = http("GET", f"{path}?states=dead,held&body_bytes=4").body
    assert [(one["state"], one["body"], one["body_bytes"]) for one in page["messages"]] == [
        ("held", "body", 6),
        ("dead", "body", 6),
    ]
    every = http("GET", f"{path}?filter={quoted('n < 6')}&count=500").body["messages"]
    assert {one["body"] for one in every} == {f"body {n}" for n in range(6)}
    first = http("GET", f"{path}?count=5").body
    rest = http("GET", f"{path}?after={first['next']}").body
    assert len(first["messages"]) == 5 and len(rest["messages"]) == 7 and not rest["next"]
    assert http("GET", f"{path}?filter={quoted('n <')}").status == 400
    assert http("GET", f"{path}?count=0").status == 400
    assert http("GET", f"{path}?after=no!").status == 400
    assert http("GET", f"/queues/{quoted('/')}/absent/messages").status == 404
    hidden = add_user(http, "hidden", "management, no-browse")
    refused = hidden("GET", path)
    assert refused.status == 401 and "'no-browse'" in refused.body["reason"]


def _over_the_command_line(cluster: LocalCluster, name: str, by: dict[str, BrowsedMessage]) -> None:
    at = ["--uri", uri(cluster, 2)]
    made = RUN.invoke(app, ["browse", name, "--jsonl", "--filter", "n = 9", *at])
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout.splitlines()[0])["body"] == "body 9"
    table = RUN.invoke(app, ["browse", name, "--state", "claimed", *at]).output
    assert "spark" in table and "body 3" in table
    dump = RUN.invoke(app, ["browse", name, "--hex", "--contains", "body 11", *at]).output
    assert "62 6f 64 79 20 31 31" in dump
    partly = RUN.invoke(app, ["browse", name, "--limit", "2", *at])
    assert "--from " in partly.output
    line = RUN.invoke(app, ["browse", name, "--as-publish", "--contains", "body 11", *at]).stdout
    words = shlex.split(line)
    assert words[:1] == ["echo"] and words[2:5] == ["|", "warren", "publish"]
    with Connection(uri(cluster, 0)) as connection:
        Admin(connection).queues.declare(f"{name}.copy")
    words[words.index(name)] = f"{name}.copy"
    again = RUN.invoke(app, [*words[4:], *at], input=words[1] + "\n")
    assert again.exit_code == 0, again.output
    with Connection(uri(cluster, 1)) as connection:
        (copy,) = Admin(connection).queues.browse(f"{name}.copy")
        Admin(connection).queues.delete(f"{name}.copy")
    assert (copy.body, copy.headers) == ("body 11", {"n": 11})
    assert copy.properties["type"] == "order"
    assert RUN.invoke(app, ["browse", "absent", *at]).exit_code == 1


def test_a_node_without_a_member(cluster: LocalCluster, admins: list[Admin]) -> None:
    connection, channel, name = declared(cluster, **{"x-quorum-initial-group-size": 1})
    with connection:
        shown = [list(admin.queues.browse(name, states="ready")) for admin in admins]
        assert len(shown[0]) == 12 and shown[0] == shown[1] == shown[2]
        page = admins[1].queues.browse_page(name, count=5)
        assert page.next and page.current
        again = admins[2].ask(BrowseRequest(name, after=page.next))
        assert [one.body for one in again.messages] == [f"body {n}" for n in range(5, 12)]
        channel.queue_delete(name)
    with pytest.raises(NotFound):
        admins[1].queues.browse_page(name, after=page.next)


def test_without_the_right(cluster: LocalCluster, admins: list[Admin], http: HttpClient) -> None:
    connection, channel, name = declared(cluster)
    add_user(http, "writer", "management")
    rights = {"configure": ".*", "write": ".*", "read": "^$"}
    assert http("PUT", f"/permissions/{quoted('/')}/writer", rights).status in (201, 204)
    with connection, Connection(uri(cluster, 1, "writer:pw")) as refused:
        with pytest.raises(AccessRefused, match="read access to queue"):
            Admin(refused).queues.browse_page(name)
        with pytest.raises(PeerError, match="filter: "):
            admins[0].queues.browse_page(name, filter="n = 'open")
        channel.queue_delete(name)
