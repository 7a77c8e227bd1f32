"""Entries' bytes."""

from __future__ import annotations

import msgspec
import pytest

from tests.machines.queue.world import block
from warren_machines.queue.codec import (
    MalformedEntry,
    block_offset,
    decode_submission,
    encode_submission,
)
from warren_machines.queue.commands import Enqueue, Settle, Submission
from warren_machines.queue.machine import QueueMachine

SUBMISSION = Submission(7, "n1", 3, (Enqueue(), Settle(1, ((0, 5), (9, 9)))), 1, 2)


def test_a_submission_with_its_block_comes_back() -> None:
    data = block(3)
    entry = encode_submission(SUBMISSION, data)
    submission, view = decode_submission(entry)
    assert submission == SUBMISSION
    assert view == data
    assert entry[block_offset(entry) :] == data


def test_the_block_is_a_view_not_a_copy() -> None:
    entry = encode_submission(SUBMISSION, block(3))
    _, view = decode_submission(entry)
    assert isinstance(view, memoryview) and view.obj is entry


def test_no_block_and_an_empty_one_are_none() -> None:
    assert decode_submission(encode_submission(SUBMISSION))[1] is None
    assert decode_submission(encode_submission(SUBMISSION, b""))[1] is None


def test_a_frozen_submission_of_version_1_is_written_and_read() -> None:
    frozen = "1f0000009707a26e31039291a3656e7193a6736574746c650192920005920909010200"
    assert encode_submission(SUBMISSION).hex() == frozen
    assert decode_submission(bytes.fromhex(frozen)) == (SUBMISSION, None)


def test_a_submission_that_says_no_version_is_refused() -> None:
    head = msgspec.msgpack.encode([7, "n1", 3, [["stat"], ["reader", "r"]]])
    with pytest.raises(MalformedEntry):
        decode_submission(len(head).to_bytes(4, "little") + head)


@pytest.mark.parametrize(
    "data",
    [b"", b"\0\0", b"\xff\xff\xff\xff", b"\1\0\0\0", b"\1\0\0\0\xc1", b"\2\0\0\0\x91\x01"],
)
def test_what_is_no_submission_is_refused_and_ignored_by_the_machine(data: bytes) -> None:
    from tests.machines.queue.world import config
    from warren_raft.machine import Applied, Meta

    with pytest.raises(MalformedEntry):
        decode_submission(data)
    machine = QueueMachine(config())
    state = machine.init()
    before = machine.snapshot(state)
    assert machine.apply(Meta(1, 1, 1), data, state) == Applied()
    assert machine.snapshot(state) == before
