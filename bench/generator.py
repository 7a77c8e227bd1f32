"""The load generator: found, built, run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "bench"
PLACE = ROOT / ".warren" / "bench"


class Missing(Exception):
    """Something that a measurement needs is not here; the text says how to get it."""


def find() -> Path:
    """The generator's program, built when needed; raises Missing."""
    named = os.environ.get("WARREN_LOADGEN")
    source = Path(named) if named else SHARED / "amqp091_load.c"
    if not source.is_file():
        raise Missing(
            f"the load generator is not at {source}: set WARREN_LOADGEN to amqp091_load.c, or to "
            "the program built from it"
        )
    return build(source) if source.suffix == ".c" else source


def build(source: Path) -> Path:
    """Compile the generator unless that was done since it changed."""
    program = PLACE / "amqp091_load"
    if program.exists() and program.stat().st_mtime >= source.stat().st_mtime:
        return program
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise Missing("no C compiler: apt-get install gcc libc6-dev")
    PLACE.mkdir(parents=True, exist_ok=True)
    built = subprocess.run(
        [compiler, "-O2", "-pthread", "-o", str(program), str(source), "-lrabbitmq"],
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode != 0:
        last = built.stderr.strip().splitlines()[-1:] or ["no message"]
        raise Missing(
            f"{source.name} does not compile ({last[0]}): apt-get install librabbitmq-dev"
        )
    return program


def run(
    program: Path, mode: str, arguments: Sequence[str], timeout_s: float = 600
) -> dict[str, Any]:
    """One run; its report. Modes that report nothing give {}."""
    done = subprocess.run(
        [str(program), mode, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(
            f"{program.name} {mode} {' '.join(arguments)} ended with {done.returncode}: "
            f"{(done.stderr or done.stdout).strip()[-500:]}"
        )
    text = done.stdout.strip()
    report: dict[str, Any] = json.loads(text) if text.startswith("{") else {}
    return report


def faults(report: dict[str, Any]) -> str:
    """What the generator's checks found; empty: nothing wrong."""
    names = ("lost", "duplicates", "order_violations", "bad_bodies", "nacked", "errors")
    return ", ".join(f"{report[name]} {name}" for name in names if report.get(name))
