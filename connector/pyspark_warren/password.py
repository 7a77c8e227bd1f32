"""Where the password comes from: an option, a file, an environment variable.

With a file or a variable the password itself is in no option: Spark does not write it into plans or
send it with tasks. The driver and each task read it where they run, when they connect.
"""

from __future__ import annotations

import os
from typing import Final

from pyspark_warren.errors import OptionError
from pyspark_warren.options import Options
from warren.uri import Address

PASSWORD_FILE_BYTES_MAX: Final = 64 << 10
"""Larger files are another file's path, given by mistake."""


def address_with_password(options: Options) -> Address:
    """Return the address to connect to, with the password of the file or variable if one is given.

    raises  OptionError, which never shows what was read
    """
    address = options.address()
    if options.password_file is not None:
        return address.with_credentials(None, _of_file(options.password_file))
    if options.password_env is not None:
        return address.with_credentials(None, _of_variable(options.password_env))
    return address


def _of_file(path: str) -> str:
    def wrong(text: str) -> OptionError:
        return OptionError(
            f"option passwordFile={path!r}: {text} (on {os.uname().nodename}; the driver and every "
            "executor read the file under the same path)"
        )

    try:
        with open(path, "rb") as stream:
            data = stream.read(PASSWORD_FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as cause:
        reason = cause.strerror if isinstance(cause, OSError) else "not a path"
        raise wrong(f"cannot be read: {reason}") from None
    if len(data) > PASSWORD_FILE_BYTES_MAX:
        raise wrong(f"has more than {PASSWORD_FILE_BYTES_MAX} bytes; give a file with one line")
    try:
        text = data.decode("utf-8-sig").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise wrong("is not UTF-8") from None
    if not text:
        raise wrong("is empty; give the password as its one line")
    if "\n" in text:
        raise wrong("has several lines; give the password as its one line")
    return text


def _of_variable(name: str) -> str:
    found = os.environ.get(name)
    if not found:
        state = "not set" if found is None else "empty"
        raise OptionError(
            f"option passwordEnv={name!r}: this variable is {state} in the Python process on "
            f"{os.uname().nodename}; set it before the driver's session starts, "
            f"and for executors as spark.executorEnv.{name}"
        )
    return found
