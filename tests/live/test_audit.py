"""The audit log: each change with its user, in files, as events, in every door; without secrets."""

from __future__ import annotations

import csv
import io
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from typer.testing import CliRunner

from live.conftest import eventually
from live.http_client import SETTINGS, HttpClient, http_client
from tests.node_logs import logs_under
from warren.admin import Admin
from warren.claims import ClaimReader
from warren.cli.app import app
from warren.connection import Connection
from warren.errors import AccessRefused, WarrenError
from warren.local import LocalCluster
from warren.producer import Producer
from warren_wire.admin.audit import AuditRecord

pytestmark = pytest.mark.live
SECRETS = ("first-secret-of-ann", "second-secret-of-ann", "shovel-secret", "wrong-secret-of-ann")
SHOVEL = {
    "src-uri": "amqp:///%2F",
    "src-queue": "q",
    "dest-uri": "amqp://bob:shovel-secret@127.0.0.1:1/",
    "dest-queue": "r",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    events = {"event_exchange": {"enabled": True}}
    with LocalCluster(
        nodes=1, settings={**SETTINGS, **events, "secret": "the-clusters-own"}
    ) as made:
        yield made


def uri(cluster: LocalCluster, user: str = "guest:guest") -> str:
    return f"amqp://{user}@{cluster.addresses[0]}/%2F"


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[Admin]:
    with Connection(uri(cluster)) as connection:
        yield Admin(connection)


@pytest.fixture
def http(cluster: LocalCluster) -> HttpClient:
    return http_client(cluster)


def found(admin: Admin, **asked: Any) -> list[AuditRecord]:
    return list(admin.audit.records(**asked))


def files(cluster: LocalCluster) -> list[Path]:
    return sorted(Path(cluster.directory).rglob("audit.jsonl*"))


def test_every_door_records_changes_with_old_and_new(
    cluster: LocalCluster, admin: Admin, http: HttpClient
) -> None:
    events = pika.BlockingConnection(pika.URLParameters(uri(cluster)))
    channel = events.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, "amq.rabbitmq.event", "audit.#")
    admin.users.put("ann", password=SECRETS[0], tags=["management"])
    admin.users.put("ann", password=SECRETS[1])
    admin.users.put("ann", tags=[])
    http("PUT", "/permissions/%2F/ann", {"configure": "", "write": "", "read": ".*"})
    admin.parameters.put("shovel", "/", "s", SHOVEL)
    channel.queue_declare("orders", durable=True, arguments={"x-queue-type": "quorum"})
    channel.queue_declare("orders", durable=True, arguments={"x-queue-type": "quorum"})
    channel.queue_bind("orders", "amq.topic", "a.#")
    channel.queue_delete("orders")
    http("DELETE", "/users/ann")
    with pytest.raises(WarrenError):
        admin.users.delete("nobody")
    made = [one for one in reversed(found(admin, kind="change")) if one.user == "guest"]
    by_action = [(one.door, one.action, one.outcome) for one in made]
    assert by_action == [
        ("AMQP 1.0", "PUT /users/:user", "done"),
        ("AMQP 1.0", "PUT /users/:user", "done"),
        ("AMQP 1.0", "PUT /users/:user", "done"),
        ("HTTP", "PUT /permissions/:vhost/:user", "done"),
        ("AMQP 1.0", "PUT /parameters/:component/:vhost/:name", "done"),
        ("AMQP 0.9.1", "queue.declare", "done"),
        ("AMQP 0.9.1", "bind", "done"),
        ("AMQP 0.9.1", "queue.delete", "done"),
        ("HTTP", "DELETE /users/:user", "done"),
        ("AMQP 1.0", "DELETE /users/:user", "failed"),
    ]
    added, password, tags, granted, shovel, declared, bound, deleted, gone, refused = made
    assert added.old is None and added.new == {"name": "ann", "tags": ["management"]}
    assert password.detail == "the password is another one" and password.old == password.new
    assert (tags.old["tags"], tags.new["tags"]) == (["management"], [])
    assert granted.target == {"vhost": "/", "user": "ann"} and granted.new["read"] == ".*"
    assert shovel.new["value"]["dest-uri"] != SHOVEL["dest-uri"]
    assert declared.old is None and declared.new["arguments"] == {"x-queue-type": "quorum"}
    assert bound.new["routing_key"] == "a.#" and deleted.new is None and deleted.old
    assert gone.old["name"] == "ann" and gone.new is None
    assert "nobody" in refused.detail and all("127.0.0.1:" in one.peer for one in made)
    told = [(m.routing_key, p.headers) for m, p, _ in consumed(channel, queue)]
    assert {"audit.change"} <= {key for key, _ in told}
    actions = [headers.get("action") for key, headers in told if key == "audit.change"]
    assert actions.count("PUT /users/:user") == 3
    events.close()
    assert "first-secret" not in str(told)


