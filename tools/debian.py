"""Install the Debian packages that some tests need."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from tools import console
from tools.environment import STATE

PROGRAMS: dict[str, str] = {
    "amqp-publish": "amqp-tools",
    "chromium": "chromium",
    "valgrind": "valgrind",
}
"""Program → package. amqp-tools are command line clients written in C, by another project; Chromium
shows the management UI; valgrind counts instructions."""
FILES: dict[str, str] = {
    "/usr/include/amqp.h": "librabbitmq-dev",
    "/usr/include/openssl/ssl.h": "libssl-dev",
    "/usr/share/java/amqp-client.jar": "librabbitmq-client-java",
}
"""File → package: the load generator in bench/load is built with librabbitmq and, for TLS, with
OpenSSL; a Java client."""
UNPACKED = STATE / "debian"
ADMIN = "rabbitmqadmin"
ADMIN_PACKAGE = "rabbitmq-server"
"""RabbitMQ's command line for its HTTP API is unpacked, since the package would start a broker."""


def rabbitmqadmin() -> str | None:
    """Return RabbitMQ's `rabbitmqadmin`: the one named, the system's, the one unpacked; or None."""
    named = os.environ.get("RABBITMQADMIN") or shutil.which(ADMIN)
    unpacked = UNPACKED / "usr/bin" / ADMIN
    return named or (str(unpacked) if unpacked.exists() else None)


def missing() -> list[str]:
    """Return the packages that are not installed, sorted."""
    found = {package for program, package in PROGRAMS.items() if not shutil.which(program)}
    found |= {package for path, package in FILES.items() if not Path(path).exists()}
    return sorted(found)


def ensure(logs: Path) -> None:
    """Install missing packages where possible (root, apt-get); print what stays missing."""
    _ensure_installed(logs / "apt.log")
    if rabbitmqadmin() is None:
        _unpack(logs / "apt.log")


def _unpack(log: Path) -> None:
    """Unpack the package with `rabbitmqadmin` where it can be downloaded; needs no root."""
    if shutil.which("apt-get") and shutil.which("dpkg-deb"):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            download = ["apt-get", "download", ADMIN_PACKAGE]
            if not console.quiet(f"downloading {ADMIN}", download, log, cwd=place):
                console.quiet("refreshing the package lists", ["apt-get", "update"], log)
                console.quiet(f"downloading {ADMIN}", download, log, cwd=place)
            for package in place.glob("*.deb"):
                unpack = ["dpkg-deb", "--extract", str(package), str(UNPACKED)]
                console.quiet(f"unpacking {ADMIN}", unpack, log)
    if rabbitmqadmin() is None:
        console.say(
            f" ! {ADMIN} is missing: its tests are skipped (fail with WARREN_STRICT=1);"
            f" apt-get install {ADMIN_PACKAGE}, or RABBITMQADMIN=PATH"
        )


def _ensure_installed(log: Path) -> None:
    wanted = missing()
    if not wanted:
        return
    if hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get"):
        env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        install = ["apt-get", "install", "-y", "--no-install-recommends", *wanted]
        title = f"installing {' '.join(wanted)}"
        if console.quiet(title, install, log, env=env):
            return
        console.quiet("refreshing the package lists", ["apt-get", "update"], log, env=env)
        console.quiet(title, install, log, env=env)
    for package in missing():
        console.say(
            f" ! {package} is missing: its tests are skipped (fail with WARREN_STRICT=1);"
            f" apt-get install {package}"
        )
