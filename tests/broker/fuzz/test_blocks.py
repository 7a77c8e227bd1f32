"""Every way in that a block has, with blocks that are almost right.

A block is refused with the protocol's error, or each of its messages takes every way there is:
into a queue and a stage, out to a client, to a claim, to the dead letter exchange. Messages that
were there before come out as they went in. WARREN_FUZZ_BLOCKS: how many are tried.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.broker.clients091.peer import Peer
from tests.broker.fuzz import blocks
from tests.wire.kernel import frames as f
from warren_broker.clients10.block_admission import admit
from warren_broker.cluster.client.dead_letters import Letters
from warren_broker.cluster.client.queues import block_for
from warren_broker.cluster.leader.block_cache import BlockCache, check_entry
from warren_machines.queue import commands
from warren_machines.queue.codec import encode_submission
from warren_machines.queue.effects import DeadLetter, Deliver
from warren_machines.queue.machine import QueueMachine
from warren_machines.steps import STEPS_UNBOUNDED, Steps, whole
from warren_raft.machine import Meta
from warren_raft.versions import NEWEST
from warren_wire import errors
from warren_wire.amqp091 import properties
from warren_wire.block.block import Block, BlockError, concat, encode
from warren_wire.kernel import Selection, content_digest, load_block
from warren_wire.queue_values.config import QueueConfig

BLOCKS = int(os.environ.get("WARREN_FUZZ_BLOCKS", "1500"))
LIMITS = 1 << 20, 131_072
CONFIGS = (
    QueueConfig("/", "q", dead_letter_exchange="dlx"),
    QueueConfig("/", "q", dead_letter_exchange="dlx", max_length_bytes=300, priority_max=5),
    QueueConfig(
        "/", "q", dead_letter_exchange="dlx", message_ttl_ms=3, priority_max=9, priority_default=0
    ),
    QueueConfig(
        "/",
        "q",
        kind="classic",
        dead_letter_exchange="dlx",
        max_length=9,
        overflow="reject-publish",
        priority_max=0,
        priority_default=0,
    ),
)
GOOD = [b"good %d" % i for i in range(3)]
UPLINK = 1
Commands = tuple[Any, ...]
Publishing = Callable[[bytes], tuple[Any, Commands]]
"""For a block: the command that owns it, and those that follow."""


def enqueued(data: bytes) -> tuple[Any, Commands]:
    """Published at once."""
    return commands.Enqueue(), ()


def digest_of(data: bytes) -> int:
    """The digest of a block's messages."""
    table = load_block(Block.decode(data))
    return content_digest(Selection(table, 0, table.count))


def staged(data: bytes, digest: int | None = None) -> tuple[Any, Commands]:
    """Published by a sink, which names the one attempt; digest None: the block's."""
    known = digest_of(data) if digest is None else digest
    return (
        commands.SinkStage("sink", "run", 1, 1, 0, 7, known, seq=1),
        (commands.SinkPublish("sink", "run", 1, 1, ((0, 7, 1),)),),
    )


class Queue:
    """One queue's machine and log, with a consumer that takes everything."""

    def __init__(self, config: QueueConfig) -> None:
        self.config = config
        self.machine = QueueMachine(config)
        self.state = self.machine.init()
        self.log: dict[int, bytes] = {}
        self.stored = BlockCache(lambda group, indexes: map(self.log.__getitem__, indexes))
        self.effects: list[Any] = []
        self.seq = 0

    def submit(self, *given: Any, block: bytes | None = None, at_ms: int = 1_000) -> list[Any]:
        """Apply it as an entry of its own; the replies."""
        self.seq += 1
        submission = commands.Submission(UPLINK, "a", self.seq, given, NEWEST)
        return self.entry(encode_submission(submission, block), at_ms)

    def entry(self, data: bytes, at_ms: int = 1_000) -> list[Any]:
        """Apply an entry's bytes."""
        index = len(self.log) + 1
        self.log[index] = data
        applied = self.machine.apply(Meta(index, 1, at_ms), data, self.state)
        self.effects += applied.effects
        return list(applied.reply.replies) if applied.reply is not None else []

    def carry_out(self) -> list[bytes]:
        """Deliver, bury, read what the effects name; the bodies that came to the client."""
        peer = Peer().connect().open()
        peer.consume("q", no_ack=True)
        queue: Any = SimpleNamespace(name="q", config=self.config)
        letters = Letters(queue, queue.config, 131_052)
        for effect in self.effects:
            if isinstance(effect, Deliver):
                for run in effect.deliveries:
                    block = self.stored.for_delivery(1, run.index, run.last)
                    peer.conn.deliver(1001, run, block)
                    block.slice(run.first, run.last + 1)
            elif isinstance(effect, DeadLetter):
                for index, first, last in effect.runs:
                    block = self.stored.for_delivery(1, index, last)
                    for i in range(first, last + 1):
                        letters.add(block, i, "expired", 1)
        for i in range(letters.table.count):
            assert properties.decode(letters.table.properties_of(i)).headers
        assert peer.conn.state.phase == "running"
        data = b"".join(bytes(part) for part in peer.conn.take_output())
        return contents(data)


