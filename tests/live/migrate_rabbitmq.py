"""A migration from a RabbitMQ to three nodes of Warren, with node and command killed amid it.

    python3 build.py migrate [--messages N] [--queues N]

Needs the RabbitMQ of the system, or of RMQ_ROOT, with its management plugin, and what the load
generator needs (bench/README.md): it fills the queues, empties them here, and counts what is lost
or comes twice.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import generator
from bench.ports import free_ports
from connector.amqp.rabbitmq import OneRabbitMQ
from live.conftest import eventually
from warren.admin import Admin
from warren.errors import WarrenError
from warren.local import LocalCluster

QUEUE = "moving"
PREFETCH = 500
END_S = 1_800


def arrived(admin: Admin) -> int:
    """Messages in the migrated queues."""
    try:
        return sum(one.messages for one in admin.queues.list(f"^{QUEUE}"))
    except WarrenError:
        return 0  # no leader yet


def command(rabbitmq: OneRabbitMQ, management: int, uri: str, report: Path) -> list[str]:
    """Return the command line of the migration."""
    place = f"{rabbitmq.host}:{rabbitmq.port}"
    return [
        *(sys.executable, "-m", "warren.cli", "migrate", "--json"),
        *("--from", f"amqp://guest:guest@{place}/%2F", "--queues", f"^{QUEUE}"),
        *("--management", f"http://127.0.0.1:{management}", "--report", str(report)),
        *("--prefetch", str(PREFETCH), "--uri", uri),
    ]


def busiest(admin: Admin) -> str:
    """Return the node that runs most of the shovels."""
    nodes = [one.node for one in admin.shovels.list()]
    return max(set(nodes), key=nodes.count)


def migrate(rabbitmq: OneRabbitMQ, management: int, count: int, queues: int) -> None:
    """Fill, migrate with kills, check."""
    program = generator.find()
    size = {"queue": QUEUE, "queues": queues, "count": count, "pubs": queues, "size": 100}
    filled = generator.run(program, "fill", targets=rabbitmq.hosts, timeout_s=END_S, **size)
    assert filled["confirmed"] == count and not generator.faults(filled), filled
    with (
        tempfile.TemporaryDirectory() as top,
        LocalCluster(nodes=3) as cluster,
        cluster.connect() as connection,
    ):
        admin = Admin(connection)
        words = command(rabbitmq, management, cluster.uri, Path(top) / "counts.json")
        began = time.monotonic()
        first = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        try:
            eventually(lambda: arrived(admin) > count // 3 or None, "a third is moved", END_S)
            dead = busiest(admin)
        finally:
            first.kill()
            first.wait()
        cluster.kill(dead)
        print(f"killed -9 at {arrived(admin):,}: the command, and {dead}, which runs most shovels")
        done = subprocess.run(words, stdout=subprocess.PIPE, timeout=END_S, check=False)
        took = time.monotonic() - began
        rows: list[dict[str, Any]] = json.loads(done.stdout)
        cluster.restart(dead)
        assert done.returncode == 0, rows
        assert len(rows) == queues and all(one["state"] == "moved" for one in rows)
        assert sum(one["before"] for one in rows) == count
        came = sum(one["arrived"] for one in rows)
        equal = sum(not one["compared"] for one in rows)
        print(
            f"{count:,} messages in {queues} queues, {took:.0f} s, {count / took:,.0f} per second "
            f"with the pause: {came:,} arrived, counts equal in {equal} of {queues} queues"
        )
        for one in rows:
            if one["compared"]:
                print(f"  {one['name']}: {one['compared']}")
        size = {"queue": QUEUE, "queues": queues, "cons": queues, "expect": count}
        drained = generator.run(
            program, "drain", targets=cluster.hosts, no_declare=True, timeout_s=END_S, **size
        )
        twice = drained["duplicates"]
        assert drained["distinct"] == count and not drained["lost"], drained
        assert not drained["bad_bodies"] and not drained["errors"], drained
        assert twice == came - count, "the command's counts are true"
        print(f"none lost, {twice} came twice (at most {PREFETCH} for each shovel of {dead})")


def main(arguments: list[str]) -> int:
    """Run it; the exit code."""
    parser = argparse.ArgumentParser(prog="build.py migrate", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--queues", type=int, default=20)
    options = parser.parse_args(arguments)
    port = free_ports(1)
    listen = f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {port}\n"
    with OneRabbitMQ(listen, ("rabbitmq_management",)) as rabbitmq:
        print(rabbitmq.name)
        migrate(rabbitmq, port, options.messages, options.queues)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
