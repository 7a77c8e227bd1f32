"""`build.py bench`: all parts, or those named."""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import signal
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from bench import backlog, brokers
from bench.amqp10 import amqp10
from bench.clients import clients
from bench.commands import commands
from bench.flame_graphs import FLAMES, index
from bench.generator import ROOT, Missing
from bench.groups import groups
from bench.hostile import hostile
from bench.loads import LOADS, loads, page
from bench.log_writes import log_writes
from bench.nats import LOADS as NATS_LOADS
from bench.nats import nats
from bench.node_processes import node_processes
from bench.raft_alone import raft
from bench.report import keep
from bench.rounds import Plan
from bench.singles import singles
from bench.socket_sends import socket_sends
from bench.start import start
from bench.turns import turns

LOAD_NAMES = {"loads": [each.name for each in LOADS], "nats": [name for name, _ in NATS_LOADS]}
"""Part → the names that `--load` takes for it."""


BROKER_PARTS = (
    "throughput",
    "amqp10",
    "loads",
    "failover",
    "groups",
    "commands",
    "clients",
    "start",
    "restart",
    "memory",
    "hostile",
)
OTHER_PARTS = (
    "nats",
    "turns",
    "processes",
    "raft",
    "spark",
    "decoding",
    "encoding",
    "staging",
    "writes",
    "sends",
    "prefetch",
    "singles",
    "spool",
    "publish",
)


