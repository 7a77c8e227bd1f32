"""Handlers of the requests for the cluster's version."""

from __future__ import annotations

from warren_broker.admin.caller import Answer, Asker
from warren_machines.metadata.cluster_version import attainable, held_back_by, nodes_that_count
from warren_machines.metadata.state import MetadataState
from warren_wire.admin import cluster_version as requests
from warren_wire.admin.cluster_version import ClusterVersion, NodeVersions


def _described(state: MetadataState) -> ClusterVersion:
    nodes = sorted(nodes_that_count(state), key=lambda one: one.name)
    reached = attainable(state)
    later = any(one.versions.newest > reached for one in nodes)
    behind = held_back_by(state, reached + 1) if later else ()
    shown = tuple(NodeVersions(one.name, *one.versions, one.name in behind) for one in nodes)
    return ClusterVersion(state.version, reached, shown)


def _get(asker: Asker, request: requests.GetClusterVersionRequest, answer: Answer) -> None:
    answer(_described(asker.state))


def _finish(asker: Asker, request: requests.FinishUpgradeRequest, answer: Answer) -> None:
    asker.log("finish the upgrade of the cluster")
    raised = asker.then(answer, lambda _: _described(asker.state))
    asker.broker.membership.nodes.versions.finish(raised)
