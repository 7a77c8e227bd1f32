"""Count instructions with valgrind, and compare them with those on record.

    python3 build.py instructions            print both, fail on a difference above 3 %
    python3 build.py instructions --record   make this commit's the ones on record

Counts depend on the Python, the compiler and the processor's kind, so each such combination has a
record of its own. A combination without one is measured, and nothing is compared.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.environment import ROOT, environment

RECORD = Path(__file__).resolve().parent / "recorded.json"
TOLERANCE = 0.03
RUN_S_MAX = 600
VALGRIND = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")
STEADY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TOP_PAD_": str(64 * 1024**2),
    "MALLOC_TRIM_THRESHOLD_": str(1024**3),
}
"""The allocator asks the system for nothing between: the counts depend less on the heap's state."""
COUNTED = re.compile(r"I\s+refs:\s+([\d,]+)")
Counts = dict[str, float]


def combination() -> str:
    """Return what the counts depend on."""
    library, version = platform.libc_ver()
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{python}, {platform.python_compiler()}, {library} {version}, {platform.machine()}"


def _run(place: str) -> str:
    """Run the cases under valgrind, a file in `place` for each process; return what they print."""
    paths = os.pathsep.join(str(ROOT / part) for part in ("tests", "."))
    env = environment(PYTHONPATH=paths, PYTHONHASHSEED="0", **STEADY)
    log = f"--log-file={place}/%p"
    # What compiles its modules has another heap than what finds them compiled: 2 % of one count.
    imported = [sys.executable, "-c", "import instructions.cases"]
    subprocess.run(imported, env=env, cwd=ROOT, timeout=RUN_S_MAX, check=True)
    command = [*VALGRIND, log, sys.executable, "-m", "instructions.cases"]
    done = subprocess.run(
        command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=RUN_S_MAX, check=False
    )
    assert not done.returncode, done.stderr
    return done.stdout


def count() -> Counts:
    """Return the instructions of each case, per unit."""
    totals: dict[str, list[int]] = {}
    units: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="warren-instructions-") as place:
        for name, of, pid in json.loads(_run(place)):
            found = COUNTED.search(Path(place, str(pid)).read_text())
            assert found is not None, (name, pid)
            totals.setdefault(name, []).append(int(found[1].replace(",", "")))
            units[name] = of
    return {name: (more - less) / units[name] for name, (less, more) in totals.items()}


def recorded() -> dict[str, Counts]:
    """Return what is on record, by combination."""
    found: dict[str, Counts] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return found


def differences(now: Counts, before: Counts) -> list[str]:
    """Describe what takes more or less than on record; a case that has no record is one, too."""
    found = []
    for name, value in now.items():
        known = before.get(name)
        if known is None:
            found.append(f"{name}: {value:,.0f} instructions, none on record")
        elif abs(value / known - 1) > TOLERANCE:
            found.append(f"{name}: {value:,.0f} instructions, {known:,.0f} on record")
    return found


def main() -> int:
    """Print the counts; return 1 when they differ from the record."""
    parser = argparse.ArgumentParser(prog="build.py instructions", description=__doc__)
    parser.add_argument("--record", action="store_true", help="write them into recorded.json")
    options = parser.parse_args()
    now, every = count(), recorded()
    before = every.get(combination(), {})
    for name, value in now.items():
        known = before.get(name)
        said = "" if known is None else f"  on record {known:12,.0f}  {value / known - 1:+7.2%}"
        print(f"{name:28} {value:12,.0f}{said}")
    if options.record:
        every[combination()] = {name: round(value, 1) for name, value in now.items()}
        RECORD.write_text(json.dumps(every, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        return 0
    if not before:
        print(f"nothing on record for {combination()}")
        return 0
    for line in (found := differences(now, before)):
        print(f" ✗ {line}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
