"""A peer that is silent, speaks for a moment, and is silent again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.raft.runtime.kit import Cluster
from tests.raft.runtime.test_silence import Wire, over
from warren_raft.runtime.net.call_table import Act, Calls, CallState, Event, LinkState

SETTINGS = {"heartbeat_ms": 20, "suspect_after_ms": 400, "handshake_ms_max": 60_000}


def test_a_peer_that_speaks_during_a_renewal_and_is_silent_again_ends_no_node(
    tmp_path: Path,
) -> None:
    """The call beside the silent connection is in its handshake through all of it."""
    cluster = Cluster(tmp_path, ("a", "b"), **SETTINGS)
    wire = Wire(cluster.ports["b"])
    a, b = cluster.hosts["a"], cluster.hosts["b"]
    cluster.until(lambda: a.connected("b") and b.connected("a"))
    a.add_peer("b", ("127.0.0.1", wire.port))
    cluster.until(lambda: over(wire, cluster))
    peer = a._transport._peers["b"]
    old, made = peer.connection, peer.calls_made
    wire.hold = True
    for _ in range(3):
        wire.cut(to=False, back=True)
        cluster.until(lambda: a.suspected("b"))
        cluster.until(lambda: peer.calls.link is LinkState.SILENT)
        cluster.until(lambda: peer.calling is not None)
        wire.speak()
        cluster.until(lambda: not a.suspected("b") and peer.calls.link is LinkState.UP)
        assert peer.calls.attempt is CallState.CALLING
        peer.check()
    assert (peer.connection, peer.calls_made) == (old, made + 1), "one call at a time"
    wire.hold = False
    assert peer.calling is not None
    peer.calling.stream.abort()
    wire.cut(to=False, back=True)
    cluster.until(lambda: peer.connection not in (None, old))
    assert a.send("b", [b"heard"])
    cluster.until(lambda: ("a", b"heard") in cluster.messages["b"])
    cluster.close()
    wire.close()


def events(first: bool, link: LinkState, attempt: CallState) -> list[Event]:
    """Return what can happen to one side in that state."""
    possible = [Event.MOVED, Event.PROVEN, Event.ESTABLISHED]
    if attempt is CallState.WAITING:
        possible.append(Event.DUE)
    if attempt is CallState.CONNECTING:
        possible.append(Event.CONNECTED)
    if attempt in (CallState.CONNECTING, CallState.CALLING, CallState.CALLED):
        possible.append(Event.FAILED)
    if link is not LinkState.DOWN:
        # They come from timers and from another part: at any time while there is a connection.
        possible += [Event.LOST, Event.SUSPECTED, Event.HEARD]
    return possible


@pytest.mark.parametrize("first", [True, False])
def test_every_state_that_can_be_reached_has_one_attempt_and_a_way_to_a_connection(
    first: bool,
) -> None:
    """All states, by all events: what is begun replaces what was begun before."""
    begin = Calls(first)
    begin.step(Event.DUE if first else Event.LOST)
    reached = {(begin.link, begin.attempt)}
    left = list(reached)
    parts = {
        Act.CONNECT: CallState.CONNECTING,
        Act.GREET: CallState.CALLING,
        Act.WAIT: CallState.WAITING,
    }
    while left:
        state = left.pop()
        for event in events(first, *state):
            calls = Calls(first)
            calls.link, calls.attempt = state
            acts = calls.step(event)
            calls.check()
            over_already = event in (Event.DUE, Event.CONNECTED, Event.FAILED)
            running = not over_already and state[1] is not CallState.NONE
            for act in acts:
                if act is Act.DROP:
                    running = False
                elif act in parts:
                    assert not running, (state, event, acts)
                    assert calls.attempt is parts[act], (state, event, acts)
                    running = True
            if calls.attempt is CallState.CALLED and event is Event.PROVEN:
                assert not running, (state, event, acts)
                running = True
            assert running == (calls.attempt is not CallState.NONE), (state, event, acts)
            now = (calls.link, calls.attempt)
            if now not in reached:
                reached.add(now)
                left.append(now)
    idle = {link for link, attempt in reached if attempt is CallState.NONE}
    assert idle == ({LinkState.UP} if first else {LinkState.UP, LinkState.SILENT}), (
        "it calls, or the peer does"
    )
    assert ((LinkState.UP, CallState.CALLING) in reached) == first
