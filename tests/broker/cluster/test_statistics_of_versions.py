"""Statistics of nodes of different versions, as during an upgrade."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from warren_broker.cluster.connections import Connections
from warren_broker.counting.message_stats import LENGTHS, VHOST_COUNTED
from warren_wire.admin.statistics import QueueStatistics

WIDTH = len(VHOST_COUNTED)


def of(count: int, width: int) -> QueueStatistics:
    """The counts of a vhost, as a node with that many of them has them."""
    return QueueStatistics("/", (count,) * width, (1.0,) * (width + len(LENGTHS)))


def test_what_a_node_counts_otherwise_is_left_out_of_the_sums() -> None:
    """1. A node of an older version counts less of vhosts.  2. Added up, the rates of its lengths
    would be those of octets, or the answer would fail."""
    told: list[list[QueueStatistics]] = []
    cluster: Any = SimpleNamespace(
        handlers={}, loop=None, on_peer_down=[], on_peer_suspected=[], host=None
    )
    definitions: Any = SimpleNamespace(within_reach=lambda: ["n2", "n3"])
    samples: Any = SimpleNamespace(read_vhosts=lambda vhost, wanted: (of(1, WIDTH),))
    totals: Any = None
    made = Connections(cluster, definitions, totals, samples, {})
    answers: Any = {
        "n2": SimpleNamespace(statistics=(of(10, WIDTH - 3),)),
        "n3": SimpleNamespace(statistics=(of(100, WIDTH),)),
    }
    survey: Any = SimpleNamespace(ask=lambda nodes, then, *asked: then(answers))
    made._survey = survey
    made.statistics("/", "", False, told.append, "vhosts")
    assert [one.counts for one in told[0]] == [(101,) * WIDTH]
