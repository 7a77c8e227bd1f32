"""Simulated worlds: `python -m sim.run --seeds 5000`, or one with `--seed N`.

The first seed follows from the date unless it is given, so that each day's worlds are new ones.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any

from sim import plants
from sim.world import World

BATCH = 25
SEEDS_A_DAY = 1_000_000
FIRST_WORLDS = Path(__file__).with_name("first_worlds.json")
"""By kind and planted bug: a world in which it is found, so that a test need not search for it."""
TRACE_LINES = 40
WORLDS_COLLECT_AFTER = (20_000, 10, 10)
"""gc thresholds: a world's objects are nearly all freed by their counts of references, and looking
for the others with the usual ones took a tenth of its time."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of simulation: the core, or whole nodes; with a planted bug, if any."""

    whole: bool = False
    plant: str | None = None

    def plants(self) -> dict[str, Any]:
        """Return the bugs that can be planted."""
        if self.whole:
            from sim import plants_whole

            return plants_whole.PLANTS
        return plants.PLANTS

    def world(self, seed: int) -> Any:
        """A world."""
        if self.whole:
            from sim.whole.world import World as WholeWorld

            return WholeWorld(seed)
        return World(seed)

    def planted(self) -> Any:
        """Return a context with the bug in the code."""
        return plants.planted(None if self.plant is None else self.plants()[self.plant])

    @property
    def title(self) -> str:
        """Its key in FIRST_WORLDS."""
        return "whole" if self.whole else "core"

    def again(self, seed: int) -> str:
        """Return the command that repeats that world."""
        words = [
            "python3 build.py sim",
            "--whole" if self.whole else "",
            f"--seed {seed}",
            f"--plant {self.plant}" if self.plant else "",
        ]
        return " ".join(word for word in words if word)


CORE = Kind()
WHOLE = Kind(whole=True)


BROKEN = ("AttributeError", "ImportError", "NameError", "TypeError")
"""Failures of a planted bug that does not match the code any more."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one seed; failure None: clean."""

    seed: int
    digest: str
    failure: str | None
    events: int
    faults: int
    confirmed: int

    @property
    def found(self) -> bool:
        """Whether the planted bug was found: the world failed because of it."""
        return self.failure is not None and not self.failure.startswith(BROKEN)


def run_seed(seed: int, kind: Kind = CORE) -> Outcome:
    """One world."""
    world = kind.world(seed)
    failure, digest = None, ""
    try:
        digest = world.run()
    except Exception as error:  # whatever it is, it ends this world and is reported
        place = traceback.extract_tb(error.__traceback__)[-1]
        failure = f"{type(error).__name__} in {place.name}: {error}"
    return Outcome(seed, digest, failure, *world.books())


def run_batch(work: tuple[int, int, Kind], go_on: bool = False) -> list[Outcome]:
    """Seeds first … last - 1, up to the first failure unless `go_on`; in a process of the pool."""
    first, last, kind = work
    outcomes = []
    with kind.planted():
        for seed in range(first, last):
            outcomes.append(run_seed(seed, kind))
            if outcomes[-1].failure is not None and not go_on:
                break
    return outcomes


def run_many(
    start: int, seeds: int, kind: Kind, jobs: int, go_on: bool = False
) -> Iterator[Outcome]:
    """Yield outcomes in the order of seeds; without `go_on` some after a failure are missing."""
    work = [
        (first, min(first + BATCH, start + seeds), kind)
        for first in range(start, start + seeds, BATCH)
    ]
    if jobs == 1:
        for batch in work:
            yield from run_batch(batch, go_on)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        for outcomes in pool.imap(partial(run_batch, go_on=go_on), work):
            yield from outcomes


def replay(seed: int, kind: Kind, full: bool) -> int:
    """Run one world with its trace."""
    world = kind.world(seed)
    world.log = []
    failure = None
    with kind.planted():
        try:
            digest = world.run()
        except Exception:  # as above
            failure = traceback.format_exc()
    for line in world.log if full else world.log[-TRACE_LINES:]:
        print(line)
    print(world.profile)
    if failure is not None:
        print(f"{failure}\nseed {seed} fails; the whole story: {kind.again(seed)} --trace")
        return 1
    print(f"seed {seed}: clean, digest {digest}, {world.books()[2]} confirmed")
    return 0


