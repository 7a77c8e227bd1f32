"""`build.py upgrade`: three real nodes under load roll to the next release, back, and forward.

Nothing is lost or doubled, and no client that reconnects waits for more than GAP_S. What a new
release brings is refused until the cluster's version is raised, and works afterwards; then an old
program is refused. The old release is the newest tag, and the new one this tree; where nothing is
released yet, or the tag has the version of this tree, they are this tree and `upgrade.variant`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pika

from live.conftest import eventually
from live.load import Load, Publisher, connect, drain
from tests.patience import PATIENCE_S
from upgrade import query
from upgrade.programs import THIS, VARIANT, Program, Programs, released
from warren.admin import Admin
from warren.claims import ClaimReader, fetch_claim
from warren.connection import Connection
from warren.errors import Conflict, NoNodeReached, Unavailable, WarrenError
from warren.local import LocalCluster
from warren_machines.queue.jobs.job_commands import JOBS_VERSION
from warren_raft.storage import snapshot
from warren_wire.block.block import Block

GAP_S = 2.0
SETTINGS = {"finish_upgrade": "by-operator", "raft": {"wal_max_size_bytes": 1 << 20}}
QUORUM = {"x-queue-type": "quorum"}
ORDERS, CLAIMED, LATER = "orders", "claimed", "later"
KEPT: dict[str, dict[str, Any]] = {
    "quorum": QUORUM,
    "classic": {"x-queue-type": "classic"},
    "priorities": {"x-queue-type": "classic", "x-max-priority": 5},
    LATER: QUORUM,
    "dead": QUORUM,
    query.TARGET: QUORUM,
}
"""Queues of which nothing is taken before the end."""
FED = {"dead": "failing", query.TARGET: query.SOURCE}
"""Queue of KEPT → the one that is published to instead; what comes of it is in the first."""
FAILING = {
    **QUORUM,
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": "dead",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}
OTHERS = {ORDERS: QUORUM, CLAIMED: QUORUM, FED["dead"]: FAILING, query.SOURCE: QUORUM}
CLAIM_MESSAGES = 400
EVERY_S = 0.05


@dataclass
class Kept(Publisher):
    """Publishes slowly to a queue that keeps its messages until the end."""

    exchange: str = ""

    __hash__ = Publisher.__hash__

    def work(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        channel.confirm_delivery()
        while not self.stop.wait(EVERY_S):
            self.sequence += 1
            said = pika.BasicProperties(
                priority=self.sequence % 5, delivery_mode=2, headers={"x-delay": 1_500}
            )
            body = b"%d:%d" % (self.number, self.sequence)
            channel.basic_publish(
                self.exchange, self.queue, body, said, mandatory=not self.exchange
            )
            self.confirmed.append(body)


@dataclass
class Rejecter(Publisher):
    """Rejects all messages of a queue: they become dead letters."""

    __hash__ = Publisher.__hash__

    def work(self, connection: pika.BlockingConnection) -> None:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=20)
        for method, _, _ in channel.consume(self.queue, inactivity_timeout=0.2):
            if method is not None:
                channel.basic_reject(method.delivery_tag, requeue=False)
            elif self.stop.is_set():
                return


class Upgrade:
    """The cluster, its load, and what is done to it."""

    def __init__(self, cluster: LocalCluster, programs: Programs, place: Path) -> None:
        self.cluster = cluster
        self.programs = programs
        self.names = [node.name for node in cluster.nodes]
        self.stop = threading.Event()
        self.kept: dict[str, Kept] = {}
        self.claim: list[bytes] = []
        with cluster.connect() as connection:
            admin = Admin(connection)
            for name, arguments in {**OTHERS, **KEPT}.items():
                admin.queues.declare(name, arguments=arguments)
            admin.exchanges.declare(
                LATER, "x-delayed-message", arguments={"x-delayed-type": "direct"}
            )
            admin.bindings.put(LATER, LATER, routing_key=LATER)
        for number, queue in enumerate(KEPT):
            fed, exchange = FED.get(queue, queue), LATER if queue == LATER else ""
            self.kept[queue] = Kept(cluster, fed, number, self.stop, exchange=exchange)
        self.clients: list[Publisher] = [
            *self.kept.values(),
            Rejecter(cluster, FED["dead"], 0, self.stop),
        ]
        for client in self.clients:
            client.start()
        self._open_claim()
        self.query = query.Query(cluster, place)

    # ------------------------------------------------------------ claims

    def _open_claim(self) -> None:
        with connect(self.cluster, 0) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for number in range(CLAIM_MESSAGES):
                channel.basic_publish("", CLAIMED, b"%d" % number)
        with self.cluster.connect() as connection:
            reader = ClaimReader(connection, CLAIMED, "r")
            self.number = reader.register().settled + 1
            self.epoch = reader.registered_epoch()
            reader.open(self.number, max_messages=CLAIM_MESSAGES, max_bytes=1 << 20)
        self.claim = self._fetch()
        assert len(self.claim) == CLAIM_MESSAGES, len(self.claim)

    def _fetch(self) -> list[bytes]:
        with self.cluster.connect() as connection:
            blocks = [
                Block.decode(piece.data)
                for piece in fetch_claim(connection, CLAIMED, "r", self.number, 0, CLAIM_MESSAGES)
            ]
        return [bytes(block.body(i)) for block in blocks for i in range(block.count)]

    # ------------------------------------------------------------ rolling

    def through(self, *without: str) -> Admin:
        """Return the administration by way of the other nodes."""
        last: WarrenError | None = None
        for name in self.names:
            if name not in without:
                try:
                    return Admin(Connection(self.cluster.node_address(name)))
                except (NoNodeReached, Unavailable) as error:
                    last = error
        raise last or AssertionError(without)

    def roll(self, program: Program, load: Load) -> None:
        """Restart every node with another program, one after the other."""
        for name in self.names:
            self.programs.use(name, program)
            admin = self.through(name)
            eventually(lambda admin=admin, name=name: self._safe(admin, name), f"{name} may stop")
            admin.nodes.drain(name)
            self.cluster.stop_node(name)
            self.cluster.start(name)
            self._serves(name)
            admin.connection.close()
            load.goes_on()
            self.query.goes_on()
            assert self._fetch() == self.claim, "the open claim has other messages"

    def _safe(self, admin: Admin, name: str) -> bool:
        try:
            return admin.nodes.quorum_critical(name).safe
        except Unavailable:
            return False

    def _serves(self, name: str) -> None:
        ready = self.cluster.node(name).data_dir / "ready.json"
        eventually(ready.exists, f"{name} serves")

    # ------------------------------------------------------------ the end

    def finish(self) -> str:
        """Stop the load; every confirmed message is there once. Return what was counted."""
        self.stop.set()
        for client in self.clients:
            client.join(PATIENCE_S)
            assert not client.is_alive(), client.queue
        self.query.finish()
        time.sleep(2)  # what is delayed becomes due
        lines = []
        for queue, publisher in self.kept.items():
            found = Counter(drain(self.cluster, queue, 0))
            lost = set(publisher.confirmed) - found.keys()
            twice = [body for body, count in found.items() if count > 1]
            assert not lost, f"{queue}: {len(lost)} of {len(publisher.confirmed)} lost"
            # A letter comes at least once, and so does what a delaying exchange routes again.
            assert not twice or queue in ("dead", LATER), f"{queue}: {len(twice)} came twice"
            lines.append(f"{queue} {len(publisher.confirmed)}")
        assert self._fetch() == self.claim
        with self.cluster.connect() as connection:
            reader = ClaimReader(connection, CLAIMED, "r", self.epoch)
            assert reader.settle(self.number) == CLAIM_MESSAGES
        return ", ".join(lines)


def version_of(admin: Admin) -> tuple[int, tuple[str, ...]]:
    """Return the cluster's version, and the nodes that hold it back."""
    found = admin.cluster.version()
    return found.version, found.held_back_by


