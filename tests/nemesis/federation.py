"""Clusters that federate queues, under faults: `python -m nemesis.federation --minutes 3 --seed 7`.

The links between the clusters are relays, which are cut, silenced or closed. FAR is consumed in the
first cluster alone, and has every other one as an upstream. CIRCLE is consumed everywhere, now
here, now there, and each cluster has the next one as its upstream. WIDE is an exchange of every
cluster; its queue in the first one, consumed there, gets what is published to any of them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from nemesis.federation_faults import FAULTS
from nemesis.federation_world import Federation
from nemesis.story import kept_directory, parsed
from warren.errors import WarrenError


def main(arguments: list[str] | None = None) -> int:
    """Run, judge, print; 0: nothing was wrong."""
    parser = argparse.ArgumentParser(prog="build.py federation", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="of faults")
    parser.add_argument("--clusters", type=int, default=2, choices=(2, 3))
    parser.add_argument("--nodes", type=int, default=3, choices=(1, 3), help="of each cluster")
    parser.add_argument("--rate", type=float, default=60.0, help="messages/s of each publisher")
    parser.add_argument(
        "--ack-mode", default="on-confirm", help="of the links; with on-publish messages are lost"
    )
    parser.add_argument(
        "--plain", action="store_true", help="links as to another broker: messages come twice"
    )
    options = parsed(parser, arguments, tuple(FAULTS))
    with kept_directory(options.directory, "warren-federation-") as directory:
        return _judge(options, directory)


def _judge(options: argparse.Namespace, directory: Path) -> int:
    run = Federation(options, directory, FAULTS)
    try:
        run.go()
    except WarrenError as error:
        run.problem(f"a cluster does not serve: {error}")
    finally:
        run.dismiss()
        run.close()
    verdict = run.verdict()
    verdict.gaps.clear()  # a fault's nodes are not told apart by cluster
    chosen = f" --faults {options.faults}" if options.faults else ""
    chosen += " --plain" if options.plain else ""
    chosen += f" --ack-mode {options.ack_mode}" if options.ack_mode != "on-confirm" else ""
    again = (
        f"python3 build.py federation --minutes {options.minutes:g} --seed {options.seed} "
        f"--clusters {options.clusters} --nodes {options.nodes} --rate {options.rate:g}{chosen}"
    )
    return run.conclude(verdict, directory, bool(options.directory), again)


if __name__ == "__main__":
    sys.exit(main())
