"""A directory replaced by an older copy of itself is noticed by peers that knew it later."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from tests.raft.runtime.forming import ABC, Nodes
from warren_raft.runtime.net import codec
from warren_raft.runtime.net.handshake import Hello
from warren_raft.runtime.peer_write_marks import Kept, PeerWriteMarks
from warren_raft.storage.errors import DirectoryOutdated
from warren_raft.versions import OWN


def with_an_older_copy(nodes: Nodes) -> str:
    """Three nodes, of which a is stopped, and has its directory of some time ago; its disk."""
    nodes.form()
    nodes.stop("a")
    shutil.copytree(nodes.root / "a", nodes.root / "copy")
    nodes.start("a")
    for _ in range(5):
        nodes.serves(*ABC)
    host = nodes.hosts["a"]
    disk, told = host.disk, host.position()
    for name in "bc":  # both hear of it, also the one that does not lead
        nodes.until(lambda name=name: nodes.hosts[name]._write_marks.known("a")[1] >= told)
    nodes.stop("a")
    shutil.rmtree(nodes.root / "a")
    shutil.copytree(nodes.root / "copy", nodes.root / "a")
    return f"{disk:016x}"


def identity(nodes: Nodes, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((nodes.root / name / "node.json").read_text())
    return found


def joins_again(nodes: Nodes, disk: str, knowing: str = "bc") -> None:
    """It finds out, says so, and is a voter again as one that has lost its disk."""
    before = [host.state(0)[:] for host in nodes.hosts.values()]
    nodes.start("a")
    with pytest.raises(DirectoryOutdated, match="it is an older copy: node . has known its log"):
        nodes.until(lambda: False)
    assert not any(nodes.hosts["a"].connected(name) for name in knowing)
    assert "older copy" in str(identity(nodes, "a")["outdated"])
    nodes.stop("a")
    nodes.start("a")
    nodes.serves(*ABC)
    found = identity(nodes, "a")
    assert found["disk"] != disk and found["outdated"] == ""
    assert list((nodes.root / "a" / "damaged").iterdir()), "what it had is set aside"
    state = nodes.hosts["a"].state(0)
    assert all(state[: len(each)] == each for each in before)


def test_an_older_copy_of_a_directory_is_noticed(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    disk = with_an_older_copy(nodes)
    joins_again(nodes, disk)
    assert "all of it is set aside" in caplog.text


def test_it_is_noticed_by_peers_that_were_restarted_meanwhile(nodes: Nodes) -> None:
    disk = with_an_older_copy(nodes)
    nodes.stop("b", "c")
    assert all("a" in identity(nodes, name)["vouched"] for name in "bc")
    for name in "bc":
        nodes.start(name)
    nodes.serves("b", "c")
    joins_again(nodes, disk)


def test_one_that_remembers_suffices(nodes: Nodes) -> None:
    """Also if it is met last, when the log has long gone on with what the others sent."""
    disk = with_an_older_copy(nodes)
    nodes.stop("b", "c")
    said = identity(nodes, "c")
    assert "a" in said["vouched"]
    nodes.start("b")
    nodes.start("c")
    nodes.serves("b", "c")
    nodes.hosts["b"]._write_marks.forget("a")
    joins_again(nodes, disk, "c")


def test_a_directory_that_goes_on_is_not_taken_for_an_older_one(nodes: Nodes) -> None:
    for name in ABC:
        nodes.start(name)
    for _ in range(3):
        nodes.serves(*ABC)
        for name in ABC:
            nodes.stop(name)
            nodes.start(name)
    nodes.serves(*ABC)
    assert all(not identity(nodes, name)["outdated"] for name in ABC)


def test_a_lost_disk_is_no_older_copy(nodes: Nodes) -> None:
    nodes.form()
    nodes.wipe("a")
    nodes.start("a")
    nodes.serves(*ABC)


def hello(disk: int, written: int, vouched: tuple[int, int, int] = (0, 0, 0)) -> Hello:
    return Hello(OWN, "c", "n2", 1, b"", disk, written=written, vouched=vouched)


def test_what_is_remembered_is_of_one_disk_and_never_falls() -> None:
    kept: list[Kept] = []
    positions = PeerWriteMarks(kept.append, 0, 0, 0, {})
    positions.heard("n2", 7, 40, 11)
    positions.heard("n2", 7, 30, 12)
    assert positions.known("n2") == (7, 40, 11)
    positions.keep()
    positions.keep()
    assert kept == [{"n2": ("0000000000000007", 40, 11)}], "once"
    positions.heard("n2", 8, 3, 12)
    assert positions.known("n2") == (8, 3, 12), "another disk begins again"
    later = PeerWriteMarks(kept.append, 5, 1, 2, kept[0])
    assert later.known("n2") == (7, 40, 11)
    later.forget("n2")
    assert later.known("n2") == (0, 0, 0)


def test_an_older_copy_is_one_that_ends_before_what_a_peer_knows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    positions = PeerWriteMarks(lambda kept: None, 5, 40, 77, {})
    assert positions.judge(hello(9, 1, (5, 41, 76))) is not None
    assert positions.judge(hello(9, 1, (5, 40, 76))) is None
    assert positions.judge(hello(9, 1, (6, 41, 76))) is None, "of another disk"
    assert positions.judge(hello(9, 1, (5, 41, 77))) is None, "told by this life"
    assert not caplog.records
    positions.heard("n2", 9, 50, 3)
    assert positions.judge(hello(9, 49)) is None
    assert "node n2 is an older copy: its log had reached write 50" in caplog.text


def test_a_life_that_calls_again_is_not_said_to_be_older(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """1. Both nodes call; this one stands still.  2. The other's new connection says how far it
    has come.  3. It continues, and says so over the old one, which is read first."""
    positions = PeerWriteMarks(lambda kept: None, 5, 40, 77, {})
    positions.heard("n2", 9, 64, 1)
    assert positions.judge(hello(9, 62)) is None
    assert not caplog.records
    positions.heard("n2", 9, 70, 2)
    assert positions.judge(hello(9, 62)) is None
    assert "is an older copy" in caplog.text


def test_a_position_is_a_sign_of_life_of_its_own() -> None:
    frame = memoryview(codec.position_frame(1 << 40))[codec.FRAME_HEADER_BYTES :]
    assert codec.position(frame) == 1 << 40
    assert codec.position(memoryview(b"")) is None
    assert codec.position(memoryview(codec.disk_frame(2))[codec.FRAME_HEADER_BYTES :]) is None
