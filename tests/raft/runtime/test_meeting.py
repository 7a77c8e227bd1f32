"""Nodes that do not know each other, call each other at once, move, leave."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.raft.runtime.kit import Recorder, until
from tests.raft.runtime.net.test_transport import Raw, greeting, hello
from warren_raft.runtime.config import HostConfig
from warren_raft.runtime.host import Host
from warren_raft.runtime.loop import Loop
from warren_raft.runtime.net import connection as connections
from warren_raft.runtime.net.handshake import Hello, NodeRemoved, Proof, prove
from warren_raft.storage.errors import DirectoryRefused


class Judge(Recorder):
    """Refuses the nodes that `verdict` refuses."""

    verdict: Callable[[Hello], str | None] = staticmethod(lambda hello: None)

    def judge_peer(self, hello: Hello) -> str | None:
        return self.verdict(hello)


def made(loop: Loop, root: Path, node: str, **settings: Any) -> Host:
    values: dict[str, Any] = {
        "node": node,
        "cluster": "test",
        "secret": b"a secret of the tests",
        "listen": ("127.0.0.1", 0),
        "peers": {},
        "data_dir": root / node,
        "handshake_ms_max": 500,
        "reconnect_ms_max": 60,
    }
    host = Host(HostConfig(**{**values, **settings}), loop, Judge())
    host.start()
    return host


def at(host: Host) -> tuple[str, int]:
    return "127.0.0.1", host.port


def judge(host: Host) -> Judge:
    assert isinstance(host._observer, Judge)
    return host._observer


def events(host: Host, kind: str) -> list[Any]:
    assert isinstance(host._observer, Recorder)
    return [event for event in host._observer.events if event[0] == kind]


def stop(loop: Loop, *hosts: Host) -> None:
    for host in hosts:
        host.stop()
    loop.close()


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_a_node_that_nobody_named_calls_and_is_a_peer(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    loop = Loop()
    knows, unknown = (made(loop, tmp_path, name) for name in names)
    knows.add_peer(unknown.node_id, at(unknown))
    until(loop, lambda: unknown.connected(names[0]) and knows.connected(names[1]))
    hello = unknown.peer_hello(names[0])
    assert hello is not None
    assert hello.address == at(knows) and hello.disk == knows.disk != unknown.disk
    assert not hello.formed
    received: list[bytes] = []
    knows._on_message = lambda node, body: received.append(bytes(body))
    assert unknown.send(names[0], [b"good day"])
    until(loop, lambda: received == [b"good day"])
    stop(loop, knows, unknown)


@pytest.mark.parametrize("seed", range(60))
def test_of_two_calls_at_once_exactly_one_comes_to_its_end(tmp_path: Path, seed: int) -> None:
    """Each node has a loop of its own, and their turns interleave as the seed says."""
    rng = Random(seed)
    loops = {name: Loop() for name in ("a", "b")}
    hosts = {name: made(loops[name], tmp_path, name) for name in ("a", "b")}
    for name, other in rng.sample([("a", "b"), ("b", "a")], 2):
        hosts[name].add_peer(other, at(hosts[other]))
        peer = hosts[name]._transport._peers[other]
        if peer.retry is not None:  # the side that would wait to be called does not
            peer.retry.cancel()
            hosts[name]._transport._due(peer)
        for _ in range(rng.randrange(3)):
            loops[rng.choice("ab")].run_turn(0)
    connected, moves = 0, rng.randrange(12)
    while connected < 40:
        moves -= 1
        if moves == 0:  # the same place by another name: called there, unless a call is under way
            hosts["a"].add_peer("b", ("127.1", hosts["b"].port))
        connected += all(hosts[n].connected(o) for n, o in (("a", "b"), ("b", "a")))
        loops[rng.choice("ab")].run_turn(rng.choice((0, 0, 1)))
    for name, other in (("a", "b"), ("b", "a")):
        host = hosts[name]
        assert (len(events(host, "up")), len(events(host, "down"))) == (1, 0), host.node_id
        peer = host._transport._peers[other]
        assert peer.calling is None and peer.called is None and peer.connector is None
        assert host._transport.peer_port.connections() == []
    for name, host in hosts.items():
        host.stop()
        loops[name].close()


def test_both_sides_find_each_other_again_when_either_restarts(tmp_path: Path) -> None:
    loop = Loop()
    one, two = made(loop, tmp_path, "a"), made(loop, tmp_path, "b")
    two.add_peer("a", at(one))
    until(loop, lambda: one.connected("b") and two.connected("a"))
    hosts = {"a": one, "b": two}
    for name, other in (("a", "b"), ("b", "a"), ("a", "b")):
        gone, stays = hosts[name], hosts[other]
        port = gone.port
        gone.stop()
        until(loop, partial(lambda host, node: not host.connected(node), stays, name))
        # It knows no other node except from its own directory.
        hosts[name] = made(loop, tmp_path, name, listen=("127.0.0.1", port))
        until(loop, lambda: hosts["a"].connected("b") and hosts["b"].connected("a"))
    stop(loop, *hosts.values())


def test_a_node_that_moved_is_found_where_it_is(tmp_path: Path) -> None:
    loop = Loop()
    one, two = made(loop, tmp_path, "a"), made(loop, tmp_path, "b")
    one.add_peer("b", at(two))
    until(loop, lambda: one.connected("b") and two.connected("a"))
    old = two.port
    two.stop()
    until(loop, lambda: not one.connected("b"))
    two = made(loop, tmp_path, "b")
    assert two.port != old
    until(loop, lambda: one.connected("b") and two.connected("a"))  # it called
    two._transport._peers["a"].connection.stream.abort()  # type: ignore[union-attr]
    until(loop, lambda: one.connected("b"))  # whichever node calls first
    assert one._logs.directory.identity.peers["b"] == at(two)
    stop(loop, one, two)


def test_an_address_that_means_everywhere_is_not_told(tmp_path: Path) -> None:
    loop = Loop()
    one = made(loop, tmp_path, "a", listen=("0.0.0.0", 0))
    two = made(loop, tmp_path, "b")
    three = made(loop, tmp_path, "c", advertise=("localhost", 0))
    assert one.address == ("", one.port)
    assert three.address == ("localhost", three.port)
    one.add_peer("b", at(two))
    three.add_peer("b", at(two))
    until(loop, lambda: two.connected("a") and two.connected("c"))
    peers = two._logs.directory.identity.peers
    assert peers == {"a": ("127.0.0.1", one.port), "c": ("localhost", three.port)}
    stop(loop, one, two, three)


def test_a_node_that_was_removed_is_forgotten_and_kept_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "warren.raft")
    loop = Loop()
    one, two = made(loop, tmp_path, "a"), made(loop, tmp_path, "b")
    two.add_peer("a", at(one))
    until(loop, lambda: one.connected("b") and two.connected("a"))
    reason = "node b was removed from the cluster; wipe it, then let it join again"
    judge(one).verdict = lambda hello: reason if hello.disk == two.disk else None
    one.remove_peer("b")
    assert not one.connected("b") and events(one, "down") == [("down", "b")]
    assert one.peer_hello("b") is None
    assert not one.suspected("b") and "b" not in one._logs.directory.identity.peers
    until(loop, lambda: f"refused by the peer: {reason}" in caplog.text)
    calls = len(caplog.records)
    deadline = loop.clock.monotonic_ms() + 500
    until(loop, lambda: loop.clock.monotonic_ms() > deadline)
    said = [record.getMessage() for record in caplog.records]
    assert sum(reason in line for line in said) <= 3, said  # once per side, and change
    assert len(caplog.records) <= calls + 2, "once, not once per attempt"
    judge(one).verdict = lambda hello: None
    until(loop, lambda: one.connected("b") and two.connected("a"))
    one.remove_peer("nobody")  # unknown: nothing
    stop(loop, one, two)


def refusing(tmp_path: Path, loop: Loop) -> tuple[Host, Host]:
    """Two nodes; the first has removed the second from the cluster."""
    one, two = made(loop, tmp_path, "a"), made(loop, tmp_path, "b")

    def removed(hello: Hello) -> str | None:
        raise NodeRemoved("b was removed from the cluster")

    judge(one).verdict = removed
    return one, two


def test_a_node_that_was_removed_ends_when_it_is_told(tmp_path: Path) -> None:
    loop = Loop()
    one, two = refusing(tmp_path, loop)
    two.add_peer("a", at(one))
    with pytest.raises(DirectoryRefused, match="removed from the cluster with it, says node a"):
        until(loop, lambda: two.connected("a"))
    stop(loop, one, two)


def test_a_removal_that_is_not_proved_ends_no_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the secret a program at a peer's address cannot end a node."""
    loop = Loop()
    one, two = refusing(tmp_path, loop)

    def forged(key: bytes, side: str, initiator: Hello, acceptor: Hello) -> Proof:
        return prove(bytes(32) if side == "remover" else key, side, initiator, acceptor)

    monkeypatch.setattr(connections, "prove", forged)
    two.add_peer("a", at(one))
    until(loop, lambda: caplog.text.count("does not have the secret") > 0)
    assert not two.connected("a")
    stop(loop, one, two)


