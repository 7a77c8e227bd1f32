"""The files of the audit log: order, rotation, bounded searches, a disk that takes nothing."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from warren_broker.broker.audit_trail import (
    BURST_RECORDS,
    HTTP_LOGINS_MAX,
    AuditTrail,
    without_secrets,
)
from warren_broker.process import audit_file
from warren_broker.process.audit_file import AuditFile, backwards, end_before
from warren_broker.settings.audit_settings import AuditSettings
from warren_wire.admin.audit import AuditRecord, FoundRecords, ListAuditRequest

SMALL = AuditSettings(file_bytes_max=64 << 10, files_max=3)


def record(number: int, **more: str) -> AuditRecord:
    return AuditRecord(number, "t", "a", "change", "ann", "HTTP", "peer", **more)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., AuditFile]]:
    files: list[AuditFile] = []

    def make(settings: AuditSettings = SMALL) -> AuditFile:
        files.append(AuditFile(tmp_path / "audit", settings, lambda call: call()))
        return files[-1]

    yield make
    for one in files:
        one.end(PATIENCE_S)


def found(file: AuditFile, **asked: object) -> FoundRecords:
    answers: list[FoundRecords] = []
    there = threading.Event()

    def told(answer: FoundRecords) -> None:
        answers.append(answer)
        there.set()

    file.search(ListAuditRequest(**asked), told)  # type: ignore[arg-type]
    assert there.wait(PATIENCE_S)
    return answers[0]


def numbers(answer: FoundRecords) -> list[int]:
    return [one.number for one in answer.records]


def test_the_newest_first_over_all_files(made: Callable[..., AuditFile], tmp_path: Path) -> None:
    file = made()
    for n in range(1, 2001):
        file.write(record(n, detail="x" * 100))
        if n % 100 == 0:
            found(file)  # what was written before is on disk then
    files = sorted((tmp_path / "audit").iterdir())
    assert [one.name for one in files] == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    assert numbers(found(file, count=2)) == [2000, 1999, 1998]
    assert numbers(found(file, count=3, before="1500")) == [1499, 1498, 1497, 1496]
    seen, before = [], ""
    while page := numbers(found(file, count=100, before=before)):
        seen += page[:100]
        before = str(page[:100][-1])
    assert seen == sorted(seen, reverse=True) and len(seen) > 600 and len({*seen}) == len(seen)
    file.end(PATIENCE_S)
    assert made().last == 2000


def test_a_search_has_a_bound_and_goes_on_behind_it(
    made: Callable[..., AuditFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_file, "SEARCHED_BYTES_MAX", 2_000)
    file = made(AuditSettings())
    for n in range(1, 301):
        file.write(record(n, detail="needle" if n == 5 else "hay"))
    asked, before = 0, ""
    while not (answer := found(file, contains="needle", before=before)).records:
        asked, before = asked + 1, str(answer.searched_to)
    assert numbers(answer) == [5] and asked > 5


def test_one_search_of_too_many_looks_at_nothing(
    made: Callable[..., AuditFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_file, "SEARCHES_MAX", 0)
    assert found(made(), before="7") == FoundRecords((), 7), "the answer's `next` continues there"


def test_a_full_disk_is_said_and_what_waits_is_written(
    made: Callable[..., AuditFile],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(audit_file, "RECORDS_WAITING_MAX", 10)
    monkeypatch.setattr(audit_file, "RECORDS_RETRY_S", 0.01)
    write, full = os.write, threading.Event()
    failed = threading.Event()

    def half(number: int, data: bytes) -> int:
        if not full.is_set():
            return write(number, data)
        if not failed.is_set():
            failed.set()
            return write(number, bytes(data)[:5])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(audit_file.os, "write", half)
    file = made()
    file.write(record(1))
    found(file)
    full.set()
    with caplog.at_level(logging.WARNING):
        for n in range(2, 40):
            file.write(record(n))
        assert failed.wait(PATIENCE_S)
        assert numbers(found(file)) == [1]
        full.clear()
        while numbers(found(file))[0] == 1:
            pass
    assert file.lost == 28 and numbers(found(file)) == list(range(11, 0, -1))
    assert "No space left" in caplog.text and "28 are lost" in caplog.text
    assert b"\n\n" not in (tmp_path / "audit" / "audit.jsonl").read_bytes()


def test_a_directory_that_is_none_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "audit").write_text("in the way")
    file = AuditFile(tmp_path / "audit", SMALL, lambda call: call())
    with caplog.at_level(logging.ERROR):
        file.write(record(1))
        assert not found(file).records
        file.end(PATIENCE_S)
    assert "records cannot be written" in caplog.text


@pytest.mark.parametrize("before", [1, 2, 3, 500, 999, 1000, 1001])
def test_a_place_is_found_by_its_number(tmp_path: Path, before: int) -> None:
    path = tmp_path / "f"
    lines = [
        b'{"number":%d,"at":"t","node":"a","kind":"change","user":"u",' % n for n in range(1, 1001)
    ]
    path.write_bytes(
        b"".join(
            one + b'"door":"d","peer":"%s"}\n' % (b"x" * (i % 90)) for i, one in enumerate(lines)
        )
    )
    last = next(iter(backwards(path, end_before(path, before))), b'{"number":0,')
    assert last.startswith(b'{"number":%d,' % (before - 1))


class World:
    """A loop and an event exchange that is off."""

    on = False
    now_ms = 0

    @property
    def clock(self) -> World:
        return self

    def epoch_ms(self) -> int:
        return 1_000 + self.now_ms


def test_refusals_have_a_bound_and_changes_have_none() -> None:
    world, kept = World(), list[AuditRecord]()
    trail = AuditTrail(world, "a", world)  # type: ignore[arg-type]
    trail.login("AMQP 1.0", "u", "p", "PLAIN", "wrong")
    trail.keep(kept.append, 5_000_000)
    for _ in range(3 * BURST_RECORDS):
        trail.login("AMQP 1.0", "u", "p", "PLAIN", "wrong")
        trail.change("HTTP", "u", "p", "PUT /x")
    assert len(kept) == 4 * BURST_RECORDS and kept[0].number == 5_000_001
    world.now_ms += 1_000
    trail.login("AMQP 1.0", "u", "p", "PLAIN", None)
    assert kept[-1].left_out == 2 * BURST_RECORDS
    assert [one.number for one in kept] == sorted({one.number for one in kept})


def test_a_login_of_http_is_recorded_once_an_hour() -> None:
    world, kept = World(), list[AuditRecord]()
    trail = AuditTrail(world, "a", world)  # type: ignore[arg-type]
    trail.keep(kept.append, 0)
    for n in range(2 * HTTP_LOGINS_MAX):
        world.now_ms += 1_000
        trail.http_login("u", f"10.0.0.1:{n}")
    assert len(kept) == 1
    world.now_ms += 3_600_000
    trail.http_login("u", "10.0.0.1:7")
    assert len(kept) == 2


def test_values_are_without_secrets_and_bounded() -> None:
    shown = without_secrets(
        {"user": {"password_hash": "abc", "tags": ("x",)}, "any": ["amqp://u:pw@h/v"]}
    )
    assert shown["user"] == {"tags": ["x"]} and "pw" not in str(shown)
    given = {"client_secret": "abc", "Vault-Token": "abc", "deep": [{"db_password": "abc"}]}
    assert without_secrets(given) == {"deep": [{}]}
    world, kept = World(), list[AuditRecord]()
    trail = AuditTrail(world, "a", world)  # type: ignore[arg-type]
    trail.keep(kept.append, 0)
    trail.change("HTTP", "u" * 5_000, "p", "PUT /x", new={"text": "y" * 100_000})
    assert kept[0].new["bytes"] > 100_000 and len(str(kept[0])) < 10_000
