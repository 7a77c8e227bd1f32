"""Dashboards and alerts against a real Prometheus that scrapes a loaded cluster with faults."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from live.conftest import eventually
from live.prometheus import RULES, WINDOW_S, Prometheus, quicker
from live.rabbitmq_panels import OVERVIEW, QUORUM_QUEUES
from live.test_damage import rot_everywhere
from live.test_hung_disk import Disk
from live.test_prometheus import address, connect, declare, scraped
from tests.certificates import Authority
from tests.patience import PATIENCE_S
from tools import debian
from warren import Admin, ClaimReader, Producer
from warren.local import LocalCluster

pytestmark = [pytest.mark.live, pytest.mark.long]
DASHBOARDS = RULES.parents[1] / "grafana"
SUSPECT_MS = 4_000
SILENT_S, BEHIND_S = 6, 12
THRESHOLDS = {"> 600": f"> {SILENT_S}", "<= 600": f"<= {SILENT_S}", "> 3600": f"> {BEHIND_S}"}
"""A query is silent, or behind, sooner than in the rules."""
ROUND_S = 0.2


class Load:
    """Threads that do a little of everything at node 0, where nothing is broken.

    A resource alarm blocks publishers, so the query that reads has a thread of its own.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.rounds = 0
        self.error: Exception | None = None
        self._ending = threading.Event()
        works = (self._publish, self._read)
        self._threads = [threading.Thread(target=self._work, args=(one,)) for one in works]
        for one in self._threads:
            one.start()

    def _work(self, work: Callable[[], None]) -> None:
        while not self._ending.is_set():
            try:
                work()
            except Exception as error:  # a fault reached it; seen by the tests if it stays
                self.error = error

    def _read(self) -> None:
        with self.cluster.connect() as made:
            Admin(made).queues.declare("claimed", arguments={"x-queue-type": "quorum"})
            reader = ClaimReader(made, "claimed", "steady")
            number = reader.register().settled + 1
            while not self._ending.wait(ROUND_S):
                if reader.open(number, max_messages=100, max_bytes=1 << 20).messages:
                    reader.settle(number)
                    number += 1

    def _publish(self) -> None:
        with connect(self.cluster) as connection:
            self._rounds(connection)

    def _rounds(self, connection: pika.BlockingConnection) -> None:
        lasting, seen = connection.channel(), []
        lasting.confirm_delivery()
        dead = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "load"}
        kept = {"x_dead_letter_strategy": "at-least-once", "x_overflow": "reject-publish"}
        declare(lasting, "load")
        declare(lasting, "short", x_message_ttl=1, **dead, **kept)
        lasting.basic_qos(prefetch_count=5)
        lasting.basic_consume("load", lambda *said: seen.append(said[1].delivery_tag))
        unacked = connection.channel()
        unacked.basic_consume("load", lambda *said: None, auto_ack=True)
        while not self._ending.wait(ROUND_S):
            with connect(self.cluster) as short:
                channel = short.channel()
                for size in (50, 500, 5_000):
                    lasting.basic_publish("", "load", bytes(size))
                    lasting.basic_publish("", "claimed", bytes(size))
                lasting.basic_publish("", "short", b"expires")
                channel.basic_publish("", "nowhere", b"dropped")
                channel.basic_publish("", "nowhere", b"returned", mandatory=True)
                name = channel.queue_declare("", exclusive=True).method.queue
                for _ in range(3):
                    channel.basic_publish("", name, b"fetched")
                eventually(partial(fetched, channel, name), "fetched")
                channel.basic_reject(channel.basic_get(name)[0].delivery_tag, requeue=True)
                channel.basic_ack(channel.basic_get(name)[0].delivery_tag)
                channel.queue_delete(name)
                channel.queue_declare("empty", exclusive=True)
                channel.basic_get("empty")
            connection.process_data_events(0.01)
            for tag in seen:
                lasting.basic_ack(tag)
            seen.clear()
            self.rounds += 1

    def close(self) -> None:
        """End them."""
        self._ending.set()
        for one in self._threads:
            one.join(PATIENCE_S)
            assert not one.is_alive()


def fetched(channel: Any, name: str) -> bool:
    return bool(channel.basic_get(name, auto_ack=True)[0])


