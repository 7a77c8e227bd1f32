"""`build.py bench`: all parts, or the one named."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from bench import brokers
from bench.generator import Missing
from bench.report import keep


def spark(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Imported late: it needs pyspark."""
    from bench.spark import source

    return source(options.rows)


def main() -> int:
    """Run the parts; 1 when one could not be run."""
    parser = argparse.ArgumentParser(prog="build.py bench", description=__doc__)
    parser.add_argument("part", nargs="?", choices=("throughput", "failover", "spark"))
    parser.add_argument("--seconds", type=int, default=10, help="of each run")
    parser.add_argument("--rounds", type=int, default=2, help="over the clusters, in turn")
    parser.add_argument("--only", choices=("warren", "rabbitmq"))
    parser.add_argument("--rows", type=int, default=500_000, help="of the Spark part")
    options = parser.parse_args()
    plan = brokers.Plan(seconds=options.seconds, rounds=options.rounds, only=options.only)
    parts: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "throughput": lambda: brokers.throughput(plan),
        "failover": lambda: brokers.failover(plan),
        "spark": lambda: spark(options),
    }
    code = 0
    for name, run in parts.items():
        if options.part not in (None, name):
            continue
        print(f"── {name}", flush=True)
        try:
            keep(name, run())
        except Missing as missing:
            print(f"{name} cannot be measured here: {missing}", file=sys.stderr)
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
