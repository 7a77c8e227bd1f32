"""Counts of the source files that one operation enters on a node, and of changes of file.

The files that a node enters without a request (its clock, its watches) are counted apart.

A node runs in this process, in the main thread; a client in another thread does each operation
once while the node's calls of functions of the tree are recorded. The compiled kernel is not seen.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from pika import BlockingConnection, URLParameters

from tools.structure import SOURCES
from warren import Admin, ClaimReader, Connection, StageWriter
from warren.local_node import LocalNode, new_nodes, write_config
from warren.ports import ReservedPorts
from warren.stages import SinkDriver, draw_epoch, publish_batch
from warren_broker import config
from warren_broker.node import Node
from warren_wire.block import block_encoding

BASES = tuple(str(base) for base in SOURCES.values())
SETTLED_S = 0.3
"""Wait after an operation, until the node has finished what it started."""
IDLE_S = 12.0
"""How long the node is watched without a request: twice the periods of its clock."""
IDLE = "nothing"
JOIN_S = 60.0
"""The second node is running, and its member has caught up, within that."""
QUEUE = "walked"
BODY = b"message"


class Walk(NamedTuple):
    """The files that an operation entered, and how often it changed file."""

    files: frozenset[str]
    changes: int


class Recorder:
    """A recorder of the file that each call on the node's threads enters.

    Another thread runs the loop from when a disk write has blocked the first one.

    client  the thread of the client: its files do not count
    """

    def __init__(self) -> None:
        self.on = False
        self.files: set[str] = set()
        self.changes = 0
        self.client: threading.Thread | None = None
        self._last = ""

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """Record a call; for sys.setprofile."""
        if not self.on or event not in ("call", "return"):
            return
        if threading.current_thread() is self.client:
            return
        caller = frame.f_back if event == "return" else frame
        name = caller.f_code.co_filename if caller is not None else ""
        if not name.startswith(BASES):
            return
        self.files.add(name)
        if name != self._last:
            self.changes += 1
            self._last = name

    def during(self, operation: Callable[[], object]) -> Walk:
        """Return files entered and changes of file during an operation, heartbeats included."""
        time.sleep(SETTLED_S)
        self.files, self.changes, self._last = set(), 0, ""
        self.on = True
        operation()
        time.sleep(SETTLED_S)
        self.on = False
        return Walk(frozenset(self.files), self.changes)


def walks(uri: str, second: LocalNode, recorder: Recorder, results: dict[str, Walk]) -> None:
    """Do each operation twice and record the second."""
    with BlockingConnection(URLParameters(uri)) as client:
        channel = client.channel()
        channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
        channel.confirm_delivery()

        def publish() -> None:
            channel.basic_publish("", QUEUE, BODY)

        def acknowledge() -> None:
            method, _, _ = channel.basic_get(QUEUE)
            assert method is not None
            channel.basic_ack(method.delivery_tag)
            channel.queue_declare(QUEUE, passive=True)  # answered after the ack was taken

        publish()
        acknowledge()
        results[IDLE] = recorder.during(lambda: time.sleep(IDLE_S))
        results["publish and confirm"] = recorder.during(publish)
        results["get and ack"] = recorder.during(acknowledge)
        publish()
        publish()
    connection = Connection(uri)
    reader = ClaimReader(connection, QUEUE, "walker")
    number = reader.register().settled
    driver = SinkDriver("walked", "1", draw_epoch(connection))

    def claim() -> None:
        nonlocal number
        number += 1
        assert reader.open(number, max_messages=1, max_bytes=1_000).messages == 1

    def fetch_and_settle() -> None:
        assert list(reader.fetch(number, 0, 1))
        reader.settle(number)

    def stage(batch: int) -> None:
        with StageWriter(connection, driver, batch=batch, partition=0) as writer:
            writer.write(block_encoding.encode([BODY], [b"\0\0"], (b"", QUEUE.encode())))
            part = writer.finish()
        assert publish_batch(connection, driver, batch, [part]) == 1

    claim()
    fetch_and_settle()
    results["claim open"] = recorder.during(claim)
    results["fetch and settle"] = recorder.during(fetch_and_settle)
    stage(0)
    results["stage and publish"] = recorder.during(lambda: stage(1))
    add_member(connection, second, recorder, results)
    connection.close()


def add_member(
    connection: Connection, second: LocalNode, recorder: Recorder, results: dict[str, Walk]
) -> None:
    """Start another node, which joins, and record what the first one does for a new member."""
    command = [sys.executable, "-m", "warren_broker", "--config", str(second.config_file)]
    with second.log_file.open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            admin = Admin(connection).waiting(JOIN_S)
            until = time.monotonic() + JOIN_S
            while second.name not in [one.name for one in admin.nodes.list() if one.running]:
                assert time.monotonic() < until, second.log_file.read_text()
                time.sleep(SETTLED_S)
            results["add member"] = recorder.during(lambda: admin.members.add(QUEUE, second.name))
        finally:
            process.terminate()


def main() -> int:
    """Run the node and the client; print the table."""
    recorder = Recorder()
    results: dict[str, Walk] = {}
    failures: list[BaseException] = []
    with tempfile.TemporaryDirectory(prefix="warren-walks-") as place:
        first, second = nodes = new_nodes((1, 2), Path(place), ReservedPorts())
        write_config(first, (first,), {})
        write_config(second, nodes, {})
        settings = config.load(first.config_file)

        def client() -> None:
            try:
                walks(f"amqp://guest:guest@{node.amqp_address}/%2F", second, recorder, results)
            except BaseException as error:
                failures.append(error)
            finally:
                node.loop.post(node.shut_down)

        recorder.client = thread = threading.Thread(target=client)
        node = Node(settings, lambda serving: thread.start())
        node.start()
        threading.setprofile(recorder.profile)
        sys.setprofile(recorder.profile)
        node.loop.run()
        sys.setprofile(None)
        threading.setprofile(None)
        node.stopped()
        thread.join()
    if failures:
        raise failures[0]
    idle = results[IDLE].files
    print(
        f"{'operation':<28}{'files':>8}{'of them its own':>18}{'lines':>8}{'changes of file':>18}"
    )
    for title, (files, changes) in results.items():
        own = files - idle
        lines = sum(len(Path(name).read_bytes().splitlines()) for name in own)
        print(f"{title:<28}{len(files):>8}{len(own):>18}{lines:>8,}{changes:>18}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
