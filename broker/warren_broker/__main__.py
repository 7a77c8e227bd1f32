"""The process of one node: `python -m warren_broker --config FILE`."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import signal
import sys
from pathlib import Path

from warren_broker import config, logs
from warren_broker.node import Node
from warren_raft.errors import StorageError
from warren_raft.storage.errors import DirectoryOutdated

EXIT_USAGE = 2
EXIT_FAILED = 1
COLLECT_AFTER = (50_000, 20, 100)
"""Objects made, and younger collections, between two searches for cycles: a turn makes thousands of
objects, nearly all freed by their counts, and a node holds a hundred per queue for years. With
Python's own 700 a third of a restart of 5,000 queues went into looking at them."""


def main(arguments: list[str] | None = None) -> int:
    """Run a node until it is told to stop; returns the exit code."""
    if not __debug__:
        print("warren: refusing python -O: assertions guard the data here", file=sys.stderr)
        return EXIT_USAGE
    parser = argparse.ArgumentParser(
        prog="warren_broker", description="one node of a Warren cluster"
    )
    parser.add_argument("--config", type=Path, help="TOML file; without it: defaults and WARREN_*")
    parser.add_argument(
        "--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR")
    )
    options = parser.parse_args(arguments)
    logs.set_up(options.log_level)
    try:
        settings = config.load(options.config)
    except config.ConfigError as error:
        print(f"warren: {error}", file=sys.stderr)
        return EXIT_USAGE
    # Many short turns, few threads: the WAL's thread must get the interpreter soon after its sync.
    sys.setswitchinterval(0.0005)
    gc.set_threshold(*COLLECT_AFTER)
    gc.freeze()  # modules and settings stay: no search need look at them
    return run(Node(settings))


def run(node: Node) -> int:
    """Start, turn until a signal, stop."""
    node.on_serving = lambda: print(
        f"warren ready node={node.settings.node} amqp={node.amqp_address} "
        f"peers={node.peer_address}",
        flush=True,
    )
    try:
        node.start()
    except (OSError, StorageError) as error:
        logging.getLogger("warren_broker").error("cannot start: %s", error)
        return EXIT_FAILED
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: node.loop.post(node.shut_down))
    try:
        node.loop.run()
    except DirectoryOutdated as error:
        # As another process: nothing of what this one has read may count any more.
        logging.getLogger("warren_broker").critical("%s", error)
        sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    except StorageError as error:
        # What was vouched for is on disk; whatever else a stop would do may need the disk again.
        logging.getLogger("warren_broker").critical("%s", error)
        return EXIT_FAILED
    node.stopped()
    return 0


if __name__ == "__main__":
    sys.exit(main())
