"""Which nodes are short of something, as the others know it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.cluster.universe import Universe
from warren_broker.cluster.resource_alarms import ResourceAlarms


@pytest.fixture
def universe() -> Iterator[Universe]:
    made = Universe()
    made.until(made.ready, "the cluster is formed")
    yield made
    made.close()


def test_an_alarm_of_a_node_that_hangs_blocks_nobody_and_is_there_again_with_it(
    universe: Universe,
) -> None:
    """Its connection stands, so nothing says that it is lost; it cannot say that it has enough."""
    shortages = {name: ResourceAlarms(one.cluster) for name, one in universe.running.items()}
    for name, one in universe.running.items():
        shortages[name].start()
        for other in one.cluster.peers():
            shortages[name]._peer_up(other)
    heard: list[tuple[str, ...]] = []
    shortages["a"].listen(heard.append)
    shortages["c"].is_short(("memory",))
    universe.until(lambda: heard == [("memory",)], "its alarm is heard")
    assert shortages["a"].explained() == "c is low on memory"
    host, cluster = universe.running["a"].host, universe.running["a"].cluster
    host.hanging.add("c")
    cluster.peer_suspected("c")
    assert heard == [("memory",), ()] and shortages["a"].explained() == ""
    host.hanging.discard("c")
    cluster.peer_back("c")
    assert heard == [("memory",), (), ("memory",)]
    universe.kill("c")
    assert heard[-1] == ()
