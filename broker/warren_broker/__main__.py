"""The process of one node: `warren-broker run --config FILE`, or `python -m warren_broker`."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import pwd
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

try:
    from warren_broker import config
except ModuleNotFoundError as missing:
    if missing.name not in ("pydantic", "re2"):
        raise
    sys.exit(
        f"a node needs the package {missing.name}, which clients do not: "
        "pip install 'warrenmq[broker]'"
    )
from warren_broker.broker.boot_definitions import DefinitionsUnusable
from warren_broker.cluster import allocator
from warren_broker.cluster.cluster import LOST_MAJORITY_PAGE
from warren_broker.listeners import service_manager
from warren_broker.node import Node
from warren_broker.process import log_levels, logs, structured_logs
from warren_broker.process.open_secrets import warnings
from warren_broker.tokens.token_keys import KeysUnusable
from warren_raft.errors import StorageError
from warren_raft.runtime import open_files
from warren_raft.storage.errors import DirectoryOutdated, DirectoryRefused
from warren_raft.storage.files import is_full
from warren_raft.storage.identity import IDENTITY
from warren_wire import VERSION, kernel
from warren_wire.tls.contexts import CertificatesUnusable

log = logging.getLogger("warren_broker")

EXIT_USAGE = 2
EXIT_FAILED = 1
EXIT_FAULT = 70
"""A fault in the program (sysexits: software). Python's own code for it is 1, which says that a
node cannot start, or that its storage has failed: there an operator has something to do."""
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
FIRST_PROCESS = 1
SPACE_POLL_S = 2.0
"""Interval of attempts that need disk space before the loop runs, or after it has ended."""
START_DOUBLED_MAX = 5
"""The interval of starts doubles with each, at most this many times: each one is logged."""
STARTS_REFUSED = "WARREN_STARTS_REFUSED"
"""Variable that tells the next process how many in a row had no space to start."""
COLLECT_AFTER = (50_000, 20, 100)
"""gc thresholds: new objects, and younger collections, between two collections. A pass of the loop
makes thousands of objects, nearly all freed by reference counts, and a node holds a hundred per
queue for years. With Python's default of 700 a third of a restart of 5,000 queues was spent
collecting."""


COMMANDS = ("run", "check", "recover", "restore")
USAGE = """warren-broker run --config FILE      run one node
       warren-broker check --config FILE    say what would keep it from starting
       warren-broker check --definitions FILE
                                            say what an import of that file would refuse
       warren-broker recover --as-only-member --config FILE [--yes NODE]
                                            make a stopped node a cluster of its own, when most
                                            nodes are lost for good
       warren-broker restore --from PLACE --config FILE [--id ID]
                                            make the directory of a node of a new cluster
       warren-broker restore --from-copy --config FILE
                                            make a copied directory one of another cluster"""


def main(arguments: list[str] | None = None) -> int:
    """Run a command; without its name: `run`. Return the exit code."""
    if not __debug__:
        print("warren: refusing python -O: assertions guard the data here", file=sys.stderr)
        return EXIT_USAGE
    parser = argparse.ArgumentParser(
        prog="warren-broker", usage=USAGE, description="one node of a Warren cluster"
    )
    parser.add_argument("command", nargs="?", choices=COMMANDS, default="run", help="default: run")
    parser.add_argument("--config", type=Path, help="TOML file; without it: defaults and WARREN_*")
    parser.add_argument(
        "--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR")
    )
    parser.add_argument("--definitions", type=Path, help="check: a file of definitions")
    parser.add_argument("--as-only-member", action="store_true", help="recover: required")
    parser.add_argument("--yes", metavar="NODE", help="recover: the node's name, not asked for")
    parser.add_argument("--from", dest="source", metavar="PLACE", help="restore: the backups")
    parser.add_argument("--id", default="", help="restore: one backup; without it the newest")
    parser.add_argument("--from-copy", action="store_true", help="restore: a copied directory")
    parser.add_argument("--cluster-id", default="", help="restore: the same for every node")
    parser.add_argument(
        "--without-links", action="store_true", help="restore: no shovels, no federation"
    )
    parser.add_argument("--version", action="version", version=f"warren {VERSION}")
    options = parser.parse_args(arguments)
    if options.command == "check" and options.definitions is not None:
        return check_file_only(options.definitions)
    if options.command == "check":
        return check_only(options.config)
    if options.command == "recover":
        if not options.as_only_member:
            parser.error(f"recover needs --as-only-member: see {LOST_MAJORITY_PAGE}")
        return recover_only(options.config, options.yes)
    if options.command == "restore":
        if options.from_copy == bool(options.source):
            parser.error("restore needs --from PLACE or --from-copy: see docs/how-to/backup.md")
        if options.cluster_id and not re.fullmatch("(?!0{16})[0-9a-f]{16}", options.cluster_id):
            parser.error("--cluster-id has 16 hexadecimal digits, not all zero")
        return restore_only(options)
    return serve(options.config, options.log_level)


def check_only(file: Path | None) -> int:
    """Print what would keep a node from starting, and what it would warn of; the exit code."""
    from warren_broker.broker.check import check

    try:
        settings = config.load(file)
    except config.ConfigError as error:
        print(f"warren: {error}", file=sys.stderr)
        return EXIT_USAGE
    problems, doubts = check(settings)
    for text in (*warnings(file, os.environ), *doubts):
        print(f"warning: {text}", file=sys.stderr)
    for text in problems:
        print(f"error: {text}", file=sys.stderr)
    if not problems:
        print(f"{file or 'environment'}: node {settings.node} of cluster {settings.cluster}: ok")
    return EXIT_USAGE if problems else 0


def check_file_only(file: Path) -> int:
    """Print what an import of a file of definitions would refuse or leave out; the exit code."""
    from warren_broker.broker.definitions_check import check_definitions

    problems, left_out = check_definitions(file)
    for text in left_out:
        print(f"warning: {text}", file=sys.stderr)
    for text in problems:
        print(f"error: {text}", file=sys.stderr)
    if not problems:
        print(f"{file}: an import takes it")
    return EXIT_USAGE if problems else 0


def restore_only(options: argparse.Namespace) -> int:
    """Write a node's directory from a backup, or rename a copied one; the exit code."""
    from warren_broker.backup.restore import RestoreRefused, rename_copy, restore
    from warren_wire.backups.manifest import BackupDamaged
    from warren_wire.backups.store import StoreUnusable

    logs.set_up("WARNING")
    try:
        settings = config.load(options.config)
        if options.from_copy:
            print(rename_copy(settings, options.cluster_id))
        else:
            given = (options.source, options.id, options.cluster_id)
            print(restore(settings, *given, links=not options.without_links))
    except config.ConfigError as error:
        print(f"warren: {error}", file=sys.stderr)
        return EXIT_USAGE
    except BackupDamaged as error:
        print(f"warren: refused: the backup is damaged: {error}", file=sys.stderr)
        return EXIT_FAILED
    except (RestoreRefused, StoreUnusable, StorageError, OSError) as error:
        print(f"warren: refused: {error}", file=sys.stderr)
        return EXIT_FAILED
    finally:
        logs.flush()
    return 0


