"""A shovel's process as the node that started it sees it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from warren_broker.process.worker_process import WorkerProcess
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
STOP_MS: Final = 4_000
"""After the order to stop it is killed: longer than it waits for confirms."""
STATUS_BYTES_MAX: Final = 64 * 1024


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
    """Starts a process and reads its status lines.

    on_status  called with each status
    on_end     called once when it has ended or says something that is no status, with why; not
               after `stop`
    """

    def __init__(
        self,
        loop: Loop,
        job: dict[str, object],
        on_status: Callable[[WorkerStatus], None],
        on_end: Callable[[str], None],
    ) -> None:
        """Start it; raises OSError. The passwords are in the job."""
        self._on_status = on_status
        self._on_end = on_end
        self._received = b""
        self._stopped = False
        self._why = "its process has ended"
        self._process = WorkerProcess(loop, WORKER, self._read, self._lost, self._broken, STOP_MS)
        self.tell_all(json.dumps(job).encode() + b"\n")

    def tell(self, line: bytes) -> bool:
        """Send a short line; False: not sent, because the process does not read."""
        if self._process.unsent_bytes:
            return False
        self._process.send(line)
        return True

    def tell_all(self, line: bytes) -> None:
        """Send a line of any length: what the process does not take at once follows."""
        self._process.send(line)

    def stop(self) -> None:
        """Have it end: at once, or when what is under way is confirmed; kill it if it does not."""
        self._stopped = True
        self._process.stop()

    def kill(self) -> None:
        """End it without waiting: the node stops."""
        self._stopped = True
        self._process.kill()

    def _read(self, data: bytes) -> None:
        *lines, self._received = (self._received + data).split(b"\n")
        if len(self._received) > STATUS_BYTES_MAX:
            self._end(f"its process sent a line of more than {STATUS_BYTES_MAX:,} bytes")
        for line in lines:
            if self._stopped:
                return
            try:
                self._on_status(_DECODER.decode(line))
            except UNDECODABLE as error:
                self._end(f"its process sent something else than a status: {error}")

    def _broken(self, error: Exception) -> None:
        log.error("the process of a shovel cannot be followed", exc_info=error)
        self._end(f"its process cannot be followed: {type(error).__name__}")

    def _end(self, why: str) -> None:
        self._stopped, self._why = True, why
        self._process.cut()

    def _lost(self) -> None:
        self._on_end(self._why)
