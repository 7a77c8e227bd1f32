"""Deadlines: the timer command and what every apply does first when it is due."""

from __future__ import annotations

from typing import Final

from warren_machines.queue import disconnects
from warren_machines.queue.apply_context import QueueContext
from warren_machines.queue.claims import claim
from warren_machines.queue.commands import AnyReply, Done, Timer
from warren_machines.queue.delayed import delayed_retry
from warren_machines.queue.relays import relays
from warren_machines.queue.sinks import stage

DONE: Final = Done()
EXPIRED_AGAIN_MS: Final = 60_000
"""An expired queue asks again for its deletion after this time, in case the effect was lost."""


def timer(context: QueueContext, command: Timer) -> AnyReply:
    """Ask again for a timer that came early; every apply does first what is due."""
    del command
    context.repeat_timer()
    return DONE


def run_due(context: QueueContext) -> None:
    """Do what is due and arm the next timer; message expiry is checked by every apply anyway."""
    state = context.state
    state.timer_ms = 0
    disconnects.take_back_overdue(context)
    claim.expire_claims(context)
    claim.expire_readers(context)
    stage.expire_stages(context)
    stage.expire_runs(context)
    delayed_retry.run_due(context)
    relays.expire(context)
    expires_ms = state.config.expires_ms
    if expires_ms is not None and not state.consumer_count:
        due = (context.now if state.in_use else state.unused_ms) + expires_ms
        if due <= context.now:
            context.expired("expires")
            due = context.now + EXPIRED_AGAIN_MS
        context.arm(due)
