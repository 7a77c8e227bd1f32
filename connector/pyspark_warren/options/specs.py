"""What one option is: a field of a dataclass with its specification, and the kinds of values.

A parser makes a value of a text, or raises ValueError that says what to give.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from pyspark_warren.rows.columns import COLUMNS, CORRUPT_DEFAULT, STATE_COLUMNS
from warren.uri import PORT, SASL_PLAIN
from warren_wire.amqp091.fields import SHORT_STRING_BYTES_MAX
from warren_wire.arguments import NAME_BYTES_MAX
from warren_wire.certificate_login import EXTERNAL
from warren_wire.links.uris import AMQP10
from warren_wire.message_states import STATES
from warren_wire.name_patterns import Pattern

SASL_ANONYMOUS: Final = "ANONYMOUS"
"""The SASL mechanism of clients without a name, of AMQP 1.0 brokers."""
INT_MAX: Final = 2**31 - 1
_SIZE_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
TIME_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DAY_MS: Final = TIME_UNITS_MS["d"]
ALL_STATES: Final = "all"
_TRUE: Final = ("true", "1", "yes", "on")
_FALSE: Final = ("false", "0", "no", "off")
FIRST: Final = "first"
LAST: Final = "last"
NEXT: Final = "next"
"""Words for places in a stream, which AMQP 0.9.1 brokers know."""
END: Final = "end"
OFFSET_MAX: Final = 2**62


@dataclass(frozen=True, slots=True)
class Kind:
    """How the value of an option is written.

    parse  returns the value of a text; ValueError says what to give instead
    low, high  bounds of the value; None: none
    shown  returns the text of a value, in its unit
    off    what 0 stands for, where `low` holds for other values; "": there is no such value
    """

    parse: Callable[[str], Any]
    low: int | None = None
    high: int | None = None
    shown: Callable[[Any], str] = str
    off: str = ""

    def wrong(self, value: Any) -> str:
        """Return why a value is out of bounds; "": it is not."""
        if self.off and value == 0:
            return ""
        if self.low is not None and value < self.low:
            rest = f", or 0 for {self.off}" if self.off else ""
            return f"is below {self.shown(self.low)}; give that or more{rest}"
        if self.high is not None and value > self.high:
            return f"is above {self.shown(self.high)}; give that or less"
        return ""


def plain(parse: Callable[[str], Any]) -> Kind:
    """Return the kind of values without bounds."""
    return Kind(parse, shown=_plain_text)


def count(low: int, high: int | None = None) -> Kind:
    """Return the kind of whole numbers within these bounds."""
    return Kind(parse_count, low, high)


def size(low: int, high: int) -> Kind:
    """Return the kind of sizes in bytes."""
    return Kind(parse_size, low, high, _size_text)


def duration(low: int, high: int, off: str = "") -> Kind:
    """Return the kind of durations in milliseconds; `off` as of `Kind`."""
    return Kind(parse_duration_ms, low, high, _duration_text, off)


def _plain_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _size_text(value: int) -> str:
    if not value:
        return "0"
    return f"{value} bytes" if value % (1 << 20) else f"{value >> 20}m"


def _duration_text(value: int) -> str:
    for unit in ("d", "h", "m", "s"):
        if value and value % TIME_UNITS_MS[unit] == 0:
            return f"{value // TIME_UNITS_MS[unit]}{unit}"
    return f"{value}ms" if value else "0"


def parse_size(text: str) -> int:
    """Parse bytes from `1000`, `64k`, `256m`, `1g`, also with a trailing `b` or `ib`."""
    found = re.fullmatch(r"\s*(\d+)\s*([kmgt]?)(?:i?b)?\s*", text.lower())
    if found is None:
        raise ValueError("give a number of bytes, or one with k, m or g, such as 256m")
    return int(found.group(1)) * _SIZE_UNITS[found.group(2)]


def parse_duration_ms(text: str) -> int:
    """Parse milliseconds from `500ms`, `30s`, `5m`, `2h`, `1d`; 0 needs no unit."""
    found = re.fullmatch(r"\s*(\d+)\s*(ms|s|m|h|d|)\s*", text.lower())
    if found is None or (found.group(2) == "" and int(found.group(1)) != 0):
        raise ValueError("give a number with its unit, such as 500ms, 30s, 5m or 2h")
    return int(found.group(1)) * TIME_UNITS_MS.get(found.group(2), 0)


def parse_bool(text: str) -> bool:
    """Parse true or false."""
    word = text.strip().lower()
    if word not in _TRUE + _FALSE:
        raise ValueError("give true or false")
    return word in _TRUE


def parse_count(text: str) -> int:
    """Parse an integer."""
    if not re.fullmatch(r"\s*\d+\s*", text):
        raise ValueError("give a whole number")
    return int(text)


def parse_states(text: str) -> tuple[str, ...]:
    """Parse states of messages from `ready,held`, or `all`, in the order of `STATES`."""
    given = {part.strip().lower() for part in text.split(",")}
    if given == {ALL_STATES}:
        return STATES
    unknown = sorted(given.difference(STATES))
    if unknown:
        raise ValueError(
            f"{unknown[0]!r} is no state of a message; give some of {', '.join(STATES)} with "
            f"commas between, or {ALL_STATES}"
        )
    return tuple(state for state in STATES if state in given)


def parse_names(text: str) -> tuple[str, ...]:
    """Parse names from `a,b,c`, or from a JSON list where names have commas or spaces at ends."""
    if text.lstrip().startswith("["):
        try:
            found = msgspec.json.decode(text, type=list[str])
        except msgspec.MsgspecError as wrong:
            raise ValueError(f'{wrong}; give a JSON list such as ["a","b"]') from None
    else:
        found = [piece.strip() for piece in text.split(",")]
    if not all(found):
        raise ValueError("a name is empty; give names with commas between")
    twice = next((name for name in found if found.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice!r} is there twice; give each name once")
    return tuple(found)


def parse_pattern(text: str) -> str:
    """Parse a regular expression over names; BadPattern is a ValueError."""
    Pattern(text)
    return text


def parse_hosts(text: str, default: int = PORT) -> tuple[tuple[str, int], ...]:
    """Parse addresses from `a,b:5673,[::1]:5672`; the default port is 5672."""
    found: list[tuple[str, int]] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        at = re.fullmatch(r"(\[[^\]]+\]|[^:\s/@]+)(?::(\d{1,5}))?", part)
        port = int(at.group(2) or default) if at else 0
        if "@" in part:
            raise ValueError("a host with credentials: give them as user and password, or use uri")
        if at is None or not 0 < port < 65536:
            raise ValueError(f"{part!r} is not host or host:port; give such as a:5672,b:5672")
        found.append((at.group(1).strip("[]"), port))
    if not found:
        raise ValueError("give at least one host or host:port")
    return tuple(found)


def word_of(*allowed: str) -> Callable[[str], str]:
    """Return a parser of one of these words."""

    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in allowed:
            raise ValueError("give " + " or ".join(allowed))
        return word

    return parse


def parse_mechanism(text: str) -> str:
    """Parse the name of a SASL mechanism."""
    return word_of(SASL_PLAIN.lower(), EXTERNAL.lower(), SASL_ANONYMOUS.lower())(text).upper()


def parse_column(text: str) -> str:
    """Parse the name of a column that messages do not have."""
    if not text or text.lower() in (*COLUMNS, *STATE_COLUMNS):
        raise ValueError(
            f"{'the name of another column' if text else 'empty'}; give a name of its own, such "
            f"as {CORRUPT_DEFAULT}"
        )
    return text


def parse_short(text: str) -> str:
    """Parse a name or key that AMQP 0.9.1 carries."""
    size_bytes = len(text.encode())
    if size_bytes > SHORT_STRING_BYTES_MAX:
        raise ValueError(
            f"{size_bytes} bytes; AMQP 0.9.1 carries {SHORT_STRING_BYTES_MAX}: give a shorter name"
        )
    return text


def parse_variable(text: str) -> str:
    """Parse the name of an environment variable."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        raise ValueError("give a variable's name, of letters, digits and _")
    return text