def refused(admin: Admin, path: str, **body: str) -> str:
    """Ask for what needs the new version; return the text of the refusal."""
    try:
        admin.connection.request("POST", path, body or {"text": "too early"})
    except Conflict as error:
        return error.detail
    raise AssertionError(f"{path} was not refused")


def before_the_raise(upgrade: Upgrade, load: Load, old: Program, new: Program) -> None:
    """Roll to the new program, back and forward; what is new is refused meanwhile."""
    first = upgrade.names[0]
    upgrade.programs.use(first, new)
    upgrade.cluster.restart(first)
    upgrade._serves(first)
    admin = Admin(Connection(upgrade.cluster.node_address(first)))
    version, behind = version_of(admin)
    wanted = tuple(upgrade.names[1:]) if new.version > old.version else ()
    assert (version, behind) == (old.version, wanted), (version, behind)
    print(
        f"  one node upgraded: the cluster has version {version}, held back by {behind or 'none'}"
    )
    if new is VARIANT:
        print(f"  refused: {refused(admin, f'/queues/{ORDERS}/remarks')}")
        refused(admin, "/notes")
    elif old.version < JOBS_VERSION:
        print(f"  refused: {refused(admin, f'/queues/{ORDERS}/jobs', action='delete')}")
    admin.connection.close()
    for what, program in (("forward", new), ("back", old), ("forward", new)):
        upgrade.roll(program, load)
        print(f"  rolled {what}: every node runs {program.name}")


