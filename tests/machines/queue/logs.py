"""Plausible logs of a queue, grown from a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tests.machines.queue.world import Name, Queue, config, named_block
from warren_machines.queue import commands as c
from warren_machines.queue.claims.decision_commands import (
    AskBatch,
    BindClaim,
    ClaimBinding,
    ClaimName,
    ResolveClaim,
)
from warren_machines.queue.commands import ForgetSink, Modify
from warren_machines.queue.delayed import delay_commands
from warren_machines.queue.filters.filter_commands import Judge, Judged
from warren_machines.queue.jobs.job_commands import BeginJob, RecallJob, SteerJob, StepJob
from warren_machines.queue.relays.relay_commands import EnqueueRelayed, ReleaseRelay
from warren_machines.queue.sinks.sink_state import SinkRun
from warren_wire.block.block import Block
from warren_wire.queue_values.describe_command import DescribeClaim, ReadBy
from warren_wire.queue_values.give_up_command import GiveUpClaim

CONFIGS: tuple[dict[str, Any], ...] = (
    {},
    {"max_length": 20, "dead_letter_exchange": "dlx", "delivery_limit": 2},
    {"max_length": 15, "overflow": "reject-publish", "max_length_bytes": 400},
    {"message_ttl_ms": 40, "consumer_timeout_ms": 60, "dead_letter_exchange": "dlx"},
    {"single_active_consumer": True, "consumer_timeout_ms": 90},
    {"auto_delete": True, "expires_ms": 50, "kind": "classic"},
    {"consumer_disconnected_timeout_ms": 30, "delivery_limit": 0},
    {"kind": "classic", "priority_max": 10, "dead_letter_exchange": "dlx", "delivery_limit": 2},
    {
        "delayed_retry_type": "all",
        "delayed_retry_min_ms": 20,
        "delayed_retry_max_ms": 70,
        "max_length": 30,
        "consumer_timeout_ms": 60,
        "message_ttl_ms": 90,
    },
    {"delayed_retry_type": "failed", "delayed_retry_min_ms": 15, "delivery_limit": 3},
    {
        "dead_letter_exchange": "dlx",
        "dead_letter_strategy": "at-least-once",
        "overflow": "reject-publish",
        "max_length": 60,
        "delivery_limit": 1,
        "message_ttl_ms": 70,
    },
    {
        "deduplication": True,
        "deduplication_window": 9,
        "deduplication_ttl_ms": 100,
        "max_length": 30,
        "overflow": "reject-publish",
    },
    {"deduplication": True, "deduplication_window": 200, "message_ttl_ms": 90},
    {
        "kind": "classic",
        "replicated": True,
        "single_active_consumer": True,
        "priority_max": 0,
        "max_length": 15,
        "overflow": "reject-publish-dlx",
        "dead_letter_exchange": "dlx",
    },
)


def a_name(random: Random) -> Name:
    """An id that others may have, too; most messages have none."""
    if random.random() < 0.7:
        return None
    number = random.randint(0, 9)
    return str(number) if random.random() < 0.5 else (random.choice("pq"), number)


def a_block(random: Random) -> bytes:
    """A small block of any shape."""
    count = random.randint(1, 9)
    names = [a_name(random) for _ in range(count)]
    return named_block(
        names,
        [random.choice((0, 4, 4, 4, 31)) for _ in range(count)],
        [random.choice((5, 10, 10, 90)) for _ in range(count)],
        [random.choice((None, 0, 30)) for _ in range(count)] if random.random() < 0.2 else None,
    )


def some_ids(random: Random) -> c.MsgIds:
    """Ranges of msg_ids, some of which may be held."""
    edges = sorted(random.sample(range(60), 2 * random.randint(1, 3)))
    return tuple(zip(edges[::2], edges[1::2], strict=True))


def some_letters(random: Random, queue: Queue) -> tuple[tuple[int, int, int], ...]:
    """Numbers and ordinals of letters, some of which are there."""
    known = [row[0] for row in queue.state.letters] or [1]
    return tuple((random.choice(known), random.randint(0, 3), random.randint(3, 9)) for _ in "ab")


def claim_commands(
    random: Random, reader: str, number: int, epoch: int
) -> tuple[tuple[int, Callable[[], c.AnyCommand]], ...]:
    """(weight, maker) of the commands of a reader."""
    return (
        (
            1,
            lambda: c.RegisterReader(
                reader,
                random.choice((0, 0, 0, 2)),
                expires_ms=random.choice((0, 0, 70)),
            ),
        ),
        (
            5,
            lambda: c.OpenClaim(
                reader,
                number,
                epoch,
                random.randint(1, 20),
                random.choice((30, 10**6)),
                random.choice((0, 0, 50)),
                random.random() < 0.5,
                random.random() < 0.3,
            ),
        ),
        (1, lambda: c.RenewClaims(reader, epoch)),
        (1, lambda: DescribeClaim(reader, number, ReadBy("id", random.choice(("", "n")), number))),
        (4, lambda: c.SettleClaims(reader, number, epoch)),
        (
            2,
            lambda: GiveUpClaim(
                reader,
                number,
                epoch,
                random.choice(("divide", "divide", "reject", "release", "withdraw")),
                random.randint(1, 4),
                random.random() < 0.5,
            ),
        ),
        (
            1,
            lambda: c.ReleaseClaim(reader, random.choice((0, number, number)), epoch, False),
        ),
    )


def decision_commands(
    random: Random, reader: str, number: int, epoch: int, run: str, batch: int
) -> tuple[tuple[int, Callable[[], c.AnyCommand]], ...]:
    """(weight, maker) of the commands that leave a claim to a batch's decision."""
    binding = ClaimBinding("out", 7, "sink", run, batch, 1)
    claim = ClaimName(7, reader, number)
    return (
        (2, lambda: BindClaim(reader, number, epoch, binding)),
        (2, lambda: ResolveClaim(reader, number, binding, random.random() < 0.5)),
        (1, lambda: AskBatch("sink", run, batch, 1, claim)),
    )


