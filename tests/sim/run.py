"""Runs simulated worlds: `python -m sim.run --seeds 5000`, or one again with `--seed N`."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass

from sim.plants import PLANTS, planted
from sim.world import World

BATCH = 25
TRACE_LINES = 40


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one seed; failure None: clean."""

    seed: int
    digest: str
    failure: str | None
    events: int
    faults: int
    confirmed: int


def run_seed(seed: int) -> Outcome:
    """One world."""
    world = World(seed)
    failure, digest = None, ""
    try:
        digest = world.run()
    except Exception as error:  # whatever it is, it ends this world and is reported
        place = traceback.extract_tb(error.__traceback__)[-1]
        failure = f"{type(error).__name__} in {place.name}: {error}"
    return Outcome(
        seed, digest, failure, world.agenda.run_count, world.faults.count,
        len(world.checkers.told),
    )


def run_batch(work: tuple[int, int, str | None]) -> list[Outcome]:
    """Seeds first … last - 1, up to the first failure; in a process of the pool."""
    first, last, plant = work
    outcomes = []
    with planted(plant):
        for seed in range(first, last):
            outcomes.append(run_seed(seed))
            if outcomes[-1].failure is not None:
                break
    return outcomes


def run_many(start: int, seeds: int, plant: str | None, jobs: int) -> Iterator[Outcome]:
    """Outcomes in the order of the seeds."""
    work = [
        (first, min(first + BATCH, start + seeds), plant)
        for first in range(start, start + seeds, BATCH)
    ]
    if jobs == 1:
        for batch in work:
            yield from run_batch(batch)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        for outcomes in pool.imap(run_batch, work):
            yield from outcomes


def replay(seed: int, plant: str | None, full: bool) -> int:
    """One world, told in full."""
    world = World(seed)
    world.log = []
    failure = None
    with planted(plant):
        try:
            digest = world.run()
        except Exception:  # as above
            failure = traceback.format_exc()
    for line in world.log if full else world.log[-TRACE_LINES:]:
        print(line)
    print(world.profile)
    if failure is not None:
        print(f"{failure}\nseed {seed} fails; the whole story: {again(seed, plant)} --trace")
        return 1
    print(f"seed {seed}: clean, digest {digest}, {len(world.checkers.told)} confirmed")
    return 0


def again(seed: int, plant: str | None) -> str:
    """The command that runs that world again."""
    return f"python3 build.py sim --seed {seed}" + (f" --plant {plant}" if plant else "")


def many(options: argparse.Namespace) -> int:
    """A range of seeds, up to the first failure."""
    began = time.monotonic()
    seeds = events = faults = confirmed = 0
    for outcome in run_many(options.start, options.seeds, options.plant, options.jobs):
        seeds += 1
        events += outcome.events
        faults += outcome.faults
        confirmed += outcome.confirmed
        if outcome.failure is not None:
            print(f"seed {outcome.seed}: {outcome.failure}")
            print(f"{seeds} seeds until then; again: {again(outcome.seed, options.plant)}")
            return 1
        if seeds % 500 == 0:
            print(f"{seeds} seeds clean, {time.monotonic() - began:.0f} s", flush=True)
    took = time.monotonic() - began
    print(
        f"{seeds} seeds clean in {took:.1f} s: {events:,} events, {faults:,} faults, "
        f"{confirmed:,} commands confirmed, none lost, none done twice"
    )
    return 0


def every_plant(options: argparse.Namespace) -> int:
    """Look for every planted bug; the table of how many seeds each took."""
    missed = 0
    for name in PLANTS:
        count, found = 0, None
        for outcome in run_many(options.start, options.seeds, name, options.jobs):
            count += 1
            if outcome.failure is not None:
                found = outcome.failure
                break
        missed += found is None
        verdict = found[:70] if found else "NOT FOUND"
        print(f"{name:32} {count:6} seeds  {verdict}", flush=True)
    return 1 if missed else 0


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code: 0 when every seed was clean."""
    parser = argparse.ArgumentParser(prog="build.py sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many (300)")
    parser.add_argument("--start", type=int, default=0, help="the first (0)")
    parser.add_argument("--seed", type=int, help="this one only, told in detail")
    parser.add_argument("--trace", action="store_true", help="with --seed: all of its story")
    parser.add_argument("--plant", choices=sorted(PLANTS), help="with this bug in the code")
    parser.add_argument("--plants", action="store_true", help="look for every planted bug")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return replay(options.seed, options.plant, options.trace)
    return every_plant(options) if options.plants else many(options)


if __name__ == "__main__":
    sys.exit(main())
