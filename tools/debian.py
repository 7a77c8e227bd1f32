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
PROGRAMS_UNPACKED: dict[str, str] = {
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "rabbitmqadmin": "rabbitmq-server",
}
"""Program → package that is unpacked where the program is missing: installed, it would start a
service. RabbitMQ's command line for its HTTP API; what dashboards and alerts are shown with."""


def unpacked(program: str) -> str | None:
    """Return the one that NAME (in capitals) names, the system's, the one unpacked; or None."""
    named = os.environ.get(program.upper()) or shutil.which(program)
    place = UNPACKED / "usr/bin" / program
    return named or (str(place) if place.exists() else None)


def missing() -> list[str]:
    """Return the packages that are not installed, sorted."""
    found = {package for program, package in PROGRAMS.items() if not shutil.which(program)}
    found |= {package for path, package in FILES.items() if not Path(path).exists()}
    return sorted(found)


def ensure(logs: Path) -> None:
    """Install missing packages where possible (root, apt-get); print what stays missing."""
    _ensure_installed(logs / "apt.log")
    for package in sorted({PROGRAMS_UNPACKED[one] for one in _not_unpacked()}):
        _unpack(package, logs / "apt.log")
    for program in _not_unpacked():
        console.say(
            f" ! {program} is missing: its tests are skipped (fail with WARREN_STRICT=1);"
            f" apt-get install {PROGRAMS_UNPACKED[program]}, or {program.upper()}=PATH"
        )


def _not_unpacked() -> list[str]:
    return [program for program in PROGRAMS_UNPACKED if unpacked(program) is None]


def _unpack(package: str, log: Path) -> None:
    """Unpack the package where it can be downloaded; needs no root."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return
    with tempfile.TemporaryDirectory() as folder:
        place, title = Path(folder), f"downloading {package}"
        download = ["apt-get", "download", package]
        if not console.quiet(title, download, log, cwd=place):
            console.quiet("refreshing the package lists", ["apt-get", "update"], log)
            console.quiet(title, download, log, cwd=place)
        for file in place.glob("*.deb"):
            unpack = ["dpkg-deb", "--extract", str(file), str(UNPACKED)]
            console.quiet(f"unpacking {package}", unpack, log)


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