class Scene:
    """The cluster, its load, and the Prometheus that scrapes it; `disk` is node 1's, if any."""

    def __init__(self, place: Path, stack: ExitStack) -> None:
        self.authority = Authority(place / "ca")
        self.certificate = self.authority.issue("node", file="node", days=100)
        settings = {
            "prometheus": {"enabled": True, "tcp": {"port": 0}},
            "listen": {"amqps": "127.0.0.1:0"},
            "raft": {"suspect_after_ms": SUSPECT_MS, "wal_max_size_bytes": 1 << 20},
            "tls": {
                "certfile": str(self.certificate.cert),
                "keyfile": str(self.certificate.key),
                "verify": "verify_none",
            },
        }
        self.cluster = LocalCluster(3, place / "cluster", settings=settings)
        self.disk: Disk | None = Disk(place / "disk.img", self.cluster.nodes[1].data_dir)
        try:
            self.disk.mount()
            stack.callback(self.disk.unmount)
        except (OSError, subprocess.CalledProcessError):
            self.disk = None
        stack.enter_context(self.cluster)
        self.load = Load(self.cluster)
        stack.callback(self.load.close)
        rules = quicker(RULES.read_text(), THRESHOLDS)
        self.prometheus = Prometheus(place / "prometheus", rules)
        stack.callback(self.prometheus.close)
        self.scrape(0, 1, 2)

    def scrape(self, *nodes: int) -> None:
        """Scrape these nodes; a restarted one has another port."""
        told = [address(self.cluster, node) for node in nodes]
        self.prometheus.scrape([f"{host}:{port}" for host, port in told])

    def fires(self, *expected: str) -> None:
        """Wait until these alerts fire, and no others."""
        found: set[str] = set()

        def so() -> bool:
            nonlocal found
            found = self.prometheus.firing()
            return found == set(expected)

        try:
            eventually(so, "")
        except AssertionError:
            pytest.fail(f"{sorted(found)} fire in place of {sorted(expected)}")

    def admin(self) -> Any:
        """A connection to node 0."""
        return self.cluster.connect()

    @contextmanager
    def restarted(self, node: int, **environment: str) -> Iterator[None]:
        """Restart a node with these variables, and afterwards without."""
        os.environ.update(environment)
        try:
            self.cluster.restart(node)
        finally:
            for name in environment:
                del os.environ[name]
        self.scrape(0, 1, 2)
        yield
        self.cluster.restart(node)
        self.scrape(0, 1, 2)

    @contextmanager
    def repeated(self, once: Callable[[], object], threads: int = 1) -> Iterator[None]:
        """Do something again and again meanwhile; what it raises is part of it."""
        ending = threading.Event()

        def work() -> None:
            while not ending.wait(0.02):
                with suppress(Exception):
                    once()

        working = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
        for one in working:
            one.start()
        try:
            yield
        finally:
            ending.set()
            for one in working:
                one.join(PATIENCE_S)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    if debian.unpacked("prometheus") is None:
        reason = "no prometheus here: apt-get install prometheus, or PROMETHEUS=PATH"
        (pytest.fail if os.environ.get("WARREN_STRICT") else pytest.skip)(reason)
    with ExitStack() as stack:
        yield Scene(tmp_path_factory.mktemp("alerts"), stack)


# ------------------------------------------------------------------ panels


def own_panels() -> dict[str, tuple[str, ...]]:
    """The expressions of each panel of `deploy/grafana`."""
    return {
        f"{file.stem}: {panel['title']}": tuple(one["expr"] for one in panel["targets"])
        for file in sorted(DASHBOARDS.glob("*.json"))
        for panel in json.loads(file.read_text())["panels"]
    }


@pytest.mark.parametrize(
    ("panels", "endpoint"),
    [
        pytest.param(own_panels(), "", id="own"),
        pytest.param(OVERVIEW, "aggregated", id="rabbitmq-overview"),
        pytest.param(QUORUM_QUEUES, "aggregated", id="rabbitmq-quorum-queues"),
        pytest.param(QUORUM_QUEUES, "per-object", id="rabbitmq-quorum-queues-per-object"),
    ],
)
def test_every_panel_has_data(
    scene: Scene, panels: dict[str, tuple[str, ...]], endpoint: str
) -> None:
    values = {
        "$cluster": json_cluster(scene.cluster),
        "$endpoint": endpoint,
        "$__rate_interval": f"{WINDOW_S}s",
        "$__range": "1m",
        "$vhost": ".+",
        "$queue": ".+",
    }

    def asked(expression: str) -> list[float]:
        for name, value in values.items():
            expression = expression.replace(name, value)
        return scene.prometheus.ask(expression)

    empty: list[str] = []

    def every_one_has_data() -> bool:
        empty[:] = [
            f"{title}: {one}" for title, each in panels.items() for one in each if not asked(one)
        ]
        return not empty

    try:
        eventually(every_one_has_data, "")
    except AssertionError:
        pytest.fail("without data:\n" + "\n".join(empty))
    print(f"\n{len(panels)} of {len(panels)} panels have data")
    assert scene.load.rounds, scene.load.error


