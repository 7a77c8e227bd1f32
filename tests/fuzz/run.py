"""Fuzz the decoders, guided by coverage: the program of `build.py fuzz`.

    python3 build.py fuzz                       each target for a minute
    python3 build.py fuzz --seconds 600         ten minutes each
    python3 build.py fuzz --target scan --runs 1000000
    python3 build.py fuzz --target scan --replay BASE64
    python3 build.py fuzz --totals              of all runs in this directory, as a table
    python3 build.py fuzz --record              adds them to the table in CONTRIBUTING.md, once

AddressSanitizer makes a whole connection, which allocates thousands of objects, four times as slow,
and the kernel's decoders have targets of their own. So a run of such a target is sanitized for an
eighth, and then again with all inputs that it kept.

Inputs that reached something new stay in `.warren/fuzz/corpus`, and later runs begin with them; a
run of compiled code ends with all of them on both kernels. A finding is printed with its traceback
and the command that plays it again. `.warren/fuzz/totals.json` counts the executions of all runs.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.fuzz import instruments, table
from tests.fuzz.instruments import LOGS, PLACE, NotInstalled
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

CORPUS, FINDINGS, TOTALS = PLACE / "corpus", PLACE / "findings", PLACE / "totals.json"
RECORDED = PLACE / "recorded.json"
PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
INPUT_BYTES_MAX = 4096
INPUT_SECONDS_MAX = 20
MEMORY_MB_MAX = 3072
TAIL_LINES = 40
SANITIZED_SHARE = 8
"""One part in so many of a run of a plain target is with AddressSanitizer."""
INTERRUPTED = 72
"""libFuzzer's exit code after a signal that asked it to end."""
_STATUS = re.compile(r"^#(\d+)\s.*?cov: (\d+) ft: (\d+) corp: (\d+)/", re.MULTILINE)
_RATE = re.compile(r"^stat::average_exec_per_sec:\s*(\d+)", re.MULTILINE)
_EXECUTED = re.compile(r"^stat::number_of_executed_units:\s*(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Played:
    """The result of one target.

    covered   edges of Python's bytecode and of the kernel's C code
    features  edges, and how often each was taken
    corpus    inputs that reached something new
    rate      executions per second, without the start
    """

    executions: int
    covered: int
    features: int
    corpus: int
    rate: int
    found: bool


def _seed(target: Target) -> Path:
    """Write the target's seeds into its corpus; return the folder."""
    folder = CORPUS / target.name
    folder.mkdir(parents=True, exist_ok=True)
    for data in target.seeds():
        (folder / hashlib.sha1(data).hexdigest()).write_bytes(data)
    return folder


def _work(
    target: Target,
    *arguments: str,
    twin: str = "",
    replays: bool = False,
    sanitized: bool | None = None,
) -> tuple[int, str]:
    """Run a worker; return its exit code and output.

    sanitized  with AddressSanitizer; None: if the target is of compiled code
    """
    sanitized = target.compiled if sanitized is None else sanitized
    LOGS.mkdir(parents=True, exist_ok=True)
    FINDINGS.mkdir(parents=True, exist_ok=True)
    which = "-twin" if twin else "-plain" if sanitized is not target.compiled else ""
    log = LOGS / f"{target.name}{which}.log"
    place = target.play.__module__
    command = [sys.executable, "-m", "tests.fuzz.worker", place, target.name]
    limits = [
        f"-max_len={INPUT_BYTES_MAX}",
        f"-timeout={INPUT_SECONDS_MAX}",
        f"-rss_limit_mb={MEMORY_MB_MAX}",
        f"-artifact_prefix={FINDINGS}/{target.name}-",
        "-print_final_stats=1",
    ]
    with log.open("wb") as out:
        code = subprocess.run(
            [*command, *limits, *arguments],
            env=instruments.worker_environment(sanitized, twin, replays),
            cwd=instruments.ROOT,
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    return code, log.read_text(encoding="utf-8", errors="replace")


def _tell(target: Target, text: str) -> None:
    """Print a finding: how it ended, and the command that plays it again."""
    at = max(text.rfind("=== Uncaught Python exception"), text.rfind("==ERROR: "))
    print("\n".join(text[max(at, 0) :].splitlines()[:TAIL_LINES]))
    found = re.search(r"Test unit written to (\S+)", text)
    if found:
        data = base64.b64encode(Path(found.group(1)).read_bytes()).decode()
        print(f"replay: python3 build.py fuzz --target {target.name} --replay {data}")


def legs(target: Target, seconds: int, runs: int) -> list[tuple[bool, int, int]]:
    """Return the parts of a run: (with AddressSanitizer, seconds, executions); 0: no bound."""
    if not target.plain:
        return [(target.compiled, seconds, runs)]
    some, few = -(-seconds // SANITIZED_SHARE), -(-runs // SANITIZED_SHARE)
    rest = (False, seconds - some, runs - few)
    return [(True, some, few), rest] if rest[1] or rest[2] else [(True, some, few)]


def fuzz(target: Target, seconds: int, runs: int, seed: int) -> Played:
    """Fuzz one target; then play its corpus on both kernels where it is about the kernel."""
    folder = _seed(target)
    executions, spent_s, covered, features, corpus = 0, 0.0, 0, 0, 0
    for sanitized, part_s, part in legs(target, seconds, runs):
        bounds = [f"-max_total_time={part_s}"] if part_s else []
        chosen = [*bounds, f"-runs={part or -1}", f"-seed={seed}", str(folder)]
        code, text = _work(target, *chosen, sanitized=sanitized)
        executed, rate, status = _EXECUTED.search(text), _RATE.search(text), _STATUS.findall(text)
        number, edges, found, corpus = map(int, status[-1]) if status else (0, 0, 0, corpus)
        played = int(executed.group(1)) if executed else number
        executions += played
        spent_s += played / max(1, int(rate.group(1)) if rate else 0)
        covered, features = max(covered, edges), max(features, found)
        if code:
            break
    if not code and target.compiled:
        code, text = _work(target, "-runs=0", str(folder), twin="always")
    if is_finding(code):
        _tell(target, text)
    per_second = round(executions / spent_s) if spent_s else 0
    return Played(executions, covered, features, corpus, per_second, is_finding(code))


def is_finding(code: int) -> bool:
    """Return whether a worker that ended with this code found something; not: it was stopped."""
    return code not in (0, INTERRUPTED, -signal.SIGTERM, -signal.SIGINT)


def add_up(target: Target, done: Played) -> None:
    """Add a run to the totals of its target; the newest edges, features and inputs count."""
    totals = _totals()
    before = totals.get(target.name, {})
    totals[target.name] = {
        "executions": before.get("executions", 0) + done.executions,
        "per_second": done.rate,
        "edges": done.covered or before.get("edges", 0),
        "features": done.features or before.get("features", 0),
        "inputs": done.corpus or before.get("inputs", 0),
        "findings": before.get("findings", 0) + done.found,
    }
    fresh = TOTALS.with_suffix(".new")
    fresh.write_text(json.dumps(totals, indent=2) + "\n", encoding="utf-8")
    fresh.replace(TOTALS)


def _totals() -> dict[str, dict[str, int]]:
    return json.loads(TOTALS.read_text(encoding="utf-8")) if TOTALS.exists() else {}


def tell_totals() -> int:
    """Print the totals as a table of Markdown."""
    totals = _totals()
    print(f"{datetime.now(UTC):%Y-%m-%d}, `python3 build.py fuzz --totals`:\n")
    print("\n".join(table.HEAD))
    print("\n".join(table.rows({name: totals[name] for name in TARGETS if name in totals})))
    print(f"\n{sum(one['executions'] for one in totals.values()):,} executions")
    return 0


def record_totals() -> int:
    """Add what was not recorded yet to the table of CONTRIBUTING.md."""
    totals = _totals()
    before = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
    more = table.since(totals, before)
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(table.updated(page, more, datetime.now(UTC).date()), encoding="utf-8")
    if totals:
        RECORDED.write_text(json.dumps(totals, indent=2) + "\n", encoding="utf-8")
    print(f"{sum(one['executions'] for one in more.values()):,} executions added to {PAGE.name}")
    return 0


def replay(target: Target, data: bytes) -> int:
    """Play one input on both kernels, with AddressSanitizer."""
    path = PLACE / f"replay-{target.name}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    code, text = _work(target, str(path), twin="always", replays=True)
    print("\n".join(text.splitlines()[-TAIL_LINES:]))
    return 1 if code else 0


def main(arguments: list[str]) -> int:
    """Run; 1: there was a finding."""
    parser = argparse.ArgumentParser(prog="build.py fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--target", action="append", choices=TARGETS, help="by default: all")
    parser.add_argument("--seconds", type=int, help="for each target; by default 60")
    parser.add_argument("--runs", type=int, default=0, help="executions of each target")
    parser.add_argument("--seed", type=int, default=0, help="0: another one each time")
    parser.add_argument("--replay", metavar="BASE64", help="play one input of --target")
    parser.add_argument("--jobs", type=int, default=1, help="targets at a time (1)")
    parser.add_argument("--totals", action="store_true", help="print the counts of all runs")
    parser.add_argument("--record", action="store_true", help="add them to CONTRIBUTING.md")
    options = parser.parse_args(arguments)
    if options.totals or options.record:
        return record_totals() if options.record else tell_totals()
    try:
        instruments.ensure()
    except NotInstalled as missing:
        print(f" ! nothing was fuzzed: {missing} (with WARREN_STRICT=1 this fails)")
        return 1 if os.environ.get("WARREN_STRICT") else 0
    chosen = [TARGETS[name] for name in options.target or TARGETS]
    if options.replay is not None:
        return max(replay(each, base64.b64decode(options.replay)) for each in chosen)
    seconds = options.seconds if options.seconds is not None else 0 if options.runs else 60
    return run(chosen, seconds, options.runs, options.seed, options.jobs)


def run(chosen: list[Target], seconds: int, runs: int, seed: int, jobs: int) -> int:
    """Fuzz these targets, so many at a time; return 1 when there was a finding."""
    print(f"{'target':<18}{'executions':>12}{'per s':>8}{'edges':>8}{'features':>10}{'corpus':>8}")
    total, faults = 0, []
    with ThreadPoolExecutor(jobs) as pool:
        played = pool.map(lambda each: fuzz(each, seconds, runs, seed), chosen)
        for each, done in zip(chosen, played, strict=True):
            add_up(each, done)
            total += done.executions
            figures = f"{done.covered:>8}{done.features:>10}{done.corpus:>8}"
            print(f"{each.name:<18}{done.executions:>12,}{done.rate:>8,}{figures}", flush=True)
            if done.found:
                faults.append(each.name)
    print(f"{total:,} executions of {len(chosen)} targets; findings: {', '.join(faults) or 'none'}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
