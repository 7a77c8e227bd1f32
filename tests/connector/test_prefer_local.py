"""A task reads a claim from the node on its own machine: machines are network namespaces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pika
import pytest

from nemesis.network import AMQP_PORT, CannotMakeNamespaces, Namespaces
from nemesis.nodes import Nodes
from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.claims import ClaimReader
from warren.connection import Connection
from warren.errors import WarrenError
from warren.uri import Address

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.long]

BODY_BYTES = 1 << 20
BODIES = 16
SIZE = BODY_BYTES * BODIES
TASK = """
import json, sys
from pathlib import Path

import pyarrow as pa

from pyspark_warren import client
from pyspark_warren.options import parse_options
from pyspark_warren.claims.plan import Slice
from pyspark_warren.claims.reader import read_task

def received():
    lines = Path("/proc/self/net/dev").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.split()[0] == "eth0:")

def read():
    rows = read_task(client.connect, options, [part], schema)
    return sum(each.nbytes for batch in rows for each in batch.columns)

options = parse_options(json.loads(sys.argv[1]), "read", "stream")
count = int(sys.argv[2])
schema = pa.schema([("body", pa.binary())])
part = Slice(options.queue, "r", int(sys.argv[3]), 0, count)
read()  # the member here has everything from then on
before = received()
size = read()
after = received()
(connection,) = client._connections.values()
print(json.dumps({"host": connection.node[0], "size": size, "network": after - before}))
"""


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Three nodes, each on a machine of its own."""
    try:
        if os.geteuid() != 0:
            raise CannotMakeNamespaces("not root")
        network = Namespaces(3)
    except CannotMakeNamespaces as error:
        assert "WARREN_STRICT" not in os.environ, f"no network namespaces: {error}"
        pytest.skip(f"no network namespaces here: {error}")
    nodes = Nodes(3, tmp_path_factory.mktemp("machines"), network, {}, own_disks=False)
    try:
        for node in range(3):
            nodes.start(node)
        yield nodes
    finally:
        for node in range(3):
            nodes.stop(node)
        network.close()


def declared(admin: Admin, queue: str) -> None:
    """Declare a queue as soon as a majority serves, with members everywhere."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            admin.queues.declare(queue, arguments={"x-queue-type": "quorum"})
            if len(admin.members.get(queue).members) == 3:
                return
        except WarrenError:
            pass
        assert time.monotonic() < deadline, "no queue with three members"
        time.sleep(0.1)


def task(nodes: Nodes, machine: int, number: int, **options: str) -> dict[str, Any]:
    """Read the claim twice on a machine; what came over its network the second time, and from
    which host."""
    hosts = ",".join(f"{nodes.network.host(node)}:{AMQP_PORT}" for node in range(3))
    given = {"hosts": hosts, "queue": "q", **options}
    done = subprocess.run(
        [
            *nodes.network.inside(machine),
            sys.executable,
            "-c",
            TASK,
            json.dumps(given),
            str(BODIES),
            str(number),
        ],
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["size"] >= SIZE
    return found


def test_a_task_reads_from_the_node_on_its_machine_and_else_from_another(machines: Nodes) -> None:
    host = machines.network.host
    with Connection(Address(hosts=((host(0), AMQP_PORT),))) as connection:
        admin = Admin(connection)
        declared(admin, "q")
        leader = machines.nodes.index(
            next(each for each in machines.nodes if each.name == admin.queues.get("q").leader)
        )
        parameters = pika.ConnectionParameters(host(0), AMQP_PORT)
        with pika.BlockingConnection(parameters) as publisher:
            channel = publisher.channel()
            channel.confirm_delivery()
            for _ in range(BODIES):
                channel.basic_publish("", "q", os.urandom(BODY_BYTES))
        reader = ClaimReader(connection, "q", "r")
        number = reader.register().settled + 1
        assert reader.open(number, max_messages=BODIES, max_bytes=4 * SIZE).messages == BODIES
    follower, other = (node for node in range(3) if node != leader)

    for machine in (follower, leader):
        near = task(machines, machine, number)
        assert near["host"] == host(machine)
        assert near["network"] < SIZE / 10, near
    far = task(machines, follower, number, preferLocal="false", hosts=f"{host(leader)}:{AMQP_PORT}")
    assert far["network"] > SIZE, far

    machines.kill(other)
    fallen_back = task(machines, other, number)
    assert fallen_back["host"] != host(other) and fallen_back["network"] > SIZE, fallen_back
