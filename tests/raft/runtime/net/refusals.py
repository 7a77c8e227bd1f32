"""Attempts to connect that are refused in four ways; run in a network namespace of its own.

`unshare --net python -m tests.raft.runtime.net.refusals` prints the outcomes as JSON. A pair of
virtual interfaces is set up; this program is the machine behind the one, and answers the other's
attempts to connect with packets of its own.
"""

from __future__ import annotations

import errno
import json
import socket
import struct
import subprocess
import threading
from collections.abc import Callable

from tests.patience import PATIENCE_S
from warren_raft.runtime.loop import Loop
from warren_raft.runtime.net.dial import Connector

HERE, THERE, PORT = "10.99.0.1", "10.99.0.2", 5000
TCP, ICMP = 6, 1
SYN = 2


def ip(*arguments: str) -> str:
    """Run `ip`."""
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


def hardware(name: str) -> str:
    """The address of an interface."""
    return str(json.loads(ip("-j", "link", "show", name))[0]["address"])


def checksum(data: bytes) -> int:
    """The sum of the internet protocols."""
    padded = data + b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total >> 16) + (total & 0xFFFF)
    return ~total & 0xFFFF


def summed(data: bytes, at: int, before: bytes = b"") -> bytes:
    """The data with its checksum at that byte; before: what is summed, and not sent."""
    return data[:at] + checksum(before + data).to_bytes(2, "big") + data[at + 2 :]


def packet(protocol: int, content: bytes) -> bytes:
    """An IP packet from there to here."""
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(content), 1, 0, 64, protocol, 0)
    return summed(head + socket.inet_aton(THERE) + socket.inet_aton(HERE), 10) + content


def reset(attempt: bytes) -> bytes:
    """The answer of a machine on which nothing listens."""
    source, target, number = struct.unpack_from(">HHI", attempt, 20)
    made = struct.pack(">HHIIBBHHH", target, source, 0, number + 1, 0x50, 0x14, 0, 0, 0)
    ends = socket.inet_aton(THERE) + socket.inet_aton(HERE) + struct.pack(">BBH", 0, TCP, len(made))
    return packet(TCP, summed(made, 16, ends))


def unreachable(code: int) -> Callable[[bytes], bytes]:
    """The answer of a firewall: port unreachable (3) or host unreachable (1)."""

    def made(attempt: bytes) -> bytes:
        return packet(ICMP, summed(struct.pack(">BBHI", 3, code, 0, 0) + attempt[:28], 2))

    return made


class Machine:
    """The machine behind the second interface."""

    def __init__(self) -> None:
        ip("link", "add", "v0", "type", "veth", "peer", "name", "v1")
        ip("addr", "add", f"{HERE}/24", "dev", "v0")
        for name in ("lo", "v0", "v1"):
            ip("link", "set", name, "up")
        ip("neigh", "replace", THERE, "lladdr", hardware("v1"), "dev", "v0", "nud", "permanent")
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        self.socket.bind(("v1", 0x0800))
        addresses = hardware("v0").replace(":", "") + hardware("v1").replace(":", "")
        self.head = bytes.fromhex(addresses) + b"\x08\x00"

    def answer(self, made: Callable[[bytes], bytes]) -> None:
        """Answer the next attempt to connect."""
        while True:
            attempt = self.socket.recv(65_536)[14:]
            if attempt[9] == TCP and attempt[33] & SYN:
                self.socket.send(self.head + made(attempt))
                return


def outcome(address: str) -> str:
    """The name of the error of an attempt to connect."""
    loop = Loop()
    found: list[socket.socket | OSError] = []

    def done(result: socket.socket | OSError) -> None:
        found.append(result)
        loop.stop()

    Connector(loop, (address, PORT), 10_000, done)
    loop.run()
    assert isinstance(found[0], OSError), found
    return errno.errorcode[found[0].errno or 0]


def main() -> None:
    """Print the outcome of each way."""
    machine = Machine()
    found = {}
    for name, made in (
        ("reset", reset),
        ("firewall", unreachable(3)),
        ("router", unreachable(1)),
    ):
        thread = threading.Thread(target=machine.answer, args=(made,), daemon=True)
        thread.start()
        found[name] = outcome(THERE)
        thread.join(PATIENCE_S)
    found["this machine"] = outcome("127.0.0.1")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
