"""Other people's clients, with their own tests or programs made for them, on a cluster.

    python3 build.py clients
    python3 build.py clients qpid-jms
    python3 build.py clients python --sources DIRECTORY
    python3 build.py clients --rabbitmq

The clients come from PyPI, npm's registry, Maven's repository, Go's proxy and Cargo's registry.
The suites `python`, `java` and `hop` need checkouts of rabbitmq-amqp-python-client,
rabbitmq-amqp-java-client and hop in DIRECTORY, because the packages have no tests; a
rabbitmq-amqp-go-client or rabbit-hole there is used, too. Tests expect port 5672, so everything
runs in a network namespace (Linux, `unshare`), in which no other broker listens. Clients of AMQP
1.0, and amqplib, run on three nodes; rabbitmqadmin, rabbit-hole, hop and amqp091-go, which ask the
HTTP API, run on one, with the API on port 15672. What does not apply (streams, rabbitmqctl,
certificates of a client's own integration) is named in the suites' tables and counted apart.
--rabbitmq runs the same on RabbitMQ, from `build.py bench`'s chroot, instead of on Warren (root).
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika

from bench import rabbitmq
from bench.generator import Missing
from clients import suites
from clients.http_setup import HTTP_PORT
from clients.outcome import NotRun, Outcome
from warren.local import LocalCluster

PORT = 5672
NODES = 3
DATA = "/var/tmp/warren-clients-data"
HTTP = {"enabled": True, "tcp": {"port": HTTP_PORT}, "collect_statistics_interval": 1_000}
PLUGINS = (
    *("rabbitmq_management", "rabbitmq_shovel", "rabbitmq_shovel_management"),
    *("rabbitmq_federation", "rabbitmq_federation_management"),
)
SIOCSIFFLAGS, IFF_UP, IFF_LOOPBACK = 0x8914, 1, 8
INSIDE = "--inside"
"""Said to the process in the namespace by the one that made it."""


def main(arguments: list[str]) -> int:
    """Run the named suites, or all, and print the table; 1 when a test failed or did not run."""
    options = _options(arguments)
    with tempfile.TemporaryDirectory(prefix="warren-clients-") as top:
        if not options.inside:
            return _in_namespace(arguments)
        _bring_loopback_up()
        outcomes: list[Outcome] = []
        for http in (False, True):
            chosen = [one for one in options.suites if suites.SUITES[one].http == http]
            if chosen:
                with _broker(options.rabbitmq, Path(top), http) as name:
                    outcomes += [_run(suite, name, options, Path(top)) for suite in chosen]
    print("\n".join(table(outcomes)))
    return 0 if all(one.ok for one in outcomes) else 1


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="build.py clients",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(suites.SUITES)}")
    parser.add_argument(
        "--sources",
        type=Path,
        metavar="DIRECTORY",
        help="checkouts of clients with packages that have no tests, each in a folder of its name",
    )
    parser.add_argument("--rabbitmq", action="store_true", help="on RabbitMQ instead of Warren")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    for name in options.suites:
        if name not in suites.SUITES:
            parser.error(f"unknown suite {name!r}; there are {', '.join(suites.SUITES)}")
    options.suites = options.suites or list(suites.SUITES)
    if options.sources is not None and not options.sources.is_dir():
        parser.error(f"--sources {options.sources} is not a directory")
    return options


def _in_namespace(arguments: list[str]) -> int:
    """Install the clients, then run this program in a network namespace of its own."""
    options = _options(arguments)
    if shutil.which("unshare") is None:
        print("build.py clients needs Linux with `unshare` (Debian: util-linux)", file=sys.stderr)
        return 2
    for name in options.suites:
        try:
            suites.SUITES[name].install(options.sources)
        except NotRun as error:
            print(f"{name}: {error}", flush=True)  # the table says so again
    own = ["--net"] if os.geteuid() == 0 else ["--net", "--map-root-user"]
    again = [sys.executable, "-m", "clients.run", *arguments, INSIDE]
    return subprocess.run(["unshare", *own, "--", *again], check=False).returncode


def _bring_loopback_up() -> None:
    flags = struct.pack("16sh14x", b"lo", IFF_UP | IFF_LOOPBACK)
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, flags)


@contextmanager
def _broker(on_rabbitmq: bool, directory: Path, http: bool) -> Iterator[str]:
    """Run a broker that listens on PORT; yield its name. http: one node, with the HTTP API."""
    if not on_rabbitmq:
        nodes, settings = (1, {"management": HTTP}) if http else (NODES, {})
        place = directory / ("one" if http else "cluster")
        with LocalCluster(nodes=nodes, directory=place, port=PORT, settings=settings):
            yield f"Warren, {nodes} node{'s' if nodes > 1 else ''}"
        return
    try:
        root = rabbitmq.find([])
    except Missing as error:
        raise SystemExit(f"no RabbitMQ: {error}") from None
    listens = f"listeners.tcp.2 = 127.0.0.1:{PORT}\n"
    listens += f"management.tcp.port = {HTTP_PORT}\n" if http else ""
    plugins = PLUGINS if http else ()
    with rabbitmq.RabbitMQ(root, 1, plugins, settings=listens, data=DATA) as node:
        yield node.name


def declare(queue: str) -> None:
    """Declare an empty quorum queue, on either broker."""
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", PORT))
    channel = connection.channel()
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
    channel.queue_purge(queue)
    connection.close()


def _run(name: str, broker: str, options: argparse.Namespace, directory: Path) -> Outcome:
    print(f"{name} on {broker} …", flush=True)
    began = time.monotonic()
    suite = suites.SUITES[name]
    if suite.queue:
        declare(suite.queue)
    try:
        outcome = suite.run(options.sources, directory, on_warren=not options.rabbitmq)
    except NotRun as error:
        outcome = Outcome(name, why=str(error))
    print(f"   {time.monotonic() - began:.0f} s", flush=True)
    for failure in outcome.failed:
        print(f"   failed: {failure}", flush=True)
    return outcome


def table(outcomes: list[Outcome]) -> list[str]:
    """Return the lines of the table of all suites, and the reasons of what does not apply."""
    lines = ["", "suite            ran  passed  failed  not applicable"]
    for one in outcomes:
        if one.why:
            lines.append(f"{one.suite:<16} not run: {one.why}")
            continue
        ran = len(one.passed) + len(one.failed)
        apart = sum(one.not_applicable.values())
        row = f"{one.suite:<14} {ran:>5} {len(one.passed):>7} {len(one.failed):>7} {apart:>15}"
        lines.append(row)
        lines += [f"   {count:>4} not applicable: {why}" for why, count in one.reasons()]
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
