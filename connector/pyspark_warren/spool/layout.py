"""Names of the spool's files, the content of its JSON files, its rows as Arrow files.

A file of rows is an Arrow IPC file with one record batch: SCHEMA and a column with the identities.
Exchange and routing key are bytes, because AMQP does not promise that they are UTF-8.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import quote

import pyarrow as pa

from pyspark_warren.errors import SpoolError
from pyspark_warren.rows.identities import IDENTITY_BYTES

SPOOL_FORMAT: Final = 1
LANE: Final = "0"
"""The folder of a queue's one lane."""
CLAIMS: Final = "claims"
"""The folder of a lane's claims, of their own because they are listed after each file."""
DESCRIPTION: Final = "spool.json"
_CLAIM: Final = re.compile(r"epoch-(\d{10})-([0-9a-f]{16})\.claim")
_ROSTER: Final = re.compile(r"epoch-(\d{10})-([0-9a-f]{16})\.json")
_ROWS: Final = re.compile(r"(\d{20})-(\d{10})-(\d{10})-([0-9a-f]{16})\.(arrow|settled)")
_TEMPORARY: Final = "."


class Epoch(NamedTuple):
    """The ownership of a lane by one receiver; the highest one owns it."""

    number: int
    token: str

    @property
    def claim(self) -> str:
        """Name of its claim."""
        return f"epoch-{self.number:010d}-{self.token}.claim"

    @property
    def roster(self) -> str:
        """Name of its roster."""
        return f"epoch-{self.number:010d}-{self.token}.json"


class SpoolFile(NamedTuple):
    """A file for rows first <= position < end; kind is `arrow` or `settled`."""

    first: int
    rows: int
    epoch: Epoch
    kind: str = "arrow"

    @property
    def end(self) -> int:
        """The position after its last row."""
        return self.first + self.rows

    @property
    def name(self) -> str:
        """Its name."""
        number, token = self.epoch
        return f"{self.first:020d}-{self.rows:010d}-{number:010d}-{token}.{self.kind}"


class Stretch(NamedTuple):
    """Rows first_row <= row < first_row + rows of a file.

    position    the position of its first row
    size_bytes  about what these rows have of the file
    """

    file: str
    first_row: int
    rows: int
    position: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LaneListing:
    """The files of a lane's folder by their kind.

    temporaries  unfinished writes, with the epoch that wrote them
    sizes        bytes by name
    """

    rosters: tuple[Epoch, ...]
    files: tuple[SpoolFile, ...]
    marks: tuple[SpoolFile, ...]
    temporaries: tuple[tuple[Epoch, str], ...]
    sizes: Mapping[str, int]


def folder_of(name: str) -> str:
    """Return the name of a reader's folder: no separators, no leading point."""
    folder = quote(name, safe="")
    return "%2E" + folder[1:] if folder.startswith((".", "_")) else folder


def read_listing(sizes: Mapping[str, int]) -> LaneListing:
    """Sort a lane's files by kind; raises SpoolError for a file that is not the spool's."""
    rosters, temporaries = [], []
    rows: dict[str, list[SpoolFile]] = {"arrow": [], "settled": []}
    for name in sorted(sizes):
        if name.startswith(_TEMPORARY):
            epoch = _epoch_in(name[1:])
            if epoch is not None:
                temporaries.append((epoch, name))
        elif match := _ROSTER.fullmatch(name):
            rosters.append(Epoch(int(match[1]), match[2]))
        elif match := _ROWS.fullmatch(name):
            file = SpoolFile(int(match[1]), int(match[2]), Epoch(int(match[3]), match[4]), match[5])
            rows[file.kind].append(file)
        elif not name.startswith("_"):
            raise SpoolError(
                f"file {name!r} is not one of the spool's; remove it, or use another spoolLocation"
            )
    return LaneListing(
        tuple(rosters), tuple(rows["arrow"]), tuple(rows["settled"]), tuple(temporaries), sizes
    )


