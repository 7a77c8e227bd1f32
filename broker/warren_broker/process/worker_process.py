"""A process that works for a node beside its event loop, as the node that started it sees it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Final

from warren_raft.runtime.loop import Loop
from warren_raft.runtime.net.stream import Buffer, Stream

REAP_MS: Final = 100


class WorkerProcess:
    """A Python module at the other end of a socket pair; nothing that it does can end the node.

    The end of the stream is the order to end, which comes by itself when the node dies.

    received  called with what it has sent; broken: with what that has raised
    lost      called once when it has ended by itself, or was told to by `cut`; not after `stop`
    stop_ms   time from the order to end until it is killed
    """

    def __init__(
        self,
        loop: Loop,
        module: str,
        received: Callable[[bytes], None],
        lost: Callable[[], None],
        broken: Callable[[Exception], None],
        stop_ms: int,
        sockets: Sequence[int] = (),
    ) -> None:
        """Start it; raises OSError. sockets: file descriptors that it gets, too."""
        self._loop = loop
        self._lost: Callable[[], None] | None = lost
        self._stop_ms = stop_ms
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = _spawn(module, theirs.fileno(), sockets)
            except OSError:
                ours.close()
                raise
        self._stream = Stream(loop, ours, received, self._ended, on_error=broken)

    @property
    def unsent_bytes(self) -> int:
        """Return how much of what was sent it has not taken yet."""
        return self._stream.out_bytes

    def send(self, data: Buffer) -> None:
        """Send bytes, of any number: what it does not take at once follows."""
        self._stream.send(data)

    def stop(self) -> None:
        """Have it end when it has taken what was sent; a repeat is harmless."""
        self._lost = None
        self._stream.close()

    def cut(self) -> None:
        """Have it end, as if it had by itself."""
        self._stream.abort()

    def kill(self) -> None:
        """End it without waiting: the node stops."""
        self._lost = None
        self._stream.abort()
        self._process.kill()

    def _ended(self, error: Exception | None) -> None:
        lost, self._lost = self._lost, None
        self._reap(self._loop.clock.monotonic_ms() + self._stop_ms)
        if lost is not None:
            lost()

    def _reap(self, until_ms: int) -> None:
        if self._process.poll() is not None:
            return
        if self._loop.clock.monotonic_ms() > until_ms:
            self._process.kill()
        self._loop.call_later(REAP_MS, lambda: self._reap(until_ms))


def _spawn(module: str, fd: int, sockets: Sequence[int]) -> subprocess.Popen[bytes]:
    """Start a module with a file descriptor as its argument: no secret is in that."""
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, str(fd)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(fd, *sockets),
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
