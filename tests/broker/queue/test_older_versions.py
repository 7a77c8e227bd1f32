"""Logs that older versions of the machine have applied: the newest one says and keeps the same."""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from warren_machines.queue.commands import ClaimReply, Delivery, GetReply, ReaderReply, StatReply
from warren_machines.queue.effects import DeadLetter, Deliver, Dropped
from warren_machines.queue.machine import QueueMachine
from warren_raft.machine import Meta
from warren_wire.queue_values.config import QueueConfig


def read(name: str) -> list[Any]:
    """Logs grown by `logs.grow` and applied by that version.

    Of each its settings, its entries (index, term, time, data), SHA-256 of its replies and effects,
    its last snapshot.
    """
    packed = Path(__file__).with_name(name).read_bytes()
    logs: list[Any] = msgspec.msgpack.decode(zlib.decompress(packed))
    return logs


LOGS = [(2, log) for log in read("logs_of_version_2.bin")]
LOGS += [(3, log) for log in read("logs_of_version_3.bin")]
LOGS += [(6, log) for log in read("logs_of_version_6.bin")]


STAT_FIELDS = {2: 10, 3: 10, 6: 12}
"""What a StatReply of that version had; versions 2 and 3 knew of no delayed messages."""


def as_then(reply: Any, version: int) -> Any:
    """A reply in the bytes of that version."""
    if isinstance(reply, GetReply):
        return ["get", reply.delivery and delivery_then(reply.delivery), reply.messages_ready]
    if isinstance(reply, ClaimReply):
        *known, origin = msgspec.structs.astuple(reply)
        assert not origin, "no claim was divided then"
        return ["claim", *known]
    if isinstance(reply, ReaderReply):
        assert not reply.starts, "registrations were not counted then"
        return ["reader", reply.epoch, reply.settled]
    if not isinstance(reply, StatReply):
        return reply
    fields = msgspec.structs.astuple(reply)
    known, later = fields[: STAT_FIELDS[version]], fields[STAT_FIELDS[version] :]
    assert not any(later) and (version > 3 or not reply.messages_delayed), reply
    return ["stat", *known]


def delivery_then(delivery: Delivery) -> list[Any]:
    """A delivery in the bytes of those versions, which had neither annotations nor names."""
    *fields, annotations, origin, number = msgspec.structs.astuple(delivery)
    assert not annotations and not origin and not number, delivery
    return fields


def carried_out_then(effect: Any) -> Any:
    """An effect in the bytes of those versions, whose dead letters had no counts."""
    if isinstance(effect, Deliver):
        deliveries = [delivery_then(delivery) for delivery in effect.deliveries]
        return ["deliver", effect.uplink, effect.consumer, deliveries]
    if not isinstance(effect, DeadLetter):
        return effect
    assert not effect.delivery_count and not effect.annotations, effect
    return ["dead_letter", effect.reason, effect.runs]


@pytest.mark.parametrize("number", range(len(LOGS)))
def test_a_log_of_an_older_version_gives_the_replies_effects_and_state_it_gave(number: int) -> None:
    version, (config, entries, said, last) = LOGS[number]
    machine = QueueMachine(msgspec.msgpack.decode(config, type=QueueConfig))
    state = machine.init()
    heard = hashlib.sha256()
    for index, term, time_ms, data in entries:
        applied = machine.apply(Meta(index, term, time_ms), data, state)
        reply = applied.reply
        replies = [as_then(one, version) for one in reply.replies]
        answer: tuple[Any, ...] = (reply.uplink, reply.seq, replies, reply.expected_seq)
        if version > 2:
            answer += (reply.retired,)
        assert version > 2 or not reply.retired, "which replies of version 2 could not say"
        # Dropped came later: it is only counted.
        kept = [effect for effect in applied.effects if not isinstance(effect, Dropped)]
        effects = [carried_out_then(effect) for effect in kept]
        heard.update(msgspec.msgpack.encode((answer, effects)))
    assert heard.digest() == said
    assert machine.snapshot(state) == machine.snapshot(machine.restore(last))
