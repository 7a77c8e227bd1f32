"""What is due at a time."""

from __future__ import annotations

from typing import Final

from warren_broker.queue import claim, disconnects, stage, stage1
from warren_broker.queue.apply_context import Turn
from warren_broker.queue.commands import AnyReply, Done, Timer

DONE: Final = Done()
EXPIRED_AGAIN_MS: Final = 60_000
"""A queue that has expired says so again after that long, in case nobody heard."""


def timer(turn: Turn, command: Timer) -> AnyReply:
    """Nothing by itself: every apply does first what is due. One that came early is repeated."""
    del command
    turn.repeat_timer()
    return DONE


def run_due(turn: Turn) -> None:
    """Do what is due, ask for the next timer; message expiry is looked at by every apply anyway."""
    state = turn.state
    state.timer_ms = 0
    disconnects.take_back_overdue(turn)
    claim.expire_claims(turn)
    stage1.expire_stages(turn)
    stage.expire_stages(turn)
    expires_ms = state.config.expires_ms
    if expires_ms is not None and not state.consumer_count:
        due = (turn.now if state.in_use else state.unused_ms) + expires_ms
        if due <= turn.now:
            turn.expired("expires")
            due = turn.now + EXPIRED_AGAIN_MS
        turn.arm(due)
