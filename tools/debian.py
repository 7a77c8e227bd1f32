"""Install the Debian packages that some tests need."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tools import console

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


def missing() -> list[str]:
    """Return the packages that are not installed, sorted."""
    found = {package for program, package in PROGRAMS.items() if not shutil.which(program)}
    found |= {package for path, package in FILES.items() if not Path(path).exists()}
    return sorted(found)


def ensure(logs: Path) -> None:
    """Install missing packages where possible (root, apt-get); print what stays missing."""
    wanted = missing()
    if not wanted:
        return
    if hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get"):
        env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        log = logs / "apt.log"
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
