"""One soak: `python -m soak.run --minutes 60 --rate 210`.

Its result is the slope of each node's resident memory after the first half hour, or after the first
half of a shorter one: the log's entries in memory have reached their bound by then, and whatever
still grows has none.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from live.http_client import http_client
from soak import memory
from soak.load import KINDS, Load
from soak.memory import MIB
from warren.local import LocalCluster

MINUTES_MAX = 24 * 60
WARMUP_S = 1_800.0
SAMPLE_S = 10.0
SAY_EVERY_S = 60.0
POLL_S = 0.5
FLAT_SHARE = 0.02
"""A node is flat when its memory grows by no more than this share in the measured part."""
SERVED_SHARE = 0.9
"""Below this share of the wanted rate the load was another one than asked for."""
SETTINGS = {
    "prometheus": {"enabled": True, "tcp": {"port": 0}},
    "management": {"enabled": True, "tcp": {"port": 0}},
}
ASKED = ("/overview", "/nodes", "/queues", "/connections", "/channels", "/consumers")
"""What an operator's page asks the HTTP API of a node for at each sample."""


@dataclass(frozen=True)
class Sample:
    """One node at one moment.

    parts      resident bytes by kind of mapping, see `memory.resident`
    allocator  what the node's metrics say of its allocator
    beside     resident bytes of the process that serves its HTTP API; not of the result
    """

    seconds: float
    parts: Mapping[str, int]
    allocator: Mapping[str, int]
    beside: int = 0

    @property
    def resident(self) -> int:
        """All resident bytes."""
        return sum(self.parts.values())


@dataclass(frozen=True)
class Result:
    """A node's memory in the measured part: bytes on average, and bytes more per second."""

    mean: float
    slope: float
    seconds: float

    @property
    def is_flat(self) -> bool:
        """Whether it grew by no more than FLAT_SHARE."""
        return self.slope * self.seconds <= FLAT_SHARE * self.mean


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of the line through the points with the least squares; 0 for fewer than 2.

    points  (x, y)
    """
    if len({x for x, _ in points}) < 2:
        return 0.0
    middle = sum(x for x, _ in points) / len(points)
    square = sum((x - middle) ** 2 for x, _ in points)
    return sum((x - middle) * y for x, y in points) / square


def result(samples: Sequence[Sample], seconds: float) -> Result:
    """Return the result of one node's samples of a soak of that length."""
    begins = min(WARMUP_S, seconds / 2)
    points = [(each.seconds, float(each.resident)) for each in samples if each.seconds >= begins]
    if not points:
        return Result(0.0, 0.0, 0.0)
    mean = sum(y for _, y in points) / len(points)
    return Result(mean, slope(points), points[-1][0] - points[0][0])


class Soak:
    """A cluster under the load, and samples of its nodes."""

    def __init__(self, options: argparse.Namespace, cluster: LocalCluster) -> None:
        self._seconds = options.minutes * 60
        self._rate = options.rate
        self._cluster = cluster
        self._load = Load(cluster.addresses, cluster.uri, options.rate, options.seed)
        self.samples: list[list[Sample]] = [[] for _ in cluster.nodes]

    def run(self) -> list[str]:
        """Apply the load for the time; return what went wrong."""
        load, began = self._load, time.monotonic()
        load.start()
        sampled = said = -SAY_EVERY_S
        while (now := time.monotonic() - began) < self._seconds and not load.counts.problems:
            if now >= sampled + SAMPLE_S:
                sampled = now
                for node, samples in enumerate(self.samples):
                    samples.append(self._sample(node, now))
                if now >= said + SAY_EVERY_S:
                    said = now
                    self._say(now)
            time.sleep(POLL_S)
        load.stop()
        self._say(now)
        problems = list(load.counts.problems)
        confirmed, wanted = load.counts.confirmed.total(), self._rate * now * SERVED_SHARE
        if not problems and confirmed < wanted:
            problems.append(f"{confirmed} confirms, {wanted:.0f} at least were due")
        return problems

    def _sample(self, node: int, now: float) -> Sample:
        http = http_client(self._cluster, node)
        for path in ASKED:
            http.get(path)
        pid = self._cluster.pid(node)
        beside = sum(sum(memory.of_process(each).values()) for each in memory.children(pid))
        allocator = memory.allocator(self._cluster.node(node).data_dir)
        return Sample(now, memory.of_process(pid), allocator, beside)

    def _say(self, now: float) -> None:
        counts = self._load.counts
        print(
            f"{now / 60:6.1f} min  {counts.confirmed.total():,} confirmed, "
            f"{counts.refused.total():,} refused, {counts.taken.total():,} taken"
        )
        for node, samples in zip(self._cluster.nodes, self.samples, strict=True):
            last = samples[-1]
            print(
                f"    {node.name}  {last.resident / MIB:6.1f} MiB = {_mebibytes(last.parts)}; "
                f"allocator: {_mebibytes(last.allocator)}; HTTP: {last.beside / MIB:.1f}",
                flush=True,
            )


def _mebibytes(parts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {size / MIB:.1f}" for name, size in sorted(parts.items()))


def conclude(soak: Soak, seconds: float) -> bool:
    """Print each node's result; return whether all are flat."""
    results = [result(samples, seconds) for samples in soak.samples]
    for number, each in enumerate(results):
        says = "flat" if each.is_flat else "GROWS"
        print(
            f"node {number}: {each.mean / MIB:.1f} MiB, {each.slope * 3600 / MIB:+.2f} MiB an hour "
            f"over the last {each.seconds / 60:.0f} min: {says}"
        )
    return all(each.is_flat for each in results)


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="build.py soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="how long (60)")
    parser.add_argument("--rate", type=float, default=210, help="messages a second (210)")
    parser.add_argument("--nodes", type=int, default=3, help="of the cluster (3)")
    parser.add_argument("--seed", type=int, default=1, help="of the messages (1)")
    parser.add_argument("--json", type=Path, help="keep all samples in this file")
    options = parser.parse_args(arguments)
    if not 0 < options.minutes <= MINUTES_MAX:
        parser.error(f"--minutes {options.minutes:g}: more than 0, at most {MINUTES_MAX}")
    if options.rate <= 0:
        parser.error(f"--rate {options.rate:g}: more than 0 messages a second are needed")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak; return 0 when no node's memory grows."""
    options = parsed(sys.argv[1:] if arguments is None else arguments)
    print(
        f"{options.nodes} nodes, {len(KINDS)} queues, {options.rate:g} messages a second for "
        f"{options.minutes:g} min"
    )
    with (
        tempfile.TemporaryDirectory(prefix="warren-soak-") as place,
        LocalCluster(nodes=options.nodes, directory=place, settings=SETTINGS) as cluster,
    ):
        soak = Soak(options, cluster)
        problems = soak.run()
    if options.json is not None:
        kept = [[asdict(each) for each in samples] for samples in soak.samples]
        options.json.write_text(json.dumps(kept))
    for problem in problems:
        print(f"PROBLEM: {problem}")
    flat = conclude(soak, options.minutes * 60)
    return 0 if flat and not problems else 1


if __name__ == "__main__":
    sys.exit(main())