def contents(data: bytes) -> list[bytes]:
    """The bodies of the messages in these frames; other people's decoders mind short strings that
    are no UTF-8, which any publisher may send."""
    found: list[bytes] = []
    at = 0
    while at < len(data):
        kind, size = data[at], int.from_bytes(data[at + 3 : at + 7], "big")
        assert data[at + 7 + size] == 0xCE, (at, size)
        if kind == 2:
            found.append(b"")
        elif kind == 3:
            found[-1] += data[at + 7 : at + 7 + size]
        at += size + 8
    return found


def good() -> bytes:
    """The messages that stand before and after."""
    return encode(GOOD, [f.PLAIN] * 3, (b"", b"q"))


def consumed(config: QueueConfig) -> Queue:
    """A queue with its consumer; the first good messages are in it."""
    queue = Queue(config)
    queue.submit(commands.Checkout(1001, 1, "c", 0, no_ack=True))
    queue.submit(commands.Enqueue(), block=good())
    return queue


def outcome(queue: Queue) -> list[bytes]:
    """More good messages, later; the bodies that were delivered."""
    queue.submit(commands.Stat(), at_ms=1_100)
    queue.submit(commands.Enqueue(), block=good(), at_ms=1_100)
    queue.state.check()
    return queue.carry_out()


def through(config: QueueConfig, data: bytes, publishing: Publishing) -> list[bytes]:
    """Good messages, that block, good ones; the bodies that were delivered."""
    queue = consumed(config)
    owner, rest = publishing(data)
    queue.submit(owner, block=data)
    for command in rest:
        queue.submit(command)
    return outcome(queue)


def admitted(chance: random.Random, config: QueueConfig) -> bytes | None:
    """A block as a node hands it to the queue; None: refused at the door."""
    try:
        table = whole(admit(blocks.mutated(chance), "", *LIMITS, Steps(STEPS_UNBOUNDED)))
    except errors.Refusal:
        return None
    return block_for(config, [Selection(table, 0, table.count)])


@pytest.mark.parametrize("publishing", [enqueued, staged])
def test_blocks_of_clients(publishing: Publishing) -> None:
    taken = 0
    for seed in range(BLOCKS):
        chance = random.Random(f"client {publishing.__name__} {seed}")
        config = chance.choice(CONFIGS)
        data = admitted(chance, config)
        if data is None:
            continue
        taken += 1
        came = through(config, data, publishing)
        assert came[:3] == GOOD and came[-3:] == GOOD, (seed, came)
    assert taken > BLOCKS // 20, taken


Attempts = dict[tuple[int, int], list[bytes]]
"""(partition, attempt) to the blocks that were staged for it."""


def stage_some(chance: random.Random, queue: Queue) -> Attempts:
    """Blocks of clients, in a few attempts at two partitions."""
    found: Attempts = {}
    for _ in range(chance.randrange(1, 7)):
        data = admitted(chance, queue.config)
        if data is not None:
            key = chance.randrange(2), chance.randrange(3)
            found.setdefault(key, []).append(data)
            stage_block(queue, *key, data, len(found[key]))
    return found


def stage_block(queue: Queue, partition: int, attempt: int, data: bytes, seq: int) -> None:
    owner = commands.SinkStage("sink", "run", 1, 1, partition, attempt, digest_of(data), 0, seq)
    assert queue.submit(owner, block=data) == [commands.Done()]


def publish(queue: Queue, names: tuple[tuple[int, int, int], ...]) -> Any:
    """The reply to a publish of batch 1 by these names."""
    (reply,) = queue.submit(commands.SinkPublish("sink", "run", 1, 1, names))
    return reply


