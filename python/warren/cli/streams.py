"""Arguments and standard streams of a terminal that need not be one of UTF-8."""

from __future__ import annotations

import codecs
import os
import sys
from typing import Final, TextIO

from warren.errors import UsageError

_ESCAPE: Final = "warren.escape"
_PLAIN: Final = {"–": "-", "…": "...", "·": "-"}
"""What tables have beside names, for terminals without it."""


class OutputFailed(Exception):
    """Standard output does not take what is written; the text says why."""


def _escape(error: UnicodeError) -> tuple[str | bytes, int]:
    assert isinstance(error, UnicodeEncodeError), error
    plain = _PLAIN.get(error.object[error.start])
    if plain is not None:
        return plain, error.start + 1
    one = UnicodeEncodeError(
        error.encoding, error.object, error.start, error.start + 1, error.reason
    )
    return codecs.backslashreplace_errors(one)


def set_up() -> None:
    """Have characters that the streams' encoding lacks written as escapes, such as `\\u017f`."""
    codecs.register_error(_ESCAPE, _escape)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # None where the stream is closed
            stream.reconfigure(errors=_ESCAPE)


def arguments(given: list[str]) -> list[str]:
    """Return a command line's arguments as UTF-8 where they are; raises UsageError.

    Python decodes them with the locale's encoding, which for the locale C is ASCII; the names in
    scripts are of UTF-8 all the same.
    """
    return [_decoded(text) for text in given]


def _decoded(text: str) -> str:
    if text.isascii():
        return text
    raw = os.fsencode(text)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        pass
    try:
        text.encode()
    except UnicodeEncodeError:
        shown = raw.decode("utf-8", "backslashreplace")
        raise UsageError(
            f"the argument {shown!r} is neither of UTF-8 nor of the locale's encoding "
            f"({sys.getfilesystemencoding()}): give it in UTF-8"
        ) from None
    return text


def speaks_unicode() -> bool:
    """Return whether standard output takes every character."""
    return (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"


def check_output(cause: OSError) -> None:
    """Raise OutputFailed if standard output is what has failed.

    What could not be written stays in the stream's buffer, so that it fails again. It is dropped
    then: Python would try once more at its end, with a traceback.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        _drop(sys.stdout)
        raise OutputFailed(f"cannot write the output: {error.strerror}") from cause


def flush_output() -> None:
    """Write what is buffered; raises OutputFailed."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError as error:
        check_output(error)


def drop_errors() -> None:
    """Write nothing more to standard error, which has failed."""
    _drop(sys.stderr)


def _drop(stream: TextIO) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