def test_what_is_there_already_is_no_change(admin: Admin) -> None:
    for _ in range(2):
        admin.exchanges.declare("twice", kind="topic")
        admin.queues.declare("twice")
        admin.bindings.put("twice", "twice", routing_key="k", arguments={"n": 1})
    admin.bindings.delete("twice", "twice", routing_key="k", arguments={"n": 1})
    admin.queues.delete("twice")
    admin.queues.delete("twice")
    made = [one for one in reversed(found(admin, contains="twice")) if one.kind == "change"]
    assert [one.action for one in made] == [
        "PUT /exchanges/:exchange",
        "PUT /queues/:queue",
        "POST /bindings",
        "DELETE /bindings/::binding",
        "DELETE /queues/:queue",
    ]
    assert made[2].old is None and made[2].new["arguments"] == {"n": 1} == made[3].old["arguments"]


def consumed(channel: Any, queue: str) -> list[Any]:
    got: list[Any] = []

    def all_there() -> bool:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is not None:
            got.append((method, properties, body))
        return method is None and len(got) >= 10

    eventually(all_there, "ten events")
    return got


def test_logins_and_refusals_are_recorded(
    cluster: LocalCluster, admin: Admin, http: HttpClient
) -> None:
    admin.users.put("eve", password=SECRETS[0], tags=["management"])
    admin.permissions.put("/", "eve", configure="", write="", read="")
    with pytest.raises(AccessRefused), Connection(uri(cluster, f"eve:{SECRETS[3]}")) as wrong:
        Admin(wrong).whoami()
    assert http.as_user(f"eve:{SECRETS[3]}")("GET", "/whoami").status == 401
    eve = http.as_user(f"eve:{SECRETS[0]}")
    assert eve.get("/whoami") == eve.get("/whoami")
    assert eve("GET", "/users").status in (401, 403)
    with Connection(uri(cluster, f"eve:{SECRETS[0]}")) as connection:
        with pytest.raises(AccessRefused):
            Admin(connection).users.list()
    plain = pika.BlockingConnection(pika.URLParameters(uri(cluster, f"eve:{SECRETS[0]}")))
    with pytest.raises(pika.exceptions.ChannelClosedByBroker):
        plain.channel().queue_declare("forbidden")
    plain.close()
    of_eve = found(admin, user="eve")
    logins = [(one.door, one.outcome) for one in reversed(of_eve) if one.kind == "login"]
    assert logins == [
        ("AMQP 1.0", "refused"),
        ("HTTP", "refused"),
        ("HTTP", "done"),
        ("AMQP 1.0", "done"),
        ("AMQP 0.9.1", "done"),
    ]
    refusals = [(one.door, one.action) for one in reversed(of_eve) if one.kind == "refusal"]
    assert refusals == [
        ("HTTP", "GET /users"),
        ("AMQP 1.0", "GET /users"),
        ("AMQP 0.9.1", "queue.declare"),
    ]


