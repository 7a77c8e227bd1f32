"""Rows of the spool as Arrow record batches and files.

A file is an Arrow IPC file with one record batch: SCHEMA and a column with the identities.
Exchange and routing key are bytes, because AMQP does not promise that they are UTF-8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from pyspark_warren.amqp.spool.layout import IDENTITY_BYTES

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
