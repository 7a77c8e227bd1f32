"""What the driver's process and its receiver say to each other: JSON, a line each.

The driver's first line is the receiver's task, password and all: neither arguments nor environment,
which other users of the machine can read. After that:

    driver to receiver    {"settle": position,    Spark has committed the rows before it
                           "decided": [[first, last, decision], …]}    see `search`
                          {"acknowledge": true}   the reader's name is in the checkpoint
                          {"probe": number}       how much is in the queue?
    receiver to driver    {"say": "owner", "end": position, "settled": position}
                          {"say": "rows", "end": position, "bytes": size, "recognised": count}
                          {"say": "link", "up": bool, "text": why not}
                          {"say": "queue", "probe": number, "ready": n, "consumers": n,
                           "unwritten": n, "unacknowledged": n, "end": position}
                          {"say": "warning", "text": …}
                          {"say": "failed", "condition": WARREN_…, "text": …}    its last line

The end of the driver's lines (it closed them, or died in whatever way) ends the receiver.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, Final

import msgspec

from pyspark_warren import errors
from pyspark_warren.options.options import Options
from pyspark_warren.spool.search import Decided

STDIO_LINE_BYTES_MAX: Final = 1 << 20
"""Both sides are this package: a longer line is a bug."""
SAID_TEXT_MAX: Final = 4000
_CONDITIONS: Final = {
    kind.condition: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.WarrenSparkError)
}


def write_line(stream: IO[bytes], said: Mapping[str, object]) -> None:
    """Write and flush one line; raises OSError, ValueError when there is no reader."""
    line = json.dumps(said).encode() + b"\n"
    assert len(line) <= STDIO_LINE_BYTES_MAX, len(line)
    stream.write(line)
    stream.flush()


def read_lines(stream: IO[bytes]) -> Iterator[dict[str, object]]:
    """Yield lines until the end; a last one that is not whole is dropped with its writer."""
    while True:
        line = stream.readline(STDIO_LINE_BYTES_MAX + 1)
        if not line.endswith(b"\n"):
            if len(line) > STDIO_LINE_BYTES_MAX:
                raise ValueError(f"a line of more than {STDIO_LINE_BYTES_MAX} bytes")
            return
        said = json.loads(line)
        if not isinstance(said, dict):
            raise ValueError(f"a line that is no object: {line[:80]!r}")
        yield said


@dataclass(frozen=True, slots=True)
class ReceiverTask:
    """The driver's first line.

    seen     the highest position that the checkpoint names
    may_ack  the reader's name is in the checkpoint
    decided  single rows of which something is decided
    """

    options: Options
    reader: str
    seen: int
    may_ack: bool
    decided: tuple[Decided, ...] = ()

    @classmethod
    def read(cls, line: Mapping[str, Any]) -> ReceiverTask:
        """Parse the line, which `asdict` has made."""
        return msgspec.convert(line, cls)


def failure_line(wrong: errors.WarrenSparkError) -> dict[str, object]:
    """Return the last line of a receiver that gives up."""
    text = str(wrong.args[0]) if wrong.args else ""
    return {"say": "failed", "condition": wrong.condition, "text": text[:SAID_TEXT_MAX]}


def failure_of(said: Mapping[str, Any]) -> errors.WarrenSparkError:
    """Return the error of a receiver's last line."""
    return _CONDITIONS[said["condition"]](said["text"])
