"""What a node tells the service manager that started it: systemd's `sd_notify(3)`."""

from __future__ import annotations

import logging
import os
import socket

log = logging.getLogger(__name__)

NOTIFY_SOCKET = "NOTIFY_SOCKET"
NOTIFY_READY = "READY=1"
NOTIFY_STOPPING = "STOPPING=1"


def notify(state: str) -> None:
    """Send a state such as NOTIFY_READY; nothing where no service manager listens.

    A failure is logged: the node serves all the same.
    """
    address = os.environ.get(NOTIFY_SOCKET)
    if not address:
        return
    if address.startswith("@"):  # a name without a file
        address = f"\0{address[1:]}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sent:
            sent.sendto(state.encode(), address)
    except OSError as error:
        log.warning("the service manager at %s is not told %s: %s", address, state, error)
