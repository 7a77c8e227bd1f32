"""What a node warns of when it starts: secrets that every user can read, unknown variables."""

from __future__ import annotations

import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from warren_broker import config

_SECRETS: Final = ("secret", "default_pass", "anonymous_login_pass", "password")
_URIS: Final = ("src-uri", "dest-uri")
"""Keys of static shovels, with passwords perhaps."""


def warnings(path: Path | None, environment: Mapping[str, str]) -> list[str]:
    """Return what a node says of its configuration when it starts, though it starts."""
    secrets = [
        f"{path} can be read by every user of this machine, and has {key}: chmod 600 it, or 640 "
        "with the group of the node's user"
        for key in open_secrets(path)
    ]
    return secrets + config.unknown_variables(environment)


def open_secrets(path: Path | None) -> list[str]:
    """Return the keys of a file with secrets that every user may read; none of a closed file.

    A group may read it: that is how the service's user gets to a file of root.
    """
    if path is None or not path.stat().st_mode & stat.S_IROTH:
        return []
    return sorted(_named("", tomllib.loads(path.read_text(encoding="utf-8"))))


def _named(table: str, values: dict[str, object]) -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _named(f"{table}{key}.", value)
        elif key in _SECRETS or (key in _URIS and "@" in str(value)):
            yield f"{table}{key}"
