"""The worst latency of a good client beside each attack of `hostile_attacks`."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, cast

from bench import hostile_attacks, rabbitmq
from bench.amqp091 import Client, NotServed
from bench.generator import Missing
from bench.hostile_attacks import ATTACKS, ONLY_WARREN, USER, ask
from bench.peers import Peer, Warren
from bench.ports import free_ports
from bench.report import show
from bench.rounds import Plan, measured, span
from warren_wire.node_files import READY_FILE

QUEUE = "good"
OPERATION_S = 0.01
ARRIVAL_S = 0.2
TIMEOUT_S = 30.0
BEFORE_S = 1.0
ATTACK_S_MAX = 10
CALM_S = 0.1
CALM_OPERATIONS = 20
CALM_S_MAX = 60.0
LEVELS = ("operations", "arrivals", "requests")


class Attacked(Peer, Protocol):
    """A cluster with its HTTP API and its ports between nodes."""

    def http(self) -> str:
        """Return where the first node has its HTTP API."""
        ...

    def between(self) -> str:
        """Return where other nodes reach the first one."""
        ...


class WarrenHttp(Warren):
    """A cluster of Warren with its HTTP API."""

    def _settings(self) -> dict[str, Any]:
        return {"management": {"enabled": True, "tcp": {"port": 0}}}

    def _ready(self, key: str) -> str:
        text = (self._running().nodes[0].data_dir / READY_FILE).read_text()
        return str(json.loads(text)[key])

    def http(self) -> str:
        """See Attacked."""
        return self._ready("management")

    def between(self) -> str:
        """See Attacked."""
        return self._ready("peers")


class RabbitMQHttp(rabbitmq.RabbitMQ):
    """A cluster of RabbitMQ with its management plugin."""

    def __init__(self, root: Any) -> None:
        self._http = free_ports(rabbitmq.NODES)
        super().__init__(root, plugins=("rabbitmq_management",))

    def more_settings(self, i: int) -> str:
        """See RabbitMQ."""
        return f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {self._http + i}\n"

    def http(self) -> str:
        """See Attacked."""
        return f"127.0.0.1:{self._http}"

    def between(self) -> str:
        """See Attacked."""
        return f"127.0.0.1:{self._distribution[0]}"


class Watch:
    """A good client of three kinds, each on a thread, and what each of its steps took.

    operations  publish, confirm and get on one connection
    arrivals    a new connection that opens a channel
    requests    to the HTTP API
    """

    def __init__(self, amqp: str, http: str) -> None:
        self._amqp = amqp
        self._http = http
        self._over = threading.Event()
        self.took: dict[str, list[float]] = {level: [] for level in LEVELS}
        self.failed = dict.fromkeys(LEVELS, 0)
        self._client: Client | None = None
        steps = ((self._operate, OPERATION_S), (self._arrive, ARRIVAL_S), (self._ask, ARRIVAL_S))
        self._threads = [
            threading.Thread(target=self._repeat, args=(level, *step), daemon=True)
            for level, step in zip(LEVELS, steps, strict=True)
        ]

    def __enter__(self) -> Watch:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(2 * TIMEOUT_S)
        if self._client is not None:
            self._client.close()

    def _repeat(self, level: str, step: Callable[[], None], pause_s: float) -> None:
        while not self._over.wait(pause_s):
            began = time.perf_counter()
            try:
                step()
            except NotServed:
                self.failed[level] += 1
            self.took[level].append(time.perf_counter() - began)

    def _operate(self) -> None:
        try:
            if self._client is None:
                self._client = Client(self._amqp, TIMEOUT_S)
            operate(self._client)
        except NotServed:
            client, self._client = self._client, None
            if client is not None:
                client.close()
            raise

    def _arrive(self) -> None:
        Client(self._amqp, TIMEOUT_S).close()

    def _ask(self) -> None:
        if ask(self._http, "GET", "/whoami", user="guest")[0] != 200:
            raise NotServed("no answer of the HTTP API")

    def figures(self) -> dict[str, Any]:
        """Return for each kind the worst and the p99 in ms, and how many steps failed."""
        found = {}
        for level, took in self.took.items():
            ordered = sorted(took) or [0.0]
            found[level] = {
                "count": len(took),
                "worst_ms": 1e3 * ordered[-1],
                "p99_ms": 1e3 * ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
                "failed": self.failed[level],
            }
        return found


def operate(client: Client) -> None:
    """Publish a message, wait for its confirm, and get it; raises NotServed."""
    if client.publish_to_all([QUEUE], b"a message", TIMEOUT_S):
        raise NotServed("no confirm")
    if not client.get(QUEUE, TIMEOUT_S):
        raise NotServed("a confirmed message is not there")


def hostile(plan: Plan) -> list[dict[str, Any]]:
    """Attack each cluster in its turn; the time of an attack is that of a run, 10 s at most."""
    found: list[Peer] = [] if plan.only == "rabbitmq" else [WarrenHttp()]
    notes: list[str] = []
    if plan.only != "warren":
        try:
            found.append(RabbitMQHttp(rabbitmq.find(notes)))
        except Missing as missing:
            notes.append(f"RabbitMQ is not measured: {missing}")
    seconds = min(plan.seconds, ATTACK_S_MAX)
    results = measured(plan, found, lambda peer: _one(cast("Attacked", peer), seconds))
    for level in LEVELS:
        show(f"Worst {level} of a good client beside attacks, ms", _rows(results, level), notes)
    return results


def _rows(results: list[dict[str, Any]], level: str) -> list[dict[str, str]]:
    names = list(dict.fromkeys(one["peer"] for one in results))
    rows = []
    for attack in ("none", *ATTACKS):
        row = {"attack": attack}
        for name in names:
            of = [
                one["attacks"][attack][level]
                for one in results
                if one["peer"] == name and attack in one["attacks"]
            ]
            failed = sum(each["failed"] for each in of)
            row[name] = span([each["worst_ms"] for each in of], ".0f")
            row[f"{name}, p99"] = span([each["p99_ms"] for each in of], ".0f")
            row[f"{name}, failed"] = str(failed) if of else "-"
        rows.append(row)
    return rows


def _one(peer: Attacked, seconds: float) -> dict[str, Any]:
    amqp = peer.targets().split(",")[0]
    _prepare(amqp, peer.http())
    attacks = {"none": _beside(peer, amqp, "", seconds)}
    for name in ATTACKS:
        if name in ONLY_WARREN and not isinstance(peer, Warren):
            continue
        _wait_until_calm(amqp)
        attacks[name] = _beside(peer, amqp, name, seconds)
        shown = {level: f"{attacks[name][level]['worst_ms']:.0f} ms" for level in LEVELS}
        print(f"  {peer.name:<16} {name:<36} {shown}  {attacks[name]['did']}", flush=True)
    return {"attacks": attacks}


def _prepare(amqp: str, http: str) -> None:
    """Make the queue, and the user with few rights."""
    client = Client(amqp, TIMEOUT_S)
    client.declare(QUEUE, TIMEOUT_S)
    client.close()
    user = json.dumps({"password": USER, "tags": "management"}).encode()
    rights = json.dumps(dict.fromkeys(("configure", "write", "read"), "^mine")).encode()
    for path, body in ((f"/users/{USER}", user), (f"/permissions/%2F/{USER}", rights)):
        status, _ = ask(http, "PUT", path, body, "guest")
        assert status in (201, 204), (path, status)


def _beside(peer: Attacked, amqp: str, attack: str, seconds: float) -> dict[str, Any]:
    """Watch a good client while an attack is carried out; "": none is."""
    did: dict[str, Any] = {}
    with Watch(amqp, peer.http()) as watch:
        time.sleep(BEFORE_S)
        if not attack:
            time.sleep(seconds)
        else:
            where = (attack, amqp, peer.http(), peer.between(), str(seconds))
            done = subprocess.run(
                [sys.executable, "-m", hostile_attacks.__name__, *where],
                capture_output=True,
                text=True,
                check=False,
                timeout=seconds + 3 * TIMEOUT_S,
            )
            lines = (done.stdout or done.stderr).strip().splitlines()
            did = json.loads(lines[-1]) if done.returncode == 0 else {"ended": lines[-1:]}
    return {**watch.figures(), "did": did}


def _wait_until_calm(amqp: str) -> None:
    """Wait until the last attack is over for a good client, too; at most CALM_S_MAX."""
    end = time.monotonic() + CALM_S_MAX
    quick = 0
    while quick < CALM_OPERATIONS and time.monotonic() < end:
        began = time.perf_counter()
        try:
            client = Client(amqp, TIMEOUT_S)
            operate(client)
            client.close()
        except NotServed:
            pass
        quick = quick + 1 if time.perf_counter() - began < CALM_S else 0
