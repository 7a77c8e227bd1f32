"""The memory that one client can make a node hold, measured on a node: see docs/limits.md.

What is measured is the most that the node's process ever had in memory, less what it had before.
That does not depend on the machine's speed: a client sends until it may send no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pamqp.commands as spec
import pytest

from live.raw_client import RawClient, content, method
from warren.local import LocalCluster

pytestmark = pytest.mark.live
MIB = 1 << 20
SLACK_BYTES = 48 * MIB
"""For caches that fill with use, and for what the allocator does not give back."""


@dataclass
class Node:
    """One node, and what it had in memory when the test began."""

    cluster: Any
    before: int = 0

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.cluster.addresses[0].split(":")
        return host, int(port)

    def _status(self, key: str) -> int:
        text = Path(f"/proc/{self.cluster.pid(0)}/status").read_text()
        return int(text.partition(f"{key}:")[2].split()[0]) * 1024

    def begin(self) -> None:
        """Count from here on."""
        self.before = self._status("VmRSS")

    @property
    def grown(self) -> int:
        """The most that it has had since then, and more than then."""
        return self._status("VmHWM") - self.before


@contextmanager
def node(place: Path, **limits: int) -> Iterator[Node]:
    """A node with these limits."""
    with LocalCluster(nodes=1, directory=place, settings={"limits": limits}) as cluster:
        yield Node(cluster)


def publish(body: bytes, channel: int = 1) -> bytes:
    """The frames of a message to the queue `q`."""
    sent = method(spec.Basic.Publish(exchange="", routing_key="q"), channel)
    return sent + content(len(body), channel=channel, body=body)


def test_transactions(tmp_path: Path) -> None:
    """Before: all that a client published before its commit, which may never come."""
    with node(tmp_path, transaction_bytes_max=8 * MIB) as one:
        with RawClient(one.address) as client:
            client.send(method(spec.Tx.Select()))
            client.expect(spec.Tx.SelectOk)
            one.begin()
            for _ in range(150):
                client.send(publish(b"x" * 100_000) * 10)
            close = client.expect(spec.Channel.Close)
            assert close.reply_code == 406 and "limits.transaction_bytes_max" in close.reply_text
            assert one.grown < 8 * MIB + SLACK_BYTES
