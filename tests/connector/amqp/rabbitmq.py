"""One RabbitMQ node on free loopback ports, for tests of the connector."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pika
import pytest

from bench import rabbitmq
from bench.generator import Missing
from live.conftest import STRICT
from live.rabbitmq_exports import control

START_S = 120.0
MESSAGE_BYTES_MAX = 8 << 20
"""Its max_message_size; the default is 128 MiB."""
POLL_S = 0.05


def found_root() -> Path:
    """Return where the file system with a RabbitMQ begins; skips the test where there is none.

    RMQ_ROOT names it; else it is the system's, the older one where the system has one.
    """
    system = Path("/")
    if "RMQ_ROOT" not in os.environ and rabbitmq.server(system) is not None:
        return system
    notes: list[str] = []
    try:
        return rabbitmq.find(notes)
    except Missing as error:
        reason = f"no RabbitMQ here: {error}"
    if os.environ.get(STRICT):
        pytest.fail(f"{STRICT} is set, and there is {reason}")
    pytest.skip(reason)


def newest_root() -> Path:
    """Return where the newest RabbitMQ is: the one in a chroot, where it can be made."""
    try:
        return rabbitmq.find([])
    except Missing:
        return found_root()


class OneRabbitMQ:
    """A node that starts empty; a context manager. It survives `kill` and `restart` with its data.

    settings  more lines of rabbitmq.conf
    plugins   what is enabled
    root      where its file system begins; None: `found_root`
    """

    def __init__(
        self, settings: str = "", plugins: tuple[str, ...] = (), root: Path | None = None
    ) -> None:
        root = root or found_root()
        name = Path(tempfile.mkdtemp(prefix="warren-rabbitmq-", dir=root / "var/tmp")).name
        lines = f"max_message_size = {MESSAGE_BYTES_MAX}\n{settings}"
        self._peer = rabbitmq.RabbitMQ(root, 1, plugins, lines, f"/var/tmp/{name}")
        host, _, port = self._peer.targets().partition(":")
        self.host, self.port = host, int(port)

    def __enter__(self) -> OneRabbitMQ:
        self._peer.__enter__()
        return self

    def __exit__(self, *failure: object) -> None:
        self._peer.__exit__(*failure)

    @property
    def name(self) -> str:
        """The product and its version, such as "RabbitMQ 3.10.8"."""
        return self._peer.name

    @property
    def hosts(self) -> str:
        """The value of the connector's option `hosts`."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """The process of the node."""
        return self._peer.pids()[0]

    def log(self) -> str:
        """Return what the node has logged."""
        return "".join(each.read_text() for each in (self._peer.data / "r1/log").glob("*.log"))

    def connect(self, **more: object) -> pika.BlockingConnection:
        """Open a connection as guest."""
        return pika.BlockingConnection(pika.ConnectionParameters(self.host, self.port, **more))

    def kill(self) -> None:
        """Send SIGKILL to the node; its data stay."""
        self._peer.pids()  # the pid file is complete
        self._peer.kill(0)

    def restart(self) -> None:
        """Start the killed node again, and wait until it answers."""
        self._peer.spawn(range(1))
        deadline = time.monotonic() + START_S
        while not rabbitmq.answers(self.host, self.port):
            assert time.monotonic() < deadline, f"{self.name} did not start: {self.log()[-2000:]}"
            time.sleep(POLL_S)

    def control(self, *arguments: str) -> str:
        """Run rabbitmqctl, which takes seconds; return its output."""
        return control(self._peer, *arguments)
