"""The connector's tests with another PySpark: `python3 build.py sparks suite 4.0.5 [pytest's own]`.

What a line of Spark does not have, its tests are left out for (`connector/conftest.py`).
"""

from __future__ import annotations

import os
import sys

from sparks import venvs

FOLDER = "tests/connector"


def main() -> None:
    """Run pytest with the rest of the command line, or all of the connector's tests."""
    version, *rest = sys.argv[2:]
    python = str(venvs.beside(version))
    named = any(each.startswith("tests/") for each in rest)
    os.execv(python, [python, "-m", "pytest", "-q", *rest, *([] if named else [FOLDER])])


if __name__ == "__main__":
    main()
