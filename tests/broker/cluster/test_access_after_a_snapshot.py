"""Which users are taken for deleted when a snapshot has replaced the definitions."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from broker.cluster.universe import Universe
from warren_machines.metadata.machine import MetadataMachine
from warren_machines.metadata.records import User
from warren_machines.metadata.state import MetadataState
from warren_raft.types import METADATA_GROUP


@pytest.fixture
def universe() -> Iterator[Universe]:
    made = Universe()
    made.until(made.ready, "the cluster is formed")
    yield made
    made.close()


def test_a_user_that_was_deleted_and_added_within_a_snapshot_is_another_one(
    universe: Universe,
) -> None:
    """Clients of the first one stayed, with the rights of the second one."""
    one = universe.running["a"]
    definitions, member = one.broker.definitions, one.host.started[METADATA_GROUP]
    machine = MetadataMachine()
    state: MetadataState = member.state
    for name in ("ann", "bob", "tom"):
        state.users[name] = User(name, f"hash of {name}")
    assert "ann" in definitions.state.users
    restored = machine.restore(machine.snapshot(state))
    restored.users["ann"] = User("ann", "another hash")
    restored.users["bob"] = msgspec.structs.replace(state.users["bob"], tags=("administrator",))
    del restored.users["tom"]
    told: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
    definitions.on_access.append(lambda users, vhosts: told.append((users, vhosts)))
    member.state = restored
    definitions.restored()
    universe.until(lambda: told, "the definitions are compared")
    # Without names the receivers compare by themselves: tom is found missing there.
    assert told == [(("ann",), ())]