def spark(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run the Spark part; its import needs pyspark."""
    from bench.first_batch import first_batches
    from bench.spark import pairs
    from bench.task_memory import task_memory

    first = first_batches(options.master, options.rounds)
    memory = task_memory(options.master)
    return [*first, *memory, *pairs(options.rows, options.master, options.profile)]


def decoding() -> list[dict[str, Any]]:
    """Run the part about columns; its import needs pyarrow."""
    from bench.decoding import decoding as run

    return run()


def encoding() -> list[dict[str, Any]]:
    """Run the part about the sink's columns; its import needs pyarrow."""
    from bench.encoding import encoding as run

    return run()


def staging() -> list[dict[str, Any]]:
    """Run the part about the sink's batches at the nodes; its import needs pyspark."""
    from bench.staging import staging as run

    return run()


def prefetch(rounds: int) -> list[dict[str, Any]]:
    """Run the part about claims opened ahead; its import needs pyspark."""
    from bench.prefetch import prefetch as run

    return run(rounds)


def spool(options: argparse.Namespace, rounds: int) -> list[dict[str, Any]]:
    """Run the part about the receiver; its import needs pika and pyarrow."""
    from bench.spool import spool as run

    return run(min(options.rows, 100_000), rounds)


def publish() -> list[dict[str, Any]]:
    """Run the part about the sink at RabbitMQ; its import needs pika and pyarrow."""
    from bench.amqp_publish import publish as run

    return run()


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the command line's options; a load that no part has ends the program."""
    parser = argparse.ArgumentParser(prog="build.py bench", description=__doc__)
    default = Plan()
    names = (*BROKER_PARTS, *OTHER_PARTS)
    parser.add_argument(
        "parts",
        nargs="*",
        choices=[*names, []],
        metavar="part",
        help=f"of {', '.join(names)}; without: all",
    )
    parser.add_argument("--seconds", type=int, default=default.seconds, help="of each run")
    parser.add_argument("--rounds", type=int, default=default.rounds, help="over the clusters")
    parser.add_argument("--only", choices=("warren", "rabbitmq"))
    parser.add_argument("--queues", type=int, default=default.queues, help="idle ones")
    parser.add_argument("--messages", type=int, default=default.messages, help="of a backlog")
    parser.add_argument("--large", type=int, default=default.large, help="of the large backlog")
    parser.add_argument("--tls", action="store_true", help="throughput of Warren over TLS, too")
    parser.add_argument(
        "--other",
        metavar="SETTING",
        default=default.other,
        help="throughput and loads of a second cluster of Warren, too, as raft.wal_recycle=false",
    )
    parser.add_argument("--load", nargs="*", default=(), help="the loads to measure, by name")
    parser.add_argument(
        "--profile",
        action="store_true",
        help="flame graphs of loads and spark, too, in runs that do not count",
    )
    parser.add_argument("--rows", type=int, default=500_000, help="of the Spark part")
    parser.add_argument("--master", default="local[2]", help="of the Spark part")
    parser.add_argument("--spark", help="version of PySpark for the Spark part, 4.0 or later")
    return _checked(parser, parser.parse_args(arguments))


def _checked(parser: argparse.ArgumentParser, options: argparse.Namespace) -> argparse.Namespace:
    """Return the options unless they leave a part nothing to measure; else the program ends."""
    wrong = _wrong_loads(options.parts, options.load)
    if wrong:
        parser.error(wrong)
    return options


def _wrong_loads(parts: list[str], names: list[str]) -> str:
    """Describe why `--load` would leave a part nothing to measure; empty: it does not."""
    if not names:
        return ""
    known = {part: of for part, of in LOAD_NAMES.items() if not parts or part in parts}
    if not known:
        return f"--load is for the parts {', '.join(LOAD_NAMES)}, not for {', '.join(parts)}"
    text = "; ".join(f"those of {part}: {', '.join(map(repr, of))}" for part, of in known.items())
    unknown = [name for name in names if not any(name in of for of in known.values())]
    if unknown:
        return f"no such load: {', '.join(map(repr, unknown))}; {text}"
    without = [part for part in parts if part in known and not set(names) & set(known[part])]
    return f"no load of {', '.join(without)} is named; {text}" if without else ""


def with_pyspark(wanted: str | None) -> None:
    """Continue as the same command beside that PySpark, when it is another one than is here."""
    if wanted in (None, version("pyspark")):
        return
    sys.path.append(str(ROOT / "tests" / "connector"))
    python = str(importlib.import_module("sparks.venvs").beside(wanted))
    os.environ.update(PYSPARK_PYTHON=python, PYSPARK_DRIVER_PYTHON=python)
    os.execv(python, [python, "-m", "bench", *sys.argv[1:]])


def main() -> int:
    """Run the parts; return 1 when one could not be run."""
    options = parsed()
    with_pyspark(options.spark)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that started processes are stopped
    sizes = ("seconds", "rounds", "only", "queues", "messages", "large", "tls", "other", "profile")
    plan = Plan(**{name: getattr(options, name) for name in sizes}, load=tuple(options.load))
    parts: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "throughput": lambda: brokers.throughput(plan),
        "amqp10": lambda: amqp10(plan),
        "loads": lambda: loads(plan),
        "nats": lambda: nats(plan),
        "turns": lambda: turns(plan),
        "processes": lambda: node_processes(plan),
        "failover": lambda: brokers.failover(plan),
        "groups": lambda: groups(plan),
        "commands": lambda: commands(plan),
        "clients": lambda: clients(plan),
        "start": lambda: start(plan),
        "restart": lambda: backlog.restart(plan),
        "memory": lambda: backlog.memory(plan),
        "hostile": lambda: hostile(plan),
        "raft": lambda: raft(plan),
        "spark": lambda: spark(options),
        "decoding": decoding,
        "encoding": encoding,
        "staging": staging,
        "writes": lambda: log_writes(plan.rounds),
        "sends": lambda: socket_sends(plan.rounds),
        "prefetch": lambda: prefetch(plan.rounds),
        "singles": singles,
        "spool": lambda: spool(options, plan.rounds),
        "publish": publish,
    }
    if options.profile:
        shutil.rmtree(FLAMES, ignore_errors=True)
    code = 0
    for name, run in parts.items():
        if options.parts and name not in options.parts:
            continue
        if plan.load and name in LOAD_NAMES and not set(plan.load) & set(LOAD_NAMES[name]):
            print(f"── {name}: none of its loads is named")
            continue
        print(f"── {name}", flush=True)
        try:
            results = run()
            kept = keep(name, results)
            if name == "loads":
                page(results, kept.with_suffix(".html"))
        except Missing as missing:
            print(f"{name} cannot be measured here: {missing}", file=sys.stderr)
            code = 1
    graphs = index(FLAMES) if options.profile else None
    if graphs is not None:
        print(f"flame graphs: {graphs}")
    return code


if __name__ == "__main__":
    sys.exit(main())
