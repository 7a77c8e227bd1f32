"""A node of which nothing reads the log: its standard error and output are a full pipe."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pika
import pytest

from live.conftest import eventually
from tests.patience import PATIENCE_S
from warren.local import LocalCluster, node_environment
from warren_wire.node_files import READY_FILE

pytestmark = pytest.mark.live
FAREWELL = "\x01" * 250
"""What each client says at its end; each character is escaped in the log."""


def test_a_node_serves_clients_while_nothing_reads_its_log(tmp_path: Path) -> None:
    cluster = LocalCluster(nodes=1, directory=tmp_path)
    node = cluster.nodes[0]
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.write(writing, b"." * 4096)
    process = subprocess.Popen(
        [sys.executable, "-m", "warren_broker", "--config", str(node.config_file)],
        cwd=node.directory,
        env=node_environment(),
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=writing,
    )
    try:
        eventually((node.data_dir / READY_FILE).exists, "the node serves clients")
        for _ in range(200):
            connect(node.amqp_port).close(reply_text=FAREWELL)
        with connect(node.amqp_port) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("q", durable=True, arguments={"x-queue-type": "quorum"})
            channel.basic_publish("", "q", b"body")
        os.close(writing)
        writing = -1
        found, deadline = b"", time.monotonic() + PATIENCE_S
        while b"lines were left out here: standard error took none" not in found:
            assert time.monotonic() < deadline and select.select([reading], [], [], 20)[0], found
            found += os.read(reading, 65_536)
        assert b"warren ready node=" in found
        process.send_signal(signal.SIGTERM)
        while more := os.read(reading, 65_536):
            found += more
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(reading)
        if writing >= 0:
            os.close(writing)


def connect(port: int) -> pika.BlockingConnection:
    """Connect."""
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