def after_the_raise(upgrade: Upgrade, load: Load, new: Program) -> None:
    """Finish, use what is new, also after restarts; an old program is refused."""
    cluster, names = upgrade.cluster, upgrade.names
    said = {f"/queues/{ORDERS}/remarks": "a remark", "/notes": "a note"} if new is VARIANT else {}
    admin = upgrade.through()
    for path in said:
        assert "every node has it" in refused(admin, path)
    assert admin.cluster.finish_upgrade().version == new.version
    job = admin.jobs.begin(ORDERS, action="delete", filter="absent = 1")
    eventually(lambda: admin.jobs.get(ORDERS, job.job).state == "done", "a job ends")
    for path, text in said.items():
        admin.connection.request("POST", path, {"text": text})
    admin.connection.close()
    load.goes_on()
    upgrade.roll(new, load)
    for name in names:
        admin = Admin(Connection(cluster.node_address(name)))
        for path, wanted in said.items():
            eventually(
                lambda admin=admin, path=path, wanted=wanted: (
                    admin.connection.request("GET", path)["remarks"] == [wanted]
                ),
                f"{name} has {wanted}",
            )
        admin.connection.close()
    print(f"  raised to version {new.version}: what it brings works, also after another roll")


def old_program_is_refused(upgrade: Upgrade, old: Program, new: Program) -> None:
    """Start a node with the old program: on its directory, then on an empty one."""
    cluster, name = upgrade.cluster, upgrade.names[-1]
    node = cluster.node(name)
    cluster.stop_node(name)
    upgrade.programs.use(name, old)
    done = subprocess.run(
        upgrade.programs.command(node),
        cwd=node.directory,
        env=upgrade.programs.environment(node),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    wanted = f"may hold what version {new.version} wrote, and this program has version"
    assert done.returncode == 1 and wanted in done.stderr, (done.returncode, done.stderr[-2000:])
    print(f"  an old program refuses the directory: {wanted}")
    empty = node.data_dir.rename(node.data_dir.with_name("aside"))
    length = len(cluster.log(name))
    cluster.spawn(name)
    wanted = f"start it with a release that has version {new.version}"
    eventually(lambda: wanted in cluster.log(name)[length:], "the peers refuse an old program")
    line = next(line for line in cluster.log(name)[length:].splitlines() if wanted in line)
    print(f"  peers refuse an old program: {line.partition('refused by the peer: ')[2] or line}")
    cluster.kill(name)
    for path in sorted(node.data_dir.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    node.data_dir.rmdir()
    empty.rename(node.data_dir)
    upgrade.programs.use(name, new)
    cluster.start(name)
    upgrade._serves(name)


def snapshots_of(cluster: LocalCluster) -> Counter[int]:
    """Return how many snapshots on the nodes' disks are of each version."""
    paths = [path for node in cluster.nodes for path in node.data_dir.glob("snapshots/*.snap")]
    versions = [path.read_bytes()[len(snapshot.MAGIC) :][:1] for path in paths]
    return Counter(version[0] for version in versions)


def upgraded(old: Program, new: Program) -> bool:
    """Roll from one program to the other; return whether no gap was too long."""
    print(f"from {old.name} to {new.name}", flush=True)
    programs = Programs(old)
    with (
        tempfile.TemporaryDirectory(prefix="warren-upgrade-") as place,
        LocalCluster(nodes=3, directory=Path(place, "nodes"), settings=SETTINGS) as cluster,
    ):
        upgrade = Upgrade(cluster, programs, Path(place))
        load = Load(cluster, ORDERS)
        try:
            with load:
                upgrade.query.goes_on()
                before_the_raise(upgrade, load, old, new)
                if new.version > old.version:
                    after_the_raise(upgrade, load, new)
                    found = snapshots_of(cluster)
                    print(f"  snapshots on disk by version: {dict(sorted(found.items()))}")
                    old_program_is_refused(upgrade, old, new)
                load.finish()
            print(
                f"  each confirmed message once: {upgrade.finish()}; the open claim unchanged; "
                f"a Spark query from {query.SOURCE} to {query.TARGET} ran meanwhile"
            )
        finally:
            upgrade.query.kill()
        gap = load.longest_gap_s()
    print(
        f"  longest time without a confirm: {gap:.2f} s (at most {GAP_S:g} is wanted)", flush=True
    )
    return gap <= GAP_S


def main() -> int:
    """Run it; return 0 when everything held."""
    tag = released()
    held = [] if tag is None else [upgraded(tag, THIS)]
    if tag is None or tag.version == THIS.version:
        held.append(upgraded(THIS, VARIANT))
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
