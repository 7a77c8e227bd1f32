"""An entry of a later version ends the node; what is none of any version is skipped."""

from __future__ import annotations

import struct

import pytest
from msgspec import msgpack

from tests.machines.queue.world import config
from warren_machines.queue.codec import encode_submission
from warren_machines.queue.commands import Purge, Submission
from warren_machines.queue.machine import QueueMachine
from warren_raft.machine import Applied, Meta
from warren_raft.versions import NEWEST, OLDEST, VersionNeeded

META = Meta(7, 1, 1_000)


def entry(value: object) -> bytes:
    head = msgpack.encode(value)
    return struct.pack("<I", len(head)) + head


def test_a_later_command_ends_the_node() -> None:
    queue = QueueMachine(config())
    known = encode_submission(Submission(0, "a", 0, (Purge(),), NEWEST + 1))
    unknown = entry([0, "a", 0, [["from_the_future", 7]], NEWEST + 1, 0, 0, "more"])
    for data in (known, unknown):
        with pytest.raises(VersionNeeded, match=f"is of version {NEWEST + 1}, and this program"):
            queue.apply(META, data, queue.init())


def test_garbage_changes_nothing() -> None:
    queue = QueueMachine(config())
    state = queue.init()
    before = queue.snapshot(state)
    nowhere = entry([0, "a", 0, [["from_nowhere", 7]], NEWEST])
    for data in (nowhere, entry("text"), b"", b"\xff" * 9):
        assert queue.apply(META, data, state) == Applied()
    assert queue.snapshot(state) == before


def test_a_snapshot_has_the_form_of_the_newest_entry() -> None:
    queue = QueueMachine(config(), newest=NEWEST + 1)
    state = queue.init()
    assert queue.form(state) == OLDEST
    queue.apply(META, encode_submission(Submission(0, "a", 0, (), NEWEST + 1)), state)
    queue.apply(META, encode_submission(Submission(0, "a", 0, (), NEWEST)), state)
    assert queue.form(state) == NEWEST + 1
    assert queue.form(queue.restore(queue.snapshot(state))) == NEWEST + 1