def almost(names: tuple[tuple[int, int, int], ...]) -> Iterator[tuple[tuple[int, int, int], ...]]:
    """One name wrong: a block more, one less, another attempt, another partition."""
    for at, (partition, attempt, count) in enumerate(names):
        for wrong in (
            (partition, attempt, count + 1),
            (partition, attempt, count - 1),
            (partition, 9, count),
            (9, attempt, count),
        ):
            yield (*names[:at], wrong, *names[at + 1 :])


def test_batches_published_by_the_names_of_their_attempts() -> None:
    """Exactly the attempts named come out, whatever their blocks hold; a wrong name, nothing."""
    taken = 0
    for seed in range(BLOCKS // 5):
        chance = random.Random(f"names {seed}")
        queue = consumed(CONFIGS[0])
        found = stage_some(chance, queue)
        if not found:
            continue
        taken += 1
        winners = {partition: (partition, attempt) for partition, attempt in found}
        names = tuple((*key, len(found[key])) for key in winners.values())
        before = len(queue.effects)
        for wrong in almost(names):
            reply = publish(queue, wrong)
            assert isinstance(reply, commands.Refused) and reply.reason == "stage_lost", seed
        assert not any(isinstance(e, Deliver) for e in queue.effects[before:]), seed
        datas = [data for key in winners.values() for data in found[key]]
        holds = [Block.decode(data) for data in datas]
        count = commands.Count(sum(block.count for block in holds))
        assert publish(queue, names) == count == publish(queue, names), seed
        run_again(queue, chance, datas, count)
        came = outcome(queue)
        assert came[:3] == GOOD and came[-3:] == GOOD, (seed, came)
        sent = [(bytes(each.body(i)), each.ttl_ms(i)) for each in holds for i in range(each.count)]
        inner = Counter(came[3:-3])
        assert inner <= Counter(body for body, _ in sent), seed
        assert inner >= Counter(body for body, ttl_ms in sent if ttl_ms is None), seed
    assert taken > BLOCKS // 50, taken


def run_again(
    queue: Queue, chance: random.Random, datas: list[bytes], count: commands.Count
) -> None:
    """Spark runs the batch again: in another order the answer is the same; with more, refused."""
    chance.shuffle(datas)
    for seq, data in enumerate(datas, 1):
        stage_block(queue, 0, 20, data, seq)
    assert publish(queue, ((0, 20, len(datas)),)) == count
    for seq, data in enumerate([*datas, good()], 1):
        stage_block(queue, 0, 21, data, seq)
    reply = publish(queue, ((0, 21, len(datas) + 1),))
    assert isinstance(reply, commands.Refused) and reply.reason == "batch_conflict"


def test_blocks_of_peers() -> None:
    """A node forwards what its client sent; what another program sends must not end this one."""
    taken = 0
    for seed in range(BLOCKS):
        chance = random.Random(f"peer {seed}")
        data = blocks.mutated(chance)
        owner, rest = (
            enqueued(data) if chance.random() < 0.5 else staged(data, chance.getrandbits(63))
        )
        submission = encode_submission(commands.Submission(2, "b", 1, (owner, *rest), NEWEST), data)
        if chance.random() < 0.2:
            submission = blocks.flipped(chance, submission)
        try:
            check_entry(submission)
        except BlockError:
            continue
        taken += 1
        queue = consumed(chance.choice(CONFIGS))
        queue.entry(submission)
        came = outcome(queue)
        assert came[-3:] == GOOD, (seed, came)
    assert taken > BLOCKS // 20, taken


def test_blocks_that_peers_deliver_or_read() -> None:
    """What `decode` takes can be read, cut and sent, whatever it holds."""
    for seed in range(BLOCKS):
        chance = random.Random(f"deliver {seed}")
        try:
            block = Block.decode(blocks.mutated(chance))
        except BlockError:
            continue
        peer = Peer().connect(frame_max=chance.choice((4096, 131_072))).open()
        peer.consume("q", no_ack=chance.random() < 0.5)
        if block.count:
            peer.conn.deliver(1001, commands.Delivery(0, 1, 0, block.count - 1, 1, 1), block)
            Block.decode(concat([(block, 0, block.count)]))
        assert peer.conn.state.phase == "running"
        for i in range(block.count):
            assert block.ttl_ms(i) is None or block.priority(i) <= 31
