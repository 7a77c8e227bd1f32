"""Escaping of untrusted text for logs: one line, without terminal control sequences.

Every value that a client or an unauthenticated peer sends must be passed through `quoted` where it
is logged. `escaped` is the last line of defence, for whole lines, in the log's formatter.
"""

from __future__ import annotations

SHOWN_CHARACTERS_MAX = 200
"""Length limit of one quoted value."""


def escaped(text: str) -> str:
    """Return the text with a backslash escape for each character that is not printable.

    These are line ends, control characters, escape codes, marks of text direction and lone
    surrogates; letters of all scripts stay.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


def quoted(value: object, limit: int = SHOWN_CHARACTERS_MAX) -> str:
    """Return the value in single quotes, with quotes and backslashes inside it escaped.

    limit  in characters of the value; a longer one is cut, shown by … after the quote
    """
    if isinstance(value, bytes | bytearray | memoryview):
        text = bytes(value[: limit + 1]).decode("utf-8", "surrogateescape")
    else:
        text = str(value)
    cut = text[:limit].replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped(cut)}'" + ("…" if len(text) > limit else "")
