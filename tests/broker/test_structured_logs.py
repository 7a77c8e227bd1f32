"""Lines of the log for programs: JSON, the journal's fields, files; levels by category."""

from __future__ import annotations

import json
import logging
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from warren_broker.process import log_levels, structured_logs
from warren_broker.process.log_levels import LatestLines, levels_of, set_level
from warren_broker.process.logs import (
    BURST_LINES,
    FloodFilter,
    JournalFormatter,
    LineWriter,
    StandardError,
)
from warren_broker.process.structured_logs import (
    FileWriter,
    JournalWriter,
    JsonFormatter,
    configure,
    kind_of,
)
from warren_broker.settings.log_settings import LogSettings
from warren_wire.admin.logs import ListLogLinesRequest
from warren_wire.quoting import quoted

REFUSED = "connection %s (AMQP %s): login refused: user %s, mechanism %s: %s"


def record(message: str, *args: object, level: int = logging.INFO) -> logging.LogRecord:
    return logging.LogRecord("warren_broker.x", level, "f.py", 1, message, args, None)


def test_an_event_is_the_constant_words() -> None:
    kind = kind_of(REFUSED)
    assert kind.event == "connection_amqp_login_refused_user_mechanism"
    assert kind.fields == ("connection", "amqp", "user", "mechanism", "value")
    assert kind_of("%d of %d") == ("of", ("value", "of"))
    assert kind_of("100%% of %(disk)s") == ("of", ("disk",))
    assert kind_of("x" * 500).event == "x" * 80 and kind_of("").event == "line"


def test_a_line_is_one_document_whatever_is_in_it() -> None:
    forged = 'a"\n{"level":"critical"}\x1b'
    one = record(REFUSED, "1.2.3.4:5", "1.0", quoted("ann"), quoted("PLAIN"), forged)
    line = JsonFormatter().format(one)
    said = json.loads(line)
    assert "\n" not in line and "\x1b" not in line
    assert said["event"] == kind_of(REFUSED).event and said["level"] == "info"
    fields = said["fields"]
    assert (fields["connection"], fields["amqp"], fields["user"]) == ("1.2.3.4:5", "1.0", "ann")
    assert forged in fields.values()
    try:
        raise ValueError("bad")
    except ValueError:
        failed = record("it failed")
        failed.exc_info = sys.exc_info()
    assert "ValueError: bad" in json.loads(JsonFormatter().format(failed))["exception"]


def test_the_event_stays_when_lines_were_left_out() -> None:
    now = [0.0]
    flood, one = FloodFilter(lambda: now[0]), record("login %s", "x")
    one.name = "warren_broker.clients.login"
    passed = [flood.filter(_again(one)) for _ in range(BURST_LINES + 5)]
    assert passed.count(False) == 5
    now[0] += 10
    last = _again(one)
    assert flood.filter(last)
    assert last.getMessage() == "login x (5 more like this were not logged)"
    assert json.loads(JsonFormatter().format(last))["event"].startswith("login_more_like_this")


def _again(one: logging.LogRecord) -> logging.LogRecord:
    return logging.makeLogRecord({**vars(one)})


def test_the_journal_gets_fields(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(str(tmp_path / "socket"))
        journal.settimeout(PATIENCE_S)
        writer = JournalWriter(tmp_path / "socket")
        writer.handle(record("user %s has\n%s", "ann", 7, level=logging.ERROR))
        entry = journal.recv(1 << 16)
        writer.handle(record("next"))
        assert b"MESSAGE=next\n" in journal.recv(1 << 16)
    message = b"user ann has\n7"
    assert b"MESSAGE\n" + len(message).to_bytes(8, "little") + message + b"\n" in entry
    assert b"PRIORITY=3\n" in entry and b"WARREN_EVENT=user_has\n" in entry
    assert b"WARREN_USER=ann\n" in entry and b"WARREN_HAS=7\n" in entry


def test_a_file_is_put_aside_and_loss_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "logs" / "warren.log"
    writer = FileWriter(path, 4096, 3)
    for number in range(500):
        writer.handle(record("line %d %s", number, "x" * 50))
        writer.flush()
    names = sorted(one.name for one in path.parent.iterdir())
    assert names == ["warren.log", "warren.log.1", "warren.log.2"]
    assert all(one.stat().st_size < 5000 for one in path.parent.iterdir())
    assert "line 499 " in path.read_text()
    path.parent.rename(tmp_path / "away")
    (tmp_path / "logs").write_text("in the way")
    writer.handle(record("lost"))
    writer.flush()
    (tmp_path / "logs").unlink()
    writer.handle(record("found"))
    writer.flush()
    assert "1 lines were left out here: the file took none" in path.read_text()


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger with a console of its own; put back afterwards."""
    found = logging.getLogger()
    before = (found.handlers[:], found.level)
    console = StandardError(sys.stderr.fileno())
    found.handlers[:] = [console]
    yield found
    found.handlers[:], level = before
    found.setLevel(level)
    for category in log_levels.LOGGERS:
        if category != "default":
            set_level(category, "default")


def test_settings_choose_the_format_and_the_file(root: logging.Logger, tmp_path: Path) -> None:
    path = tmp_path / "w.log"
    said = {"console": {"formatter": "json"}, "file": {"path": path, "formatter": "json"}}
    configure(LogSettings.model_validate(said))
    console, file = (one for one in root.handlers if isinstance(one, LineWriter))
    assert isinstance(console.formatter, JsonFormatter) and isinstance(file, FileWriter)
    root.warning("disk %s", "full")
    file.flush()
    assert json.loads(path.read_text())["fields"] == {"disk": "full"}


def test_the_journal_takes_the_place_of_lines(
    root: logging.Logger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(structured_logs, "JOURNAL_SOCKET", tmp_path / "socket")
    root.handlers[0].setFormatter(JournalFormatter())
    configure(LogSettings())
    assert [type(one) for one in root.handlers if isinstance(one, LineWriter)] == [StandardError]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(str(tmp_path / "socket"))
        configure(LogSettings())
    made = [type(one) for one in root.handlers if isinstance(one, LineWriter)]
    assert made == [JournalWriter]


def test_a_category_has_its_level(root: logging.Logger) -> None:
    latest = LatestLines("a")
    root.addHandler(latest)
    root.setLevel(logging.INFO)
    shovel = logging.getLogger("warren_broker.transfers.shovel.ends")
    other = logging.getLogger("warren_broker.http")
    set_level("shovel", "debug")
    shovel.debug("one of %s", "shovel")
    other.debug("not this")
    set_level("default", "error")
    other.info("nor this")
    set_level("shovel", "default")
    shovel.info("nor that")
    other.error("two")
    assert [one.text for one in latest.found(ListLogLinesRequest())] == ["one of shovel", "two"]
    assert [one.text for one in latest.found(ListLogLinesRequest(level="error"))] == ["two"]
    (first,) = latest.found(ListLogLinesRequest(contains="shovel"))
    assert (first.event, first.fields) == ("one_of", {"of": "shovel"})
    found = {one.category: one.level for one in levels_of("a")}
    assert (found["default"], found["shovel"]) == ("error", "default")
