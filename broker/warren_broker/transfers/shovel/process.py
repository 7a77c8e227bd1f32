"""A shovel's process as the node that started it sees it."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Final

import msgspec

from warren_raft.runtime.loop import Loop
from warren_wire.undecodable import UNDECODABLE

log = logging.getLogger(__name__)
WORKER: Final = "warren_broker.transfers.shovel.worker"
FETCH: Final = b"fetch\n"
"""Tells a federation link that there is demand; PAUSE: that there is none, as at the start."""
PAUSE: Final = b"pause\n"
BINDINGS: Final = b"bindings "
"""Begins the line with all bindings of a federated exchange: base64 of MessagePack."""
REMOVE: Final = b"remove\n"
"""Tells a link of an exchange to delete its queue upstream when it stops."""
UNSENT_POLL_MS: Final = 20
STOP_MS: Final = 4_000
"""After the order to stop it is killed: longer than it waits for confirms."""
REAP_MS: Final = 200
STATUS_BYTES_MAX: Final = 64 * 1024
STATUS_READ_BYTES: Final = 16 * 1024


class WorkerStatus(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of a shovel's process; see ShovelInfo. final: it ends, and would fail again."""

    state: str
    reason: str
    final: bool
    forwarded: int
    remaining: int | None
    pending: int
    blocked_status: str
    access_refused: bool = False


_DECODER = msgspec.json.Decoder(WorkerStatus)


class ShovelProcess:
    """Starts a process and reads its status lines; nothing that it does can end the node.

    on_status  called with each status
    on_end     called once when it has ended or says something that is no status, with why; not
               after `stop`
    """

    def __init__(
        self,
        loop: Loop,
        job: dict[str, Any],
        on_status: Callable[[WorkerStatus], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._on_status = on_status
        self._on_end: Callable[[str], None] | None = on_end
        self._received = self._unsent = b""
        self._stopped_ms = 0
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = self._spawn(theirs.fileno())
            except OSError:
                ours.close()
                raise
        ours.setblocking(False)
        self._socket = ours
        self._watched = loop.register(ours, self._readable, on_error=self._broken)
        # Not at once: a long definition is more than the socket takes before the process reads, and
        # a process that fails to start never does.
        self.tell_all(json.dumps(job).encode() + b"\n")

    def _spawn(self, fd: int) -> subprocess.Popen[bytes]:
        """Start the process; the passwords are in the job, not in its arguments."""
        paths = os.pathsep.join(path for path in sys.path if path)
        return subprocess.Popen(
            [sys.executable, "-P", "-m", WORKER, str(fd)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(fd,),
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": paths},
        )

    def tell(self, line: bytes) -> bool:
        """Send a short line; False: not sent, because the process does not read or has ended."""
        if self._unsent:
            return False  # in the middle of another line
        try:
            return self._socket.send(line) == len(line)
        except OSError as error:
            log.debug("a line for the process of a shovel is not sent: %s", error)
            return False

    def tell_all(self, line: bytes) -> None:
        """Send a line of any length: what the process does not take at once follows."""
        self._unsent += line
        if len(self._unsent) == len(line):
            self._send_rest()

    def _send_rest(self) -> None:
        try:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError as error:
            log.debug("the process of a shovel takes no lines any more: %s", error)
            return
        if self._unsent:
            self._loop.call_later(UNSENT_POLL_MS, self._send_rest)

    def stop(self) -> None:
        """Have it end: at once, or when what is under way is confirmed; kill it if it does not."""
        if self._on_end is not None:
            self._on_end = None
            self._close()

    def kill(self) -> None:
        """End it without waiting: the node stops."""
        self.stop()
        self._process.kill()

    def _close(self) -> None:
        self._watched.close()
        self._socket.close()
        self._stopped_ms = self._loop.clock.monotonic_ms()
        self._reap()

    def _reap(self) -> None:
        if self._process.poll() is not None:
            return
        if self._loop.clock.monotonic_ms() - self._stopped_ms > STOP_MS:
            self._process.kill()
        self._loop.call_later(REAP_MS, self._reap)

    def _readable(self) -> None:
        try:
            data = self._socket.recv(STATUS_READ_BYTES)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self._ended("its process has ended")
            return
        *lines, self._received = (self._received + data).split(b"\n")
        if len(self._received) > STATUS_BYTES_MAX:
            self._ended(f"its process sent a line of more than {STATUS_BYTES_MAX:,} bytes")
            return
        for line in lines:
            if self._on_end is not None:
                try:
                    self._on_status(_DECODER.decode(line))
                except UNDECODABLE as error:
                    self._ended(f"its process sent something else than a status: {error}")

    def _broken(self, error: Exception) -> None:
        log.error("the process of a shovel cannot be followed", exc_info=error)
        self._ended(f"its process cannot be followed: {type(error).__name__}")

    def _ended(self, why: str) -> None:
        ended, self._on_end = self._on_end, None
        if ended is not None:
            self._close()
            ended(why)
