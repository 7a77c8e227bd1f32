"""Secrets that no option holds: in a file or an environment variable of each process.

Spark does not write them into plans or send them with tasks. The driver and each task read them
where they run, when they need them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final

from pyspark_warren.errors import OptionError
from pyspark_warren.option_spec import secret_names

SECRET_FILE_BYTES_MAX: Final = 64 << 10
"""Larger files are another file's path, given by mistake."""


@dataclass(frozen=True, slots=True)
class Secret:
    """One secret and the options that may say it; at most one of the three is given.

    option  its name as an option; see `secret_names`
    noun    what it is, for texts
    """

    option: str
    noun: str
    value: str | None = field(repr=False)
    file: str | None
    variable: str | None

    def read(self) -> str | None:
        """Return the secret; None: no option says it.

        raises  OptionError, which never shows what was read
        """
        if self.file is not None:
            return secret_of_file(self.file, secret_names(self.option)[1], self.noun)
        if self.variable is not None:
            return _of_variable(self.variable, secret_names(self.option)[2])
        return self.value


def secret_of_file(path: str, option: str, noun: str) -> str:
    """Return the one line of a file; raises OptionError, which never shows what was read."""

    def wrong(text: str) -> OptionError:
        return OptionError(
            f"option {option}={path!r}: {text} (on {os.uname().nodename}; the driver and every "
            "executor read the file under the same path)"
        )

    try:
        with open(path, "rb") as stream:
            data = stream.read(SECRET_FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as cause:
        reason = cause.strerror if isinstance(cause, OSError) else "not a path"
        raise wrong(f"cannot be read: {reason}") from None
    if len(data) > SECRET_FILE_BYTES_MAX:
        raise wrong(f"has more than {SECRET_FILE_BYTES_MAX} bytes; give a file with one line")
    try:
        text = data.decode("utf-8-sig").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise wrong("is not UTF-8") from None
    if not text:
        raise wrong(f"is empty; give the {noun} as its one line")
    if "\0" in text:
        raise wrong("has a zero byte, which no login can have")
    if "\n" in text:
        raise wrong(f"has several lines; give the {noun} as its one line")
    return text


def _of_variable(name: str, option: str) -> str:
    found = os.environ.get(name)
    if not found:
        state = "not set" if found is None else "empty"
        raise OptionError(
            f"option {option}={name!r}: this variable is {state} in the Python process on "
            f"{os.uname().nodename}; set it before the driver's session starts, "
            f"and for executors as spark.executorEnv.{name}"
        )
    return found
