"""What is remembered to answer repeats is no less than what may be asked again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from machines.metadata.world import World
from warren_broker.cluster import definitions
from warren_broker.cluster.client.uplink import UNANSWERED_MAX, InFlight
from warren_broker.cluster.definitions import metadata_uplink
from warren_machines.metadata import commands, state
from warren_machines.queue import machine

A_TURN = 700
"""Commands that are given in one turn."""


def test_a_queue_remembers_the_replies_to_all_that_is_under_way() -> None:
    assert UNANSWERED_MAX <= machine.REPLIES_KEPT


@pytest.mark.parametrize(
    ("kept", "count"),
    [
        *((kept, count) for kept in (1, 3, 50) for count in (1, 49, 400)),
        *((state.REPLIES_KEPT_MAX, count) for count in (1, 49, 3_000)),
    ],
)
def test_every_change_of_definitions_is_answered_when_its_leader_dies_before_it_does(
    monkeypatch: pytest.MonkeyPatch, kept: int, count: int
) -> None:
    """All that is under way is applied, all answers are lost, all is sent again."""
    monkeypatch.setattr(state, "REPLIES_KEPT_MAX", kept)
    monkeypatch.setattr(definitions, "REPLIES_KEPT_MAX", kept)
    world = World()
    host: Any = SimpleNamespace(boot_id=72, node_id="b", version=1)
    uplink = metadata_uplink(host, InFlight())
    answers: list[Any] = []
    applied: list[Any] = []
    for number in range(count):
        vhost = commands.AddVhost(commands.Vhost(f"v{number}"))
        uplink.command(vhost, lambda reply, index: answers.append(reply))
        if number % A_TURN == 0:
            applied += [world.entry(sent.data) for sent in uplink.take()]
    while uplink.waiting or uplink.unanswered:
        applied += [world.entry(sent.data) for sent in uplink.take()]
        uplink.rewind()
        for sent in uplink.take():
            reply = world.entry(sent.data)
            assert uplink.answered(reply.seq, reply.replies, len(world.log))
    assert answers == [commands.MetadataDone()] * count
    assert len(world.state.scopes) == count + 1 and applied
