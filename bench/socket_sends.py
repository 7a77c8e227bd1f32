"""What a node pays to send large bodies: CPU of both ends, by the way the bytes go."""

from __future__ import annotations

import mmap
import os
import resource
import socket
import struct
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from bench.generator import PLACE
from bench.report import show

FRAME_BYTES: Final = 128 << 10
"""As a frame of a body at the default frame-max."""
SENT_MIB: Final = 256
SO_ZEROCOPY: Final = 60
MSG_ZEROCOPY: Final = 0x4000000
MSG_ERRQUEUE: Final = 0x2000
COPIED: Final = 1
"""SO_EE_CODE_ZEROCOPY_COPIED in linux/errqueue.h: the system copied after all."""
EXTENDED_ERROR: Final = struct.Struct("=IBBBBII")
"""sock_extended_err: errno, origin, type, code, padding, first and last number of the sends."""
ROOM_BYTES: Final = 512


class Sender:
    """One end of a connection over the loopback, and a file with the same bytes.

    copied  ranges of zero-copy sends that the system copied, as it told
    """

    def __init__(self, peer: socket.socket, path: Path) -> None:
        self.socket = peer
        self.copied = 0
        self.ended = 0
        self.buffer = mmap.mmap(-1, FRAME_BYTES)
        self.buffer.write(os.urandom(FRAME_BYTES))
        path.write_bytes(self.buffer[:])
        self.file = os.open(path, os.O_RDONLY)

    def close(self) -> None:
        """Close the file and the connection."""
        os.close(self.file)
        self.socket.close()

    def views(self) -> None:
        """Send a frame's bytes as views, as a node does."""
        sent = 0
        while sent < FRAME_BYTES:
            sent += self.socket.sendmsg([memoryview(self.buffer)[sent:]])

    def zero_copy(self) -> None:
        """Send them from where they are; the pages belong to the system until it tells."""
        sent = 0
        while sent < FRAME_BYTES:
            sent += self.socket.sendmsg([memoryview(self.buffer)[sent:]], [], MSG_ZEROCOPY)
        self.reap()

    def reap(self) -> None:
        """Read which sends have ended."""
        with suppress(BlockingIOError):
            while True:
                _, told, _, _ = self.socket.recvmsg(
                    0, ROOM_BYTES, MSG_ERRQUEUE | socket.MSG_DONTWAIT
                )
                for _, _, data in told:
                    _, _, _, code, _, first, last = EXTENDED_ERROR.unpack_from(data)
                    self.ended += last - first + 1
                    self.copied += (last - first + 1) * (code == COPIED)

    def from_file(self) -> None:
        """Send them from the page cache."""
        sent = 0
        while sent < FRAME_BYTES:
            sent += os.sendfile(self.socket.fileno(), self.file, sent, FRAME_BYTES - sent)


def socket_sends(rounds: int) -> list[dict[str, Any]]:
    """Send 256 MiB in every way, in turn; show the least and the most of each."""
    ways: dict[str, Callable[[Sender], None]] = {
        "views of memory": Sender.views,
        "MSG_ZEROCOPY": Sender.zero_copy,
        "sendfile": Sender.from_file,
    }
    PLACE.mkdir(parents=True, exist_ok=True)
    spent: dict[str, list[tuple[float, float, float]]] = {}
    with tempfile.TemporaryDirectory(dir=PLACE) as place:
        for _ in range(rounds):
            for name, send in ways.items():
                spent.setdefault(name, []).append(_sent(Path(place) / "file", send))
    show(
        f"{SENT_MIB} MiB in frames of {FRAME_BYTES >> 10} KiB over the loopback",
        [
            {
                "way": name,
                "sender's CPU, µs per MiB": _span([one[0] for one in each]),
                "receiver's": _span([one[1] for one in each]),
                "copied by the system all the same": f"{each[-1][2]:.0%}",
            }
            for name, each in spent.items()
        ],
        [f"{rounds} rounds; the receiver reads into one buffer"],
    )
    return [{"way": name, "us_per_mib": each} for name, each in spent.items()]


def _span(values: list[float]) -> str:
    return f"{min(values):,.0f} - {max(values):,.0f}"


def _cpu(usage: resource.struct_rusage) -> float:
    return (usage.ru_utime + usage.ru_stime) * 1e6


def _sent(path: Path, send: Callable[[Sender], None]) -> tuple[float, float, float]:
    """Return the CPU of the sender and of the receiver in µs per MiB, and the part copied."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        reader = os.fork()
        if reader == 0:
            _receive(server.getsockname())
        peer, _ = server.accept()
    with suppress(OSError):
        peer.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
    sender = Sender(peer, path)
    began = _cpu(resource.getrusage(resource.RUSAGE_SELF))
    for _ in range(SENT_MIB * (1 << 20) // FRAME_BYTES):
        send(sender)
    used = _cpu(resource.getrusage(resource.RUSAGE_SELF)) - began
    peer.shutdown(socket.SHUT_WR)
    _, status, usage = os.wait4(reader, 0)
    assert status == 0, f"the receiver ended with {status}"
    sender.reap()
    sender.close()
    return used / SENT_MIB, _cpu(usage) / SENT_MIB, sender.copied / max(sender.ended, 1)


def _receive(address: tuple[str, int]) -> None:
    """Read to the end, and end the process."""
    received = 0
    with socket.create_connection(address) as own:
        room = bytearray(FRAME_BYTES)
        while count := own.recv_into(room):
            received += count
    os._exit(0 if received == SENT_MIB << 20 else 1)
