"""The command that declares a checked queue: its members, first leader and first settings."""

from __future__ import annotations

from warren_broker.cluster.membership.mirror_follower import MirrorFollower
from warren_broker.cluster.membership.placement import Placement
from warren_broker.config import Queues
from warren_machines.metadata.commands import DeclareQueue
from warren_machines.metadata.policy_index import PolicyIndex
from warren_wire.arguments import QueueDeclaration
from warren_wire.mirror_keys import mirror_policy
from warren_wire.policy_keys import leader_locator


class QueueCommands:
    """Makes commands that declare queues."""

    def __init__(self, placement: Placement, mirrors: MirrorFollower, settings: Queues) -> None:
        self._placement = placement
        self._mirrors = mirrors
        self._relaxed = settings.relaxed_checks_on_redeclaration

    def declaration(
        self,
        checked: QueueDeclaration,
        policies: PolicyIndex,
        connection: int = 0,
        server_named: bool = False,
        leaders: dict[str, int] | None = None,
    ) -> DeclareQueue:
        """Choose nodes for a queue, and apply the policies that it follows.

        leaders  see `Placement.leader`
        """
        config = checked.config
        followed = policies.of_queue(config.name, config.followed_as).definition
        mirrors = mirror_policy(followed) if config.durable else None
        if mirrors is not None:
            nodes = self._mirrors.initial_members(mirrors)
        else:
            nodes = self._placement.members(checked.group_size)
        leader = self._placement.leader(nodes, leader_locator(checked, followed), leaders)
        initial = policies.apply(config, checked.arguments)
        return DeclareQueue(
            config,
            checked.arguments,
            nodes,
            leader,
            connection,
            server_named,
            relaxed=self._relaxed,
            initial=None if initial == config else initial,
            mirrored=mirrors is not None,
            by_default=checked.by_default,
        )
