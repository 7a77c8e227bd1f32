"""Jobs under faults: leaders come and go, answers are lost, and each message arrives once.

The runners are the node's own; both queues are machines with logs, and what is under way is in a
list, from which chance takes what happens next.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.machines.queue.world import Queue
from warren_broker.access.access import Access
from warren_broker.cluster.client.relayed import relayed_command
from warren_broker.cluster.client.routed_runs import PublishedRun, QueuePart
from warren_broker.cluster.leader import job_runners
from warren_broker.cluster.leader.job_runners import JobRunners
from warren_broker.cluster.leader.set_aside import SetAsideCounts
from warren_broker.cluster.turn_shares import TurnShares
from warren_machines.queue import commands as c
from warren_machines.queue.codec import encode_submission
from warren_machines.queue.effects import JobsDue
from warren_machines.queue.jobs.job_commands import BeginJob, JobStat, SteerJob
from warren_raft.versions import NEWEST
from warren_wire import errors
from warren_wire.amqp091 import properties
from warren_wire.block.block import Block, encode
from warren_wire.job_spec import JobSpec, Wanted, encode_spec
from warren_wire.kernel import MessageTable, Selection

SOURCE, TARGET = 1, 2
SEEDS = range(40)


class World:
    """Two queues, a leader that runs the jobs of the first, and what is under way.

    under_way  calls that have not happened yet, in no order: proposals, publishes, answers, timers
    lost       how often one that is taken is lost, where that may be
    """

    def __init__(self, seed: int, **of_target: Any) -> None:
        self.random = Random(seed)
        self.queues = {SOURCE: Queue(), TARGET: Queue(**of_target)}
        self.blocks: dict[tuple[int, int], Block] = {}
        self.entries: dict[tuple[int, int], bytes] = {}
        self.records = {
            group: SimpleNamespace(
                group=group, vhost="/", name=name, config=queue.state.config, store_of=""
            )
            for (group, queue), name in zip(self.queues.items(), "st", strict=True)
        }
        self.under_way: list[Any] = []
        self.counted: Counter[str] = Counter()
        self.term = 0
        self.now = 0
        self.may = True
        self.lead()

    # ------------------------------------------------------------ a node

    def lead(self) -> None:
        """A new leader: nothing is known of what the one before had under way."""
        self.term += 1
        self.runners = JobRunners(self._clients(), self._publishing(), self._access)
        for group in (SOURCE, TARGET):
            self.runners.carry_out(group, JobsDue())

    def _access(self, vhost: str, user: str) -> Access:
        def publish(exchange: str, keys: Any) -> None:
            if not self.may:
                raise errors.AccessRefused("write access refused")

        return SimpleNamespace(publish=publish)  # type: ignore[return-value]

    def _clients(self) -> Any:
        term = self.term
        clock = SimpleNamespace(monotonic_ms=lambda: self.now, epoch_ms=lambda: self.now)
        loop = SimpleNamespace(
            now_ms=self.now,
            clock=clock,
            call_soon=lambda call: self.under_way.append(("soon", term, call)),
            call_later=partial(self._timer, term),
        )
        host = SimpleNamespace(
            node_id="a",
            is_leader=lambda group: True,
            term=lambda group: self.term,
            state=lambda group: self.queues[group].state,
            read_entry=lambda group, index: SimpleNamespace(
                time_ms=1, data=self.entries[group, index]
            ),
        )
        cluster: Any = SimpleNamespace(
            loop=loop,
            host=host,
            handlers={},
            on_leader=[],
            on_peer_down=[],
            on_peer_suspected=[],
            leader_of=lambda group: "a",
            stored=SimpleNamespace(read=lambda group, index: self.blocks[group, index]),
            effects=SimpleNamespace(command=self._proposed),
            counters=SimpleNamespace(add=lambda name, count: self.counted.update({name: count})),
        )
        cluster.set_aside = SetAsideCounts(cluster)
        state = SimpleNamespace(
            groups=self.records,
            last_group=TARGET,
            scopes={"/": None},
            queue=lambda vhost, name: {"s": self.records[SOURCE], "t": self.records[TARGET]}.get(
                name
            ),
        )
        definitions = SimpleNamespace(state=state, call_at_ready=lambda call: call())
        return SimpleNamespace(
            cluster=cluster,
            definitions=definitions,
            absent=lambda queue: False,
            client=lambda queue: SimpleNamespace(with_block=partial(self._sent, queue.group, term)),
            ask=partial(self._asked, term),
        )

    def _timer(self, term: int, delay_ms: int, call: Any) -> Any:
        timer = SimpleNamespace(active=True)
        timer.cancel = lambda: setattr(timer, "active", False)
        self.under_way.append(("timer", term, lambda: timer.active and call()))
        return timer

    def _proposed(self, group: int, command: Any) -> None:
        self.under_way.append(("propose", 0, partial(self.apply, group, command)))

    def _publishing(self) -> Any:
        return SimpleNamespace(
            shares=SimpleNamespace(of=partial(self._share, self.term)),
            publish=partial(self._publish, self.term),
        )

    def _share(self, term: int, key: Any) -> Any:
        """Work waits for its turn, as other jobs may have this one."""
        return SimpleNamespace(
            run_alone=lambda call: self.under_way.append(("soon", term, call)),
        )

    def _publish(self, term: int, vhost: str, table: MessageTable, *more: Any) -> None:
        run: PublishedRun = more[2]
        whole = Selection(table, 0, table.count)
        name = table.route(0).routing_key.decode()
        group = {"s": SOURCE, "t": TARGET}[name]
        run.guarded(
            lambda: [
                self._sent(
                    group,
                    term,
                    relayed_command(run.names[0].origin, part.selection, run.names),
                    encode(
                        [table.body(i) for i in part.selection],
                        [table.properties_of(i) for i in part.selection],
                        (b"", name.encode()),
                    ),
                    partial(self._confirmed, run, number, part),
                )
                for number, part in enumerate(run.routed([QueuePart(name, whole, whole)]))
            ]
        )

    def _confirmed(
        self, run: PublishedRun, number: int, part: QueuePart, reply: Any, _: int
    ) -> None:
        if isinstance(reply, c.Refused):
            run.confirmed(number, part, False, list(part.selection)[reply.accepted :])
        else:
            run.confirmed(number, part, True, None)

    def _sent(self, group: int, term: int, command: Any, block: bytes, on_reply: Any) -> None:
        """An uplink sends it until it is answered, whatever leads; its answer may be late."""

        def arrives() -> None:
            reply = self._entered(group, command, block)
            self.under_way.append(("answer", term, partial(on_reply, reply, 0)))

        self.under_way.append(("send", 0, arrives))

    def _entered(self, group: int, command: Any, block: bytes) -> Any:
        """What a queue answers to a command with a block, which is in its log from then on."""
        queue = self.queues[group]
        reply = queue.do(command, block)
        self.blocks[group, queue.index] = Block.decode(block)
        of_log = c.Submission(0, "a", 0, (command,), NEWEST)
        self.entries[group, queue.index] = encode_submission(of_log, block)
        return reply

    def _asked(self, term: int, queue: Any, command: Any, done: Any) -> None:
        def arrives() -> None:
            reply = self.queues[queue.group].do(command)
            self.under_way.append(("answer", term, partial(done, reply)))
            self.runners.carry_out(queue.group, JobsDue())

        self.under_way.append(("send", 0, arrives))

    # ------------------------------------------------------------ what happens

    def apply(self, group: int, command: Any) -> None:
        """A proposal is applied."""
        queue = self.queues[group]
        applied = queue.apply(encode_submission(c.Submission(0, "a", 0, (command,), NEWEST)))
        if JobsDue() in applied.effects:
            self.runners.carry_out(group, JobsDue())

    def put(self, *bodies: str, group: int = SOURCE) -> None:
        head = properties.encode(properties.Properties(headers={"n": 1}))
        data = encode([one.encode() for one in bodies], [head] * len(bodies), (b"", b"s"))
        self._entered(group, c.Enqueue(), data)

    def step(self, lossy: bool) -> bool:
        """Something happens; False: nothing is under way."""
        self.now += 3
        if not self.under_way:
            return False
        kind, term, call = self.under_way.pop(self.random.randrange(len(self.under_way)))
        if term and term != self.term:
            return True  # of a leader that is gone
        if lossy and kind in ("answer", "propose") and self.random.random() < 0.2:
            # Without these a leader waits for ever: it is one that has lost its leadership.
            self.lead()
            return True
        call()
        return True

    def run(self, steps: int = 3_000, lossy: bool = False) -> None:
        for _ in range(steps):
            if not self.step(lossy):
                return

    def begin(self, way: Any = "move", **spec: Any) -> int:
        said = JobSpec(**{"routing_key": "t", **spec})
        command = BeginJob("", way, 99, 60_000, encode_spec(said))
        number: int = self.queues[SOURCE].do(command).job.number
        self.runners.carry_out(SOURCE, JobsDue())
        return number

    def steer(self, job: int, action: Any) -> Any:
        reply = self.queues[SOURCE].do(SteerJob(job, action))
        self.runners.carry_out(SOURCE, JobsDue())
        return reply

    def stat(self, job: int) -> JobStat:
        return self.queues[SOURCE].state.jobs.by_number[job].stat()

    def taken(self, count: int, group: int = TARGET) -> list[str]:
        """What a consumer takes, at most so many; some of them it holds."""
        found = []
        for _ in range(count):
            settles = self.random.random() < 0.7
            got = self.queues[group].do(c.Get(5, 5, settles)).delivery
            if got is not None:
                found.append(self.blocks[group, got.index].body(got.first).tobytes().decode())
        return found

    def ready(self, group: int) -> list[str]:
        return [
            self.blocks[group, index].body(ordinal).tobytes().decode()
            for index, ordinal in self.queues[group].ready()
        ]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several steps to a job."""
    monkeypatch.setattr(job_runners, "TAKEN_MESSAGES_MAX", 4)