def parse_name(text: str) -> str:
    """Parse a name that the broker keeps."""
    size = len(text.encode())
    if size > NAME_BYTES_MAX:
        raise ValueError(f"{size} bytes; a name has at most {NAME_BYTES_MAX}")
    return text


def parse_reader(text: str) -> str:
    """Parse a reader's name; ValueError."""
    if "+" in text:
        raise ValueError("a + stands between the name and what is added after a lost claim")
    return parse_name(text)


def parse_stream_start(text: str) -> str:
    """Parse a place in a stream: first, last, next, an offset, or a time in UTC as ISO 8601."""
    word = text.strip()
    if word.lower() in (FIRST, LAST, NEXT):
        return word.lower()
    if re.fullmatch(r"\d+", word):
        return _offset(word)
    try:
        found = datetime.fromisoformat(word)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ValueError(
            "give first, last, next, an offset such as 1200, or a time with its zone such as "
            "2026-01-31T12:00:00Z"
        )
    try:
        return found.astimezone(UTC).isoformat()
    except OverflowError:
        raise ValueError("give a time of the years 1 to 9999 in UTC") from None


def parse_stream_end(text: str) -> str:
    """Parse the end of a part of a stream: end, or an offset."""
    word = text.strip().lower()
    if word == END:
        return word
    if not re.fullmatch(r"\d+", word):
        raise ValueError("give end, or the offset after the last one that is wanted")
    return _offset(word)