def a_delayed(random: Random, queue: Queue) -> tuple[int, int, int]:
    """The time, index and ordinal of a delayed message; of no message, if there is none."""
    rows = list(queue.state.delayed)
    if not rows:
        return 1, 1, 0
    ready_ms, index, first, last, _, _ = random.choice(rows)
    return ready_ms, index, random.randint(first, last + (random.random() < 0.1))


def a_modify(random: Random, queue: Queue, consumer: int) -> Modify:
    """A modified outcome with annotations, a time, both or neither."""
    pairs = ((random.choice("xyz"), bytes([random.randint(0, 9)])),)
    return Modify(
        consumer,
        some_ids(random),
        random.random() < 0.5,
        random.random() < 0.2,
        pairs if random.random() < 0.7 else (),
        queue.now + random.choice((0, -5, 25, 90)),
    )


def a_judgement(random: Random, queue: Queue) -> Judge:
    """What some filters say of the blocks of a stretch; some of it is not in time."""
    found = []
    for one in queue.state.filters:
        after = random.choice((one.judged, one.judged, one.judged, max(0, one.judged - 1)))
        to = after + random.choice((1, 300, 2000))
        blocks = [i for i in queue.state.contents.indexes() if after < i <= to]
        whole = tuple(i for i in blocks if random.random() < 0.3)
        parts = tuple(
            (i, random.randrange(512).to_bytes(2, "little"))
            for i in blocks
            if i not in whole and random.random() < 0.7
        )
        found.append(Judged(one.id, after, to, whole, parts))
    return Judge(tuple(found))