def filled(seed: int, **of_target: Any) -> tuple[World, list[str]]:
    world = World(seed, **of_target)
    bodies = [f"m{n}" for n in range(30)]
    left = list(bodies)
    while left:
        count = world.random.randint(1, 5)
        world.put(*left[:count])
        del left[:count]
    return world, bodies


@pytest.mark.parametrize("seed", SEEDS)
def test_each_message_moves_once_and_comes_back_once(seed: int) -> None:
    world, bodies = filled(seed)
    job = world.begin()
    world.run(200, lossy=True)
    world.lead()
    world.run()
    done = world.stat(job)
    assert (done.state, done.done, done.left, done.kept) == ("done", 30, 0, 30)
    assert world.ready(SOURCE) == [] and sorted(world.ready(TARGET)) == sorted(bodies)
    taken = world.taken(world.random.randint(0, 9))
    world.steer(job, "undo")
    for _ in range(4):
        world.run(40, lossy=True)
        taken += world.taken(world.random.randint(0, 2))  # a consumer is quicker than the undo
    world.lead()
    world.run()
    done = world.stat(job)
    assert done.state == "undone" and world.ready(TARGET) == []
    assert (done.back, done.consumed) == (30 - len(taken), len(taken))
    assert Counter([*world.ready(SOURCE), *taken]) == Counter(bodies)


