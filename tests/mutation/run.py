"""Runs mutants against the tests: `python -m mutation.run --sample 200 --seed 1`.

A mutant is the source with one small change. It is *killed* by a command of its subject that fails,
or does not end in time; it *survives* when all succeed. A survivor is a gap in the tests, unless
`explained` says why the change makes no difference. Exit code 1: there are others.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from mutation.explained import EXPLAINED
from mutation.planted import PLANTED
from mutation.subjects import SUBJECTS, Subject

ROOT = Path(__file__).resolve().parents[2]
GENERATOR = Path(__file__).with_name("mutants.py")
ENVIRONMENT = ROOT / ".warren" / "mutation"
PACKAGE = "cosmic-ray==8.7.0"
COPIED = ("raft", "broker", "python", "connector", "tests", "bench", "examples", "tools")
FILES = ("build.py", "pyproject.toml", "setup.py", "requirements.txt", "README.md")
MEMORY = Path("/dev/shm")
"""Where the copies and their temporary files are: tests of storage sync so often that on a disk
they wait for most of their time. Elsewhere where there is no such directory."""
SLOWER = 6.0
"""A command that takes that many times what it takes without a mutant counts as failed."""
SECONDS_MIN = 60.0
MEMORY_BYTES = 6 << 30
"""Address space of a command: a mutant may allocate without end."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one mutant; killed_by None: it survived."""

    mutant: dict[str, Any]
    killed_by: str | None
    seconds: float

    @property
    def key(self) -> tuple[str, str, str]:
        """The name under which `explained` knows it."""
        return self.mutant["file"], self.mutant["operator"], self.mutant["text"]


def environment() -> Path:
    """An interpreter that has cosmic-ray, apart from the product's environment."""
    python = ENVIRONMENT / "bin" / "python"
    stamp = ENVIRONMENT / ".stamp"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != PACKAGE:
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        install = ["-m", "pip", "-q", "--disable-pip-version-check", "install", PACKAGE]
        subprocess.run([str(python), *install], check=True)
        stamp.write_text(PACKAGE, encoding="utf-8")
    return python


