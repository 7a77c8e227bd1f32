"""What happened in a run, as its clients saw it: one JSON object per line, only ever appended.

Every event has `t` (seconds of this machine's monotonic clock) and `e`, its kind:

| kind | fields | meaning |
| --- | --- | --- |
| stream | s, node | a publisher has a connection to a node |
| no_ack | q | messages of this queue are gone when they have been sent |
| repeats | q | each message comes at least once, in any order: dead letters, federated queues |
| publish | s, n, q, y | message n of stream s with priority y is about to be sent; it ends in q |
| confirm, nack, unknown | s, n | [[first, last] …]: confirmed; refused; the connection was lost |
| deliver | c, q, s, n, r | consumer c got it; r: redelivered |
| ack, requeue | c, s, n | its consumer settled it, or gave it back |
| gone | c | the consumer's channel has ended, by a fault or on purpose |
| claimed | q, reader, number, ids | a fetch of a whole claim: its messages, in order |
| settled | q, reader, number | the broker says that the claim is settled |
| staged | q, sink, batch, ids | every block of a winning attempt was accepted |
| batch | q, sink, batch | the broker says that the batch is published |
| stray | q, what | a message that no client of the run can have published |
| fault | kind, phase, nodes | begin; hit (these nodes' own clients are cut off, too); end |
| problem | what | the run itself saw something that must not be |

A **stream** is one connection of one publisher: order is promised within it, not beyond.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

Event: TypeAlias = dict[str, Any]


class Recorder:
    """Appends events to a file; any thread may call it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self._file = path.open("a", encoding="utf-8", buffering=1 << 20)
        self._lock = threading.Lock()

    def __call__(self, event_kind: str, /, **fields: Any) -> None:
        """One event, now."""
        event = {"t": round(time.monotonic(), 6), "e": event_kind, **fields}
        line = json.dumps(event, separators=(",", ":")) + "\n"
        with self._lock:
            self._file.write(line)
            self.count += 1

    def flush(self) -> None:
        """So far on disk."""
        with self._lock:
            self._file.flush()

    def close(self) -> None:
        """The history is complete."""
        with self._lock:
            self._file.close()


def read(path: Path) -> Iterator[Event]:
    """The events in the order in which they were recorded."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def runs(numbers: list[int]) -> list[list[int]]:
    """Ascending numbers as closed runs: [1, 2, 3, 7] is [[1, 3], [7, 7]]."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found