@pytest.mark.parametrize("seed", range(20))
def test_an_undo_in_the_queue_itself_leaves_each_once(seed: int) -> None:
    world, bodies = filled(seed)
    job = world.begin(routing_key="s")
    world.run()
    assert world.ready(SOURCE) == bodies and world.stat(job).done == 30
    taken = world.taken(3, SOURCE)
    world.steer(job, "undo")
    world.run(60, lossy=True)
    world.lead()
    world.run()
    assert (world.stat(job).back, world.stat(job).consumed) == (27, 3)
    assert Counter([*world.ready(SOURCE), *taken]) == Counter(bodies)


@pytest.mark.parametrize("seed", range(20))
def test_a_recall_of_a_deleted_queue_is_given_back(seed: int) -> None:
    world, bodies = filled(seed)
    job = world.begin()
    world.run()
    world.steer(job, "undo")
    world.run(world.random.randint(10, 60), lossy=True)
    back = world.ready(SOURCE)
    world.queues[SOURCE].do(c.Delete())
    del world.records[SOURCE]
    world.lead()
    world.run()
    left = world.ready(TARGET)
    assert not world.queues[TARGET].state.jobs.owns_messages
    assert {*left, *back} == set(bodies) and len(set(left)) == len(left)
    assert len(set(left) & set(back)) <= job_runners.TAKEN_MESSAGES_MAX  # held when it was deleted


