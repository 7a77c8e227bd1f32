"""The command `warren`."""

from __future__ import annotations

import sys

from warren.errors import StillUnderWay, WarrenError

try:
    from warren.cli.app import app
    from warren.cli.output import EXIT_REFUSED, fail
except ModuleNotFoundError as missing:
    if missing.name not in ("rich", "typer"):
        raise
    sys.exit(
        f"the command warren needs the package {missing.name}, which Spark's executors do not: "
        "pip install 'warrenmq[cli]'"
    )

EXIT_STILL_UNDER_WAY = 75
"""The exit code of RabbitMQ's tools after a timeout (sysexits: try later)."""


def main() -> None:
    """Run the command; a WarrenError is one line on standard error with exit code 1.

    Exit code 75: the operation continues, but was not complete in time.
    """
    try:
        app()
    except WarrenError as error:
        fail(str(error))
        sys.exit(EXIT_STILL_UNDER_WAY if isinstance(error, StillUnderWay) else EXIT_REFUSED)
