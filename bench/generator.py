"""The load generator of `bench/load`: built when needed, run."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "bench" / "load"
PLACE = ROOT / ".warren" / "bench"


class Missing(Exception):
    """A missing prerequisite of a measurement; the text says how to install it."""


class Failed(RuntimeError):
    """The generator ended without a report: its arguments, exit code, and last words."""


def find() -> Path:
    """Return the generator's program, compiled when it is older than its sources; Missing."""
    program = PLACE / "warren_load"
    sources = sorted(SOURCES.glob("*.[ch]"))
    newest = max(path.stat().st_mtime for path in sources)
    if not program.exists() or program.stat().st_mtime < newest:
        build([path for path in sources if path.suffix == ".c"], program)
    return program


def build(sources: list[Path], program: Path) -> None:
    """Compile the sources into one program; Missing when that does not work."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise Missing("no C compiler: apt-get install gcc libc6-dev")
    program.parent.mkdir(parents=True, exist_ok=True)
    made = program.with_suffix(".new")
    options = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]
    last = ["-o", str(made), *map(str, sources), "-lrabbitmq"]
    with_tls = ["-DWITH_TLS", *last, "-lssl", "-lcrypto"]
    for more in (with_tls, last):  # without OpenSSL's headers there is no --tls
        built = subprocess.run(
            [compiler, *options, *more], capture_output=True, text=True, check=False
        )
        if built.returncode == 0:
            break
    if built.returncode != 0:
        first = next((line for line in built.stderr.splitlines() if "error" in line), "no message")
        raise Missing(
            f"bench/load does not compile ({first.strip()}): apt-get install librabbitmq-dev"
        )
    made.replace(program)


def run(
    program: Path, mode: str, *, timeout_s: float = 600, **options: str | float | bool
) -> dict[str, Any]:
    """Run the generator once and return its report; raise Failed when it ends without one.

    options  the program's, with `_` for `-`: `ack_every=100` is `--ack-every 100`; True is an
             option without a value, False leaves it out
    """
    arguments: list[str] = []
    for name, value in options.items():
        if value is not False:
            arguments.append(f"--{name.replace('_', '-')}")
            arguments += [] if value is True else [str(value)]
    done = subprocess.run(
        [str(program), mode, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        raise Failed(
            f"{program.name} {mode} {' '.join(arguments)} ended with {done.returncode}: "
            f"{(done.stderr or done.stdout).strip()[-500:]}"
        )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def faults(report: dict[str, Any]) -> str:
    """Describe what the generator's checks found; empty when they found nothing."""
    names = ("lost", "duplicates", "order_violations", "bad_bodies", "nacked", "errors")
    return ", ".join(f"{report[name]} {name}" for name in names if report.get(name))
