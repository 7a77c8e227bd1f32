"""Bugs to plant in what follows policies; see `plants`."""

from __future__ import annotations

from typing import Any

from sim.planting import Replacement, by_name
from warren_broker.cluster.leader.policy_follower import PolicyFollower
from warren_broker.cluster.membership import mirror_follower
from warren_broker.cluster.membership.mirror_follower import MirrorFollower
from warren_machines.queue import machine, whole_queue
from warren_machines.queue.commands import Configure


def a_new_leader_looks_at_no_policy() -> list[Replacement]:
    """Policies are compared with queues only when they change."""
    return [(PolicyFollower, "_led", lambda self, group: self._proposed.pop(group, None))]


def a_cleared_limit_stays() -> list[Replacement]:
    """A queue is not given its own settings back."""
    wanted = PolicyFollower._wanted

    def sticky(self: PolicyFollower, group: int) -> Any:
        found = wanted(self, group)
        queue = self._definitions.state.groups.get(group)
        return None if queue is not None and found == queue.config else found

    return [(PolicyFollower, "_wanted", sticky)]


def a_new_limit_empties_the_queue() -> list[Replacement]:
    """A limit below what a queue holds drops everything, and reports nothing."""
    configure = whole_queue.configure

    def careless(context: Any, command: Any) -> Any:
        state = context.state
        if command.config.max_length is not None and state.order.count > command.config.max_length:
            for index, first, last, _, _ in state.order.clear():
                state.contents.drop(index, last - first + 1)
            state.ready_bytes = 0
        return configure(context, command)

    return [(machine, "HANDLERS", {**machine.HANDLERS, Configure: careless})]


def half_filled_members_count() -> list[Replacement]:
    """A member that is catching up releases a former one."""

    def hasty(states: Any) -> list[str]:
        sound = [one for one in states if not (one.suspected or one.lost) or one.leader]
        return [one.node for one in sorted(sound, key=lambda one: (one.voter, one.match))]

    return [(mirror_follower, "_complete", hasty)]


def a_cleared_mirror_policy_is_forgotten() -> list[Replacement]:
    """A queue stays where a policy wanted it when that is cleared."""
    return [(MirrorFollower, "policy", MirrorFollower.asked)]


PLANTS = by_name(
    a_new_leader_looks_at_no_policy,
    a_cleared_limit_stays,
    a_new_limit_empties_the_queue,
    half_filled_members_count,
    a_cleared_mirror_policy_is_forgotten,
)
