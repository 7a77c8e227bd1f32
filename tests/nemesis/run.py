"""One run: `python -m nemesis.run --minutes 5 --seed 81`."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika

from nemesis import faults, network
from nemesis.clients import Client, Consumer, Ephemeral, Getter, Publisher, World
from nemesis.nodes import Nodes
from nemesis.readers import Claimer, Stager, Working
from nemesis.scene import SUSPECT_AFTER_S, Scene
from nemesis.story import Story, kept_directory, left_in, parsed
from tests.certificates import Authority
from warren.admin import Admin, Queue
from warren.connection import Connection
from warren.errors import WarrenError

ORDERS, PLAIN, NO_ACK = "nemesis.orders", "nemesis.plain", "nemesis.no_ack"
CLAIMED, STAGED, HOARD = "nemesis.claimed", "nemesis.staged", "nemesis.hoard"
MORTAL, LETTERS = "nemesis.mortal", "nemesis.letters"
QUEUES = (ORDERS, PLAIN, CLAIMED, STAGED, NO_ACK, HOARD, MORTAL, LETTERS)
ARGUMENTS = {
    MORTAL: {
        "x-message-ttl": 300,
        "x-overflow": "reject-publish",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": LETTERS,
        "x-dead-letter-strategy": "at-least-once",
    },
}
"""Nothing consumes MORTAL: every message dies, and has to arrive in LETTERS."""
SETTINGS = {
    "queues": {
        "consumer_disconnected_timeout_ms": 4000,
        "dead_letter_worker_publisher_confirm_timeout_ms": 3000,
    },
    "raft": {"suspect_after_ms": int(SUSPECT_AFTER_S * 1000)},
}
SETTLE_S = 60.0
DRAIN_S = 90.0
ADMIN_S = 10.0
SAY_EVERY_S = 15.0


def tls_between_nodes(directory: Path) -> dict[str, Any]:
    """Return the settings for TLS between nodes, with one certificate for all of them."""
    authority = Authority(directory / "ca")
    own = authority.issue("node", file="node")
    return {
        "tls": {
            "certfile": str(own.cert),
            "keyfile": str(own.key),
            "cacertfile": str(authority.cert),
            "between_nodes": True,
        }
    }


class Run(Story):
    """Nodes, clients, faults, history."""

    def __init__(self, options: argparse.Namespace, directory: Path) -> None:
        super().__init__(directory)
        self.options = options
        net, what = network.make(options.nodes)
        settings = {**SETTINGS, **(tls_between_nodes(directory) if options.tls else {})}
        self.nodes = Nodes(options.nodes, directory, net, settings)
        what += ", TLS between nodes" if options.tls else ""
        self.say(
            f"{options.nodes} nodes, {what}, {self.nodes.what}; seed {options.seed}; {directory}"
        )
        self.world = World(self.nodes, self.record, options.seed, options.rate)
        self.scene = Scene(self.nodes, self.record, list(QUEUES), self.say, self.problem)
        self.threads: list[Working] = []
        self._loop = asyncio.new_event_loop()
        self._clients = threading.Thread(target=self._run_clients, name="clients", daemon=True)

    # ------------------------------------------------------------ phases

    def go(self) -> None:
        """All phases; the history is complete afterwards."""
        for i in range(len(self.nodes)):
            self.nodes.start(i)
        self.nodes.wait_serving()
        self._declare()
        self.record("no_ack", q=NO_ACK)
        self.record("repeats", q=LETTERS)
        self._clients.start()
        self.threads = [
            Claimer(self.world, "claimer", CLAIMED),
            Stager(self.world, "stager", STAGED),
        ]
        for thread in self.threads:
            thread.start()
        self._inflict()
        self.say("faults are over")
        self.scene.heal()
        self._settle()
        self._drain()
        self._leave()

    def _declare(self) -> None:
        """Each queue at another node, which leads it."""
        for i, queue in enumerate(QUEUES):
            host, port = self.nodes.endpoint(i % len(self.nodes))
            arguments = {
                "x-queue-type": "quorum",
                "x-quorum-initial-group-size": len(self.nodes) if i % 2 else 3,
                **ARGUMENTS.get(queue, {}),
            }
            with pika.BlockingConnection(pika.ConnectionParameters(host, port)) as connection:
                connection.channel().queue_declare(queue, durable=True, arguments=arguments)

    def _run_clients(self) -> None:
        try:
            self._loop.run_until_complete(self._clients_of())
        except Exception:
            self.problem(f"a client failed:\n{traceback.format_exc()}")

    async def _clients_of(self) -> None:
        world = self.world
        clients: list[Client] = [
            Publisher(world, "orders-0", 0, ORDERS, 5, restless=True),
            Publisher(world, "orders-1", 1, ORDERS, 5, restless=False),
            Publisher(world, "plain-0", 2, PLAIN, 0, restless=True),
            Publisher(world, "plain-1", 0, PLAIN, 0, restless=False),
            Publisher(world, "claimed-0", 1, CLAIMED, 5, restless=True),
            Consumer(world, "eats-orders-0", 2, ORDERS, channels=3, priority=1),
            Consumer(world, "eats-orders-1", 1, ORDERS, prefetch=20, lasts_s=15),
            Consumer(world, "eats-orders-2", 0, ORDERS, prefetch=500),
            Consumer(world, "eats-plain-0", 0, PLAIN, prefetch=0),
            Consumer(world, "eats-plain-1", 1, PLAIN, channels=2, lasts_s=25),
            Consumer(world, "eats-staged-0", 1, STAGED, prefetch=50),
            Publisher(world, "no-ack-0", 2, NO_ACK, 0, restless=True),
            Consumer(world, "eats-no-ack-0", 1, NO_ACK, no_ack=True),
            Consumer(world, "eats-no-ack-1", 0, NO_ACK, no_ack=True, lasts_s=30),
            Publisher(world, "hoard-0", 1, HOARD, 5, restless=True, share=0.3),
            Consumer(world, "eats-hoard-0", 0, HOARD, prefetch=1000, late=True),
            Consumer(world, "eats-hoard-1", 2, HOARD, prefetch=100, late=True),
            Publisher(world, "mortal-0", 0, MORTAL, 0, restless=True, share=0.5, ends_in=LETTERS),
            Consumer(world, "eats-letters-0", 2, LETTERS, prefetch=50),
            Consumer(world, "eats-letters-1", 1, LETTERS, lasts_s=20),
            Getter(world, "gets-plain", 2, PLAIN),
            Ephemeral(world, "ephemeral-0", 0),
            Ephemeral(world, "ephemeral-1", 1),
        ]
        await asyncio.gather(*(client.run() for client in clients))

    def _inflict(self) -> None:
        options = self.options
        known = faults.possible(self.nodes.network.can_cut, self.nodes.disks is not None)
        chosen = [kind for kind in options.faults.split(",") if kind]
        kinds = [kind for kind in chosen if kind in known]
        if len(kinds) < len(chosen):
            self.say(f"not possible here: {', '.join(sorted(set(chosen) - known))}")
        kinds = kinds or sorted(known)
        ends = time.monotonic() + options.minutes * 60
        said = 0.0
        for planned in faults.schedule(options.seed, kinds, 10_000):
            if time.monotonic() > ends:
                return
            faults.inflict(self.scene, planned)
            self._look_for_dead()
            if time.monotonic() > said + SAY_EVERY_S:
                said = time.monotonic()
                self._say_progress()

    def _say_progress(self) -> None:
        memory = "/".join(str(self.nodes.memory_bytes(i) >> 20) for i in range(len(self.nodes)))
        self.say(
            f"{self.world.confirmed} confirmed, {self.world.unconfirmed} open, "
            f"{self.world.delivered} delivered, {memory} MiB"
        )

    def _look_for_dead(self) -> None:
        self.look_for_dead(self.nodes)

    def _settle(self) -> None:
        """No faults: everything published is answered, and the cluster serves."""
        self.world.stopping = True
        self._until(SETTLE_S, "publishes unanswered", lambda: self.world.unconfirmed)
        self._until(
            SETTLE_S,
            "stages and claims under way",
            lambda: [
                thread.name for thread in self.threads if thread.is_alive() and not thread.idle
            ],
        )

    def _drain(self) -> None:
        """Everything is delivered and settled."""
        self._until(
            DRAIN_S,
            "messages left in queues",
            lambda: [
                text for name in QUEUES if (text := left_in(self._queue(name), name != STAGED))
            ],
        )

    def _leave(self) -> None:
        """End the clients, and what was theirs alone."""
        self.dismiss()
        self._until(
            SETTLE_S,
            "exclusive queues left",
            lambda: [queue.name for queue in self._queues() if queue.exclusive],
        )
        self.look_for_tracebacks(self.nodes)

    def dismiss(self) -> None:
        """Every client ends; they write no history from then on."""
        self.world.closing = True
        for thread in (self._clients, *self.threads):
            if thread.ident is not None:
                thread.join(SETTLE_S)
                if thread.is_alive():
                    self.problem(f"{thread.name} does not end")

    def _until(self, patience_s: float, what: str, left: Callable[[], object]) -> None:
        self.until(patience_s, what, left, self._look_for_dead)

    def _queue(self, name: str) -> Queue:
        with Connection(self.nodes.address(timeout_s=ADMIN_S)) as connection:
            return Admin(connection).queues.get(name)

    def _queues(self) -> list[Queue]:
        with Connection(self.nodes.address(timeout_s=ADMIN_S)) as connection:
            return Admin(connection).queues.list()


def main(arguments: list[str] | None = None) -> int:
    """Run, judge, print; 0: nothing was wrong."""
    parser = argparse.ArgumentParser(prog="build.py nemesis", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="of faults")
    parser.add_argument("--nodes", type=int, default=3, choices=range(3, 6))
    parser.add_argument("--rate", type=float, default=150.0, help="messages/s of each publisher")
    parser.add_argument("--tls", action="store_true", help="between the nodes")
    options = parsed(parser, arguments, tuple(faults.FAULTS))
    signal.signal(signal.SIGTERM, _interrupted)
    with kept_directory(options.directory, "warren-nemesis-") as directory:
        return _judge(options, directory)


def _interrupted(number: int, frame: object) -> None:
    sys.exit(f"signal {number}: nodes, namespaces and mounts are removed")


def _judge(options: argparse.Namespace, directory: Path) -> int:
    run = Run(options, directory)
    try:
        run.go()
    except WarrenError as error:
        run.problem(f"the cluster does not serve: {error}")
    finally:
        run.dismiss()
        run.nodes.close()
    chosen = f" --faults {options.faults}" if options.faults else ""
    chosen += " --tls" if options.tls else ""
    again = (
        f"python3 build.py nemesis --minutes {options.minutes:g} --seed {options.seed} "
        f"--nodes {options.nodes} --rate {options.rate:g}{chosen}"
    )
    return run.conclude(run.verdict(), directory, bool(options.directory), again)


if __name__ == "__main__":
    sys.exit(main())
