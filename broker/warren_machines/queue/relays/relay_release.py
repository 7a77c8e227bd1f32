"""The command with which an operator has a queue give up what it keeps for a relay."""

from __future__ import annotations

from warren_machines.queue import attach
from warren_machines.queue.apply_context import QueueContext
from warren_machines.queue.commands import AnyReply, Count, Refused
from warren_machines.queue.relays import relays
from warren_machines.queue.relays.relay_commands import ReleaseRelay


def release(context: QueueContext, command: ReleaseRelay) -> AnyReply:
    """Make ready what is kept for a relay without a session.

    1. A node that runs the relay dies for good.  2. Its sessions are never over.  3. What they held
    could not be released. So a suspected node's consumers of the relay end, as they would when the
    relay consumes from another node: their acknowledgements are ignored from then on.
    """
    state = context.state
    relay = state.relays.get(command.relay)
    if relay is None:
        return Count(0)
    uplink = state.uplinks.get(relay.owner[0])
    if not relay.idle_ms and uplink is not None and not uplink.suspected_ms:
        return Refused(
            "relay_in_use",
            f"relay {relay.name!r} of queue {state.config.name!r} is connected: delete or pause "
            "its shovel, or remove its link, first",
        )
    for consumer in relays.consumers_of(state, relay):
        attach.take_over(context, consumer)
    return Count(relays.forget(context, relay))