def recover_only(file: Path | None, confirmed: str | None) -> int:
    """Make a stopped node the only one of its cluster; the exit code."""
    from warren_broker.backup.recover import RecoveryRefused, recover

    logs.set_up("WARNING")
    try:
        if confirmed is None and not sys.stdin.isatty():
            raise RecoveryRefused("not on a terminal: give the node's name with --yes NODE")
        return recover(config.load(file), confirmed, input)
    except config.ConfigError as error:
        print(f"warren: {error}", file=sys.stderr)
        return EXIT_USAGE
    except (RecoveryRefused, StorageError, OSError) as error:
        print(f"warren: refused: {error}", file=sys.stderr)
        return EXIT_FAILED
    finally:
        logs.flush()


def end_by_signals() -> None:
    """Let a signal to stop end this process at once: the node stores nothing at that time.

    A container's first process has the id 1: the kernel ignores its signals without a handler, and
    gives it the processes that others leave behind, to be collected when they have ended.
    """
    first = os.getpid() == FIRST_PROCESS
    if first:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel collects them
    for number in STOP_SIGNALS:
        signal.signal(number, _end_at_once if first else signal.SIG_DFL)


def _end_at_once(number: int, _: object) -> None:
    os._exit(128 + number)


def serve(file: Path | None, log_level: str) -> int:
    """Run a node until it is told to stop; return the exit code."""
    if os.getpid() == FIRST_PROCESS:
        end_by_signals()
    allocator.use_one_arena()  # before the first thread
    logs.set_up(log_level)
    try:
        settings = config.load(file)
    except config.ConfigError as error:
        print(f"warren: {error}", file=sys.stderr)
        return EXIT_USAGE
    structured_logs.configure(settings.log)
    for category, level in settings.log.levels.items():
        log_levels.set_level(category, level)
    for text in warnings(file, os.environ):
        log.warning("%s", text)
    if kernel.ACTIVE == "interpreted":
        log.warning(
            "the kernel runs interpreted, about ten times slower than compiled: install the wheel "
            "that is for this Python and machine, or compile it"
        )
    before, now = open_files.raise_limit()
    if before != now:
        log.info("limit of open files raised from %d to %d", before, now)
    # Many short passes, few threads: the WAL's thread must get the interpreter soon after its sync.
    sys.setswitchinterval(0.0005)
    allocator.give_back_regularly()
    gc.set_threshold(*COLLECT_AFTER)
    gc.freeze()  # modules and settings are permanent: no collection need scan them
    try:
        return run(Node(settings, announce))
    except KeysUnusable as error:
        log.error("cannot start: %s", error)
        return EXIT_USAGE
    except Exception:
        log.critical("this node ends: a fault in the program", exc_info=True)
        return EXIT_FAULT
    finally:
        logs.flush()


