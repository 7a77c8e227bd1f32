"""The file with the names of clusters, with the URIs that they stand for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from warren.errors import UsageError, WarrenError
from warren_wire.whole_file import write_whole

FILE_VARIABLE: Final = "WARREN_CONTEXTS"
OTHERS_BITS: Final = 0o077


class Contexts(msgspec.Struct, frozen=True):
    """What the file has.

    used  the name that counts where a command says none; "": none
    uris  by name, with passwords: only the user may read the file
    """

    used: str = ""
    uris: dict[str, str] = {}


def contexts_file() -> Path:
    """Return where the file is: `WARREN_CONTEXTS`, else `warren/contexts.json` of the user's."""
    if named := os.environ.get(FILE_VARIABLE):
        return Path(named)
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(home) / "warren" / "contexts.json"


def kept_contexts() -> Contexts:
    """Return what the file has, nothing where there is none; raises UsageError."""
    path = contexts_file()
    try:
        if path.stat().st_mode & OTHERS_BITS:
            raise UsageError(f"others may read {path}, which has passwords: chmod 600 {path}")
        return msgspec.json.decode(path.read_bytes(), type=Contexts)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is no file of contexts: {error}") from error


def keep_contexts(contexts: Contexts) -> None:
    """Write the file, for the user alone; raises UsageError."""
    path = contexts_file()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, msgspec.json.format(msgspec.json.encode(contexts)) + b"\n")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


def uri_of(name: str) -> str:
    """Return the URI that a name stands for; raises UsageError."""
    known = kept_contexts().uris
    if name not in known:
        raise UsageError(
            f"no context {name!r} (known: {', '.join(sorted(known)) or 'none'}): "
            "`warren context add` adds one; a URI begins with amqp:// or amqps://"
        )
    return known[name]


def complete_context(incomplete: str) -> list[str]:
    """Return the names that a shell may complete."""
    try:
        return [name for name in sorted(kept_contexts().uris) if name.startswith(incomplete)]
    except WarrenError:
        return []