def _epoch_in(name: str) -> Epoch | None:
    for pattern, group in ((_ROSTER, 1), (_ROWS, 3)):
        match = pattern.fullmatch(name)
        if match:
            return Epoch(int(match[group]), match[group + 1])
    return None


def read_claims(names: Iterable[str]) -> list[Epoch]:
    """Return the claims among the names, ascending; other names are ignored."""
    matches = (_CLAIM.fullmatch(name) for name in names)
    return sorted(Epoch(int(match[1]), match[2]) for match in matches if match)


def write_json(value: Mapping[str, object]) -> bytes:
    """Return canonical JSON, with an end that shows that the file is whole."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Roster:
    """What a receiver found when it took the lane over.

    start    the position of its first row
    settled  rows before it were committed by Spark
    files    names of the valid files and marks of earlier epochs
    """

    epoch: Epoch
    start: int
    settled: int
    files: tuple[str, ...]

    def to_bytes(self) -> bytes:
        """Return the stored form."""
        return write_json({"files": list(self.files), "settled": self.settled, "start": self.start})

    @classmethod
    def read(cls, epoch: Epoch, data: bytes) -> Roster | None:
        """Parse the stored form; None when it is not whole."""
        try:
            found = json.loads(data) if data.endswith(b"\n") else {}
            files = tuple(str(name) for name in found["files"])
            return cls(epoch, int(found["start"]), int(found["settled"]), files)
        except (KeyError, TypeError, ValueError):
            return None


SCHEMA: Final = pa.schema(
    [
        ("body", pa.binary()),
        ("properties", pa.binary()),
        ("exchange", pa.binary()),
        ("routing_key", pa.binary()),
        ("redelivered", pa.bool_()),
    ]
)
"""Deliveries as they were received; `properties` is the raw property list, flags and values."""
_IDENTITY: Final = pa.field("identity", pa.binary(IDENTITY_BYTES))
FILE_SCHEMA: Final = SCHEMA.append(_IDENTITY).with_metadata({"warren-spool": "1"})


def write_rows(sink: pa.NativeFile, batch: pa.RecordBatch, identities: bytes) -> None:
    """Write a file with the batch's rows; identities has IDENTITY_BYTES per row."""
    rows = batch.num_rows
    assert len(identities) == rows * IDENTITY_BYTES, (len(identities), rows)
    column = pa.FixedSizeBinaryArray.from_buffers(
        _IDENTITY.type, rows, [None, pa.py_buffer(identities)]
    )
    whole = pa.RecordBatch.from_arrays([*batch.columns, column], schema=FILE_SCHEMA)
    with pa.ipc.new_file(sink, FILE_SCHEMA) as writer:
        writer.write_batch(whole)


def read_rows(source: pa.NativeFile, columns: Sequence[str]) -> pa.RecordBatch:
    """Read columns of a file; raises pa.ArrowInvalid when it is damaged.

    The buffers of a memory map are views. Of other sources only these columns are read.
    """
    wanted = [FILE_SCHEMA.get_field_index(name) for name in columns]
    assert -1 not in wanted, columns
    # With a selection Arrow copies what it reads.
    mapped = isinstance(source, pa.MemoryMappedFile)
    options = pa.ipc.IpcReadOptions(included_fields=None if mapped else sorted(wanted))
    reader = pa.ipc.open_file(source, options=options)
    if reader.num_record_batches != 1:
        raise pa.ArrowInvalid(f"{reader.num_record_batches} record batches, a spool file has one")
    found = reader.get_batch(0)
    if any(name not in found.schema.names for name in columns):
        raise pa.ArrowInvalid(f"columns {found.schema.names}, wanted {list(columns)}")
    return found.select(list(columns))


def read_identities(source: pa.NativeFile) -> bytes:
    """Read the identities of a file's rows, without their bodies."""
    column = read_rows(source, ["identity"]).column(0)
    if column.type != _IDENTITY.type or column.null_count:
        raise pa.ArrowInvalid(f"identities of type {column.type}")
    start = column.offset * IDENTITY_BYTES
    data = memoryview(column.buffers()[1] or b"")
    return bytes(data[start : start + len(column) * IDENTITY_BYTES])