def test_it_is_read_in_every_door_and_has_no_secret(
    cluster: LocalCluster, admin: Admin, http: HttpClient
) -> None:
    newest = found(admin, limit=3)
    pages = [admin.audit.page(count=1)]
    while len(pages) < 3:
        pages.append(admin.audit.page(count=1, before=pages[-1].next))
    assert [one.number for page in pages for one in page.records] == [one.number for one in newest]
    body = http.get("/audit?count=2&kind=change")
    assert [one["kind"] for one in body["records"]] == ["change", "change"]
    assert not found(admin, contains="no such text") and found(admin, contains="shovel")
    shown = CliRunner().invoke(app, ["audit", "--limit", "2", "--jsonl", "--uri", uri(cluster)])
    assert [json.loads(one)["number"] for one in shown.stdout.splitlines()] == [
        one.number for one in found(admin, limit=2)
    ]
    rows = CliRunner().invoke(app, ["audit", "--kind", "login", "--csv", "--uri", uri(cluster)])
    assert {row["kind"] for row in csv.DictReader(io.StringIO(rows.stdout))} == {"login"}
    (file,) = files(cluster)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    kept = file.read_text() + "".join(
        one.read_text() for one in logs_under([Path(cluster.directory)])
    )
    assert "ann" in kept and not [one for one in (*SECRETS, "the-clusters-own") if one in kept]
    with pytest.raises(WarrenError, match="before"):
        admin.audit.page(before="x")


def test_a_file_that_cannot_be_written_ends_no_node(tmp_path: Path) -> None:
    (tmp_path / "in the way").touch()
    audit = {"audit": {"directory": str(tmp_path / "in the way")}}
    with LocalCluster(nodes=1, settings=audit, directory=tmp_path / "cluster") as made:
        with Connection(uri(made)) as connection:
            admin = Admin(connection)
            admin.users.put("ann", password="x")
            log = tmp_path / "cluster" / "node-0" / "log.txt"
            said = "audit log: records cannot be written"
            eventually(lambda: said in log.read_text(), "it is said")
            assert admin.audit.page().records == () and admin.users.get("ann").name == "ann"


def test_settings_say_where_they_come_from(cluster: LocalCluster, admin: Admin) -> None:
    known = {one.name: one for one in admin.cluster.settings("node-0")}
    assert (known["secret"].value, known["secret"].origin) == ("(hidden)", "file")
    assert (known["event_exchange.enabled"].value, known["event_exchange.enabled"].origin) == (
        True,
        "file",
    )
    assert known["audit.files_max"].origin == "default" and known["audit.files_max"].meaning
    shown = CliRunner().invoke(app, ["nodes", "settings", "node-0", "--uri", uri(cluster)])
    assert "audit.files_max" in shown.stdout and "the-clusters-own" not in shown.stdout
    (condition,) = admin.cluster.conditions()
    assert condition.node == "node-0" and condition.syncs > 0 and not condition.audit_lost


def test_what_operators_do_with_claims_is_recorded(
    cluster: LocalCluster, admin: Admin, http: HttpClient
) -> None:
    admin.queues.declare("claimed")
    with Connection(uri(cluster)) as connection:
        with Producer(connection) as producer:
            for n in range(6):
                producer.send(b"%d" % n, "claimed")
        reader = ClaimReader(connection, "claimed", "driver")
        first = reader.register().settled + 1
        reader.open(first, max_messages=1, max_bytes=1 << 20)
        reader.settle(first)
        reader.open(first + 1, max_messages=1, max_bytes=1 << 20)
        assert not [one for one in found(admin, contains="claimed") if "readers" in one.action]
        by_hand = ["claims", "settle", "claimed", "driver", str(first + 1), "--uri", uri(cluster)]
        assert "settled 1 messages" in CliRunner().invoke(app, by_hand).stdout
        reader.open(first + 2, max_messages=1, max_bytes=1 << 20)
        path = "/queues/%2F/claimed/readers/driver/settle"
        assert http("POST", path, {"number": first + 2, "epoch": -1}).status == 200
        assert admin.claims.release("claimed", "driver") == 0
    made = [one for one in reversed(found(admin, contains="claimed")) if "readers" in one.action]
    assert [(one.door, one.action.rpartition("/")[2]) for one in made] == [
        ("AMQP 1.0", "settle"),
        ("HTTP", "settle"),
        ("AMQP 1.0", "release"),
    ]
    settled = [(one.old["settled"], one.new and one.new["settled"]) for one in made]
    assert settled == [(first, first + 1), (first + 1, first + 2), (first + 2, None)]
    assert made[0].target["reader"] == "driver" and made[0].user == "guest"