def json_cluster(cluster: LocalCluster) -> str:
    """The name of the cluster that the nodes tell."""
    return next(
        dict(labels)["rabbitmq_cluster"]
        for name, labels in scraped(cluster, 0)
        if name == "rabbitmq_identity_info"
    )


# ------------------------------------------------------------------ faults


def node_down(scene: Scene) -> Iterator[None]:
    scene.cluster.kill(2)
    yield
    scene.cluster.start(2)
    scene.scrape(0, 1, 2)


def peer_unreachable(scene: Scene) -> Iterator[None]:
    """A node that Prometheus does not scrape."""
    scene.scrape(0, 1)
    yield from node_down(scene)


def group_without_leader(scene: Scene) -> Iterator[None]:
    with connect(scene.cluster) as connection:
        declare(connection.channel(), "two", x_quorum_initial_group_size=2)
        with scene.admin() as made:
            members = [one.node for one in Admin(made).members.get("two").members]
        scene.cluster.kill(next(one for one in members if one != scene.cluster.nodes[0].name))
        yield
        scene.cluster.start()
        scene.scrape(0, 1, 2)
        eventually(lambda: connection.channel().queue_delete("two"), "deleted")


def leaders_move(scene: Scene) -> Iterator[None]:
    with scene.admin() as made:
        admin, at = Admin(made), 0
        for number in range(10):
            admin.queues.declare(f"moved-{number}", arguments={"x-queue-type": "quorum"})

        def move() -> None:
            nonlocal at
            at += 1
            target = scene.cluster.nodes[at // 10 % 3].name
            admin.members.transfer(f"moved-{at % 10}", target)

        with scene.repeated(move):
            yield
        for number in range(10):
            admin.queues.delete(f"moved-{number}")


def loop_stalls(scene: Scene) -> Iterator[None]:
    pid = scene.cluster.pid(2)

    def stop() -> None:
        os.kill(pid, signal.SIGSTOP)
        threading.Event().wait(0.7)
        os.kill(pid, signal.SIGCONT)
        threading.Event().wait(0.5)

    with scene.repeated(stop):
        yield


def files_near_limit(scene: Scene) -> Iterator[None]:
    pid = scene.cluster.pid(2)
    usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = len(os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (int(used * 1.2), usual[1]))
    yield
    resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)


def kernel_interpreted(scene: Scene) -> Iterator[None]:
    with scene.restarted(2, WARREN_KERNEL="interpreted"):
        yield


def maintenance(scene: Scene) -> Iterator[None]:
    with scene.admin() as made:
        Admin(made).nodes.drain(scene.cluster.nodes[2].name)
        yield
        Admin(made).nodes.revive(scene.cluster.nodes[2].name)


def certificate_ends(scene: Scene) -> Iterator[None]:
    scene.authority.issue("node", file="node", days=5)
    yield
    scene.authority.issue("node", file="node", days=100)


def memory_alarm(scene: Scene) -> Iterator[None]:
    with scene.restarted(2, WARREN_ALARMS__MEMORY_HIGH_WATERMARK_BYTES=str(1 << 20)):
        yield


def own_disk(scene: Scene) -> Disk:
    if scene.disk is None:
        reason = "no file system can be mounted here"
        (pytest.fail if os.environ.get("WARREN_STRICT") else pytest.skip)(reason)
    return scene.disk


def disk_alarm(scene: Scene) -> Iterator[None]:
    place = own_disk(scene).place
    found = os.statvfs(place)
    with (place / "ballast").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, found.f_bavail * found.f_frsize - (20 << 20))
    yield
    (place / "ballast").unlink()


def disk_slow(scene: Scene) -> Iterator[None]:
    disk = own_disk(scene)
    with disk:
        disk.freeze()
        threading.Event().wait(SUSPECT_MS / 2000)  # as long as the disk hangs
        disk.thaw()
        yield


def disk_hangs(scene: Scene) -> Iterator[None]:
    with own_disk(scene) as disk:
        disk.freeze()
        yield


def logins_fail(scene: Scene) -> Iterator[None]:
    wrong = pika.PlainCredentials("guest", "wrong")
    at = "127.0.0.1", scene.cluster.nodes[2].amqp_port, "/", wrong
    with scene.repeated(lambda: pika.BlockingConnection(pika.ConnectionParameters(*at)), 4):
        yield


def connections_refused(scene: Scene) -> Iterator[None]:
    with scene.admin() as made:
        admin, known = Admin(made), pika.PlainCredentials("kept-out", "p")
        admin.users.put("kept-out", password="p")
        admin.permissions.put("/", "kept-out", configure=".*", write=".*", read=".*")
        admin.limits.put("user", "kept-out", "max-connections", 0)
        at = "127.0.0.1", scene.cluster.nodes[2].amqp_port, "/", known
        with scene.repeated(lambda: pika.BlockingConnection(pika.ConnectionParameters(*at))):
            yield
        admin.users.delete("kept-out")


