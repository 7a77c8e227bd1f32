"""The command `warren`."""

from __future__ import annotations

import sys

from warren.cli import streams
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

    Exit code 75: the operation continues, but was not complete in time. Standard output that takes
    nothing, as of a full disk, is such a failure, too.
    """
    streams.set_up()
    try:
        _run()
    except (WarrenError, streams.OutputFailed) as error:
        try:
            fail(str(error))
        except OSError:
            streams.drop_errors()  # there is the exit code
        sys.exit(EXIT_STILL_UNDER_WAY if isinstance(error, StillUnderWay) else EXIT_REFUSED)


def _run() -> None:
    sys.argv[1:] = streams.arguments(sys.argv[1:])
    try:
        app()
    except SystemExit:
        streams.flush_output()
        raise
    except OSError as error:
        streams.check_output(error)
        raise