def announce(node: Node) -> None:
    """Print the node's addresses, and tell the service manager: it serves clients.

    Not on the loop's thread: standard output may be a pipe of which the reader hangs.
    """
    text = (
        f"warren ready node={node.settings.node} amqp={node.amqp_address} "
        f"amqps={node.amqps_address} peers={node.peer_address}\n"
    )
    written = (sys.stdout.fileno(), text, sys.stdout.encoding)
    threading.Thread(target=logs.write_all, args=written, name="ready", daemon=True).start()
    _tell_ready(node)


def _tell_ready(node: Node) -> None:
    """Tell the service manager, until it listens: it may wait for that."""
    if service_manager.notify(service_manager.NOTIFY_READY):
        node.loop.call_later(service_manager.NOTIFY_AGAIN_MS, lambda: _tell_ready(node))


def shut_down(node: Node) -> None:
    """Tell the service manager, and shut the node down."""
    service_manager.notify(service_manager.NOTIFY_STOPPING)
    node.shut_down()


def run(node: Node) -> int:
    """Start, run until a signal, stop; return the exit code."""
    try:
        node.start()
    except OSError as error:
        if is_full(error) and (node.settings.data_dir / IDENTITY).exists():
            # It has served before, and retries by itself, as when its disk fills up later.
            log.error("cannot start yet: %s; will be retried when there may be space", error)
            refused = int(os.environ.get(STARTS_REFUSED, "0"))
            os.environ[STARTS_REFUSED] = str(refused + 1)
            time.sleep(SPACE_POLL_S * 2 ** min(refused, START_DOUBLED_MAX))
            _begin_anew()
        log.error("cannot start: %s%s", error, _remedy(error))
        return EXIT_FAILED
    except StorageError as error:
        log.error("cannot start: %s", error)
        return EXIT_FAILED
    except (CertificatesUnusable, DefinitionsUnusable) as error:
        log.error("cannot start: %s", error)
        return EXIT_USAGE
    os.environ.pop(STARTS_REFUSED, None)
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: node.loop.post(lambda: shut_down(node)))
    service_manager.Watchdog(node.loop).start()
    try:
        node.loop.run()
    except DirectoryOutdated as error:
        log.critical("%s", error)
        end_by_signals()
        node.withdraw()
        try:
            _note_outdated(node, error.reason)
        except OSError as failed:
            log.critical("%s", failed)
            return EXIT_FAILED
        _begin_anew()
    except DefinitionsUnusable as error:
        log.critical("cannot start: %s", error)
        node.stopped()
        return EXIT_FAILED
    except DirectoryRefused as error:
        log.critical("%s", error)
        node.withdraw()
        return EXIT_FAILED
    except StorageError as error:
        # What was acknowledged is on disk; whatever else a stop would do may need the disk again.
        log.critical("%s", error)
        return EXIT_FAILED
    node.stopped()
    return 0


def _remedy(error: OSError) -> str:
    """Return what to do about a failure of the operating system, to go behind its text."""
    own = _name_of_user(os.geteuid())
    if isinstance(error, IsADirectoryError):
        return f": a directory is where the node keeps a file; move {error.filename} away"
    if not isinstance(error, PermissionError):
        return ""
    if error.filename is None:
        return ": a port below 1024 needs the capability CAP_NET_BIND_SERVICE; take a higher one"
    path = Path(os.fsdecode(error.filename))
    there = next((one for one in (path, *path.parents) if _exists(one)), Path("/"))
    owner = _name_of_user(there.stat().st_uid)
    return (
        f": this process runs as user {own}, and {there} is {owner}'s; start it as {owner}, or "
        f"`chown -R {own}` the directory"
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:
        return False


def _name_of_user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _note_outdated(node: Node, reason: str) -> None:
    """Record in `node.json` that the directory is an older copy; waits for space.

    1. There is none.  2. The next process knows nothing, and takes the older copy for its own.
    3. It reaches only nodes that do not know what is missing, and votes for one of them. So no next
    process may start before it is on disk, and this one serves no client.
    """
    waits = False
    while True:
        try:
            return node.host.note_outdated(reason)
        except OSError as error:
            if not is_full(error):
                raise
            if not waits:
                log.error(
                    "no space in %s to say that it is an older copy: this node does nothing until "
                    "there is. Free some: it continues by itself",
                    node.settings.data_dir,
                )
            waits = True
        time.sleep(SPACE_POLL_S)


def _begin_anew() -> NoReturn:
    """Replace this process by a new one: nothing that this one has read is still valid."""
    service_manager.ask_for_time()
    logs.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