def _offset(digits: str) -> str:
    if int(digits) > OFFSET_MAX:
        raise ValueError(f"an offset above {OFFSET_MAX}")
    return str(int(digits))


def hosts_text(hosts: tuple[tuple[str, int], ...]) -> str:
    """Return the text of addresses."""
    return ",".join(f"{host}:{port}" for host, port in hosts)


AUTO: Final = "auto"
WARREN: Final = "warren"
AMQP: Final = "amqp"
"""The values of option broker; AMQP10 is another one."""
OTHERS: Final = (AMQP, AMQP10)
ANY_BROKER: Final = (WARREN, *OTHERS)
READ: Final = "read"
WRITE: Final = "write"
BOTH: Final = "both"
AS_BATCH: Final = "batch"
AS_STREAM: Final = "stream"
_SPEC: Final = "option"


class Rule(NamedTuple):
    """What must be true, or false, of the options where one option is given.

    test  of all options
    text  the rest of the error's text after the option's name, perhaps `=value` first; `{o.field}`
          is a value
    """

    test: Callable[[Any], object]
    text: str


@dataclass(frozen=True, slots=True)
class Spec:
    """One option.

    where     READ, WRITE or BOTH
    how       AS_BATCH or AS_STREAM: it is refused in the other one; BOTH
    brokers   it is refused with a broker of another kind
    secret    no error shows its value
    requires  what must be true where it is given; of an option of OTHERS, when the broker is known
    excludes  what must not be
    """

    name: str
    kind: Kind
    default: Any
    meaning: str
    where: str = BOTH
    how: str = BOTH
    brokers: tuple[str, ...] = ANY_BROKER
    secret: bool = False
    requires: Sequence[Rule] = ()
    excludes: Sequence[Rule] = ()
    field: str = ""

    def broken(self, options: Any) -> str:
        """Return the text of a rule that is broken where the option is given; "": none is."""
        for rules, wanted in ((self.requires, True), (self.excludes, False)):
            for rule in rules:
                if bool(rule.test(options)) is not wanted:
                    text = rule.text.format(o=options)
                    return f"option {self.name}{'' if text[0] == '=' else ' '}{text}"
        return ""

    @property
    def default_text(self) -> str:
        """The default, for the manual."""
        return "" if self.default in (None, ()) else self.kind.shown(self.default)


MakeOption: TypeAlias = Callable[..., Any]


def options_of(where: str = BOTH, how: str = BOTH, *brokers: str) -> MakeOption:
    """Return a maker of fields for options of that use."""

    def option(
        name: str,
        kind: Kind | Callable[[str], Any],
        default: Any,
        meaning: str,
        secret: bool = False,
        requires: Sequence[Rule] = (),
        excludes: Sequence[Rule] = (),
    ) -> Any:
        made = kind if isinstance(kind, Kind) else plain(kind)
        uses = where, how, brokers or ANY_BROKER
        spec = Spec(name, made, default, meaning, *uses, secret, requires, excludes)
        return field(default=default, repr=not secret, metadata={_SPEC: spec})

    return option


def specs_of(group: type) -> tuple[Spec, ...]:
    """Return the specifications of a group's own options, in their order."""
    own = group.__annotations__
    return tuple(
        replace(each.metadata[_SPEC], field=each.name)
        for each in fields(group)
        if each.name in own and _SPEC in each.metadata
    )


def secret_names(option: str) -> tuple[str, str, str]:
    """Return the names of the options that say a secret, of which at most one is given."""
    return option, f"{option}File", f"{option}Env"
