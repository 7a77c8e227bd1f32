"""The network between the nodes: one namespace each, joined by a bridge.

A cut is made where the sender looks up its peer's link address: it is given one that no node has,
so that packets vanish on the way, in that direction only, as on a broken switch; none is refused.
Without the right to make namespaces the nodes share loopback, where nothing can be cut.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Protocol

NOBODY = "02:00:00:00:00:01"
AMQP_PORT = 5672
PEERS_PORT = 25672
SLOW = ("tbf", "rate", "3mbit", "burst", "16kb", "latency", "60ms")
"""More than that waits, for 60 ms at most, then is dropped."""


class Network(Protocol):
    """Where nodes are, and what can be done between them."""

    can_cut: bool

    def host(self, node: int) -> str:
        """A node's address."""
        ...

    def inside(self, node: int) -> list[str]:
        """What a command starts with that is to run on that node's machine."""
        ...

    def cut(self, sender: int, receiver: int) -> None:
        """Nothing gets from sender to receiver any more."""
        ...

    def heal(self, sender: int, receiver: int) -> None:
        """It does again."""
        ...

    def slow(self, node: int) -> None:
        """Send what the node sends through a narrow pipe that drops what it cannot hold."""
        ...

    def fast(self, node: int) -> None:
        """It does not any more."""
        ...

    def close(self) -> None:
        """Remove everything that was made."""
        ...


class Loopback:
    """All nodes on one address of this machine; no link between them can be cut."""

    can_cut = False

    def host(self, node: int) -> str:
        """See `Network`."""
        return "127.0.0.1"

    def inside(self, node: int) -> list[str]:
        """See `Network`."""
        return []

    def cut(self, sender: int, receiver: int) -> None:
        """See `Network`."""

    def heal(self, sender: int, receiver: int) -> None:
        """See `Network`."""

    def slow(self, node: int) -> None:
        """See `Network`."""

    def fast(self, node: int) -> None:
        """See `Network`."""

    def close(self) -> None:
        """See `Network`."""


class CannotMakeNamespaces(Exception):
    """Not root, no iproute2, or a kernel without; the text says which."""


class Namespaces:
    """A namespace `wnem-PIDnI` per node, a bridge `wnem-PIDb` that this machine is on.

    PID is this process's number, in hexadecimal: several runs go at once, and one finds what
    another one left that was killed.
    """

    can_cut = True

    def __init__(self, nodes: int) -> None:
        sweep()
        self._id = f"wnem-{os.getpid():x}"
        self._net = free_net(os.getpid())
        self._nodes = range(nodes)
        self._cuts: set[tuple[int, int]] = set()
        self._slow: set[int] = set()
        try:
            self._make()
        except (OSError, subprocess.CalledProcessError) as error:
            self.close()
            detail = getattr(error, "stderr", "") or str(error)
            raise CannotMakeNamespaces(detail.strip()) from error

    def _make(self) -> None:
        bridge = self._bridge
        _ip("link", "add", bridge, "type", "bridge")
        _ip("addr", "add", f"{self._net}.254/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for node in self._nodes:
            space, outer = self._space(node), f"{self._id}v{node}"
            _ip("netns", "add", space)
            _ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", outer, "master", bridge, "up")
            _ip("-n", space, "addr", "add", f"{self.host(node)}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "link", "set", "lo", "up")

    @property
    def _bridge(self) -> str:
        return f"{self._id}b"

    def _space(self, node: int) -> str:
        return f"{self._id}n{node}"

    def host(self, node: int) -> str:
        """See `Network`."""
        return f"{self._net}.{node + 1}"

    def inside(self, node: int) -> list[str]:
        """See `Network`."""
        # Not `ip netns exec`, which makes a mount namespace, too: it would hold on to file systems
        # that are unmounted here.
        return ["nsenter", f"--net=/run/netns/{self._space(node)}"]

    def cut(self, sender: int, receiver: int) -> None:
        """See `Network`."""
        self._cuts.add((sender, receiver))
        _ip(
            "-n",
            self._space(sender),
            "neigh",
            "replace",
            self.host(receiver),
            "lladdr",
            NOBODY,
            "nud",
            "permanent",
            "dev",
            "eth0",
        )

    def heal(self, sender: int, receiver: int) -> None:
        """See `Network`."""
        if (sender, receiver) in self._cuts:
            self._cuts.discard((sender, receiver))
            _ip("-n", self._space(sender), "neigh", "del", self.host(receiver), "dev", "eth0")

    def slow(self, node: int) -> None:
        """See `Network`."""
        self._slow.add(node)
        _run("tc", "-n", self._space(node), "qdisc", "replace", "dev", "eth0", "root", *SLOW)

    def fast(self, node: int) -> None:
        """See `Network`."""
        if node in self._slow:
            self._slow.discard(node)
            _run("tc", "-n", self._space(node), "qdisc", "del", "dev", "eth0", "root")

    def close(self) -> None:
        """See `Network`."""
        for node in self._nodes:
            _try("netns", "del", self._space(node))
            _try("link", "del", f"{self._id}v{node}")
        _try("link", "del", self._bridge)


def free_net(number: int) -> str:
    """The first three parts of an IPv4 network that no interface of this machine is in."""
    taken = _ip("-4", "-oneline", "addr", "show")
    for i in range(50 * 256):
        place = (number + i) % (50 * 256)
        net = f"10.{200 + place // 256}.{place % 256}"
        if f" {net}." not in taken:
            return net
    raise CannotMakeNamespaces("every network of 10.200.0.0 to 10.249.255.0 is taken")


def sweep() -> None:
    """Remove namespaces and bridges of runs that were killed before they could clean up."""
    spaces = Path("/run/netns")
    names = [path.name for path in spaces.iterdir()] if spaces.is_dir() else []
    links = [path.name for path in Path("/sys/class/net").iterdir()]
    for name in names + links:
        mark = re.fullmatch(r"wnem-([0-9a-f]+)(n\d+|v\d+|b)", name)
        if mark is not None and not Path(f"/proc/{int(mark[1], 16)}").exists():
            _try("netns" if mark[2].startswith("n") else "link", "del", name)


def make(nodes: int) -> tuple[Network, str]:
    """Return the best available network, and its description for people."""
    if os.geteuid() != 0:
        return Loopback(), "loopback, so no partitions: namespaces need root"
    try:
        return Namespaces(nodes), "one network namespace per node"
    except CannotMakeNamespaces as error:
        return Loopback(), f"loopback, so no partitions: {error}"


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _ip(*arguments: str) -> str:
    return _run("ip", *arguments)


def _try(*arguments: str) -> None:
    subprocess.run(("ip", *arguments), check=False, capture_output=True)