def test_the_wrong_secret_is_refused_before_anything_is_judged_or_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loop = Loop()
    one = made(loop, tmp_path, "a")
    judged: list[str] = []
    judge(one).verdict = lambda hello: judged.append(hello.node)  # type: ignore[func-returns-value]
    two = made(loop, tmp_path, "b", secret=b"another secret")
    trees = [tree(tmp_path / name) for name in ("a", "b")]
    two.add_peer("a", at(one))
    until(loop, lambda: caplog.text.count("does not have the secret") >= 2)
    assert not one.connected("b") and not two.connected("a") and judged == []
    assert one.peer_hello("b") is None
    assert trees == [tree(tmp_path / name) for name in ("a", "b")]
    stop(loop, one, two)


def tree(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_who_stays_unproved_does_not_keep_a_peer_out(tmp_path: Path) -> None:
    """A stranger greets as b and falls silent: a calls b all the same, after handshake_ms_max."""
    loop = Loop()
    one = made(loop, tmp_path, "a")
    two = made(loop, tmp_path, "b")
    one.add_peer("b", ("127.0.0.1", 1))
    raw = Raw(loop, one)
    raw.send(greeting(hello(node="b")))
    raw.read(lambda r: len(r.frames()) == 1)
    one.add_peer("b", at(two))
    until(loop, lambda: one.connected("b") and two.connected("a"))
    stop(loop, one, two)