def test_an_undo_waits_for_a_target_and_says_why() -> None:
    world, _ = filled(7)
    job = world.begin()
    world.run()
    answers = world.runners.queues.ask

    def unreachable(queue: Any, command: Any, done: Any) -> None:
        done(errors.Unavailable("queue 't' did not answer"))

    world.runners.queues.ask = unreachable
    world.steer(job, "undo")
    world.run(60)
    assert "did not answer" in world.stat(job).why and world.stat(job).state == "undoing"
    world.runners.queues.ask = answers
    world.run()
    assert (world.stat(job).state, world.stat(job).back) == ("undone", 30)


def test_a_target_that_is_not_known_yet_is_waited_for() -> None:
    """A new leader's node may not have applied its declaration."""
    world, bodies = filled(8)
    job = world.begin()
    world.run()
    record = world.records.pop(TARGET)
    world.runners.queues.definitions.state.last_group = SOURCE
    world.steer(job, "undo")
    world.run(60)
    assert world.stat(job).state == "undoing" and world.ready(SOURCE) == []
    world.records[TARGET] = record
    world.run()
    assert sorted(world.ready(SOURCE)) == sorted(bodies) and world.ready(TARGET) == []


def test_what_went_to_a_queue_deleted_since_comes_back() -> None:
    world, bodies = filled(9)
    job = world.begin()
    world.run()
    del world.records[TARGET]
    world.steer(job, "undo")
    world.run()
    assert sorted(world.ready(SOURCE)) == sorted(bodies)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cancelled_move_leaves_each_message_in_one_queue(seed: int) -> None:
    world, bodies = filled(seed, max_length=10, overflow="reject-publish")
    job = world.begin()
    world.run(world.random.randint(20, 150), lossy=True)
    world.steer(job, "cancel")
    world.run(40, lossy=True)
    taken = []
    while (got := world.queues[TARGET].do(c.Get(5, 5, True))).delivery is not None:
        taken.append(got.delivery)  # there is room, for what arrives late
    found = [world.blocks[TARGET, one.index].body(one.first).tobytes().decode() for one in taken]
    world.lead()
    world.run()
    assert world.stat(job).state == "cancelled" and not world.stat(job).held
    every = Counter([*found, *world.ready(SOURCE), *world.ready(TARGET)])
    assert every == Counter(bodies)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_message_is_copied_once(seed: int) -> None:
    world, bodies = filled(seed)
    job = world.begin("copy")
    world.run(200, lossy=True)
    world.lead()
    world.run()
    assert (world.stat(job).state, world.stat(job).done) == ("done", 30)
    assert world.ready(SOURCE) == bodies and sorted(world.ready(TARGET)) == sorted(bodies)
    world.steer(job, "undo")
    world.run()
    assert world.ready(SOURCE) == bodies and world.ready(TARGET) == []