def many(kind: Kind, options: argparse.Namespace) -> int:
    """Run a range of seeds, up to the first failure, or all of them with --go-on."""
    began = time.monotonic()
    seeds = events = faults = confirmed = failures = 0
    for outcome in run_many(options.start, options.seeds, kind, options.jobs, options.go_on):
        seeds += 1
        events += outcome.events
        faults += outcome.faults
        confirmed += outcome.confirmed
        if outcome.failure is not None:
            failures += 1
            print(f"seed {outcome.seed}: {outcome.failure}")
            print(f"{seeds} seeds until then; again: {kind.again(outcome.seed)}", flush=True)
            if not options.go_on:
                return 1
        if seeds % 500 == 0:
            clean = "clean" if not failures else f"run, {failures} of them failed"
            print(f"{seeds} seeds {clean}, {time.monotonic() - began:.0f} s", flush=True)
    took = time.monotonic() - began
    what = "messages" if kind.whole else "commands"
    books = f"{events:,} events, {faults:,} faults, {confirmed:,} {what} confirmed"
    if failures:
        print(f"{failures} of {seeds} seeds failed in {took:.1f} s: {books}")
        return 1
    print(f"{seeds} seeds clean in {took:.1f} s: {books}, none lost, none done twice")
    return 0


def first_world(kind: Kind) -> int | None:
    """Return the recorded world in which the planted bug was found."""
    assert kind.plant is not None
    recorded: dict[str, dict[str, int]] = json.loads(FIRST_WORLDS.read_text(encoding="utf-8"))
    return recorded[kind.title].get(kind.plant)


def search(kind: Kind, seeds: int) -> Outcome:
    """Run the recorded world of a planted bug; if that is clean now, worlds from 0 on."""
    recorded = first_world(kind)
    if recorded is not None:
        last = run_batch((recorded, recorded + 1, kind))[-1]
        if last.found:
            return last
    return run_batch((0, seeds, kind))[-1]


def record(kinds: tuple[Kind, ...], seeds: int) -> int:
    """Write FIRST_WORLDS: for each planted bug a world that shows it in a process of its own."""
    made: dict[str, dict[str, int]] = {}
    missed = 0
    for kind in kinds:
        found = made.setdefault(kind.title, {})
        for name in sorted(kind.plants()):
            planted = Kind(kind.whole, name)
            last = search(planted, seeds)
            if last.found and run_batch((last.seed, last.seed + 1, planted))[-1].found:
                found[name] = last.seed
            missed += not last.found
            print(
                f"{kind.title:5} {name:50} {last.seed if last.found else 'NOT FOUND'}", flush=True
            )
    FIRST_WORLDS.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    return 1 if missed else 0


def every_plant(kinds: tuple[Kind, ...], options: argparse.Namespace) -> int:
    """Search every planted bug; print how many seeds each took."""
    missed = 0
    for kind in kinds:
        for name in kind.plants():
            count, found = 0, None
            for outcome in run_many(
                options.start, options.seeds, Kind(kind.whole, name), options.jobs
            ):
                count += 1
                if outcome.failure is not None:
                    found = outcome.failure
                    break
            missed += found is None or found.startswith(BROKEN)
            where, verdict = "whole" if kind.whole else "core", (found or "NOT FOUND")[:60]
            print(f"{where:5} {name:42} {count:5} seeds  {verdict}", flush=True)
    return 1 if missed else 0


def of_the_day(day: date) -> int:
    """Return the first seed of a day: 2026-11-29 has those from 20261129000000 on."""
    return int(f"{day:%Y%m%d}") * SEEDS_A_DAY


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return 0 when every seed was clean."""
    parser = argparse.ArgumentParser(prog="build.py sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many (300)")
    parser.add_argument("--start", type=int, help="the first (another one each day)")
    parser.add_argument("--seed", type=int, help="this one only, told in detail")
    parser.add_argument("--whole", action="store_true", help="whole nodes instead of the core")
    parser.add_argument("--trace", action="store_true", help="with --seed: all of its story")
    parser.add_argument("--plant", help="with this bug in the code")
    parser.add_argument("--plants", action="store_true", help="look for every planted bug")
    parser.add_argument("--record", action="store_true", help="write where each one is found")
    parser.add_argument("--go-on", action="store_true", help="after a failure, too")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    options = parser.parse_args(arguments)
    gc.set_threshold(*WORLDS_COLLECT_AFTER)
    kind = Kind(options.whole, options.plant)
    if options.plant is not None and options.plant not in kind.plants():
        parser.error(f"no bug {options.plant!r}; choose one of {', '.join(kind.plants())}")
    if options.seed is not None:
        return replay(options.seed, kind, options.trace)
    if options.start is None:
        # Planted bugs are sought from 0 on, where the recorded ones are found.
        planted = options.plants or options.plant
        options.start = 0 if planted else of_the_day(datetime.now(tz=UTC).date())
        print(f"seeds from {options.start} on; again: --start {options.start}", flush=True)
    if options.record:
        return record((CORE, WHOLE), options.seeds)
    if options.plants:
        return every_plant((kind,) if kind.whole else (CORE, WHOLE), options)
    return many(kind, options)


if __name__ == "__main__":
    sys.exit(main())
