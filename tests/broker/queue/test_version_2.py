"""Logs that version 2 of the machine has applied: the newest one says and keeps the same."""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path

import msgspec
import pytest

from warren_broker.queue.config import QueueConfig
from warren_broker.queue.machine import QueueMachine
from warren_raft.machine import Meta

# Grown by `logs.grow` and applied by that version: its settings, its entries (index, term, time,
# data), SHA-256 of its replies and effects, its last snapshot.
LOGS = msgspec.msgpack.decode(
    zlib.decompress(Path(__file__).with_name("logs_of_version_2.bin").read_bytes())
)


@pytest.mark.parametrize("number", range(len(LOGS)))
def test_a_log_of_version_2_gives_the_replies_effects_and_state_it_gave(number: int) -> None:
    config, entries, said, last = LOGS[number]
    machine = QueueMachine(msgspec.msgpack.decode(config, type=QueueConfig))
    state = machine.init()
    heard = hashlib.sha256()
    for index, term, time_ms, data in entries:
        applied = machine.apply(Meta(index, term, time_ms), data, state)
        reply = applied.reply
        assert not reply.retired, "which replies of version 2 could not say"
        answer = (reply.uplink, reply.seq, reply.replies, reply.expected_seq)
        heard.update(msgspec.msgpack.encode((answer, applied.effects)))
    assert heard.digest() == said
    assert machine.snapshot(state) == machine.snapshot(machine.restore(last))