def some_runs(random: Random, indexes: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
    """Messages of some of these blocks, some of which are there."""
    chosen = sorted(random.sample(indexes, min(len(indexes), random.randint(0, 4))))
    return tuple((index, random.randint(0, 2), random.randint(2, 9)) for index in chosen)


def job_commands(random: Random, queue: Queue) -> tuple[tuple[int, Callable[[], Any]], ...]:
    """(weight, maker) of the commands about jobs."""
    numbers = [*queue.state.jobs.by_number, 1]
    job = queue.state.jobs.by_number.get(random.choice(numbers))
    number, step = (job.number, job.step) if job else (1, 0)
    ready = sorted({index for index, *_ in queue.state.order if index < number})
    held = [run[0] for run in job.held] if job else []
    kept = [row[1] for row in queue.state.jobs.kept_rows(job)] if job else []
    return (
        (
            2,
            lambda: BeginJob(
                random.choice(("", "", "a")),
                random.choice(("move", "move", "copy", "drop", "recall")),
                9,
                random.choice((0, 60, 60)),
                b"",
            ),
        ),
        (
            9,
            lambda: StepJob(
                number,
                step - (random.random() < 0.1),
                some_runs(random, held),
                some_runs(random, held),
                some_runs(random, ready),
                (random.randint(0, 60), 0),
                3,
                finished=random.random() < 0.2,
                targets=(random.choice(((5, "t"), (6, "u"))),),
                over=random.choice(((), (), ((5, False),), ((6, random.random() < 0.2),))),
            ),
        ),
        (
            2,
            lambda: RecallJob(
                number,
                random.choice((5, 5, 6, 7)),
                some_runs(random, sorted(set(kept))),
                random.randint(0, 20),
            ),
        ),
        (
            3,
            lambda: SteerJob(
                number, random.choice(("pause", "resume", "resume", "cancel", "undo", "forget"))
            ),
        ),
    )


def sink_commands(
    random: Random, queue: Queue, run: str, batch: int
) -> tuple[tuple[int, Callable[[], c.AnyCommand]], ...]:
    """(weight, maker) of the commands of a sink but those that stage."""
    attempts = tuple((p, random.randint(0, 1)) for p in range(random.randint(0, 3)))
    driver = random.choice((3, 3, 3, 3, 2, 4))
    parts = queue.state.runs.get("sink", {}).get(run, SinkRun()).stages
    staged = tuple((p, a, part.count) for (b, p, a), part in parts.items() if b == batch)
    return (
        (
            3,
            lambda: c.SinkPublish(
                "sink", run, driver, batch, staged, expires_ms=random.choice((0, 0, 60))
            ),
        ),
        (1, lambda: c.SinkDrop("sink", run, driver, batch, attempts)),
        (1, lambda: ForgetSink("sink", random.choice(("", run)), random.random() < 0.5)),
    )


def a_command(random: Random, queue: Queue) -> c.AnyCommand:
    """Any command but those that own a block."""
    consumer, session = random.randint(1, 8), random.randint(1, 3)
    reader = random.choice(("r", "s"))
    known = queue.state.readers.get(reader)
    number = (known.settled if known else 0) + random.choice((0, 1, 1, 1, 2))
    epoch = known.epoch if known and random.random() < 0.9 else 1
    batch = random.randint(0, 5)
    run = random.choice("ab")
    makers: tuple[tuple[int, Callable[[], c.AnyCommand]], ...] = (
        (
            6,
            lambda: c.Checkout(
                consumer,
                session,
                "t",
                random.choice((0, 1, 3, 10)),
                random.random() < 0.2,
                random.choice((0, 0, 3)),
                random.random() < 0.2,
                random.random() < 0.1,
                relay=random.choice(("", "", "x", "y")),
                origin=random.randint(1, 1000),
                filter=random.choice((b"", b"", b"x", b"y")),
            ),
        ),
        (5, lambda: a_judgement(random, queue)),
        (
            4,
            lambda: c.Credit(
                consumer, random.randint(0, 60), random.randint(0, 9), random.random() < 0.3
            ),
        ),
        (1, lambda: c.Cancel(consumer)),
        (1, lambda: ReleaseRelay(random.choice(("x", "y", "z")))),
        (1, lambda: c.SessionDown(session, random.random() < 0.5)),
        (3, lambda: c.Get(consumer + 10, session, random.random() < 0.3)),
        (9, lambda: c.Settle(consumer, some_ids(random))),
        (5, lambda: c.Return(consumer, some_ids(random), random.random() < 0.5)),
        (1, lambda: c.Return(consumer, ((random.randint(0, 9), 99),), False, unseen=True)),
        (2, lambda: c.Discard(consumer, some_ids(random), random.random() < 0.5)),
        (3, lambda: a_modify(random, queue, consumer)),
        (2, lambda: c.Resume(consumer, random.randint(0, 30))),
        (1, lambda: c.Purge()),
        (1, lambda: c.RetryDelayed()),
        (3, lambda: c.SettleLetters(some_letters(random, queue))),
        (3, lambda: delay_commands.EndDelay(*a_delayed(random, queue), random.random() < 0.5)),
        (1, lambda: c.Stat(random.random() < 0.5)),
        (1, lambda: c.NodeSuspected(f"n{random.randint(1, 3)}")),
        (2, lambda: c.NodeSuspected(f"n{random.randint(1, 3)}", True, random.random() < 0.3)),
        (2, lambda: c.NodeBack(f"n{random.randint(1, 3)}")),
        *claim_commands(random, reader, number, epoch),
        *decision_commands(random, reader, number, epoch, run, batch),
        (2, lambda: c.RegisterReader(f"one-{batch}", 0, "", random.choice((0, 40)))),
        *sink_commands(random, queue, run, batch),
        *job_commands(random, queue),
    )
    (maker,) = random.choices([m for _, m in makers], [w for w, _ in makers])
    return maker()


def grow(seed: int, entries: int = 80) -> Queue:
    """A queue that went through a log of that many entries; its `log` is that log."""
    random = Random(seed)
    queue = Queue(config(**CONFIGS[seed % len(CONFIGS)]), stride=(1, 300, 1100)[seed % 3])
    lives = {1: 1, 2: 2, 3: 3}
    for _ in range(entries):
        queue.now += random.choice((0, 0, 1, 10, 30))
        due = queue.state.timer_ms
        if due and due <= queue.now:
            queue.tick(0)
        node = random.randint(1, 3)
        commands = [a_command(random, queue) for _ in range(random.randint(0, 3))]
        data = None
        if random.random() < 0.5:
            data = a_block(random)
            owner: c.AnyCommand = c.Enqueue()
            if random.random() < 0.2:
                count = Block.decode(data).count
                cut = random.randint(1, count)
                owner = delay_commands.EnqueueDelayed(
                    ((cut, 20), (count - cut, random.choice((20, 90))))[:count]
                )
                if cut == count:
                    owner = delay_commands.EnqueueDelayed(((cut, 20),))
            elif random.random() < 0.15:
                first = random.randint(1, 30)
                runs = ((Block.decode(data).count, first),)
                owner = EnqueueRelayed(random.randint(1, 2), max(0, first - 9), runs)
            elif random.random() < 0.25:
                name = (random.randint(0, 5), random.randint(0, 2), random.randint(0, 1))
                ttl_ms = random.choice((0, 0, 60))
                owner = c.SinkStage("sink", random.choice("ab"), 3, *name, len(data), ttl_ms)
            commands.insert(0, owner)
        if random.random() < 0.01:
            life = lives[node]
            commands, data = [c.NodeDown(life, f"n{node}", life)], None
            lives[node] += 10
            node = node % 3 + 1
        life = lives[node]
        queue.submit(*commands, data=data, uplink=life, node=f"n{node}", number=life)
    return queue
