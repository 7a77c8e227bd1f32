"""Text from outside, made harmless for a log: one line, nothing that a terminal obeys.

What a client or a stranger sends must be passed through `quoted` where it is logged. `escaped` is
the last line of defence, for whole lines, in the log's formatter.
"""

from __future__ import annotations

SHOWN_CHARACTERS_MAX = 200
"""Of one quoted value."""


def escaped(text: str) -> str:
    """The text with a backslash escape for each character that is not printable.

    That is line ends and control characters, escape codes, marks that turn the direction of the
    text, lone surrogates; letters of all scripts stay.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


def quoted(value: object, limit: int = SHOWN_CHARACTERS_MAX) -> str:
    """The value as text in single quotes, in which a quote or a backslash has one before it.

    limit  in characters of the value; what is longer is cut, which … after the quote shows
    """
    if isinstance(value, bytes | bytearray | memoryview):
        text = bytes(value[: limit + 1]).decode("utf-8", "surrogateescape")
    else:
        text = str(value)
    cut = text[:limit].replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped(cut)}'" + ("…" if len(text) > limit else "")
