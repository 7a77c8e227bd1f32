"""What a node tells the service manager that started it: systemd's `sd_notify(3)`."""

from __future__ import annotations

import logging
import os
import socket

from warren_raft.runtime.loop import Loop

log = logging.getLogger(__name__)

NOTIFY_SOCKET = "NOTIFY_SOCKET"
NOTIFY_READY = "READY=1"
NOTIFY_STOPPING = "STOPPING=1"
NOTIFY_ALIVE = "WATCHDOG=1"
WATCHDOG_INTERVAL = "WATCHDOG_USEC"
WATCHDOG_PROCESS = "WATCHDOG_PID"
ALIVE_IN_INTERVAL = 3
"""How often a watchdog's interval the node is to say that its loop turns: one may be lost."""
RESTART_ALLOWANCE_US = 3_600 * 1_000_000
"""The watchdog's interval while a node replaces its process and reads its directory again."""
NOTIFY_AGAIN_MS = 1_000
"""Until a manager that has taken nothing is told again that the node serves clients."""


def notify(state: str) -> bool:
    """Send a state such as NOTIFY_READY; return whether it may be tried again.

    Nothing is sent where no service manager listens. A failure is logged: the node serves all the
    same. It never waits: the manager of a machine may hang, or have more to read than its socket
    takes, and this is called on the node's loop.
    """
    address = os.environ.get(NOTIFY_SOCKET)
    if not address:
        return False
    if address.startswith("@"):  # a name without a file
        address = f"\0{address[1:]}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sent:
            sent.setblocking(False)
            sent.sendto(state.encode(), address)
    except BlockingIOError:
        log.warning("the service manager at %s does not take %s now", address, state)
        return True
    except OSError as error:
        log.warning("the service manager at %s is not told %s: %s", address, state, error)
    return False


def watchdog_us() -> int | None:
    """Return the interval of the service manager's watchdog, in microseconds; None: there is none.

    source  sd_watchdog_enabled(3): it counts for the process with the id in WATCHDOG_PID
    """
    interval, process = os.environ.get(WATCHDOG_INTERVAL, ""), os.environ.get(WATCHDOG_PROCESS)
    if not interval.isdecimal() or not int(interval) or process not in (None, str(os.getpid())):
        return None
    return int(interval)


class Watchdog:
    """Tells the service manager's watchdog that the loop turns, while it does.

    It is begun with the loop: before that a node may read its directory for as long as it takes.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._interval_us = watchdog_us()

    def start(self) -> None:
        """Tell it from now on."""
        if self._interval_us is None:
            return
        # An earlier process with this id may have asked for RESTART_ALLOWANCE_US.
        notify(f"{WATCHDOG_INTERVAL}={self._interval_us}")
        self._tell(max(1, self._interval_us // 1000 // ALIVE_IN_INTERVAL))

    def _tell(self, interval_ms: int) -> None:
        notify(NOTIFY_ALIVE)
        self._loop.call_later(interval_ms, lambda: self._tell(interval_ms))


def ask_for_time() -> None:
    """Have the watchdog wait while this process is replaced by one that reads the directory."""
    if watchdog_us() is not None:
        notify(f"{WATCHDOG_INTERVAL}={RESTART_ALLOWANCE_US}")
