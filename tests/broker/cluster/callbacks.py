"""Callbacks of a cluster without a broker around it: nothing is over, nothing is passed on."""

from __future__ import annotations

from warren_broker.cluster.cluster import ClusterCallbacks
from warren_broker.cluster.leader.leader_effects import LeaderCallbacks

LEADER = LeaderCallbacks(
    is_over=lambda node, uplink, number: False,
    expired=lambda group, reason: None,
    dead_letter=lambda group, effect: None,
    letters=lambda group, effect: None,
    jobs=lambda group, effect: None,
)
CLUSTER = ClusterCallbacks(
    metadata_applied=lambda meta, data, applied, leading: None,
    metadata_restored=lambda: None,
    metadata_led=lambda: None,
    judge_peer=lambda hello: None,
    leader=LEADER,
)