def test_what_arrives_after_a_cancel_is_dropped() -> None:
    world, bodies = filled(5, max_length=10, overflow="reject-publish")
    world.put(*(f"full{n}" for n in range(11)), group=TARGET)
    job = world.begin()
    while not any(kind == "send" for kind, _, _ in world.under_way):
        world.step(lossy=False)
    late = next(one for one in world.under_way if one[0] == "send")
    world.under_way.remove(late)  # of a leader that has lost its leadership
    world.lead()
    world.run(60)
    assert "is full" in world.stat(job).why
    world.steer(job, "cancel")
    world.run()
    assert world.stat(job).state == "cancelled" and sorted(world.ready(SOURCE)) == sorted(bodies)
    world.queues[TARGET].do(c.Purge())
    late[2]()
    assert world.ready(TARGET) == []


def test_one_job_of_a_node_looks_in_a_turn() -> None:
    """However many there are: each may take JOB_TURN_MS."""
    world, _ = filled(6)
    loop: Any = SimpleNamespace(turn=1, call_soon=world.under_way.append)
    shares = TurnShares(loop)
    reads: list[int] = []

    def read(group: int, index: int) -> Block:
        reads.append(loop.turn)
        world.now += 2 * job_runners.JOB_TURN_MS
        return world.blocks[group, index]

    world._share = lambda term, key: shares.of(key)  # type: ignore[method-assign]
    world.lead()
    world.runners.queues.cluster.stored = SimpleNamespace(read=read)
    world.under_way.clear()
    for _ in range(12):
        world.begin("drop", wanted=Wanted(contains="none"))
    for _ in range(60):
        loop.turn += 1
        calls, world.under_way[:] = list(world.under_way), []
        for call in calls:
            call()
    assert max(Counter(reads).values()) == 1, "reads of a turn"
    assert len(reads) == 61, "no turn is left out, and none waits for ever"


def test_what_comes_while_a_job_runs_is_not_looked_at() -> None:
    world, bodies = filled(1)
    job = world.begin(routing_key="s")
    world.put("late")
    world.run()
    assert world.stat(job).done == 30
    assert world.ready(SOURCE) == ["late", *bodies]


def test_a_job_without_a_right_waits_and_goes_on() -> None:
    world, bodies = filled(2)
    world.may = False
    job = world.begin()
    world.run(50)
    assert "access refused" in world.stat(job).why and world.stat(job).held == 4
    world.may = True
    world.run()
    assert world.stat(job).state == "done" and sorted(world.ready(TARGET)) == sorted(bodies)
    world.may = False
    back = world.begin(wanted=Wanted())
    world.put("x")
    world.steer(back, "cancel")
    world.run()
    assert world.stat(back).state == "cancelled"


def test_only_what_matches_is_taken() -> None:
    world, _ = filled(3)
    job = world.begin("drop", wanted=Wanted(contains="m1"))
    world.run()
    assert world.counted == {"job_messages_done": 11}
    assert world.stat(job).done == 11 and len(world.ready(SOURCE)) == 19
    one = world.queues[SOURCE].ready()[0]
    single = world.begin("drop", wanted=Wanted(index=one[0], ordinal=one[1]))
    world.run()
    assert (world.stat(single).done, world.stat(single).looked) == (1, 1)
    none = world.begin("drop", wanted=Wanted(filter="n = 2"))
    world.run()
    assert (world.stat(none).done, world.stat(none).looked) == (0, 30)


def test_a_drop_is_undone() -> None:
    world, bodies = filled(4)
    job = world.begin("drop")
    world.run()
    assert world.ready(SOURCE) == []
    world.steer(job, "undo")
    world.run()
    assert sorted(world.ready(SOURCE)) == sorted(bodies)
