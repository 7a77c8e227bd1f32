"""The spool on a local disk: what is synced before what, a killed writer, a full disk."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_warren.errors import SpoolError, SpoolLostError
from pyspark_warren.spool.files import read_stretch, stretches
from pyspark_warren.spool.store import LocalStore, open_place
from tests.connector.amqp.spooling import USE, bodies, place, rows, take_over, with_id
from warren_wire.amqp091.properties import NONE, Properties, encode

LANE_FOLDER = "spark-1/0"


def test_a_file_is_on_disk_before_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Synced content, then its name, then the folder: a power cut leaves no name without rows."""
    done: list[tuple[str, str]] = []
    real_sync, real_rename = os.fsync, os.rename

    def sync(fd: int) -> None:
        real_sync(fd)
        done.append(("sync", Path(os.readlink(f"/proc/self/fd/{fd}")).name))

    def rename(old: str, new: str) -> None:
        real_rename(old, new)
        done.append(("rename", Path(new).name))

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "rename", rename)
    store = LocalStore()
    store.make(f"{tmp_path}/a/b")
    assert done == [("sync", tmp_path.name), ("sync", "a")]
    done.clear()
    store.write(f"{tmp_path}/a/b", "file", lambda sink: sink.write(b"content") and None)
    assert done == [("sync", ".file"), ("rename", "file"), ("sync", "b")]


WRITER = """
import sys
from pathlib import Path
from tests.connector.amqp.spooling import place, rows, take_over
writer = take_over(place("path", Path(sys.argv[1])))
session = writer.begin_session()
print(writer.end, flush=True)
while True:
    first = writer.end
    writer.take(session, rows([b"%d" % (first + n) for n in range(1000)]))
    print(writer.end, flush=True)
"""


def test_what_a_killed_receiver_reported_is_there(tmp_path: Path) -> None:
    """kill -9 at any moment: every row below the last reported end, in its place."""
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert process.stdout is not None
        for _ in range(5):
            reported = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        reported = int(([reported] + process.stdout.read().split())[-1])
        process.wait()
        process.stdout.close()
        where = place("path", tmp_path)
        end = take_over(where).end
        assert end >= reported >= 4000
        assert bodies(where, 0, end) == [b"%d" % n for n in range(end)]


def test_a_full_disk_breaks_the_writer_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = place("path", tmp_path)
    writer = take_over(where)
    session = writer.begin_session()
    writer.take(session, rows([b"a"]))
    real = LocalStore.write

    def full(self: LocalStore, folder: str, name: str, fill: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LocalStore, "write", full)
    with pytest.raises(SpoolError, match=r"writing rows 1 to 2: .*No space left.*has room"):
        writer.take(session, rows([b"b", b"c"]))
    monkeypatch.setattr(LocalStore, "write", real)
    with pytest.raises(SpoolError, match="must take its lane over again: writing rows 1 to 2"):
        writer.settle(1)
    assert take_over(where).end == 1


def test_damaged_files_are_named(tmp_path: Path) -> None:
    where = place("path", tmp_path)
    writer = take_over(where)
    writer.take(writer.begin_session(), rows([b"a", b"b"]))
    (stretch,) = stretches(where, "spark-1", 0, 2)
    path = tmp_path / LANE_FOLDER / stretch.file
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    for wrong in (
        lambda: read_stretch(where, "spark-1", stretch, ["body"]),
        lambda: take_over(where),
    ):
        with pytest.raises(SpoolError, match=stretch.file):
            wrong()
    path.unlink()
    with pytest.raises(SpoolLostError, match="rows 0 to 1"):
        read_stretch(where, "spark-1", stretch, ["body"])
    path.write_bytes(whole)
    assert bodies(where, 0, 2) == [b"a", b"b"]
    roster = next((tmp_path / LANE_FOLDER).glob("*.json"))
    roster.write_bytes(roster.read_bytes()[:10])
    with pytest.raises(SpoolError, match=f"{roster.name} is damaged"):
        take_over(where)


def test_a_local_file_is_read_without_a_copy(tmp_path: Path) -> None:
    where = place("path", tmp_path)
    writer = take_over(where)
    writer.take(writer.begin_session(), rows([b"x" * 100_000] * 20))
    before = pa.total_allocated_bytes()
    (stretch,) = stretches(where, "spark-1", 5, 15)
    batch = read_stretch(where, "spark-1", stretch, ["body", "redelivered"])
    assert pa.total_allocated_bytes() - before < 100_000
    assert (batch.num_rows, batch.schema.names) == (10, ["body", "redelivered"])


@pytest.mark.parametrize(
    ("location", "text"),
    [
        ("spool", "neither an absolute path nor a URI"),
        ("ftp://user:secret@host/x", r"spoolLocation ftp://host/x: .*[Uu]nrecognized"),
    ],
)
def test_a_location_that_is_none_is_refused(location: str, text: str) -> None:
    with pytest.raises(SpoolError, match=text) as refused:
        open_place(location)
    assert "secret" not in str(refused.value)


def test_a_location_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SpoolError, match="taking over: .*reachable"):
        take_over(place("path", tmp_path / "file"), USE)


def test_a_spool_that_was_written_before_is_read(tmp_path: Path) -> None:
    """Format 1, frozen: a connector that is upgraded continues, and recognises what it had."""
    shutil.copytree(Path(__file__).parent / "sample_format_1", tmp_path, dirs_exist_ok=True)
    where = place("path", tmp_path)
    assert bodies(where, 1, 3) == [b"second", b"third"]
    writer = take_over(where)
    assert (writer.settled, writer.end) == (1, 3)
    again = encode(Properties(headers={"a": "x", "x-delivery-count": 1, "z": 1}))
    lists = [again, with_id("2", headers={"a": 1, "x-delivery-count": 1}), NONE]
    batch = rows([b"third", b"second", b"first"], True, lists)
    assert list(writer.take(writer.begin_session(), batch)) == [2, 1, 0]
