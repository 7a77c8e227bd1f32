"""The log of a loop's batches: the files of a Spark query's checkpoint, and what they say.

metadata   {"id": "…"}: the query's id
offsets/N  batch N begins: version, metadata as JSON, the offset of its end as JSON
commits/N  batch N is done

Spark's own streaming query continues with these files, and a loop with those of a query.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark_warren.errors import CheckpointDamagedError, CheckpointError

QUERY_FILE: Final = "metadata"
OFFSET_LOG: Final = "offsets"
COMMIT_LOG: Final = "commits"
STATE_FOLDER: Final = "state"
VERSION: Final = "v1"
NO_OFFSET: Final = "-"
"""In the place of a source's offset, where Spark has none."""
LOG_FILES_MAX: Final = 100
"""Batches that stay in the log, as Spark keeps them."""
_COMMITTED: Final = b'v1\n{"nextBatchWatermarkMs":0}'


@dataclass(frozen=True, slots=True)
class Logged:
    """What the log says of a batch's begin.

    metadata  Spark's: time, watermark, settings of the session
    end       the offset
    """

    metadata: Mapping[str, Any]
    end: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the log stands: the next batch, or the one that was begun and is not done.

    number  of that batch
    start   where it starts; None: where a query without a checkpoint does
    end     where it ends; None: it is not begun
    """

    number: int = 0
    start: Mapping[str, Any] | None = None
    end: Mapping[str, Any] | None = None

    def begun(self, end: Mapping[str, Any]) -> Standing:
        """Return the standing when the offset log has the batch."""
        assert self.end is None, self
        return Standing(self.number, self.start, end)

    def done(self) -> Standing:
        """Return the standing when the commit log has the batch."""
        assert self.end is not None, self
        return Standing(self.number + 1, self.end)


@dataclass(frozen=True, slots=True)
class Places:
    """The batches of which the offset log must be read; None: there is none.

    begun  the last one that was begun
    done   the one before which all are done, and that is itself
    """

    begun: int | None
    done: int | None


def places(offsets: Iterable[str], commits: Iterable[str]) -> Places:
    """Find the last batches by the names of both logs' files; raises CheckpointDamagedError."""
    begun, done = set(_numbers(offsets)), set(_numbers(commits))
    last = max(begun, default=None)
    if last is None:
        if done:
            raise CheckpointDamagedError(
                f"there is {COMMIT_LOG}/{max(done)} and no file in {OFFSET_LOG}; {_WHOLE_COPY}"
            )
        return Places(None, None)
    ended = max(done, default=None)
    if ended is not None and not last - 1 <= ended <= last:
        raise CheckpointDamagedError(
            f"the last file of {OFFSET_LOG} is {last}, and that of {COMMIT_LOG} is {ended}: it "
            f"must be the same one or the one before; {_WHOLE_COPY}"
        )
    before = last - 1 if ended != last else last
    if before >= 0 and (before not in begun or ended is None):
        missing = f"{OFFSET_LOG}/{before}" if before not in begun else f"{COMMIT_LOG}/{before}"
        raise CheckpointDamagedError(
            f"there is {OFFSET_LOG}/{last} without {missing}; {_WHOLE_COPY}"
        )
    return Places(last, before if before >= 0 else None)


_WHOLE_COPY: Final = "put all files of one moment back from a copy, or use another checkpoint"


def _numbers(names: Iterable[str]) -> Iterable[int]:
    return (int(name) for name in names if name.isdecimal())


def to_purge(names: Iterable[str], number: int) -> list[str]:
    """Return the files of a log that are too old when a batch is done, with Hadoop's checksums."""
    found = ((name, name.removeprefix(".").removesuffix(".crc")) for name in names)
    return [
        name for name, text in found if text.isdecimal() and int(text) <= number - LOG_FILES_MAX
    ]


# ------------------------------------------------------------------ the files' content


def write_metadata(query: str) -> bytes:
    """Return the content of `metadata`."""
    return json.dumps({"id": query}, separators=(",", ":")).encode()


def read_metadata(data: bytes) -> str:
    """Return the query's id; raises CheckpointDamagedError."""
    try:
        return str(json.loads(data)["id"])
    except (ValueError, KeyError, TypeError):
        raise CheckpointDamagedError(
            f"file {QUERY_FILE} is cut short or damaged; {_WHOLE_COPY}"
        ) from None


def write_begun(logged: Logged) -> bytes:
    """Return the content of a file of the offset log."""
    # Spark's source writes offsets so, and compares them as text.
    return "\n".join(
        (VERSION, json.dumps(logged.metadata, separators=(",", ":")), json.dumps(logged.end))
    ).encode()


def read_begun(number: int, data: bytes) -> Logged:
    """Parse a file of the offset log.

    raises  CheckpointDamagedError; CheckpointError: it is of a query that no loop can continue
    """
    at = f"{OFFSET_LOG}/{number}"
    metadata, *ends = _lines(at, data)
    if len(ends) > 1:
        raise CheckpointError(
            f"{at} has the offsets of {len(ends)} sources: the checkpoint is of a streaming query "
            "that reads more than this queue; go on with that query, or use another checkpoint"
        )
    try:
        (text,) = ends
        end = {} if text == NO_OFFSET else json.loads(text)
        return Logged({"conf": {}, **json.loads(metadata)}, {**end})
    except (ValueError, TypeError):
        raise _damaged(at) from None


def write_done() -> bytes:
    """Return the content of a file of the commit log."""
    return _COMMITTED


def check_done(number: int, data: bytes) -> None:
    """Raise CheckpointDamagedError unless a file of the commit log is whole."""
    at = f"{COMMIT_LOG}/{number}"
    try:
        json.loads(_lines(at, data)[0])
    except ValueError:
        raise _damaged(at) from None


def _lines(at: str, data: bytes) -> list[str]:
    """Return the lines after the version, one or more."""
    try:
        version, *rest = data.decode().split("\n")
    except ValueError:
        raise _damaged(at) from None
    if version != VERSION and rest:
        raise CheckpointError(
            f"{at} has format {version[:20]!r}, this loop knows {VERSION}: another release of "
            "Spark has written it; go on with that one, or use another checkpoint"
        )
    if not rest or version != VERSION:
        raise _damaged(at)
    return rest


def _damaged(at: str) -> CheckpointDamagedError:
    return CheckpointDamagedError(
        f"{at} is cut short or damaged; put all files of one moment back from a copy. Without a "
        f"copy: if it is the newest of its folder, delete it. A batch of {OFFSET_LOG} then begins "
        f"again where it began, one of {COMMIT_LOG} is run again"
    )
