"""Output of build.py: sections, steps with their times, the last lines of a failed step."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

TAIL_LINES = 40
TTY = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def say(text: str = "") -> None:
    """Print a line and flush."""
    print(text, flush=True)


def section(title: str) -> None:
    """Print the heading of a section."""
    say()
    say(f"── {title} {'─' * max(0, 76 - len(title))}")


def stop(text: str, code: int = 1) -> NoReturn:
    """Print an error and exit."""
    sys.stdout.flush()
    print(f"\nbuild.py: {text}", file=sys.stderr, flush=True)
    raise SystemExit(code)


def took(started: float) -> str:
    """Format the seconds since `started` (time.monotonic)."""
    seconds = time.monotonic() - started
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds) // 60} min {int(seconds) % 60} s"


class Spinner:
    """The line that shows a running step; silent unless the output is a terminal."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.last = ""
        self.started = time.monotonic()
        self.done = threading.Event()
        self.thread: threading.Thread | None = None

    def __enter__(self) -> Spinner:
        if TTY:
            self.thread = threading.Thread(target=self._turn, daemon=True)
            self.thread.start()
        else:
            say(f"   … {self.title}")
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        if self.thread is not None:
            self.thread.join()
            print("\r\x1b[2K", end="", flush=True)

    def _turn(self) -> None:
        signs = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
        turn = 0
        while not self.done.wait(0.12):
            turn += 1
            line = f" {signs[turn % len(signs)]} {self.title}  {took(self.started)}  {self.last}"
            print(f"\r\x1b[2K{line[:98]}", end="", flush=True)


def quiet(
    title: str,
    command: Sequence[str],
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> bool:
    """Run a command with its output in `log`; print the tail if it fails; return success."""
    started = time.monotonic()
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    log.parent.mkdir(parents=True, exist_ok=True)
    with Spinner(title) as spinner, log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(
            list(command),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=dict(env) if env is not None else None,
            cwd=cwd,
        )
        assert process.stdout is not None
        for line in process.stdout:
            out.write(line)
            tail.append(line.rstrip())
            spinner.last = line.strip()
        code = process.wait()
    if code == 0:
        say(f" ✓ {title}  {took(started)}")
        return True
    say(f" ✗ {title}  failed with code {code} after {took(started)}; the end of {log}:")
    for line in tail:
        say(f"     {line}")
    return False


def loud(
    command: Sequence[str], env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> int:
    """Run a command with its output on the terminal; return its exit code."""
    sys.stdout.flush()
    process = subprocess.Popen(list(command), env=dict(env) if env is not None else None, cwd=cwd)
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.wait()
        raise
