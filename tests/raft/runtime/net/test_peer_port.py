"""What strangers at the port for peers take from those that are expected there: nothing."""

from __future__ import annotations

import logging
import socket
from functools import partial
from pathlib import Path

import pytest

from tests.raft.runtime.kit import until
from tests.raft.runtime.net.test_transport import Raw, greeting, hello, made
from warren_raft.runtime.host import Host
from warren_raft.runtime.loop import Loop
from warren_raft.runtime.net.call_table import CallState
from warren_raft.runtime.net.peer_port import PeerPort
from warren_raft.runtime.net.transport import REPEAT_MS, SUBJECTS_MAX, TEXTS_MAX, SaidOnce
from warren_raft.versions import OWN, Versions

LONG_MS = 600_000
"""Of a handshake: what a stranger holds is held until the test is over."""
STRANGERS, SHARE = 40, 10


def silent(host: Host, count: int, address: str) -> list[socket.socket]:
    """Connect so many sockets from that address, which say nothing."""
    return [
        socket.create_connection(("127.0.0.1", host.port), source_address=(address, 0))
        for _ in range(count)
    ]


def all_arrived(port: PeerPort, count: int) -> bool:
    """Return whether so many have a place, wait for one, or were turned away."""
    return sum(port.counts()["peer_strangers"]) == count


def test_strangers_have_shares_and_a_peers_address_has_places_of_its_own(tmp_path: Path) -> None:
    loop = Loop()
    settings = {
        "handshake_ms_max": LONG_MS,
        "strangers_max": STRANGERS,
        "strangers_per_address_max": SHARE,
    }
    b = made(loop, tmp_path, "b", **settings)
    b.add_peer("a", ("127.0.0.1", 1))
    port = b._transport.peer_port
    held: list[socket.socket] = []
    for number in range(2, 8):
        held += silent(b, 2 * STRANGERS, f"127.0.0.{number}")
        until(loop, partial(all_arrived, port, len(held)))
        places, waiting, _, _ = port.counts()["peer_strangers"]
        assert places == min(STRANGERS, (number - 1) * SHARE)
        assert len(port.connections()) == places and waiting <= STRANGERS
    assert port.counts()["peers"] == (0, 0, 0, 0)
    a = made(loop, tmp_path, "a", **settings)
    a.add_peer("b", ("127.0.0.1", b.port))
    until(loop, lambda: a.connected("b") and b.connected("a"))
    assert a._transport._peers["b"].delay_ms == a.config.reconnect_ms_min, "its first call"
    assert port.counts()["peer_strangers"][0] == STRANGERS, "all of them are taken"
    assert port.counts()["peers"] == (0, 0, 0, 0), "its place is free again"
    for sock in held:
        sock.close()
    until(loop, lambda: port.counts()["peer_strangers"][:2] == (0, 0))
    assert port.connections() == [] and not port.waiting
    a.stop()
    b.stop()
    loop.close()


def test_a_hello_in_a_peers_name_stops_no_call_and_replaces_no_connection(tmp_path: Path) -> None:
    """It counts from its proof on: until then it is a stranger's."""
    loop = Loop()
    a = made(loop, tmp_path, "a", handshake_ms_max=LONG_MS)
    a.add_peer("b", ("127.0.0.1", 1))
    peer = a._transport._peers["b"]
    until(loop, lambda: peer.calls.attempt is CallState.WAITING)
    forged = [Raw(loop, a) for _ in range(3)]
    for raw in forged:
        raw.send(greeting(hello("b")))
        raw.read(lambda r: len(r.frames()) == 1)
        assert peer.called is None and peer.calls.attempt is not CallState.CALLED
        peer.check()
    calls = peer.calls_made
    until(loop, lambda: peer.calls_made > calls + 1)
    b = made(loop, tmp_path, "b", handshake_ms_max=LONG_MS)
    a.add_peer("b", ("127.0.0.1", b.port))
    until(loop, lambda: a.connected("b") and b.connected("a"))
    connection = peer.connection
    raw = Raw(loop, a)
    raw.send(greeting(hello("b", boot_id=9)))
    raw.read(lambda r: len(r.frames()) == 1)
    assert peer.connection is connection and a.connected("b")
    a.stop()
    b.stop()
    loop.close()


def test_while_two_versions_meet_each_node_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "warren.raft")
    loop = Loop()
    a = made(loop, tmp_path, "a", reconnect_ms_max=20)
    b = made(loop, tmp_path, "b", reconnect_ms_max=20, versions=Versions(98, 99))
    a.add_peer("b", ("127.0.0.1", b.port))
    b.add_peer("a", ("127.0.0.1", a.port))
    made_calls = (a._transport._peers["b"], b._transport._peers["a"])
    until(loop, lambda: all(peer.calls_made > 15 for peer in made_calls))
    lines = [line for line in caplog.messages if "has versions 98 to 99" in line]
    assert 0 < len(lines) <= 4, "of each node one about its calls, one about the other's"
    for host, other in ((a, "b"), (b, "a")):
        refusal = host._transport.peer_port.refusals[other]
        assert "node 'b' has versions 98 to 99" in refusal and f"node 'a' has {OWN}" in refusal
    a.stop()
    b.stop()
    loop.close()


@pytest.mark.parametrize("size", [0, 256])
def test_a_name_of_another_size_is_refused(tmp_path: Path, size: int) -> None:
    loop = Loop()
    host = made(loop, tmp_path, "b")
    raw = Raw(loop, host)
    raw.send(greeting(hello("x" * size)))
    raw.read(lambda r: r.ended)
    assert f"name of {size} bytes, not 1 to 255".encode() in raw.received
    host.stop()
    loop.close()


def test_a_line_is_said_once_per_change_and_the_memory_of_it_is_bounded() -> None:
    said = SaidOnce()
    both = [said.news("to b", text, 0) for text in ("refused", "no answer") * 3]
    assert both == [True, True, False, False, False, False], "two addresses, called by turns"
    assert not said.news("to b", "refused", REPEAT_MS - 1)
    assert said.news("to b", "refused", REPEAT_MS)
    said.forget("to b")
    assert said.news("to b", "refused", REPEAT_MS)
    for number in range(3 * SUBJECTS_MAX):
        for text in range(2 * TEXTS_MAX):
            said.news(f"from {number}", str(text), 0)
    assert len(said._said) == SUBJECTS_MAX
    assert all(len(texts) == TEXTS_MAX for texts in said._said.values())
