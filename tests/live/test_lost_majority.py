"""What a client is told by a node that has lost the others."""

from __future__ import annotations

import re

import pytest

from warren import Admin, Connection
from warren.errors import Unavailable
from warren.local import LocalCluster
from warren.uri import Address

AWAY = (
    r"lost its majority: 2 of 3 members are unreachable \(node-1 since [\d :-]+ UTC, "
    r"node-2 since [\d :-]+ UTC\); start them, or see docs/how-to/lost-majority.md"
)


@pytest.mark.live
def test_a_lost_majority_is_named_with_the_members_that_are_missing() -> None:
    limits = {"limits": {"operation_timeout_ms": 2_000}}
    with LocalCluster(nodes=3, settings=limits) as cluster:
        with cluster.connect() as connection:
            Admin(connection).queues.declare("kept")
        for node in cluster.nodes[1:]:
            cluster.kill(node.name)
        alone = Address((("127.0.0.1", cluster.nodes[0].amqp_port),), request_timeout_s=8.0)
        with Connection(alone) as connection:
            for failing in (
                lambda: Admin(connection).queues.declare("new"),
                lambda: Admin(connection).queues.purge("kept"),
            ):
                with pytest.raises(Unavailable) as refused:
                    failing()
                assert re.search(AWAY, str(refused.value)), refused.value
