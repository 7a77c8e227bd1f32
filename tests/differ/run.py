"""One run: `python -m differ.run`; see `build.py differ --help`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench import rabbitmq
from bench.generator import Missing
from bench.ports import free_ports
from differ import scenarios
from differ.brokers import Broker, RabbitMQ, Warren
from differ.known import KNOWN
from differ.script import SCENARIOS, Script, Step
from differ.transcripts import Known, differences, record, recorded
from warren.local import LocalCluster

RECORDED_VERSION = "RabbitMQ 4.3.6"
PLUGINS = (
    "rabbitmq_management",
    "rabbitmq_consistent_hash_exchange",
    "rabbitmq_random_exchange",
    "rabbitmq_recent_history_exchange",
    "rabbitmq_sharding",
)
DATA = "/var/tmp/warren-differ-data"
RABBITMQ_SETTINGS = """\
management.tcp.port = {http}
management.tcp.ip = 127.0.0.1
collect_statistics_interval = 500
"""
LETTERS_RETRY_MS = 1_000
QUICKER = f"""\
application:set_env(rabbit, dead_letter_worker_publisher_confirm_timeout, {LETTERS_RETRY_MS}),
application:set_env(rabbit, quorum_tick_interval, 500).
"""
"""Settings of RabbitMQ that its configuration does not have: retries and counts, sooner."""
WARREN_SETTINGS = {"queues": {"dead_letter_worker_publisher_confirm_timeout_ms": LETTERS_RETRY_MS}}


def main(arguments: Sequence[str]) -> int:
    """Run scenarios on both brokers and compare; return 1 when something differs."""
    options = _options(arguments)
    scenarios.load()
    names = chosen(options.scenario)
    if options.recorded:
        return _as_recorded(names)
    with ExitStack() as stack:
        try:
            peer = stack.enter_context(_rabbitmq(options))
        except Missing as error:
            print(f"no RabbitMQ: {error}; tests/differ compares with its recordings")
            return 2
        if options.serve:
            print(f"{peer.name}: --rabbitmq {peer.address[1]} --http {options.http}", flush=True)
            print("it runs until it is interrupted (Ctrl-C, SIGINT)", flush=True)
            while True:
                time.sleep(3600)
        if options.record:
            for name in names:
                record(peer.name, {name: _ran(peer, name)})
            return 0
        with tempfile.TemporaryDirectory() as directory:
            warren = stack.enter_context(serving_warren(Path(directory)))
            return _compared(peer, warren, names)


def _as_recorded(names: list[str]) -> int:
    """Compare Warren with the recordings."""
    kept = recorded()
    findings: list[str] = []
    used: set[Known] = set()
    with tempfile.TemporaryDirectory() as directory, serving_warren(Path(directory)) as warren:
        for name in names:
            found, met = differences(name, kept[name], _ran(warren, name), KNOWN)
            used |= met
            findings += found
    return _concluded(names, findings, used)


def _compared(peer: Broker, warren: Broker, names: list[str]) -> int:
    kept = recorded() if peer.name == RECORDED_VERSION else {}
    findings: list[str] = []
    used: set[Known] = set()
    for name in names:
        theirs, ours = _ran(peer, name), _ran(warren, name)
        found, met = differences(name, theirs, ours, KNOWN)
        used |= met
        findings += found
        if kept and kept.get(name) != theirs:
            findings.append(f"{name}: the recording is of another time; record it again")
    return _concluded(names, findings, used)


def _concluded(names: list[str], findings: list[str], used: set[Known]) -> int:
    findings += [
        f"{one.row!r} at {one.where!r}: a known difference that is none (tests/differ/known.py)"
        for one in KNOWN
        if one not in used and len(names) == len(SCENARIOS)
    ]
    print("\n".join(findings))
    print(f"{len(names)} scenarios, {len(used)} known differences, {len(findings)} others")
    return 1 if findings else 0


def _ran(broker: Broker, name: str) -> list[Step]:
    began = time.monotonic()
    steps = Script(broker, name).run()
    print(f"  {broker.name:<16} {name:<60} {time.monotonic() - began:5.1f} s", flush=True)
    return steps


@contextmanager
def serving_warren(directory: Path) -> Iterator[Warren]:
    """Run a Warren node of its own."""
    with LocalCluster(nodes=1, directory=directory, settings=WARREN_SETTINGS) as cluster:
        made = Warren(cluster.address, cluster.nodes[0].name)
        try:
            yield made
        finally:
            made.close()


@contextmanager
def _rabbitmq(options: argparse.Namespace) -> Iterator[RabbitMQ]:
    if options.rabbitmq:
        yield RabbitMQ(RECORDED_VERSION, ("127.0.0.1", options.rabbitmq), options.http)
        return
    notes: list[str] = []
    root = rabbitmq.find(notes)
    print("\n".join(notes))
    options.http = free_ports(1)
    settings = RABBITMQ_SETTINGS.format(http=options.http)
    with rabbitmq.RabbitMQ(root, 1, PLUGINS, settings, DATA) as node:
        node.evaluate(QUICKER)
        host, port = node.targets().split(":")
        yield RabbitMQ(node.name, (host, int(port)), options.http)


def chosen(wanted: list[str]) -> list[str]:
    """Return the scenarios with one of these parts in their names, all if there is no part.

    raises  SystemExit: a part that no name contains, which would compare nothing
    """
    unknown = [part for part in wanted if not any(part in name for name in SCENARIOS)]
    if unknown:
        raise SystemExit(f"no scenario's name contains {', '.join(map(repr, unknown))}")
    return [name for name in sorted(SCENARIOS) if not wanted or any(w in name for w in wanted)]


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="build.py differ", description=__doc__)
    parser.add_argument("scenario", nargs="*", help="part of a name; none: all")
    parser.add_argument("--record", action="store_true", help="record RabbitMQ; Warren is not run")
    parser.add_argument(
        "--recorded", action="store_true", help="compare Warren with the recordings, no RabbitMQ"
    )
    parser.add_argument("--serve", action="store_true", help="run RabbitMQ for other runs")
    parser.add_argument(
        "--rabbitmq", type=int, metavar="PORT", help="use the one that --serve has started"
    )
    parser.add_argument("--http", type=int, metavar="PORT", default=15672)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
