"""The clusters of a federation run, their clients, and the relays between them."""

from __future__ import annotations

import argparse
import asyncio
import random
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pika

from connector.amqp.relay import Relay
from nemesis import history
from nemesis.clients import Client, Consumer, Publisher, World
from nemesis.faults import schedule
from nemesis.network import Loopback
from nemesis.nodes import Nodes
from nemesis.scene import SUSPECT_AFTER_S
from nemesis.story import Story, left_in
from warren.admin import Admin
from warren.connection import Connection
from warren.errors import WarrenError
from warren_wire.relay_names import CAPABILITY

FAR, CIRCLE = "nemesis.far", "nemesis.circle"
QUEUES = (FAR, CIRCLE)
WIDE = "nemesis.wide"
"""An exchange, and a queue of the first cluster that is bound to it."""
QUORUM = {"x-queue-type": "quorum"}
OTHERS = {"federation-upstream-set": "others"}
LINKED_S = 60.0
SETTINGS: dict[str, Any] = {
    "queues": {"consumer_disconnected_timeout_ms": 4000},
    "raft": {"suspect_after_ms": int(SUSPECT_AFTER_S * 1000)},
}
PREFETCH = 100
AWAY_S = (0.5, 4.0)
STAY_S = 5.0
SETTLE_S = 90.0
DRAIN_S = 180.0
ADMIN_S = 10.0
ASKED_S = 60.0
SAY_EVERY_S = 15.0
NEED_DISKS = {"full-kill"}
"""Faults that need a file system for each node."""

Fault: TypeAlias = "Callable[[Federation], None]"


class Roaming(Consumer):
    """A consumer that is away for some seconds between its stays, until the publishers end."""

    async def work(self, connection: Any) -> None:
        """See `Client`."""
        ends = asyncio.get_running_loop().time() + self.chance.uniform(*AWAY_S)
        while asyncio.get_running_loop().time() < ends and not self.world.stopping:
            await self.pause(0.2)
        await super().work(connection)


class Cluster:
    """One cluster: its nodes, its clients' world, and the relays to each of its nodes."""

    def __init__(
        self,
        name: str,
        count: int,
        directory: Path,
        record: history.Recorder,
        seed: int,
        own_disks: bool,
    ) -> None:
        self.name = name
        (directory / name).mkdir()
        self.nodes = Nodes(
            count, directory / name, Loopback(), SETTINGS, own_disks=own_disks, cluster=name
        )
        self.world = World(self.nodes, record, seed, 0.0)

    def admin(self) -> Connection:
        """A connection for administration."""
        return Connection(self.nodes.address(timeout_s=ADMIN_S))


