"""The machine's contract: once and in order, a function of its arguments, restorable anywhere."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from functools import lru_cache
from typing import Any

import msgspec
import pytest

from tests.machines.queue.logs import grow
from tests.machines.queue.world import Queue, block, check
from warren_machines.queue import machine as machine_module
from warren_machines.queue.codec import decode_submission, encode_submission
from warren_machines.queue.commands import (
    AnyCommand,
    Checkout,
    Configure,
    Count,
    Delete,
    Done,
    Enqueue,
    Get,
    NodeDown,
    OpenClaim,
    Purge,
    RegisterReader,
    Settle,
    SettleClaims,
    Stat,
    StatReply,
    Submission,
)
from warren_machines.queue.machine import QueueMachine
from warren_raft.machine import Applied, Meta
from warren_raft.versions import NEWEST
from warren_wire.queue_values.config import QueueConfig

SEEDS = range(24)
grown = lru_cache(grow)
"""For tests that leave the queue as it is."""


def submit(
    queue: Queue,
    seq: int,
    *commands: AnyCommand,
    data: bytes | None = None,
    answered: int = 0,
    uplink: int = 1,
) -> Any:
    entry = encode_submission(Submission(uplink, "n1", seq, commands, NEWEST, answered), data)
    return queue.apply(entry).reply


# ------------------------------------------------------ once, and in order


def test_a_repeat_is_acknowledged_and_dropped() -> None:
    queue = Queue()
    assert submit(queue, 1, Enqueue(), data=block(3)).replies == (Done(),)
    before = queue.digest()
    again = submit(queue, 1, Enqueue(), data=block(3))
    assert (again.seq, again.replies, again.expected_seq) == (1, (Done(),), 0)
    assert queue.digest() == before


def test_a_gap_is_refused_with_the_seq_that_is_expected_and_nothing_is_applied() -> None:
    queue = Queue()
    submit(queue, 1, Enqueue(), data=block(1))
    before = queue.digest()
    reply = submit(queue, 3, Enqueue(), data=block(1))
    assert (reply.replies, reply.expected_seq) == ((), 2)
    assert submit(queue, 5, Enqueue(), data=block(1), uplink=7).expected_seq == 1
    assert queue.digest() == before


def test_a_repeat_gets_the_reply_of_the_first_time() -> None:
    queue = Queue()
    submit(queue, 1, Enqueue(), data=block(3))
    commands: tuple[AnyCommand, ...] = (
        Get(1, 1),
        RegisterReader("r"),
        OpenClaim("r", 1, 1, 1, 100),
        SettleClaims("r", 1, 1),
        Purge(),
        Get(1, 1),
        Delete(if_unused=True),
        Delete(),
    )
    first = {seq: submit(queue, seq, command) for seq, command in enumerate(commands, 2)}
    for seq, command in enumerate(commands, 2):
        assert submit(queue, seq, command) == first[seq]
    assert first[9].replies[0].reason == "deleted"


def test_a_refusal_is_repeated_even_when_it_would_now_succeed() -> None:
    queue = Queue(max_length=1, overflow="reject-publish")
    submit(queue, 1, Enqueue(), data=block(1))
    refused = submit(queue, 2, Enqueue(), data=block(1))
    submit(queue, 3, Purge())
    assert submit(queue, 2, Enqueue(), data=block(1)) == refused
    assert queue.stat().messages_ready == 0


def test_a_repeated_stat_is_answered_with_counts() -> None:
    queue = Queue()
    submit(queue, 1, Stat())
    submit(queue, 2, Enqueue(), data=block(2))
    (reply,) = submit(queue, 1, Stat()).replies
    assert isinstance(reply, StatReply) and reply.messages_ready == 2


def test_replies_are_kept_for_a_bounded_window_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "REPLIES_KEPT", 4)
    queue = Queue()
    for seq in range(1, 11):
        submit(queue, seq, Purge())
    assert len(queue.state.uplinks[1].kept) <= 5
    assert submit(queue, 7, Purge()).replies == (Count(0),)
    assert submit(queue, 2, Purge()).replies[0].reason == "invalid"


def test_replies_that_the_node_has_heard_are_forgotten() -> None:
    queue = Queue()
    for seq in range(1, 6):
        submit(queue, seq, Purge(), answered=seq - 1)
    assert list(queue.state.uplinks[1].kept) == [5]


def test_plain_confirms_are_not_kept() -> None:
    queue = Queue()
    submit(queue, 1, Checkout(1, 1, "t", 1))
    for seq in range(2, 20):
        submit(queue, seq, Enqueue(), Settle(1, ((seq - 2, seq - 2),)), data=block(1))
    assert queue.state.uplinks[1].kept == {}


def test_uplinks_count_apart_and_nobody_is_not_counted() -> None:
    queue = Queue()
    submit(queue, 1, Enqueue(), data=block(1), uplink=1)
    submit(queue, 1, Enqueue(), data=block(1), uplink=2)
    submit(queue, 0, Enqueue(), data=block(1), uplink=0)
    submit(queue, 0, Enqueue(), data=block(1), uplink=0)
    assert queue.stat().messages_ready == 4


def test_a_dead_uplink_is_forgotten() -> None:
    queue = Queue()
    submit(queue, 1, Purge(), uplink=3)
    submit(queue, 1, NodeDown(3), uplink=1)
    assert list(queue.state.uplinks) == [1]
    assert submit(queue, 2, Purge(), uplink=3).expected_seq == 1


def test_a_submission_with_two_owners_of_its_block_uses_it_once() -> None:
    queue = Queue()
    replies = submit(queue, 1, Enqueue(), Enqueue(), data=block(2)).replies
    assert replies[0] == Done() and replies[1].reason == "invalid"
    assert queue.stat().messages_ready == 2


@pytest.mark.parametrize("data", [None, b"x", block(3)[:-1], block(3) + b"x", block(3)[8:]])
def test_a_damaged_block_is_a_refusal_not_an_exception(data: bytes | None) -> None:
    queue = Queue()
    assert queue.do(Enqueue(), data).reason == "invalid"
    assert queue.stat().messages_ready == 0


def test_consumers_and_gets_need_an_uplink() -> None:
    queue = Queue()
    for command in (Checkout(1, 1, "t"), Get(1, 1)):
        assert submit(queue, 0, command, uplink=0).replies[0].reason == "invalid"
    queue.put(1)
    assert queue.stat().messages_ready == 1


def test_settings_come_with_the_log_and_the_snapshot() -> None:
    queue = Queue()
    queue.do(Configure(queue.reconfigured(max_length=2, delivery_limit=3)))
    other = QueueMachine(QueueConfig("/", "other"))
    assert other.restore(queue.digest()).config.delivery_limit == 3
    changed = queue.do(Configure(queue.reconfigured(single_active_consumer=True)))
    assert changed.reason == "invalid"


# ---------------------------------------------------- a function, restorable


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.specification(
    "mirrored-queues: The mirrors apply the operations that occur to the master"
)
def test_a_log_applied_twice_gives_the_same_replies_effects_and_digest(seed: int) -> None:
    queue = grown(seed)
    outcomes = []
    for _ in range(2):
        state = queue.machine.init()
        outcomes.append([queue.machine.apply(meta, data, state) for meta, data in queue.log])
        assert queue.machine.snapshot(state) == queue.digest()
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_snapshot_anywhere_changes_nothing(seed: int) -> None:
    queue = grow(seed, 60)
    machine = queue.machine
    state = machine.init()
    applied: list[Applied] = []
    digests = []
    for meta, data in queue.log:
        digests.append(machine.snapshot(state))
        applied.append(machine.apply(meta, data, state))
    for split in range(0, len(queue.log), 3):
        state = machine.restore(digests[split])
        assert machine.snapshot(state) == digests[split]
        check(state)
        for at in range(split, len(queue.log)):
            assert machine.apply(*queue.log[at], state) == applied[at], (split, at)
        assert machine.snapshot(state) == queue.digest()


@pytest.mark.parametrize("seed", SEEDS)
def test_resending_any_suffix_of_an_uplink_is_harmless(seed: int) -> None:
    queue = grow(seed, 50)
    machine = queue.machine
    living = set(queue.state.uplinks)
    replies = {}
    state = machine.init()
    mine = []
    for meta, data in queue.log:
        reply = machine.apply(meta, data, state).reply
        submission = decode_submission(data)[0]
        if submission.uplink in living:
            replies[submission.uplink, submission.seq] = reply
            mine.append(data)
    before = machine.snapshot(state)
    index = queue.index
    for start in range(0, len(mine), 4):
        for data in mine[start:]:
            submission = decode_submission(data)[0]
            index += 1
            again = machine.apply(Meta(index, 2, queue.now), data, state).reply
            first = replies[submission.uplink, submission.seq]
            kinds = [type(command) for command in submission.commands]
            assert len(again.replies) == len(kinds)
            if Stat not in kinds:
                assert again.replies == first.replies
    assert machine.snapshot(state) == before


def test_two_interpreters_with_two_hash_seeds_agree() -> None:
    program = (
        "import hashlib\n"
        "from tests.machines.queue.logs import grow\n"
        "print([hashlib.sha256(grow(seed).digest()).hexdigest() for seed in range(6)])\n"
    )
    said = []
    for seed in ("1", "4711"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
        )
        said.append(done.stdout)
    assert said[0] == said[1]
    here = [hashlib.sha256(grown(seed).digest()).hexdigest() for seed in range(6)]
    assert said[0].strip() == str(here)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.specification(
    "quorum-queues: Compaction is the process that reclaims disk space",
    "quorum-queues: quorum queues can now reclaim disk space even if",
)
def test_live_indexes_are_what_the_state_refers_to(seed: int) -> None:
    queue = grown(seed)
    used = {index for _, index, _, _ in queue.state.runs_in_use()}
    live = queue.machine.live_indexes(queue.state)
    assert list(live) == sorted(used)


@pytest.mark.parametrize("seed", SEEDS)
def test_effects_and_replies_can_be_encoded(seed: int) -> None:
    queue = grown(seed)
    state = queue.machine.init()
    for meta, data in queue.log:
        applied = queue.machine.apply(meta, data, state)
        msgspec.msgpack.encode((applied.reply, applied.effects))
    msgspec.msgpack.encode(queue.machine.leader_effects(state))


def test_a_new_leader_asks_for_the_timer_that_was_out() -> None:
    queue = Queue(message_ttl_ms=100)
    queue.put(1)
    assert queue.of(type(queue.effects[0])) == list(queue.machine.leader_effects(queue.state))


def test_a_backlog_costs_little_and_snapshots_small() -> None:
    queue = Queue()
    data = block(1000, 100)
    for _ in range(200):
        queue.do(Enqueue(), data, 9)
    assert queue.stat().messages_ready == 200_000
    assert len(queue.digest()) < 200 * 30 + 500
