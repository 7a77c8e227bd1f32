"""Lines of the log for programs: JSON, and the fields of systemd's journal.

A line has an event: the constant words of its text, which are the same for every line of its kind,
whatever names and numbers it has. What stands in their places are fields, each named by the word
before it: `connection %s (AMQP %s): login refused: user %s` is the event
`connection_amqp_login_refused_user` with the fields connection, amqp and user.
"""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from warren_broker.process.logs import (
    JournalFormatter,
    LineWriter,
    OneLineFormatter,
    StandardError,
    syslog_priority,
)
from warren_broker.process.rotating_file import RotatingFile
from warren_broker.settings.log_settings import LogSettings

JOURNAL_SOCKET: Final = Path("/run/systemd/journal/socket")
ENTRY_CHARACTERS_MAX: Final = 12 << 10
"""Of a line and its traceback; the journal takes larger entries in another way only."""
FIELD_END: Final = "\x1e"
EVENT_CHARACTERS_MAX: Final = 80
FIELD_CHARACTERS_MAX: Final = 2_000
KINDS_KEPT: Final = 1_024
_PLACE: Final = re.compile(r"%(?:\((\w+)\))?[-#0 +]*\d*(?:\.\d+)?[sdrfxig]")
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_UNNAMED: Final = "value"


class LineKind(NamedTuple):
    """A kind of lines: its event, and the names of what stands in the places of its text."""

    event: str
    fields: tuple[str, ...]


@lru_cache(KINDS_KEPT)
def kind_of(text: str) -> LineKind:
    """Return the kind of the lines that a format string makes."""
    names, taken, at = list[str](), dict[str, int](), 0
    for place in _PLACE.finditer(text):
        words = _WORD.findall(text[at : place.start()])
        name = place[1] or (words[-1].lower() if words else _UNNAMED)
        taken[name] = taken.get(name, 0) + 1
        names.append(name if taken[name] == 1 else f"{name}_{taken[name]}")
        at = place.end()
    event = "_".join(_WORD.findall(_PLACE.sub(" ", text))).lower()
    return LineKind(event[:EVENT_CHARACTERS_MAX].rstrip("_") or "line", tuple(names))


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """Return the fields of a line; names that were quoted for the text are not here."""
    given = record.args.values() if isinstance(record.args, Mapping) else record.args or ()
    names = kind_of(str(record.msg)).fields
    return {name: _plain(value) for name, value in zip(names, given, strict=False)}


def _plain(value: object) -> object:
    if isinstance(value, bool | int | float) or value is None:
        return value
    text = str(value)[:FIELD_CHARACTERS_MAX]
    quoted = len(text) > 1 and text[0] == text[-1] == "'"
    return text[1:-1] if quoted else text


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON.

    time, level, logger, event, message; fields; exception: a traceback, where there is one
    """

    def format(self, record: logging.LogRecord) -> str:
        """Format the record."""
        at = datetime.fromtimestamp(record.created, UTC)
        said: dict[str, object] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": kind_of(str(record.msg)).event,
            "message": record.getMessage(),
            "fields": fields_of(record),
        }
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(said).decode("utf-8", "backslashreplace")


class JournalEntryFormatter(logging.Formatter):
    """Formats a record as the fields of an entry of systemd's journal, FIELD_END behind each.

    source  systemd.journal-fields(7)
    """

    def format(self, record: logging.LogRecord) -> str:
        """Format the record."""
        message = record.getMessage()
        if record.exc_info:
            message = f"{message}\n{self.formatException(record.exc_info)}"
        said = {
            "MESSAGE": message[:ENTRY_CHARACTERS_MAX],
            "PRIORITY": syslog_priority(record.levelno),
            "SYSLOG_IDENTIFIER": "warren",
            "LOGGER": record.name,
            "WARREN_EVENT": kind_of(str(record.msg)).event,
            **{f"WARREN_{name.upper()}": value for name, value in fields_of(record).items()},
        }
        fields = (f"{name}={value}".replace(FIELD_END, "") for name, value in said.items())
        return FIELD_END.join(fields)


class JournalWriter(LineWriter):
    """Sends entries to systemd's journal, on a thread of its own.

    raises  OSError: there is none, or this process may not
    source  "Native Journal Protocol" of systemd
    """

    what = "the journal"

    def __init__(self, path: Path = JOURNAL_SOCKET) -> None:
        self._path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.connect(self._path)
        super().__init__()
        self.setFormatter(JournalEntryFormatter())

    def put(self, lines: list[str]) -> None:
        """Send each entry; raises OSError."""
        for line in lines:
            fields = line.rstrip("\n").split(FIELD_END)
            self._socket.sendto(b"".join(map(_encoded, fields)), self._path)


def _encoded(field: str) -> bytes:
    """Return a field's bytes; a value with line ends has its length before it."""
    name, _, value = field.partition("=")
    data = value.encode("utf-8", "backslashreplace")
    if b"\n" not in data:
        return b"%s=%s\n" % (name.encode(), data)
    return b"%s\n%s%s\n" % (name.encode(), len(data).to_bytes(8, "little"), data)


class FileWriter(LineWriter):
    """Appends lines to a file, and puts it aside when it is large, on a thread of its own."""

    what = "the file"

    def __init__(self, path: Path, bytes_max: int, files_max: int) -> None:
        self._file = RotatingFile(path, bytes_max, files_max, 0o640)
        super().__init__()

    def put(self, lines: list[str]) -> None:
        """Append lines; raises OSError."""
        self._file.append("".join(lines).encode("utf-8", "backslashreplace"))


def configure(settings: LogSettings) -> None:
    """Have the log of this process, which is set up, written as its settings say."""
    root = logging.getLogger()
    console = next(one for one in root.handlers if isinstance(one, StandardError))
    if settings.console.formatter == "json":
        console.setFormatter(JsonFormatter())
    elif isinstance(console.formatter, JournalFormatter):
        with suppress(OSError):  # else it stays at lines with their priority
            _add(JournalWriter(JOURNAL_SOCKET), console)
            root.removeHandler(console)
    wanted = settings.file
    if wanted.path is not None:
        file = FileWriter(wanted.path, wanted.rotation.size, wanted.rotation.count)
        file.setFormatter(JsonFormatter() if wanted.formatter == "json" else OneLineFormatter())
        _add(file, console)


def _add(handler: LineWriter, console: StandardError) -> None:
    for one in console.filters:
        handler.addFilter(one)
    logging.getLogger().addHandler(handler)
