"""Brings the settings of the queues that are led here in line with their policies.

A queue's settings are a part of its replicated state, and change by a command of its log
(`queue.commands.Configure`), so that every member applies a limit to the same messages. The leader
proposes that command whenever the settings differ from what the definitions say: when it becomes
the leader, when policies have changed, and when this node has got to know the definitions. A leader
that fails before that leaves the work to the next one, and a repeat changes nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.definitions import Definitions
from warren_broker.cluster.leader.letter_forwarder import warn_of_fallback
from warren_broker.cluster.turns import WORK_STEPS_PER_TURN
from warren_machines.metadata.commands import Barrier
from warren_machines.queue.commands import Configure
from warren_raft.types import METADATA_GROUP
from warren_wire.queue_values.config import QueueConfig

QUEUES_PER_PASS: Final = 500
"""Queues compared before the loop does other work; fewer, where their policies' patterns take many
steps."""


class PolicyFollower:
    """Compares the queues that are led here with their policies.

    Nothing is proposed on the strength of what this node happens to know. 1. A policy with a small
    limit is set, and cleared again.  2. A node that has applied only the first of these becomes a
    queue's leader.  3. With the limit it would drop messages that were confirmed after the policy
    was cleared. So a difference is looked at again after a barrier of the definitions, which is
    answered when this node has applied whatever was answered before; only what differs then is
    proposed. Replayed by tests/broker/cluster/leader/test_policy_follower.py

    _waiting    groups to compare, in passes
    _differing  groups that wait for the next barrier
    _proposed   the settings last proposed to a group since this node leads it: what its state will
                be. 1. A policy is set, its command proposed.  2. The policy is cleared before the
                command is applied: the state does not show what is on its way.
    """

    def __init__(self, cluster: Cluster, definitions: Definitions) -> None:
        self._cluster = cluster
        self._definitions = definitions
        self._waiting: OrderedDict[int, None] = OrderedDict()
        self._differing: dict[int, None] = {}
        self._proposed: dict[int, QueueConfig] = {}
        self._asked = False
        cluster.on_led.append(self._led)
        definitions.on_policies.append(self._changed)
        definitions.on_ready.append(lambda: self._changed(None))

    def _led(self, group: int) -> None:
        self._proposed.pop(group, None)
        if group != METADATA_GROUP and self._definitions.ready:
            self._compare(group)

    def _changed(self, vhosts: tuple[str, ...] | None) -> None:
        """Compare the queues of these vhosts; None: of all."""
        if not self._definitions.ready:
            return
        began = bool(self._waiting)
        groups = self._definitions.state.groups
        for group in [group for group in self._proposed if group not in groups]:
            del self._proposed[group]
        for group in sorted(self._cluster.effects.led):
            queue = groups.get(group)
            if queue is not None and (vhosts is None or queue.vhost in vhosts):
                self._waiting[group] = None
        if self._waiting and not began:
            self._pass()

    def _pass(self) -> None:
        left = WORK_STEPS_PER_TURN
        while self._waiting and left > 0:
            group, _ = self._waiting.popitem(last=False)
            self._compare(group)
            queue = self._definitions.state.groups.get(group)
            left -= WORK_STEPS_PER_TURN // QUEUES_PER_PASS
            if queue is not None:
                policies = self._definitions.policies(queue.vhost)
                left -= policies.cost(queue.name, queue.config.followed_as)
        if self._waiting:
            self._cluster.loop.call_later(0, self._pass)

    def _wanted(self, group: int) -> QueueConfig | None:
        """Return the settings that a queue led here should have; None: it has them."""
        queue = self._definitions.state.groups.get(group)
        host = self._cluster.host
        if queue is None or not host.is_leader(group):
            return None
        wanted = self._definitions.config(queue)
        current = self._proposed.get(group) or host.state(group).config
        return None if current == wanted else wanted

    def _compare(self, group: int) -> None:
        if self._wanted(group) is not None:
            self._differing[group] = None
            self._ask()

    def _ask(self) -> None:
        if self._asked or not self._differing:
            return
        self._asked = True
        groups, self._differing = tuple(self._differing), {}

        def current(reply: object) -> None:
            self._asked = False
            for group in groups:
                wanted = self._wanted(group)
                if wanted is not None:
                    self._proposed[group] = wanted
                    warn_of_fallback(wanted)
                    self._cluster.effects.command(group, Configure(wanted))
            self._ask()

        self._definitions.submit(Barrier(), current, forever=True)
