"""A file of the user is there whole, the earlier or the new one, whatever the disk does."""

from __future__ import annotations

import errno
import os
import resource
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from python.fake_broker import FakeCluster, FakeNode
from tests.patience import PATIENCE_S
from warren.cli.app import app
from warren.errors import UsageError
from warren.migration import Counts
from warren_wire.admin import definitions
from warren_wire.whole_file import write_whole

FULL_BYTES = 1 << 20
"""Files may have as much; what is written here has more."""
EARLIER = b'{"vhosts": []}\n'


@contextmanager
def full_disk() -> Iterator[None]:
    """No file can be longer than FULL_BYTES: a write beyond fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FULL_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def export(host: str, file: Path) -> Result:
    environment = {"WARREN_URI": f"amqp://guest:guest@{host}/?request_timeout={PATIENCE_S:g}"}
    return CliRunner().invoke(app, ["definitions", "export", str(file)], env=environment)


def test_an_export_to_a_full_disk_leaves_the_earlier_one(tmp_path: Path) -> None:
    """It was cut to what the disk took of the new one."""
    document = b" " * 2 * FULL_BYTES
    world, file = FakeCluster(), tmp_path / "definitions.json"
    world.script = {
        definitions.ExportRequest: [definitions.ExportedFile(zlib.compress(document, 0), ())]
    }
    file.write_bytes(EARLIER)
    file.chmod(0o640)
    link = tmp_path / "latest.json"
    link.symlink_to(file.name)
    node = FakeNode(world)
    try:
        with full_disk():
            done = export(node.host, link)
        assert isinstance(done.exception, UsageError)
        assert str(done.exception) == (
            f"cannot write {link}: File too large; the one that is there is as it was"
        )
        assert file.read_bytes() == EARLIER
        with full_disk():
            done = export(node.host, tmp_path / "another.json")
        assert str(done.exception).endswith("another.json: File too large")
        assert sorted(os.listdir(tmp_path)) == ["definitions.json", "latest.json"]
        assert export(node.host, link).exit_code == 0
    finally:
        node.kill()
    assert file.read_bytes() == document + b"\n" and link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640, "who may read it is not changed"
    assert export_mode(tmp_path) == 0o600, "it has the hashes of passwords"


def export_mode(place: Path) -> int:
    write_whole(place / "fresh.json", EARLIER)
    return (place / "fresh.json").stat().st_mode & 0o777


def test_nothing_has_the_name_before_it_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "definitions.json"
    file.write_bytes(EARLIER)

    def failing(number: int) -> None:
        assert file.read_bytes() == EARLIER
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        write_whole(file, b"new")
    assert file.read_bytes() == EARLIER and os.listdir(tmp_path) == [file.name]


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, EARLIER)
    assert os.read(reader, 100) == EARLIER and pipe.is_fifo()
    os.close(reader)


def test_a_migration_s_report_takes_no_other_file(tmp_path: Path) -> None:
    """It was written by way of the file `NAME.new`, which may be one of the user."""
    other = tmp_path / "report.new"
    other.write_text("mine")
    Counts(tmp_path / "report", "amqp://there").begin("q", 3, 0)
    assert other.read_text() == "mine"
    assert Counts(tmp_path / "report", "amqp://there").queues["q"].source_before == 3