def generate(python: Path, *arguments: str, text: str = "") -> list[dict[str, Any]]:
    """Run the generator; one object per line."""
    command = [str(python), str(GENERATOR), str(ROOT), *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def sample(mutants: Sequence[dict[str, Any]], size: int, seed: int) -> list[dict[str, Any]]:
    """At most `size` mutants, at most one for each place in the source."""
    places: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
    for mutant in mutants:
        places.setdefault((mutant["file"], mutant["line"], mutant["column"]), []).append(mutant)
    chance = random.Random(seed)
    chosen = chance.sample(sorted(places), min(size, len(places)))
    return [chance.choice(places[place]) for place in chosen]


class Copy:
    """A copy of the tree in which one mutant at a time is tested."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in COPIED:
            shutil.copytree(
                ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.c")
            )
        for name in FILES:
            shutil.copy(ROOT / name, folder / name)
        (folder / "tmp").mkdir()

    def fails(self, command: Sequence[str], seconds: float) -> bool:
        """Whether the command fails, or is not over after so many seconds."""
        sources = ("raft", "broker", "python", "connector", "tests")
        path = os.pathsep.join(str(self.folder / source) for source in sources)
        env = dict(
            os.environ,
            PYTHONPATH=path,
            PYTHONDONTWRITEBYTECODE="1",
            TMPDIR=str(self.folder / "tmp"),
            HYPOTHESIS_STORAGE_DIRECTORY=str(self.folder / ".hypothesis"),
        )
        limited = ["prlimit", f"--as={MEMORY_BYTES}", sys.executable, *command]
        process = subprocess.Popen(
            limited,
            cwd=self.folder,
            env=env,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            return process.wait(timeout=seconds) != 0
        except subprocess.TimeoutExpired:
            return True
        finally:
            end(process)

    def test(self, subject: Subject, mutant: dict[str, Any], limits: Sequence[float]) -> Result:
        """Put the mutant in, run the commands, take it out."""
        path = self.folder / mutant["file"]
        original = path.read_text(encoding="utf-8")
        path.write_text(mutant["source"], encoding="utf-8")
        started = time.monotonic()
        try:
            for command, seconds in zip(subject.commands, limits, strict=True):
                if self.fails(command, seconds):
                    return Result(mutant, " ".join(command), time.monotonic() - started)
            return Result(mutant, None, time.monotonic() - started)
        finally:
            path.write_text(original, encoding="utf-8")


def end(process: subprocess.Popen[bytes]) -> None:
    """End the command and what it started."""
    try:
        os.killpg(process.pid, 9)
    except ProcessLookupError:
        pass
    process.wait()


def measure(copy: Copy, subject: Subject) -> list[float]:
    """How long each command may take; they must succeed without a mutant."""
    limits = []
    for command in subject.commands:
        started = time.monotonic()
        if copy.fails(command, 3600):
            raise SystemExit(f"fails without a mutant: {' '.join(command)}")
        limits.append(max(SECONDS_MIN, SLOWER * (time.monotonic() - started)))
    return limits


def places_of(name: str, part: str | None) -> list[str]:
    """Return a subject's files, or those that have `part` in their paths."""
    places = [str(place) for place in SUBJECTS[name].files(ROOT)]
    return [place for place in places if part is None or part in place]


def run(name: str, options: argparse.Namespace, python: Path, folder: Path) -> list[Result]:
    """Test a sample of one subject's mutants, two at a time."""
    subject = SUBJECTS[name]
    places = places_of(name, options.file)
    everything = generate(python, "list", *places)
    chosen = [] if options.planted else sample(everything, options.sample, options.seed)
    text = "".join(json.dumps(mutant) + "\n" for mutant in chosen)
    mutants = [one.mutant(ROOT) for one in PLANTED.get(name, ())]
    mutants += [mutant for mutant in generate(python, "make", text=text) if mutant["source"]]
    copies: SimpleQueue[Copy] = SimpleQueue()
    for number in range(options.jobs):
        copies.put(Copy(folder / f"{name}-{number}"))
    first = copies.get()
    limits = measure(first, subject)
    copies.put(first)
    print(
        f"{name}: {len(everything)} mutants in {len(places)} files, {len(mutants)} in the sample",
        flush=True,
    )

    ends = time.monotonic() + 60 * options.minutes

    def one(mutant: dict[str, Any]) -> Result | None:
        if time.monotonic() >= ends:
            return None
        copy = copies.get()
        try:
            result = copy.test(subject, mutant, limits)
        finally:
            copies.put(copy)
        if result.killed_by is None:
            report(result)
        return result

    with ThreadPoolExecutor(options.jobs) as pool:
        return [result for result in pool.map(one, mutants) if result is not None]


def report(result: Result) -> None:
    """One survivor, as it can be found again."""
    mutant = result.mutant
    lines = mutant["source"].splitlines()
    changed = lines[mutant["line"] - 1].strip()
    why = EXPLAINED.get(result.key)
    print(
        f"  {'explained' if why else 'SURVIVED'} {mutant['file']}:{mutant['line']} "
        f"{mutant['operator']}\n    - {mutant['text']}\n    + {changed}"
        + (f"\n    {why}" if why else ""),
        flush=True,
    )


def summary(name: str, results: Sequence[Result]) -> int:
    """Print the counts; the number of survivors without explanation."""
    killed = Counter(r.killed_by for r in results if r.killed_by is not None)
    unexplained = sum(r.killed_by is None and r.key not in EXPLAINED for r in results)
    explained = len(results) - killed.total() - unexplained
    print(
        f"{name}: {killed.total()} of {len(results)} killed, {explained} explained, "
        f"{unexplained} survived, {sum(r.seconds for r in results):.0f} s of tests"
    )
    for command, count in killed.most_common():
        print(f"  {count:5} by {command}")
    return unexplained


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line's options; subjects without a chosen file are left out."""
    parser = argparse.ArgumentParser(prog="build.py mutate", description=__doc__)
    parser.add_argument(
        "subjects",
        nargs="*",
        default=list(SUBJECTS),
        help=f"of {', '.join(SUBJECTS)}; all of them by default",
    )
    parser.add_argument("--sample", type=int, default=100, help="mutants per subject")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument(
        "--minutes",
        type=float,
        default=math.inf,
        help="per subject; what of the sample was not tested by then is left out",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--planted", action="store_true", help="only those of planted.py")
    parser.add_argument("--file", help="only files whose path contains this")
    options = parser.parse_args(arguments)
    for name in options.subjects:
        if name not in SUBJECTS:
            parser.error(f"unknown subject {name!r}: give some of {', '.join(SUBJECTS)}")
    named = ", ".join(options.subjects)
    options.subjects = [name for name in options.subjects if places_of(name, options.file)]
    if not options.subjects:
        parser.error(f"--file {options.file}: no file of {named} has that in its path")
    return options


def main() -> int:
    """The exit code: 1 when a mutant survived that is not explained."""
    options = parsed()
    python = environment()
    survivors = 0
    place = str(MEMORY) if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="warren-mutants-", dir=place) as folder:
        for name in options.subjects:
            survivors += summary(name, run(name, options, python, Path(folder)))
    if survivors:
        again = " ".join(
            [
                "python3 build.py mutate",
                *options.subjects,
                f"--sample {options.sample} --seed {options.seed}",
            ]
        )
        print(f"{survivors} mutants survived; again: {again}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
