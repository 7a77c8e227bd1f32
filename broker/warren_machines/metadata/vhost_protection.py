"""Vhosts that are protected from deletion.

The flag is a parameter of the vhost, of a component that clients can neither set nor see: every
version of the machine keeps it, in its log and in snapshots. The machine refuses the deletion, so
that the order in the log decides. 1. One node is asked to protect a vhost.  2. Another one, which
has not applied that yet, is asked to delete it.  3. The deletion comes after the flag.
"""

from __future__ import annotations

from typing import Final

from warren_machines.metadata.records import Parameter
from warren_machines.metadata.state import MetadataState
from warren_wire import errors

VHOST_COMPONENT: Final = "vhost"
"""Component of the parameters that the broker keeps about a vhost."""
PROTECTED: Final = "protected_from_deletion"
"""RabbitMQ's name of the flag, in definitions and over HTTP."""


def protection(vhost: str, on: bool) -> Parameter:
    """Return the flag as a parameter."""
    return Parameter(vhost, VHOST_COMPONENT, PROTECTED, on)


def protected(state: MetadataState, vhost: str) -> bool | None:
    """Return whether a vhost is protected; None: that was never set, so it is not."""
    found = state.parameters(vhost).get((VHOST_COMPONENT, PROTECTED))
    return None if found is None else found.value is True


def check_deletion(state: MetadataState, vhost: str) -> None:
    """Raise PreconditionFailed for a vhost that is protected."""
    if protected(state, vhost):
        raise errors.PreconditionFailed(
            f"Refusing to delete virtual host '{vhost}' because it is protected from deletion"
        )
