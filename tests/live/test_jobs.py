"""Jobs over the messages of queues on three nodes: each message once, whatever fails meanwhile."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from typer.testing import CliRunner

from live.conftest import eventually
from live.http_client import SETTINGS, HttpClient, add_user, http_client, quoted
from warren.admin import Admin
from warren.cli.app import app
from warren.connection import Connection
from warren.errors import AccessRefused, Conflict, NotFound, PeerError
from warren.local import LocalCluster
from warren_wire.admin.jobs import JobInfo

pytestmark = pytest.mark.live
RUN = CliRunner()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3, settings=SETTINGS) as made:
        yield made


@pytest.fixture
def http(cluster: LocalCluster) -> HttpClient:
    return http_client(cluster)


def uri(cluster: LocalCluster, node: int = 0, user: str = "guest:guest") -> str:
    return f"amqp://{user}@{cluster.addresses[node]}/%2F"


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[Admin]:
    with Connection(uri(cluster)) as connection:
        yield Admin(connection)


@pytest.fixture
def channel(cluster: LocalCluster) -> Iterator[Any]:
    with pika.BlockingConnection(pika.URLParameters(uri(cluster))) as connection:
        made = connection.channel()
        made.confirm_delivery()
        yield made


def declared(channel: Any, **arguments: Any) -> str:
    name = f"q-{uuid.uuid4().hex[:8]}"
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum", **arguments})
    return name


def died(channel: Any, *numbers: int) -> tuple[str, str]:
    """A queue, and that of its dead letters: messages with these numbers, which were rejected."""
    dead = declared(channel)
    more = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    name = declared(channel, **more)
    for n in numbers:
        said = pika.BasicProperties(headers={"n": n, "x-exception": f"E{n % 2}"}, delivery_mode=2)
        channel.basic_publish("", name, b"body %d" % n, said)
    for _ in numbers:
        eventually(lambda: _rejected(channel, name), "a message is rejected")
    return name, dead


def _rejected(channel: Any, name: str) -> bool:
    got, _, _ = channel.basic_get(name)
    if got is not None:
        channel.basic_reject(got.delivery_tag, requeue=False)
    return got is not None


def bodies(channel: Any, name: str) -> list[str]:
    """All messages of a queue, which are taken."""
    found = []
    while True:
        got, _, body = channel.basic_get(name, auto_ack=True)
        if got is None:
            return found
        found.append(body.decode())


def ended(admin: Admin, job: JobInfo, state: str = "done") -> JobInfo:
    eventually(lambda: admin.jobs.get(job.queue, job.job).state == state, f"the job is {state}")
    return admin.jobs.get(job.queue, job.job)


def ready(admin: Admin, name: str) -> int:
    return admin.queues.get(name).messages_ready


def test_dead_letters_are_repaired_redriven_and_brought_back(
    cluster: LocalCluster, admin: Admin, channel: Any
) -> None:
    name, dead = died(channel, *range(10))
    eventually(lambda: ready(admin, dead) == 10, "all are dead letters")
    groups = admin.letters.groups(dead, by="reason,origin,header:x-exception,hour")
    assert {tuple(one.values.values())[:3]: one.messages for one in groups.groups} == {
        ("rejected", name, "E0"): 5,
        ("rejected", name, "E1"): 5,
    }
    hour = groups.groups[0].values["hour"]
    selection = {"header": "x-exception=E1", "hour": hour, "reason": "rejected", "origin": name}
    assert len(list(admin.queues.browse(dead, **selection))) == 5
    assert admin.letters.groups(dead, **selection).groups[0].messages == 5
    poison = next(iter(admin.queues.browse(dead, filter="n = 7")))
    at = {"index": poison.index, "ordinal": poison.ordinal}
    repair = admin.jobs.begin(
        dead, action="redrive", body="mended", headers={"x-exception": None, "by": "hand"}, **at
    )
    assert ended(admin, repair).done == 1
    _, said, body = channel.basic_get(name, auto_ack=True)
    assert body == b"mended" and said.headers["by"] == "hand"
    assert "x-exception" not in said.headers and said.headers["n"] == 7
    assert said.headers["x-death"][0]["queue"] == name
    job = ended(admin, admin.jobs.begin(dead, action="redrive", **selection))
    assert (job.done, job.kept, job.targets) == (4, 4, (name,))
    assert (ready(admin, dead), ready(admin, name)) == (5, 4)
    assert {one.state for one in admin.queues.browse(dead, filter="n = 3")} == {"kept"}
    assert admin.queues.get(dead).messages_in_jobs == 5
    _, said, taken = channel.basic_get(name, auto_ack=True)  # a consumer was quicker than the undo
    assert "x-warren-job" not in said.headers
    undo = ["jobs", "undo", dead, str(job.job), "--wait", "--uri", uri(cluster, 2)]
    told = RUN.invoke(app, undo).stdout
    assert "is undone: 4 done, 3 of them brought back, 1 were consumed at the target" in told
    assert (ready(admin, dead), ready(admin, name)) == (8, 0)
    (recall,) = admin.jobs.list(name)
    assert (recall.action, recall.to, recall.state, recall.done) == ("recall", dead, "done", 3)
    left = [f"body {n}" for n in range(10) if n != 7]
    assert sorted(bodies(channel, dead)) == [one for one in left if one != taken.decode()]
    with pytest.raises(Conflict, match="it is done"):
        admin.jobs.steer(dead, repair.job, "pause")


def test_move_copy_delete_requeue_over_every_door(
    cluster: LocalCluster, admin: Admin, channel: Any, http: HttpClient
) -> None:
    source, target = declared(channel), declared(channel)
    for n in range(20):
        channel.basic_publish("", source, b"%d" % n, pika.BasicProperties(headers={"n": n}))
    at = ["--uri", uri(cluster, 1)]
    some = ["--filter", "n < 5"]
    dry = RUN.invoke(
        app, ["jobs", "start", source, "move", "--to", target, "--dry-run", *some, *at]
    )
    assert dry.stdout.startswith(f"5 messages of queue {source} are meant"), dry.output
    assert ready(admin, source) == 20
    made = RUN.invoke(app, ["jobs", "start", source, "move", "--to", target, "--wait", *some, *at])
    assert made.exit_code == 0 and "is done: 5 done" in made.stdout, made.output
    path = f"/queues/{quoted('/')}/{source}/jobs"
    copied = http("POST", path, {"action": "copy", "to_queue": target, "filter": "n = 19"})
    assert copied.status == 201, copied
    eventually(lambda: http("GET", path).body[-1]["state"] == "done", "it is copied")
    dropped = admin.jobs.begin(source, action="delete", filter="n > 9", undo_ms=0)
    assert ended(admin, dropped).done == 10
    again = ended(admin, admin.jobs.begin(source, action="requeue", filter="n = 5"))
    assert again.action == "requeue" and again.done == 1
    assert bodies(channel, target) == ["0", "1", "2", "3", "4", "19"]
    assert bodies(channel, source) == ["6", "7", "8", "9", "5"]
    table = RUN.invoke(app, ["jobs", "list", "--json", *at])
    mine = [one for one in json.loads(table.stdout) if one["queue"] == source]
    assert [one["action"] for one in mine] == ["move", "copy", "delete", "requeue"]
    assert http("POST", f"{path}/{dropped.job}/forget", {}).status in (200, 204)
    assert len(admin.jobs.list(source)) == 3
    for every in ("/jobs", f"/jobs/{quoted('/')}"):
        assert len([one for one in http("GET", every).body if one["queue"] == source]) == 3
    assert add_user(http, "elsewhere", "management", None).get("/jobs") == []
    groups = http("GET", f"/queues/{quoted('/')}/{source}/letters?by=reason")
    assert groups.status == 200 and groups.body["groups"] == []


def test_bad_requests_are_refused_clearly(
    cluster: LocalCluster, admin: Admin, channel: Any, http: HttpClient
) -> None:
    source = declared(channel)
    for wrong in ({"action": "move"}, {"action": "delete", "body": "x"}, {"filter": "n <"}):
        with pytest.raises(PeerError):
            admin.jobs.begin(
                source, **{"to_queue": source, **wrong} if "filter" in wrong else wrong
            )
    with pytest.raises(NotFound):
        admin.jobs.begin(source, action="move", to_queue="absent")
    with pytest.raises(NotFound):
        admin.jobs.begin("absent", action="delete")
    with pytest.raises(NotFound):
        admin.jobs.steer(source, 99, "pause")
    with pytest.raises(AccessRefused):
        admin.jobs.begin(source, action="move", to_queue=source, to_vhost="absent")
    with pytest.raises(PeerError, match="at most 65,536 bytes"):
        admin.jobs.begin(source, action="requeue", body="x" * 70_000)
    add_user(http, "reader", "management")
    reads = {"configure": ".*", "write": "^$", "read": ".*"}
    assert http("PUT", f"/permissions/{quoted('/')}/reader", reads).status == 204
    with Connection(uri(cluster, 0, "reader:pw")) as connection:
        with pytest.raises(AccessRefused):
            Admin(connection).jobs.begin(source, action="move", to_queue=source)


def test_a_job_waits_for_its_target_and_can_be_cancelled(admin: Admin, channel: Any) -> None:
    source = declared(channel)
    target = declared(channel, **{"x-max-length": 3, "x-overflow": "reject-publish"})
    for n in range(9):
        channel.basic_publish("", source, b"%d" % n)
    job = admin.jobs.begin(source, action="move", to_queue=target)
    eventually(lambda: "full" in admin.jobs.get(source, job.job).why, "it waits for room")
    assert admin.jobs.get(source, job.job).state == "running"
    taken = bodies(channel, target)
    assert taken[:3] == ["0", "1", "2"]
    eventually(lambda: admin.jobs.get(source, job.job).done >= 6, "it goes on")
    admin.jobs.steer(source, job.job, "cancel")
    done = ended(admin, job, "cancelled")
    left = bodies(channel, source)
    assert len(left) == 9 - done.done and done.held == 0
    assert sorted([*taken, *left, *bodies(channel, target)]) == [str(n) for n in range(9)]


def test_a_job_is_paused_and_resumed_at_its_rate(admin: Admin, channel: Any) -> None:
    source, target = declared(channel), declared(channel)
    for n in range(60):
        channel.basic_publish("", source, b"%d" % n)
    job = admin.jobs.begin(source, action="move", to_queue=target, rate=10)
    eventually(lambda: admin.jobs.get(source, job.job).done >= 10, "it has begun")
    assert admin.jobs.steer(source, job.job, "pause").state == "paused"
    paused = admin.jobs.get(source, job.job).done
    assert paused < 60
    assert admin.jobs.steer(source, job.job, "resume").state == "running"
    eventually(lambda: admin.jobs.get(source, job.job).done > paused, "it goes on")
    admin.jobs.steer(source, job.job, "cancel")
    ended(admin, job, "cancelled")
    assert len(bodies(channel, source)) + len(bodies(channel, target)) == 60


def test_leaders_are_killed_amid_a_redrive(cluster: LocalCluster) -> None:
    count = 6_000
    with pika.BlockingConnection(pika.URLParameters(uri(cluster))) as connection:
        channel = connection.channel()
        source, target = declared(channel), declared(channel)
        for n in range(count):
            channel.basic_publish("", source, b"%d" % n)
    with cluster.connect() as of_any:
        _killed(cluster, Admin(of_any), source, target, count)


def _killed(cluster: LocalCluster, admin: Admin, source: str, target: str, count: int) -> None:
    eventually(lambda: ready(admin, source) == count, "all are published")
    job = admin.jobs.begin(source, action="move", to_queue=target, rate=1_000, call="once")
    for kill in range(3):
        moved = _done(admin, job)
        eventually(lambda before=moved: _done(admin, job) > before, "it goes on", 60)
        leader = admin.queues.get(source if kill % 2 == 0 else target).leader
        cluster.kill(leader)
        cluster.start(leader)
    again = admin.jobs.begin(source, action="move", to_queue=target, rate=1_000, call="once")
    assert again.job == job.job
    eventually(lambda: admin.jobs.get(source, job.job).state == "done", "all are moved", 120)
    done = admin.jobs.get(source, job.job)
    assert (done.done, done.matched, done.kept) == (count, count, count)
    found = Counter(one.body for one in admin.queues.browse(target, body_bytes=10))
    assert len(found) == count and set(found.values()) == {1}
    taken = _taken(cluster, target, 100)
    admin.jobs.steer(source, job.job, "undo")
    for queue in (target, source):
        leader = admin.queues.get(queue).leader
        cluster.kill(leader)
        cluster.start(leader)
        taken += _taken(cluster, target, 10)
    eventually(lambda: _state(admin, job) == "undone", "it is undone", 120)
    done = admin.jobs.get(source, job.job)
    assert (done.back, done.consumed) == (count - len(taken), len(taken))
    assert ready(admin, target) == 0
    back = Counter(one.body for one in admin.queues.browse(source, body_bytes=10))
    assert back + Counter(taken) == found


def _taken(cluster: LocalCluster, name: str, most: int) -> list[str]:
    """What a consumer takes of a queue."""
    found = []
    with pika.BlockingConnection(pika.URLParameters(_any(cluster))) as connection:
        channel = connection.channel()
        while len(found) < most:
            got, _, body = channel.basic_get(name, auto_ack=True)
            if got is None:
                break
            found.append(body.decode())
    return found


def _any(cluster: LocalCluster) -> str:
    """The URI of a node that accepts connections."""
    found: list[str] = []

    def there() -> bool:
        for node in range(3):
            try:
                pika.BlockingConnection(pika.URLParameters(uri(cluster, node))).close()
            except pika.exceptions.AMQPError:
                continue
            found.append(uri(cluster, node))
            return True
        return False

    eventually(there, "a node accepts connections")
    return found[0]


def _done(admin: Admin, job: JobInfo) -> int:
    found = [one.done for one in admin.jobs.list(job.queue) if one.job == job.job]
    return found[0] if found else 0


def _state(admin: Admin, job: JobInfo) -> str:
    found = [one.state for one in admin.jobs.list(job.queue) if one.job == job.job]
    return found[0] if found else ""
