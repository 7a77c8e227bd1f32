"""Raising the cluster's version, by the leader of the metadata group or by an operator."""

from __future__ import annotations

import logging

from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.definitions import Definitions
from warren_machines.metadata import commands
from warren_machines.metadata.cluster_version import attainable, held_back_by, named_nodes
from warren_machines.metadata.codec import encode_submission
from warren_raft.errors import NotLeader
from warren_raft.runtime.host import UnknownGroup
from warren_raft.types import METADATA_GROUP
from warren_wire import errors

log = logging.getLogger(__name__)


class VersionRaiser:
    """Raises the cluster's version when every node has the next one.

    Until then every node can go back to the release before, afterwards none can.
    """

    def __init__(self, cluster: Cluster, definitions: Definitions, automatic: bool) -> None:
        """automatic: as soon as every node has it; otherwise an operator says when."""
        self._cluster = cluster
        self._definitions = definitions
        if automatic:
            definitions.on_nodes.append(lambda node: self._look())
            cluster.on_led.append(lambda group: self._look() if group == METADATA_GROUP else None)

    def _look(self) -> None:
        host, state = self._cluster.host, self._definitions.state
        version = attainable(state)
        # 1. a and b of the founders a, b and c are registered, with version 2.  2. c, with version
        # 1, has voted, but not said so yet. So all must be there.
        unheard = set(self._definitions.nodes()) - state.nodes.keys()
        if version <= state.version or unheard or not host.is_leader(METADATA_GROUP):
            return
        command = commands.RaiseVersion(version)
        try:
            host.propose(
                METADATA_GROUP, encode_submission(0, host.node_id, 0, (command,), host.version)
            )
        except (NotLeader, UnknownGroup):
            return  # the next leader does it
        log.info("every node has version %d: the cluster's version is raised to it", version)

    def finish(self, done: errors.Answer[int]) -> None:
        """Raise the version as far as every node has it; answer the cluster's version.

        Refused: a node that is no newer than the cluster.
        """
        state = self._definitions.state
        version = attainable(state)
        newest = max((one.versions.newest for one in state.nodes.values()), default=version)
        if version == state.version < newest:
            behind = named_nodes(held_back_by(state, version + 1))
            done(
                errors.PreconditionFailed(
                    f"the cluster stays at version {version}: {behind} has no later one; upgrade "
                    "what is named first"
                )
            )
            return
        raised = errors.converted(done, lambda _: version)
        self._definitions.submit(commands.RaiseVersion(version), raised)
