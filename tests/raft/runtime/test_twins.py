"""Two processes with copies of one directory under one name: peers let only one of them in."""

from __future__ import annotations

import shutil

import pytest
from msgspec import structs

from tests.raft.runtime.forming import ABC, Nodes
from tests.raft.runtime.kit import Listing, Recorder
from warren_raft.machine import GroupSpec
from warren_raft.runtime.config import HostConfig
from warren_raft.runtime.host import Host
from warren_raft.runtime.net.handshake import SecondProcess
from warren_raft.storage.errors import DirectoryRefused

REFUSED = "copy of its data directory"


def copied(nodes: Nodes, name: str) -> None:
    """The node runs, and there is a copy of its directory of a moment ago."""
    for each in ABC:
        nodes.start(each)
    nodes.serves(*ABC)
    nodes.stop(name)
    shutil.copytree(nodes.root / name, nodes.root / "copy")
    nodes.start(name)
    nodes.serves(*ABC)


def twin(nodes: Nodes, name: str) -> Host:
    """A second process of that node, with the copy, at another port."""
    others = [other for other in ABC if other != name]
    config = HostConfig(
        node=name,
        cluster="test",
        secret=b"a secret of the tests",
        listen=("127.0.0.1", nodes.ports["e"]),
        peers={other: ("127.0.0.1", nodes.ports[other]) for other in others},
        data_dir=nodes.root / "copy",
        reconnect_ms_max=60,
        suspect_after_ms=500,
    )
    host = Host(config, nodes.loop, Recorder())
    host.start()
    host.formation(lambda formation: host.start_group(GroupSpec(0, formation.voters), Listing()))
    return host


@pytest.mark.parametrize("name", ABC)
def test_a_second_process_with_a_copied_directory_ends(
    nodes: Nodes, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    copied(nodes, name)
    others = [other for other in ABC if other != name]
    first = nodes.hosts[name].boot_id
    second = twin(nodes, name)
    with pytest.raises(DirectoryRefused, match="another process that has a copy of it"):
        nodes.until(lambda: any(second.connected(other) for other in others))
    second.stop()
    assert f"another process of node {name!r} is connected, with a copy" in caplog.text
    assert all(nodes.hosts[other]._peers.boot_id(name) == first for other in others)
    assert all(nodes.hosts[name].connected(other) for other in others)
    nodes.serves(*ABC)


def test_who_is_taken_for_a_second_process(nodes: Nodes) -> None:
    copied(nodes, "a")
    host = nodes.hosts["b"]
    hello = host.peer_hello("a")
    assert hello is not None
    later = structs.replace(hello, boot_id=hello.boot_id + 1)
    with pytest.raises(SecondProcess, match="stop one of the two"):
        host.judge(later)
    assert host.judge(hello) is None, "the same process calls again"
    host._peers.check_alone(structs.replace(later, disk=1))  # for `judge_peer` to say
    # 1. Its machine lost power: the connection stands, and nothing comes.  2. It is back.
    known = host._peers._detector._peers["a"]
    known.suspected = True
    assert host.judge(later) is None
    known.suspected = False
    nodes.stop("a")
    nodes.until(lambda: not host.connected("a"))
    assert host.judge(later) is None, "the one before has ended"


def test_one_refusal_may_be_a_mistake_and_ends_nobody(nodes: Nodes) -> None:
    copied(nodes, "a")
    host = nodes.hosts["b"]
    host.on_second("a")
    host.on_second("a")
    host.on_up("a", host._peers.boot_id("a") or 0)
    assert not host._peers._second, "it was let in after all"


def test_a_process_counts_as_alive_when_it_was_heard_after_the_other_was_refused(
    nodes: Nodes,
) -> None:
    """A node that was stopped itself knows only what it heard before: it ends no other."""
    copied(nodes, "a")
    host = nodes.hosts["b"]
    hello = host.peer_hello("a")
    assert hello is not None
    later = structs.replace(hello, boot_id=hello.boot_id + 1)
    with pytest.raises(SecondProcess) as refused:
        host.judge(later)
    assert not refused.value.alive
    since = nodes.loop.clock.monotonic_ms()
    nodes.until(lambda: host._transport.heard_ms("a") > since)
    with pytest.raises(SecondProcess) as refused:
        host.judge(later)
    assert refused.value.alive
    with pytest.raises(SecondProcess) as refused:
        host.judge(structs.replace(hello, boot_id=hello.boot_id + 2))
    assert not refused.value.alive, "a third one"


class SetClock:
    """A clock that stands."""

    now_ms = 1_000_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def epoch_ms(self) -> int:
        return self.now_ms


def test_a_peer_that_says_so_now_and_then_ends_nobody(nodes: Nodes) -> None:
    """It is stopped and continues, again and again: it may never have time to suspect."""
    copied(nodes, "a")
    host = nodes.hosts["b"]
    clock = SetClock()
    host._peers._clock = clock
    config = host.config
    gap_ms = max(config.suspect_after_ms, 4 * config.reconnect_ms_max)
    for _ in range(20):
        host.on_second("a")
        clock.now_ms += gap_ms + 1
    for _ in range(2 * config.suspect_after_ms // gap_ms):
        host.on_second("a")
        clock.now_ms += gap_ms
    with pytest.raises(DirectoryRefused):
        host.on_second("a")
        clock.now_ms += gap_ms
        host.on_second("a")
