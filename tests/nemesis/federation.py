"""Clusters that federate queues, under faults: `python -m nemesis.federation --minutes 3 --seed 7`.

The links between the clusters are relays, which are cut, silenced or closed. FAR is consumed in the
first cluster alone, and has every other one as an upstream. CIRCLE is consumed everywhere, now
here, now there, and each cluster has the next one as its upstream. WIDE is an exchange of every
cluster; its queue in the first one, consumed there, gets what is published to any of them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika

from connector.amqp.relay import Relay
from live.test_shovel import worker_pids
from nemesis import history
from nemesis.clients import Client, Consumer, Publisher, World
from nemesis.faults import schedule
from nemesis.network import Loopback
from nemesis.nodes import Nodes
from nemesis.scene import SUSPECT_AFTER_S
from nemesis.story import Story, kept_directory, left_in, parsed
from warren.admin import Admin
from warren.connection import Connection
from warren.errors import WarrenError
from warren_broker.relay_names import CAPABILITY

FAR, CIRCLE = "nemesis.far", "nemesis.circle"
QUEUES = (FAR, CIRCLE)
WIDE = "nemesis.wide"
"""An exchange, and a queue of the first cluster that is bound to it."""
QUORUM = {"x-queue-type": "quorum"}
LINKED_S = 60.0
SETTINGS: dict[str, Any] = {
    "queues": {"consumer_disconnected_timeout_ms": 4000},
    "raft": {"suspect_after_ms": int(SUSPECT_AFTER_S * 1000)},
}
PREFETCH = 100
AWAY_S = (0.5, 4.0)
STAY_S = 5.0
CUT_S = (0.5, 6.0)
DOWN_S = (0.0, 5.0)
PAUSE_S = (0.5, 6.0)
SETTLE_S = 90.0
DRAIN_S = 180.0
ADMIN_S = 10.0
SAY_EVERY_S = 15.0


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
        self, name: str, count: int, directory: Path, record: history.Recorder, seed: int
    ) -> None:
        self.name = name
        (directory / name).mkdir()
        self.nodes = Nodes(
            count, directory / name, Loopback(), SETTINGS, own_disks=False, cluster=name
        )
        self.world = World(self.nodes, record, seed, 0.0)

    def admin(self) -> Connection:
        """A connection for administration."""
        return Connection(self.nodes.address(timeout_s=ADMIN_S))


class Federation(Story):
    """Clusters, relays, clients, faults, history."""

    def __init__(self, options: argparse.Namespace, directory: Path) -> None:
        super().__init__(directory)
        self.options = options
        self.clusters = [
            Cluster(f"c{i}", options.nodes, directory, self.record, options.seed + i)
            for i in range(options.clusters)
        ]
        for each in self.clusters:
            each.world.rate = options.rate
        self.relays: dict[tuple[int, int], list[Relay]] = {}
        """By downstream and upstream: one to each node of the upstream."""
        self.chance = random.Random(options.seed)
        self._loop = asyncio.new_event_loop()
        self._clients = threading.Thread(target=self._run_clients, name="clients", daemon=True)
        self.say(
            f"{options.clusters} clusters of {options.nodes}; seed {options.seed}; {directory}"
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
        count = len(self.clusters)
        for here, cluster in enumerate(self.clusters):
            for there in range(count):
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
            upstreams = [{"upstream": f"c{i}"} for i in range(count) if i != here]
            with cluster.admin() as admin:
                say = Admin(admin)
                say.set_parameter("/", "federation-upstream-set", "others", upstreams)
                far = {"federation-upstream-set": "others"}
                circle = {"federation-upstream": f"c{(here + 1) % count}"}
                if not here:
                    say.set_policy("/", "far", f"^{FAR}$", far, apply_to="queues")
                    say.set_policy("/", "wide", f"^{WIDE}$", far, apply_to="exchanges")
                say.set_policy("/", "circle", f"^{CIRCLE}$", circle, apply_to="queues")

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
                Admin(admin).set_parameter("/", "federation-upstream", f"c{there}", value)

    def _unbound(self) -> list[str]:
        """Upstreams where no link has bound the exchange yet: it would drop what comes."""
        found = []
        for each in self.clusters[1:]:
            with each.admin() as admin:
                if not Admin(admin).bindings(source=WIDE):
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
        kinds = [kind for kind in self.options.faults.split(",") if kind] or sorted(FAULTS)
        ends = time.monotonic() + self.options.minutes * 60
        said = 0.0
        for planned in schedule(self.options.seed, kinds, 10_000):
            time.sleep(max(0.0, min(planned.rest_s, ends - time.monotonic())))
            if time.monotonic() > ends:
                return
            self.chance = random.Random(planned.seed)
            self.record("fault", kind=planned.kind, phase="begin")
            FAULTS[planned.kind](self)
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
            for i in sorted(cluster.nodes.down):
                cluster.nodes.start(i)

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
                texts = [left_in(queue) for queue in Admin(admin).queues("nemesis")]
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

    def some_relays(self) -> tuple[str, list[Relay]]:
        """All relays between two clusters in one direction, or those to one node."""
        here, there = self.chance.choice(sorted(self.relays))
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


def cut(run: Federation) -> None:
    """Connections end, and new ones are made at once."""
    what, relays = run.some_relays()
    run.say(f"cut: {what}")
    for each in relays:
        each.cut()


def refuse(run: Federation) -> None:
    """Connections end, and new ones are refused for a while."""
    what, relays = run.some_relays()
    run.say(f"refuse: {what}")
    for each in relays:
        each.refusing = True
        each.cut()
    run.wait(CUT_S)
    for each in relays:
        each.refusing = False


def silence(run: Federation) -> None:
    """What the upstream says is lost, while what it is told arrives; then the connections end."""
    what, relays = run.some_relays()
    run.say(f"silence: {what}")
    for each in relays:
        each.silent = True
    run.wait(CUT_S)
    for each in relays:
        each.cut()
        each.silent = False


def kill(run: Federation) -> None:
    """A node dies with the links that it runs."""
    cluster, node = run.some_node()
    run.say(f"kill -9 {cluster.name} node-{node}")
    run.hit(cluster)
    cluster.nodes.kill(node)
    run.wait(DOWN_S)
    cluster.nodes.start(node)


def kill_cluster(run: Federation) -> None:
    """All nodes of a cluster die."""
    cluster = run.chance.choice(run.clusters)
    run.say(f"kill -9 all of {cluster.name}")
    run.hit(cluster)
    for node in range(len(cluster.nodes)):
        cluster.nodes.kill(node)
    run.wait(DOWN_S)
    for node in range(len(cluster.nodes)):
        cluster.nodes.start(node)


def kill_links(run: Federation) -> None:
    """The processes of links die, and their nodes live."""
    cluster, node = run.some_node()
    pid = cluster.nodes.pid(node)
    found = worker_pids(pid) if pid else []
    run.say(f"kill -9 {len(found)} links of {cluster.name} node-{node}")
    for each in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def pause(run: Federation) -> None:
    """A node hangs, and its links, which are processes of their own, do not."""
    cluster, node = run.some_node()
    run.say(f"SIGSTOP {cluster.name} node-{node}")
    run.hit(cluster)
    cluster.nodes.pause(node)
    run.wait(PAUSE_S)
    cluster.nodes.resume(node)


def pause_links(run: Federation) -> None:
    """Links hang while their nodes live."""
    cluster, node = run.some_node()
    pid = cluster.nodes.pid(node)
    found = worker_pids(pid) if pid else []
    run.say(f"SIGSTOP {len(found)} links of {cluster.name} node-{node}")
    for how in (signal.SIGSTOP, signal.SIGCONT):
        for each in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, how)
        if how == signal.SIGSTOP:
            run.wait(PAUSE_S)


def change(run: Federation) -> None:
    """The upstreams of a cluster get another prefetch-count, so all its links begin again."""
    here = run.chance.randrange(len(run.clusters))
    prefetch = run.chance.choice((1, 7, PREFETCH, 1000))
    run.say(f"prefetch-count of c{here}'s upstreams is {prefetch}")
    with contextlib.suppress(WarrenError):
        run.configure(here, prefetch)


FAULTS: dict[str, Callable[[Federation], None]] = {
    "cut": cut,
    "refuse": refuse,
    "silence": silence,
    "kill": kill,
    "kill-cluster": kill_cluster,
    "kill-links": kill_links,
    "pause": pause,
    "pause-links": pause_links,
    "change": change,
}


def main(arguments: list[str] | None = None) -> int:
    """Run, judge, print; 0: nothing was wrong."""
    parser = argparse.ArgumentParser(prog="build.py federation", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="of faults")
    parser.add_argument("--clusters", type=int, default=2, choices=(2, 3))
    parser.add_argument("--nodes", type=int, default=3, choices=(1, 3), help="of each cluster")
    parser.add_argument("--rate", type=float, default=60.0, help="messages/s of each publisher")
    parser.add_argument(
        "--ack-mode", default="on-confirm", help="of the links; with on-publish messages are lost"
    )
    parser.add_argument(
        "--plain", action="store_true", help="links as to another broker: messages come twice"
    )
    options = parsed(parser, arguments, tuple(FAULTS))
    with kept_directory(options.directory, "warren-federation-") as directory:
        return _judge(options, directory)


def _judge(options: argparse.Namespace, directory: Path) -> int:
    run = Federation(options, directory)
    try:
        run.go()
    except WarrenError as error:
        run.problem(f"a cluster does not serve: {error}")
    finally:
        run.dismiss()
        run.close()
    verdict = run.verdict()
    verdict.gaps.clear()  # a fault's nodes are not told apart by cluster
    chosen = f" --faults {options.faults}" if options.faults else ""
    chosen += " --plain" if options.plain else ""
    chosen += f" --ack-mode {options.ack_mode}" if options.ack_mode != "on-confirm" else ""
    again = (
        f"python3 build.py federation --minutes {options.minutes:g} --seed {options.seed} "
        f"--clusters {options.clusters} --nodes {options.nodes} --rate {options.rate:g}{chosen}"
    )
    return run.conclude(verdict, directory, bool(options.directory), again)


if __name__ == "__main__":
    sys.exit(main())
