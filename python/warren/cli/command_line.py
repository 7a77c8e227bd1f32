"""The order of a command line: options of a command may stand before it, too."""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from typer.core import TyperGroup

READS: Final = frozenset(
    {
        *("list", "show", "status", "members", "delayed", "export", "list-topic"),
        *("browse", "letters", "audit", "settings", "conditions", "health", "doctor", "top"),
        *("levels", "tail"),
        *("check-if-node-is-quorum-critical", "check-if-quorum-critical", "authenticate"),
    }
)
"""Names of commands that change nothing in a cluster."""
URI: Final = "--uri"
CONTEXT: Final = "--context"
"""Another spelling of URI, for a name of `warren context`."""
JSON: Final = "--json"
JSONL: Final = "--jsonl"
CSV: Final = "--csv"
FORMATS: Final = (JSON, JSONL, CSV)
"""What a command prints instead of a table: spellings of one option, told apart here."""
WAIT: Final = "--wait"
_WAITS_NOT: ContextVar[bool] = ContextVar("_WAITS_NOT", default=False)
_FORMAT: ContextVar[str] = ContextVar("_FORMAT", default=JSON)


class Ordered(NamedTuple):
    """Arguments as they are parsed, and the command's words among them."""

    arguments: list[str]
    command: tuple[str, ...]


class CommandLine(TyperGroup):
    """The command itself: it takes the options of its commands, and gives them these."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments after putting them into the order that their commands expect."""
        found = ordered(self, args)
        reads = bool(found.command) and found.command[-1] in READS
        _WAITS_NOT.set(reads and WAIT not in found.arguments[:1])
        _FORMAT.set(([JSON] + [one for one in found.arguments if one in FORMATS])[-1])
        return super().parse_args(ctx, found.arguments)


def ordered(root: Any, given: Iterable[str]) -> Ordered:
    """Return arguments with `--uri` and the format behind the command's words.

    `--wait` of a command of READS is put before the words: it is the root's there, and an option
    of some of the others.
    root  a group of commands; the library's class of them depends on its version
    """
    words, moved, first = list(given), list[str](), list[str]()
    at, path = root, list[str]()
    while words and hasattr(at, "commands"):
        word = words[0]
        if word in (URI, CONTEXT) and len(words) > 1:
            moved += words[:2]
            del words[:2]
        elif word in FORMATS or word.startswith((f"{URI}=", f"{CONTEXT}=")):
            moved.append(words.pop(0))
        elif word == WAIT:
            first = [words.pop(0)]
        elif word in at.commands:
            path.append(words.pop(0))
            at = at.commands[path[-1]]
        else:
            break  # help, an unknown option, or no command: the parser says so
    reads = bool(path) and path[-1] in READS
    if reads and WAIT in words:
        words.remove(WAIT)
        first = [WAIT]
    elif path and not reads:
        moved += first
        first = []
    return Ordered([*first, *path, *moved, *words], tuple(path))


def waits_not() -> bool:
    """Return whether the command that runs is not to wait for a node: it only reads."""
    return _WAITS_NOT.get()


def wanted_format() -> str:
    """Return which of FORMATS the command that runs prints, if it is not to print a table."""
    return _FORMAT.get()
