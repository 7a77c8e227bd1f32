"""Operators that set, change and clear policies, and what must follow from them in the end."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from sim.checkers import require
from sim.whole.people import VHOST, OneAtATime
from sim.whole.profile import GOVERNED
from sim.whole.registrars import SAFE_SIZE
from warren_machines.metadata.commands import ClearPolicy, SetPolicy
from warren_machines.metadata.records import Policy
from warren_raft.errors import RaftError
from warren_raft.types import METADATA_GROUP
from warren_wire.errors import Refusal, Unavailable
from warren_wire.policy_keys import check_policy

if TYPE_CHECKING:
    from sim.whole.process import Process
    from sim.whole.world import World

MOVED = 0.4
"""Share of the changes after which the queue's leader is another one at once."""
TTLS_MS = (300, 900)
"""The lower one is the plan's: nothing may expire before it."""


class Policymaker(OneAtATime):
    """Sets and clears policies of limits and of membership; in the end it clears them all.

    finished  when it looked last, there were none; what was answered with `Unavailable` may come
    """

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number, world.plans[GOVERNED])
        self.finished = False
        self.changed = 0

    def act(self) -> None:
        """One change at a time."""
        self.ask_next(self.change)
        self.again(200 if self.world.calm else 500)

    def change(self, process: Process) -> None:
        """In the node's turn."""
        policies = process.broker.definitions.policies(VHOST)
        there = sorted(
            (name, operator) for operator in (False, True) for name in policies.of(operator)
        )
        command: SetPolicy | ClearPolicy
        self.finished = self.world.calm and not there and self.at is process
        if self.world.calm and not there:
            self.finished &= process.broker.definitions.ready
            self.busy = False
            return
        if there and (self.world.calm or self.rng.random() < 0.3):
            name, operator = self.rng.choice(there)
            command = ClearPolicy(VHOST, name, operator)
        else:
            command = SetPolicy(self.drawn())
        self.world.note("policy", command)

        def answered(reply: Any) -> None:
            self.busy = False
            self.changed += not isinstance(reply, Refusal)
            # Two of them may clear one policy.
            allowed = isinstance(command, ClearPolicy) or isinstance(reply, Unavailable)
            require(allowed or not isinstance(reply, Refusal), "a policy was refused", reply)
            if self.rng.random() < MOVED:
                self.move_leader()

        process.broker.definitions.submit(command, answered)

    def move_leader(self) -> None:
        """Move the queue's leadership, before its leader may have seen what was changed."""
        for machine in self.world.present().values():
            process = machine.running
            queue = None if process is None else self.queue(process)
            if process is None or queue is None or not process.host.is_leader(queue.group):
                continue
            to = self.rng.choice(process.host.members(queue.group).voters)
            process.inject(partial(hand_over, process, queue.group, to))

    def drawn(self) -> Policy:
        """Some policy that can be set."""
        rng = self.rng
        mirror = self.mirror() if rng.random() < 0.6 else None
        if mirror is not None:
            pattern = rng.choice((".", f"^{GOVERNED}$", "^plain$"))
            if self.world.profile.unlucky and mirror["ha-mode"] == "nodes":
                # A queue that is declared again where most of the listed nodes are not seen begins
                # on fewer than a lost disk leaves a majority of.
                pattern = "^plain$"
            policy = Policy(VHOST, f"mirror{rng.randrange(2)}", pattern, mirror, rng.randrange(3))
        else:
            policy = Policy(
                VHOST,
                f"limit{rng.randrange(2)}",
                f"^{GOVERNED}$",
                self.limits(),
                rng.randrange(3),
                operator=rng.random() < 0.3,
            )
        check_policy(
            policy.name,
            policy.pattern,
            policy.definition,
            policy.priority,
            policy.apply_to,
            policy.operator,
        )
        return policy

    def limits(self) -> dict[str, Any]:
        """Limits that the queue's plan allows for."""
        every = {
            "max-length": self.rng.choice((2, 6)),
            "message-ttl": self.rng.choice(TTLS_MS),
            "delivery-limit": self.rng.choice((-1, 0, 2)),
        }
        keys = self.rng.sample(sorted(every), self.rng.choice((1, 1, 2, 3)))
        return {key: every[key] for key in keys}

    def mirror(self) -> dict[str, Any] | None:
        """A membership; None: this world has too few nodes for one that is safe."""
        founders = self.world.names[: self.world.profile.nodes]
        least = SAFE_SIZE if self.world.profile.unlucky else 1
        if least > len(founders):
            return None
        size = self.rng.choice((least, self.rng.randint(least, len(founders))))
        return self.rng.choice(
            (
                {"ha-mode": "all"},
                {"ha-mode": "exactly", "ha-params": size},
                {"ha-mode": "nodes", "ha-params": self.rng.sample(founders, size)},
                {"ha-mode": "nodes", "ha-params": [*self.rng.sample(founders, size), "unknown"]},
            )
        )


def hand_over(process: Process, group: int, to: str) -> None:
    """Transfer a leadership, if it can be just now."""
    with contextlib.suppress(RaftError):
        process.cluster.hand_over(group, to)


def are_followed(world: World) -> bool:
    """Return whether all queues have the settings and the members that the policies leave them.

    1. A node answers `Unavailable` to a policymaker, as the group of the definitions has no leader.
    2. There are no policies; the queues follow that.  3. What the node still sends, as it never
    knew what became of it, sets the policy. So nothing that was submitted may be unanswered.
    Replayed by tests/sim/test_blameless.py
    """
    makers = [one for one in world.people if isinstance(one, Policymaker)]
    if makers and not (all(one.finished for one in makers) and world.answered(METADATA_GROUP)):
        return False
    for machine in world.present().values():
        process = machine.running
        if process is None:
            return False
        policies = process.broker.definitions.policies(VHOST)
        if makers and any(policies.of(operator) for operator in (False, True)):
            return False
        for queue in process.broker.definitions.state.queues():
            if queue.mirrored:
                return False
            if process.host.is_leader(queue.group):
                wanted = process.broker.definitions.config(queue)
                if process.host.state(queue.group).config != wanted:
                    return False
    return True


def check_intents(world: World) -> None:
    """Check that queues that follow a policy are wanted where a voter is.

    The newest definitions are compared with the newest leaders, while no disk is lost.
    """
    running = [one.running for one in world.present().values() if one.running is not None]
    known = [process for process in running if METADATA_GROUP in process.host.groups()]
    if world.profile.unlucky or not known:
        return
    newest = max(known, key=lambda process: process.host.applied_index(METADATA_GROUP))
    for queue in newest.broker.definitions.state.queues():
        leading = [process for process in running if process.host.is_leader(queue.group)]
        if not queue.mirrored or not leading:
            continue
        leader = max(leading, key=lambda process: process.host.term(queue.group))
        voters = leader.host.members(queue.group).voters
        require(
            bool(set(voters) & set(queue.nodes)),
            "a queue is wanted only where nothing of it is",
            queue.name,
            queue.nodes,
            voters,
        )