class Federation(Story):
    """Clusters, relays, clients, faults, history."""

    def __init__(
        self, options: argparse.Namespace, directory: Path, faults: Mapping[str, Fault]
    ) -> None:
        super().__init__(directory)
        self._faults = faults
        self.options = options
        self.kinds = [kind for kind in options.faults.split(",") if kind] or sorted(faults)
        own_disks = bool(NEED_DISKS & set(self.kinds))
        self.clusters = [
            Cluster(f"c{i}", options.nodes, directory, self.record, options.seed + i, own_disks)
            for i in range(options.clusters)
        ]
        what = self.clusters[0].nodes.what
        if any(each.nodes.disks is None for each in self.clusters):
            self.kinds = [kind for kind in self.kinds if kind not in NEED_DISKS]
        for each in self.clusters:
            each.world.rate = options.rate
        self.relays: dict[tuple[int, int], list[Relay]] = {}
        """By downstream and upstream: one to each node of the upstream."""
        self.unfederated: set[tuple[int, str]] = set()
        """Downstream and queue: their policy was changed or removed by a fault."""
        self.chance = random.Random(options.seed)
        self._loop = asyncio.new_event_loop()
        self._clients = threading.Thread(target=self._run_clients, name="clients", daemon=True)
        self.say(
            f"{options.clusters} clusters of {options.nodes}; {what}; seed {options.seed}; "
            f"{directory}"
        )

    # ------------------------------------------------------------ phases

    def go(self) -> None:
        """All phases; the history is complete afterwards."""
        for each in self.clusters:
            for i in range(len(each.nodes)):
                each.nodes.start(i)
        for each in self.clusters:
            each.nodes.wait_serving()
        for queue in (*QUEUES, WIDE):
            self.record("moves", q=queue)
        self._federate()
        self._until(LINKED_S, "clusters without the binding of a link", self._unbound)
        self._clients.start()
        self._inflict()
        self.say("faults are over")
        self.heal()
        self._settle()
        self._drain()
        self._leave()

    def _federate(self) -> None:
        for here, cluster in enumerate(self.clusters):
            for there in range(len(self.clusters)):
                if there != here:
                    nodes = self.clusters[there].nodes
                    made = [Relay(nodes.endpoint(i)[1]) for i in range(len(nodes))]
                    for relay in made:
                        relay.hidden = CAPABILITY.encode() if self.options.plain else b""
                    self.relays[here, there] = [relay.__enter__() for relay in made]
            host, port = cluster.nodes.endpoint(here % len(cluster.nodes))
            with pika.BlockingConnection(pika.ConnectionParameters(host, port)) as connection:
                channel = connection.channel()
                channel.exchange_declare(WIDE, "direct", durable=True)
                for queue in (*QUEUES, *([] if here else [WIDE])):
                    channel.queue_declare(queue, durable=True, arguments=QUORUM)
                if not here:
                    channel.queue_bind(WIDE, WIDE, WIDE)
            self.configure(here, PREFETCH)
            upstreams = [{"upstream": f"c{i}"} for i in range(len(self.clusters)) if i != here]
            with cluster.admin() as admin:
                say = Admin(admin)
                say.parameters.put("federation-upstream-set", "/", "others", upstreams)
                if not here:
                    say.policies.put("/", "wide", f"^{WIDE}$", OTHERS, apply_to="exchanges")
            for queue in self.federated(here):
                self.set_policy(here, queue)

    def federated(self, here: int) -> tuple[str, ...]:
        """The queues with upstreams in a cluster."""
        return (CIRCLE,) if here else QUEUES

    def set_policy(self, here: int, queue: str, upstreams: dict[str, str] | None = None) -> None:
        """Federate a queue with its upstreams, or with others."""
        usual = OTHERS
        if queue == CIRCLE:
            usual = {"federation-upstream": f"c{(here + 1) % len(self.clusters)}"}
        with self.clusters[here].admin() as admin:
            Admin(admin).policies.put(
                "/", queue, f"^{queue}$", upstreams or usual, apply_to="queues"
            )

    def configure(self, here: int, prefetch: int) -> None:
        """Set a cluster's upstreams, which are the others."""
        for there in range(len(self.clusters)):
            if there == here:
                continue
            uris = [f"amqp://guest:guest@{each.hosts}/%2F" for each in self.relays[here, there]]
            value = {
                "uri": uris,
                "reconnect-delay": 1,
                "prefetch-count": prefetch,
                "ack-mode": self.options.ack_mode,
                "queue-type": "quorum",
            }
            with self.clusters[here].admin() as admin:
                Admin(admin).parameters.put("federation-upstream", "/", f"c{there}", value)

    def _unbound(self) -> list[str]:
        """Upstreams where no link has bound the exchange yet: it would drop what comes."""
        found = []
        for each in self.clusters[1:]:
            with each.admin() as admin:
                if not Admin(admin).bindings.list(source=WIDE):
                    found.append(each.name)
        return found

    def _run_clients(self) -> None:
        try:
            self._loop.run_until_complete(self._clients_of())
        except Exception:
            self.problem(f"a client failed:\n{traceback.format_exc()}")

    async def _clients_of(self) -> None:
        clients: list[Client] = []
        for i, each in enumerate(self.clusters):
            world = each.world
            clients += [
                Publisher(world, f"far-{i}", i, FAR, 0, restless=True),
                Publisher(world, f"circle-{i}", i + 1, CIRCLE, 0, restless=True),
                Publisher(world, f"wide-{i}", i + 2, WIDE, 0, restless=True, exchange=WIDE),
                Roaming(world, f"roams-{i}", i, CIRCLE, prefetch=20, lasts_s=STAY_S),
            ]
            if not i:
                clients.append(Consumer(world, f"eats-far-{i}", i, FAR, prefetch=50, lasts_s=20))
                clients.append(Consumer(world, f"eats-wide-{i}", i, WIDE, prefetch=50, lasts_s=20))
            for name in (f"roams-{i}", f"eats-far-{i}", f"eats-wide-{i}"):
                self.record("place", c=name, cluster=i)
        await asyncio.gather(*(client.run() for client in clients))

    def _inflict(self) -> None:
        ends = time.monotonic() + self.options.minutes * 60
        said = 0.0
        for planned in schedule(self.options.seed, self.kinds, 10_000):
            time.sleep(max(0.0, min(planned.rest_s, ends - time.monotonic())))
            if time.monotonic() > ends:
                return
            self.chance = random.Random(planned.seed)
            self.record("fault", kind=planned.kind, phase="begin")
            self._faults[planned.kind](self)
            self.record("fault", kind=planned.kind, phase="end")
            self._look_for_dead()
            if time.monotonic() > said + SAY_EVERY_S:
                said = time.monotonic()
                self.say(self._progress())

    def _progress(self) -> str:
        worlds = [each.world for each in self.clusters]
        confirmed, delivered = (
            sum(getattr(world, name) for world in worlds) for name in ("confirmed", "delivered")
        )
        return f"{confirmed} confirmed, {delivered} delivered"

    def heal(self) -> None:
        """Every link and process as it should be."""
        for relays in self.relays.values():
            for each in relays:
                each.refusing = each.silent = False
        for cluster in self.clusters:
            for i in range(len(cluster.nodes)):
                cluster.nodes.resume(i)
            cluster.nodes.mend_disks()
            for i in sorted(cluster.nodes.down):
                cluster.nodes.start(i)
        for here, queue in sorted(self.unfederated):
            self.ask(f"policy {queue} of c{here}", partial(self.set_policy, here, queue))

    def ask(self, what: str, call: Callable[[], object]) -> None:
        """Until it is granted: a request may meet a cluster without a leader."""

        def refused() -> str:
            try:
                call()
            except WarrenError as error:
                return str(error)
            return ""

        self._until(ASKED_S, what, refused)

    def _look_for_dead(self) -> None:
        for each in self.clusters:
            self.look_for_dead(each.nodes, f"{each.name} ")

    def _settle(self) -> None:
        """No faults: everything published is answered."""
        for each in self.clusters:
            each.world.stopping = True
        self._until(
            SETTLE_S,
            "publishes unanswered",
            lambda: sum(each.world.unconfirmed for each in self.clusters),
        )

    def _drain(self) -> None:
        """Everything has been delivered, in one cluster or another; FAR and WIDE in the first."""
        self._until(DRAIN_S, "messages left in queues", self._left)

    def _left(self) -> list[str]:
        found = []
        for each in self.clusters:
            with each.admin() as admin:
                texts = [left_in(queue) for queue in Admin(admin).queues.list("nemesis")]
            found += [f"{each.name} {text}" for text in texts if text]
        return found

    def _leave(self) -> None:
        self.dismiss()
        for each in self.clusters:
            self.look_for_tracebacks(each.nodes, f"{each.name} ")

    def dismiss(self) -> None:
        """Every client ends; they write no history from then on."""
        for each in self.clusters:
            each.world.closing = True
        if self._clients.ident is not None:
            self._clients.join(SETTLE_S)
            if self._clients.is_alive():
                self.problem("the clients do not end")

    def close(self) -> None:
        """End every process and relay."""
        for each in self.clusters:
            each.nodes.close()
        for relays in self.relays.values():
            for relay in relays:
                relay.__exit__()

    def _until(self, patience_s: float, what: str, left: Callable[[], object]) -> None:
        self.until(patience_s, what, left, self._look_for_dead)

    # ------------------------------------------------------------ for faults

    def some_relays(self, here: int | None = None) -> tuple[str, list[Relay]]:
        """All relays between two clusters in one direction, or those to one node.

        here  the downstream; None: any
        """
        here, there = self.chance.choice(
            [pair for pair in sorted(self.relays) if here in (None, pair[0])]
        )
        relays = self.relays[here, there]
        if self.chance.random() < 0.3:
            relays = [self.chance.choice(relays)]
        return f"{len(relays)} of the relays from c{here} to c{there}", relays

    def some_node(self) -> tuple[Cluster, int]:
        """A node of a cluster, the leader of a federated queue as a rule."""
        cluster = self.chance.choice(self.clusters)
        count = len(cluster.nodes)
        node = self.chance.randrange(count)
        leader = cluster.nodes.leader_of(self.chance.choice(QUEUES))
        return cluster, node if leader is None or self.chance.random() < 0.3 else leader

    def hit(self, cluster: Cluster) -> None:
        """Note that acknowledgements of this cluster's clients may be lost."""
        self.record("fault", kind="", phase="hit", nodes=[self.clusters.index(cluster)])

    def wait(self, seconds: tuple[float, float]) -> None:
        """A time within these bounds."""
        time.sleep(self.chance.uniform(*seconds))
