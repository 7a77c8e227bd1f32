"""Databases for jobs to write into, each new and empty."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_S_MAX = 120
USER = "postgres"
"""PostgreSQL refuses to run as root: this is Debian's user for it."""


@contextmanager
def postgresql() -> Iterator[str]:
    """Yield the address of a new server, which listens on a socket in its own directory."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        raise SystemExit("databases: no initdb in /usr/lib/postgresql/*/bin; install postgresql")
    programs = found[-1].parent
    directory = Path(tempfile.mkdtemp(prefix="warren-pg-"))
    become: list[str] = []
    if os.geteuid() == 0:
        shutil.chown(directory, USER)
        become = ["runuser", "-u", USER, "--"]

    def run(program: str, *arguments: str) -> None:
        command = [*become, str(programs / program), "-D", str(directory / "data"), *arguments]
        subprocess.run(
            command, check=True, cwd=directory, timeout=START_S_MAX, stdout=subprocess.DEVNULL
        )

    run("initdb", "--auth=trust", "--username=orders", "--encoding=UTF8", "--locale=C")
    settings = f"-c listen_addresses= -c unix_socket_directories={directory}"
    log = str(directory / "log")
    run("pg_ctl", "start", "--wait", "--timeout", str(START_S_MAX), "--log", log, "-o", settings)
    try:
        yield f"postgresql://orders@/postgres?host={directory}"
    finally:
        run("pg_ctl", "stop", "--wait", "--mode", "immediate")
        shutil.rmtree(directory)


@contextmanager
def sqlite() -> Iterator[str]:
    """Yield a file that does not exist yet."""
    with tempfile.TemporaryDirectory() as directory:
        yield str(Path(directory) / "orders.sqlite")
