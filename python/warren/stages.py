"""Staged publishing: blocks that stay invisible until their batch is published, entirely or not
at all."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import quote

from warren.connection import Connection
from warren.errors import UsageError
from warren.outgoing import BlockSender

WINDOW_BYTES = 16 << 20
ATTEMPT_BITS = 62


@dataclass(frozen=True, slots=True)
class StagedPart:
    """What one attempt at one partition has staged; picklable, for the driver.

    queues  those that hold some of it, sorted
    """

    partition: int
    attempt: int
    queues: tuple[str, ...]
    blocks: int
    size_bytes: int


class StageWriter:
    """Writes one attempt at one partition of a batch.

    A block goes to the exchange (empty: the default exchange, whose routing keys are queue names)
    by the routing keys in its routes. Accepted blocks are on a majority's disks. When a connection
    is lost the blocks that were not yet accepted are sent again through another node; they are
    numbered, so that none is staged twice.

    attempt       must be unlike that of every other writer of this partition and batch, even of
                  one that died with its program, for that may have left blocks; None: by chance
    window_bytes  how much may be under way unaccepted; `write` waits when it is reached
    timeout_s     the longest wait for one block to be accepted, over all reconnections
    """

    def __init__(
        self,
        connection: Connection,
        *,
        sink: str,
        batch: int,
        partition: int,
        attempt: int | None = None,
        exchange: str = "",
        window_bytes: int = WINDOW_BYTES,
        timeout_s: float | None = None,
    ) -> None:
        if not sink or len(sink) > 255:
            raise UsageError(f"sink {sink!r}: a name has 1 to 255 characters")
        if attempt is None:
            attempt = secrets.randbits(ATTEMPT_BITS)
        self.partition = partition
        self.attempt = attempt
        target = (
            f"/exchanges/{quote(exchange, safe='')}/stage?sink={quote(sink, safe='')}"
            f"&batch={batch}&partition={partition}&attempt={attempt}"
        )
        self._sender = BlockSender(
            connection,
            lambda number: f"{target}&seq={number}",
            window_bytes=window_bytes,
            timeout_s=timeout_s,
            numbered=True,
        )
        self._blocks = 0
        self._size_bytes = 0

    def write(self, block: bytes | bytearray | memoryview) -> None:
        """Send one encoded block; waits while the window is full.

        Raises Unroutable when a message has no queue, NotFound when the exchange is not there,
        TooLarge, Unavailable. After an error the attempt cannot go on.
        """
        self._sender.send(block)
        self._blocks += 1
        self._size_bytes += len(block)

    def finish(self) -> StagedPart:
        """Wait until every block is accepted; what the driver needs for `publish_batch`."""
        self._sender.flush()
        self._sender.close()
        queues = tuple(sorted(self._sender.queues))
        return StagedPart(self.partition, self.attempt, queues, self._blocks, self._size_bytes)

    def close(self) -> None:
        """Give up: what was staged stays invisible, goes when the batch is published or dropped."""
        self._sender.close()

    def __enter__(self) -> StageWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def publish_batch(
    connection: Connection,
    sink: str,
    batch: int,
    parts: Iterable[StagedPart],
    *,
    timeout_s: float | None = None,
) -> int:
    """Make the batch visible in every queue that it was staged in, in the order of `parts`.

    A queue that has the batch (or a later one of this sink) already ignores it, so a call that was
    cut short is finished by repeating it. Returns how many messages this call published.
    """
    parts = list(parts)
    queues = sorted({queue for part in parts for queue in part.queues})
    if not queues:
        return 0
    body = {"attempts": [[part.partition, part.attempt] for part in parts], "queues": queues}
    path = f"/sinks/{quote(sink, safe='')}/batches/{batch}"
    return int(connection.request("POST", path, body, timeout_s=timeout_s)["published"])


def drop_batch(connection: Connection, sink: str, batch: int, queues: Iterable[str]) -> None:
    """Drop what was staged for an aborted batch in these queues; harmless when there is nothing."""
    names = sorted(set(queues))
    if names:
        connection.request(
            "DELETE", f"/sinks/{quote(sink, safe='')}/batches/{batch}", {"queues": names}
        )
