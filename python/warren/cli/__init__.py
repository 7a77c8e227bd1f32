"""The command `warren`."""

from __future__ import annotations

import sys

from warren.cli.app import app
from warren.cli.output import fail
from warren.errors import WarrenError


def main() -> None:
    """Run it; an error of ours is one line on standard error with exit code 1."""
    try:
        app()
    except WarrenError as error:
        fail(str(error))
        sys.exit(1)