def dead_letters_wait(scene: Scene) -> Iterator[None]:
    with connect(scene.cluster) as connection:
        channel = connection.channel()
        channel.exchange_declare("no-queue", "fanout")
        kept = {"x_dead_letter_strategy": "at-least-once", "x_overflow": "reject-publish"}
        declare(channel, "stuck", x_message_ttl=1, x_dead_letter_exchange="no-queue", **kept)
        channel.basic_publish("", "stuck", b"to nowhere")
        yield
    with connect(scene.cluster) as connection:
        connection.channel().queue_delete("stuck")


def transfer_terminated(scene: Scene) -> Iterator[None]:
    with scene.admin() as made:
        admin = Admin(made)
        wrong = f"amqp://guest:wrong@{scene.cluster.addresses[0]}"
        ends = {"src-queue": "load", "dest-uri": "amqp://", "dest-queue": "load"}
        # One refused login per attempt: few of them, so that only the shovel is noticed.
        value = {"src-uri": wrong, **ends, "reconnect-delay": 60}
        admin.parameters.put("shovel", "/", "broken", value)
        yield
        admin.shovels.delete("/", "broken")


@contextmanager
def reader_with_a_claim(scene: Scene, queue: str) -> Iterator[ClaimReader]:
    with scene.admin() as made:
        Admin(made).queues.declare(queue, arguments={"x-queue-type": "quorum"})
        with Producer(made) as producer:
            producer.send(b"body", queue)
        reader = ClaimReader(made, queue, "query")
        number = reader.register().settled + 1
        eventually(lambda: reader.open(number, max_messages=9, max_bytes=1 << 20).messages, "it")
        yield reader
        Admin(made).queues.delete(queue)


def reader_silent(scene: Scene) -> Iterator[None]:
    with reader_with_a_claim(scene, "silent"):
        yield


def reader_behind(scene: Scene) -> Iterator[None]:
    with reader_with_a_claim(scene, "behind") as reader, scene.repeated(reader.renew):
        yield


def entries_damaged(scene: Scene) -> Iterator[None]:
    """The last one: the files stay damaged."""
    lost = 4_711
    with connect(scene.cluster) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        declare(channel, "rotten")
        channel.basic_publish("", "rotten", b"%d " % lost + b"x" * 200)
        for _ in range(50):  # until the file of the log is complete
            channel.basic_publish("", "rotten", bytes(50_000))
    for node in range(3):
        scene.cluster.restart(node)  # empties its memory of the messages
    scene.scrape(0, 1, 2)
    rot_everywhere(scene.cluster, lost)
    with connect(scene.cluster, 2) as connection:
        connection.channel().basic_consume("rotten", lambda *said: None)
        yield
    with connect(scene.cluster, 2) as connection:
        connection.channel().queue_delete("rotten")


FAULTS: dict[Callable[[Scene], Iterator[None]], tuple[str, ...]] = {
    logins_fail: ("WarrenLoginsFail",),
    connections_refused: ("WarrenConnectionsRefused",),
    dead_letters_wait: ("WarrenDeadLettersWait",),
    transfer_terminated: ("WarrenTransferTerminated",),
    reader_silent: ("WarrenReaderSilent",),
    reader_behind: ("WarrenReaderBehind",),
    certificate_ends: ("WarrenCertificateEnds",),
    leaders_move: ("WarrenLeadersMove",),
    files_near_limit: ("WarrenFilesNearLimit",),
    loop_stalls: ("WarrenLoopStalls",),
    maintenance: ("WarrenMaintenance",),
    disk_alarm: ("WarrenDiskAlarm",),
    disk_slow: ("WarrenDiskSlow",),
    disk_hangs: ("WarrenDiskHangs",),
    memory_alarm: ("WarrenMemoryAlarm",),
    kernel_interpreted: ("WarrenKernelInterpreted",),
    node_down: ("WarrenNodeDown",),
    peer_unreachable: ("WarrenPeerUnreachable",),
    group_without_leader: ("WarrenGroupWithoutLeader", "WarrenNodeDown"),
    entries_damaged: ("WarrenEntriesDamaged",),
}
"""Each fault, and what fires for it: nothing else does."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_each_alert_fires_for_its_fault_and_for_nothing_else(
    scene: Scene, fault: Callable[[Scene], Iterator[None]]
) -> None:
    scene.fires()
    with contextmanager(fault)(scene):
        scene.fires(*FAULTS[fault])
    scene.fires()


def test_each_alert_has_a_fault() -> None:
    alerts = {line.split()[-1] for line in RULES.read_text().splitlines() if "- alert:" in line}
    assert alerts == {name for names in FAULTS.values() for name in names}
