"""What a node tells the service manager that started it: systemd's `sd_notify(3)`."""

from __future__ import annotations

import logging
import os
import socket

log = logging.getLogger(__name__)

NOTIFY_SOCKET = "NOTIFY_SOCKET"
NOTIFY_READY = "READY=1"
NOTIFY_STOPPING = "STOPPING=1"
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
