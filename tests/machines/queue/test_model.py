"""Plausible command logs, grown by hypothesis: the machine against the dumb model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from tests.machines.queue.model import Message, Model, matches
from tests.machines.queue.world import Queue, block, config
from warren_machines.queue import commands as c
from warren_machines.queue.claims import decision_commands as d
from warren_machines.queue.commands import ForgetSink, Modify, SinkForgotten
from warren_machines.queue.delayed import delay_commands
from warren_machines.queue.effects import CancelConsumer, DeadLetter, LettersGone
from warren_machines.queue.filters.filter_commands import Judge, Judged, NotYet
from warren_machines.queue.letters.letter_queue import Letter
from warren_wire.queue_values.give_up_command import GiveUpClaim

SIZES = st.sampled_from([0, 1, 7, 10, 10, 10, 100])
PRIORITIES = st.sampled_from([0, 3, 4, 4, 4, 9, 31])
TTLS = st.sampled_from([None, None, 0, 5, 50])
SHORT = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

BLOCK_MAX = 12
"""Messages of an entry's block. `judge` says so much of each block, and nothing of later ones."""
OUTCOMES = ["settled", "returned", "failed", "rejected", "nacked"]
CONFIGS = st.fixed_dictionaries(
    {
        "max_length": st.sampled_from([None, None, 0, 3, 10]),
        "max_length_bytes": st.sampled_from([50, 10**9, 10**9]),
        "overflow": st.sampled_from(["drop-head", "reject-publish", "reject-publish-dlx"]),
        "message_ttl_ms": st.sampled_from([None, None, 0, 20]),
        "delivery_limit": st.sampled_from([-1, 0, 1, 20]),
        "dead_letter_exchange": st.sampled_from([None, "dlx", "dlx"]),
        "dead_letter_strategy": st.sampled_from(["at-most-once", "at-least-once", "at-least-once"]),
        "single_active_consumer": st.booleans(),
        "consumer_timeout_ms": st.sampled_from([None, None, 30]),
        "kind": st.sampled_from(["quorum", "quorum", "classic"]),
        "replicated": st.booleans(),
        "priority_max": st.sampled_from([31, 5]),
        "delayed_retry_type": st.sampled_from(["disabled", "all", "all", "failed", "returned"]),
        "delayed_retry_min_ms": st.sampled_from([1, 20]),
        "delayed_retry_max_ms": st.sampled_from([None, 50]),
    }
)


pytestmark = pytest.mark.usefixtures("few_pages_unpacked")


def binding(batch: int) -> d.ClaimBinding:
    return d.ClaimBinding("out", 7, "s", "run", batch, 1)


class AgainstModel(RuleBasedStateMachine):
    """Every rule is one submission; afterwards both have sent the same and hold the same."""

    @initialize(settings=CONFIGS, stride=st.sampled_from([1, 300, 1500]))
    def begin(self, settings: dict[str, Any], stride: int) -> None:
        settings["replicated"] &= settings["kind"] == "classic"
        self.queue = Queue(config(**settings), stride)
        self.model = Model(self.queue.state.config)
        self.model.now = self.queue.now
        self.queue.do(c.RegisterReader("r"))
        self.next_consumer = 1
        self.next_batch = 0
        self.last_judged: Judge | None = None

    def both(self, command: c.AnyCommand, data: bytes | None = None) -> Any:
        """One entry on the machine; the caller then does the same to the model, and `end`s."""
        reply = self.queue.do(command, data)
        dead = [
            (effect.reason, effect.delivery_count, (index, ordinal))
            for effect in self.queue.of(DeadLetter)
            for index, first, last in effect.runs
            for ordinal in range(first, last + 1)
        ]
        self.seen_dead = dead
        return reply

    def end(self) -> None:
        self.model.end()
        assert sorted(self.seen_dead) == sorted(self.model.dead)
        self.model.dead.clear()
        for key in {*self.model.sent, *(k for _, k in self.queue.delivered)}:
            assert self.queue.got(key) == self.model.sent.pop(key, []), key

    def messages(self, sizes: list[int], prio: list[int], ttls: list[int | None]) -> list[Message]:
        """The messages of the next entry's block, in block order."""
        order = sorted(range(len(sizes)), key=lambda i: -prio[i])
        return [
            Message((self.queue.index + self.queue.stride, at), sizes[i], prio[i], ttls[i])
            for at, i in enumerate(order)
        ]

    @rule(
        shape=st.lists(st.tuples(SIZES, PRIORITIES, TTLS), min_size=1, max_size=BLOCK_MAX),
        ttl=st.booleans(),
    )
    def enqueue(self, shape: list[tuple[int, int, int | None]], ttl: bool) -> None:
        sizes, prio = [s for s, _, _ in shape], [p for _, p, _ in shape]
        ttls = [t if ttl else None for _, _, t in shape]
        new = self.messages(sizes, prio, ttls)
        reply = self.both(c.Enqueue(), block(len(sizes), sizes, prio, ttls if ttl else None))
        if self.model.config.refuses:
            accepted = 0
            for message in () if self.model.exceeds(self.model.beside()) else new:
                self.model.add(message)
                self.model.dispatch()
                if self.model.over():
                    self.model.remove(message)
                    break
                accepted += 1
            for message in new[accepted:] if self.model.config.overflow != "reject-publish" else ():
                self.model.bury("maxlen", message)
            assert (reply.accepted if isinstance(reply, c.Refused) else len(new)) == accepted
        else:
            for message in new:
                self.model.add(message)
        self.end()

    @rule(
        limit=st.sampled_from([0, 1, 2, 5]),
        credit=st.booleans(),
        no_ack=st.booleans(),
        priority=st.sampled_from([0, 0, 5]),
        session=st.integers(1, 3),
        timeout=st.sampled_from([None, None, 10]),
        filter=st.sampled_from([b"", b"", b"i2", b"o2", b"s3"]),
    )
    def checkout(
        self,
        limit: int,
        credit: bool,
        no_ack: bool,
        priority: int,
        session: int,
        timeout: int | None,
        filter: bytes,
    ) -> None:
        key = self.next_consumer
        self.next_consumer += 1
        self.both(
            c.Checkout(
                key, session, "t", limit, credit, priority, no_ack, False, timeout, filter=filter
            )
        )
        self.model.join(
            key,
            session,
            self.queue.state.filters.newest,
            filter=filter,
            limit=None if no_ack else limit or None,
            credit=0 if credit else None,
            priority=priority,
            no_ack=no_ack,
            timeout=timeout or self.model.config.consumer_timeout_ms,
        )
        self.end()

    def client(self, data: Any) -> Any:
        return data.draw(st.sampled_from([x for _, x in sorted(self.model.clients.items())]))

    @precondition(lambda self: self.model.clients)
    @rule(data=st.data(), credit=st.integers(0, 6), drain=st.booleans())
    def credit(self, data: Any, credit: int, drain: bool) -> None:
        client = self.client(data)
        delivered = client.next_id
        reply = self.both(c.Credit(client.key, delivered, credit, drain))
        if client.no_ack:
            client.held.clear()
        if client.credit is not None and not client.cancelled:
            client.credit = credit
            client.drain_at = client.drain_at if drain else 0
        self.model.changed(client)
        if drain and client.credit is not None and not client.cancelled:
            self.model.dispatch()
            if client.filter:
                client.drain_at = client.drain_at or self.queue.state.filters.newest
                waits = self.model.filters[client.filter].judged < client.drain_at
                assert isinstance(reply, NotYet) == (waits and client.credit > 0)
                if isinstance(reply, NotYet):
                    self.end()
                    return
                client.drain_at = 0
            client.credit = 0
            self.model.review(client)
            assert reply == c.Count(client.next_id)
        self.end()

    @precondition(lambda self: any(x.held for x in self.model.clients.values()))
    @rule(data=st.data(), how=st.sampled_from(OUTCOMES))
    def settle(self, data: Any, how: str) -> None:
        holders = [x for _, x in sorted(self.model.clients.items()) if x.held]
        client = data.draw(st.sampled_from(holders))
        ids = sorted(data.draw(st.sets(st.integers(0, client.next_id + 1), min_size=1, max_size=6)))
        if data.draw(st.booleans()):  # multiple: everything up to the last
            ranges: tuple[tuple[int, int], ...] = ((0, ids[-1]),)
            ids = list(range(ids[-1] + 1))
        else:
            ranges = tuple((i, i) for i in ids)
        command: c.AnyCommand = {
            "settled": c.Settle(client.key, ranges),
            "returned": c.Return(client.key, ranges, False),
            "failed": c.Return(client.key, ranges, True),
            "rejected": c.Discard(client.key, ranges, True),
            "nacked": c.Discard(client.key, ranges, False),
        }[how]
        wait_ms = data.draw(st.sampled_from([None, -5, 0, 20, 90]))
        if wait_ms is None or how == "settled":
            wait_ms = 0
        else:
            failed = how in ("failed", "rejected")
            command = Modify(
                client.key,
                ranges,
                failed,
                how in ("rejected", "nacked"),
                (("x", bytes([ids[0]])),),
                self.queue.now + wait_ms,
            )
        self.both(command)
        self.model.resolve(client, ids, how, wait_ms)
        self.model.changed(client)
        self.end()

    @precondition(lambda self: self.model.clients)
    @rule(data=st.data())
    def cancel(self, data: Any) -> None:
        client = self.client(data)
        self.both(c.Cancel(client.key))
        self.model.cancel(client)
        self.end()

    @precondition(lambda self: self.model.filters)
    @rule(data=st.data(), blocks=st.sampled_from([1, 2, 5, 1000, 1000]), repeat=st.booleans())
    def judge(self, data: Any, blocks: int, repeat: bool) -> None:
        """The leader has looked at some blocks; what it has found before arrives again."""
        filters = self.queue.state.filters
        found = []
        for one in data.draw(st.sets(st.sampled_from(list(filters)), min_size=1)):
            text = one.text
            live = [i for i in self.queue.state.contents.indexes() if i > one.judged]
            to = live[blocks - 1] if len(live) >= blocks else filters.newest
            counts = [(i, BLOCK_MAX) for i in live if i <= to]
            bits = {i: sum(matches(text, (i, at)) << at for at in range(n)) for i, n in counts}
            whole = tuple(i for i, n in counts if bits[i] == (1 << n) - 1)
            parts = tuple((i, bits[i].to_bytes(2, "little")) for i in bits if i not in whole)
            found.append(Judged(one.id, one.judged, to, whole, parts))
            if to > one.judged:
                self.model.filters[text].judged = to
        command = Judge(tuple(found))
        if repeat and self.last_judged is not None:
            command = Judge((*command.judged, *self.last_judged.judged, *command.judged))
        self.both(command)
        self.last_judged = command
        self.end()

    @rule(session=st.integers(1, 3), failed=st.booleans())
    def session_down(self, session: int, failed: bool) -> None:
        self.both(c.SessionDown(session, failed))
        self.model.session_down(session, failed)
        self.end()

    @rule()
    def purge(self) -> None:
        reply = self.both(c.Purge())
        self.model.dispatch()
        assert reply.messages == len(self.model.counted()) + len(self.model.letters)
        self.model.letters.clear()
        self.model.returned.clear()
        self.model.back.clear()
        self.model.delayed.clear()
        self.model.lanes.clear()
        self.end()

    @precondition(lambda self: self.model.letters)
    @rule(data=st.data())
    def settle_letters(self, data: Any) -> None:
        chosen = data.draw(st.sets(st.sampled_from([m.name for _, _, m in self.model.letters])))
        numbers = {(one.entry, one.ordinal): one.number for one in self.letters()}
        named = tuple((numbers[name], name[1], name[1]) for name in sorted(chosen))
        assert self.both(c.SettleLetters(named)).messages == len(chosen)
        assert self.queue.of(LettersGone)[0].messages == len(chosen)
        self.model.letters = [one for one in self.model.letters if one[2].name not in chosen]
        self.end()
        assert self.both(c.SettleLetters(named)).messages == 0
        self.end()

    def letters(self) -> list[Letter]:
        return self.queue.state.letters.after((0, 0), 1 << 30)

    @rule(strategy=st.sampled_from(["at-most-once", "at-least-once", "at-least-once"]))
    def switch(self, strategy: str) -> None:
        changed = self.queue.reconfigured(dead_letter_strategy=strategy)
        self.both(c.Configure(changed))
        self.model.config = changed
        if not changed.keeps_letters:
            dropped = sum(effect.messages for effect in self.queue.of(LettersGone))
            assert dropped == len(self.model.letters)
            self.model.letters.clear()
        self.end()

    @rule(
        shape=st.lists(
            st.tuples(SIZES, TTLS, st.sampled_from([1, 20, 20, 50])),
            min_size=1,
            max_size=BLOCK_MAX,
        ),
        ttl=st.booleans(),
    )
    def enqueue_delayed(self, shape: list[tuple[int, int | None, int]], ttl: bool) -> None:
        sizes, delays = [s for s, _, _ in shape], [d for _, _, d in shape]
        ttls = [t if ttl else None for _, t, _ in shape]
        prio = [4] * len(sizes)
        new = self.messages(sizes, prio, ttls)
        command = delay_commands.EnqueueDelayed(tuple((1, delay) for delay in delays))
        reply = self.both(command, block(len(sizes), sizes, prio, ttls if ttl else None))
        assert isinstance(reply, c.Refused) == self.model.in_place
        for message, delay in () if self.model.in_place else zip(new, delays, strict=True):
            self.model.add_delayed(message, delay)
        self.end()

    @rule(which=st.integers(0, 20), drop=st.booleans())
    def end_delay(self, which: int, drop: bool) -> None:
        there = which < len(self.model.delayed)
        one = self.model.delayed[which] if there else None
        at = (one.ready, *one.name) if one is not None else (1, 1, 0)
        assert self.both(delay_commands.EndDelay(*at, drop)) == c.Count(int(there))
        if one is not None:
            self.model.delayed.remove(one)
            if not drop:
                self.model.returned.append(one)
        self.end()

    @rule()
    def retry_delayed(self) -> None:
        reply = self.both(c.RetryDelayed())
        assert reply.messages == self.model.due(everything=True)
        self.end()

    @rule(
        count=st.integers(1, 8),
        size=st.sampled_from([1, 20, 1000]),
        skip=st.integers(0, 1),
        keep_empty=st.booleans(),
        ahead=st.booleans(),
    )
    def open_claim(self, count: int, size: int, skip: int, keep_empty: bool, ahead: bool) -> None:
        number = self.model.settled + 1 + skip
        asked = c.OpenClaim("r", number, 1, count, size, keep_empty=keep_empty, ahead=ahead)
        reply = self.both(asked)
        expected = self.model.open_claim(number, count, size, keep_empty, ahead)
        if expected is None:
            assert reply.reason == "claim_lost"
        elif number in self.model.claims and not expected:
            assert reply == c.EmptyClaim(number)
        else:
            runs = [
                ((index, i), failed, acquired)
                for index, first, last, failed, acquired in reply.runs
                for i in range(first, last + 1)
            ]
            assert runs == [(m.name, m.failed, m.acquired) for m in expected]
            assert reply.messages == len(expected)
        self.end()

    @rule(back=st.integers(-1, 2))
    def settle_claims(self, back: int) -> None:
        number = max(0, self.model.settled + 1 - back)
        reply = self.both(c.SettleClaims("r", number, 1))
        if any(each not in self.model.claims for each in range(self.model.settled + 1, number + 1)):
            assert reply.reason == "claim_lost"
        else:
            assert reply.messages == self.model.settle_claims(number)
        self.end()

    @rule(failed=st.booleans())
    def release(self, failed: bool) -> None:
        number = self.model.settled + 1
        reply = self.both(c.ReleaseClaim("r", number, -1, failed))
        if number in self.model.bound:
            assert reply == d.BoundClaim(number, binding(self.model.bound[number]))
            self.end()
            return
        released = self.model.claims.pop(number, [])
        assert reply.messages == len(released)
        for message in released:
            self.model.give_back(message, failed)
        self.end()

    @rule(
        ahead=st.integers(0, 2),
        way=st.sampled_from(["divide", "divide", "reject", "release", "withdraw"]),
        most=st.integers(1, 3),
        drop=st.booleans(),
    )
    def give_up(self, ahead: int, way: Any, most: int, drop: bool) -> None:
        number = self.model.settled + ahead
        reply = self.both(GiveUpClaim("r", number, 1, way, most, drop))
        if number in self.model.bound:
            assert reply == d.BoundClaim(number, binding(self.model.bound[number]))
        else:
            expected = self.model.give_up(number, way, most, drop)
            assert (reply.messages if isinstance(reply, c.Count) else reply.reason) == expected
        self.end()

    @rule(ahead=st.integers(0, 1), batch=st.integers(0, 5))
    def bind(self, ahead: int, batch: int) -> None:
        number = self.model.settled + ahead
        reply = self.both(d.BindClaim("r", number, 1, binding(batch)))
        expected = self.model.bind(number, batch)
        if isinstance(expected, int):
            assert reply == d.BoundClaim(number, binding(expected))
        else:
            assert (reply.reason if isinstance(reply, c.Refused) else "done") == expected
        self.end()

    @rule(ahead=st.integers(0, 1), batch=st.integers(0, 5), published=st.booleans())
    def resolve_claim(self, ahead: int, batch: int, published: bool) -> None:
        number = self.model.settled + ahead
        reply = self.both(d.ResolveClaim("r", number, binding(batch), published))
        assert reply == c.Count(self.model.resolve_claim(number, batch, published))
        self.end()

    @rule(
        batch=st.integers(0, 5),
        claims=st.sets(st.integers(1, 3), max_size=2),
        expires_ms=st.sampled_from([0, 0, 5, 40]),
    )
    def publish_for(self, batch: int, claims: set[int], expires_ms: int) -> None:
        names = tuple(d.ClaimName(5, "r", number) for number in sorted(claims))
        reply = self.both(c.SinkPublish("s", "run", 1, batch, (), names, expires_ms))
        expected = self.model.publish_for(batch, claims, expires_ms)
        assert (reply.reason if isinstance(reply, c.Refused) else "done") == expected
        self.end()

    @rule(batch=st.integers(0, 5), claim=st.integers(1, 3))
    def ask(self, batch: int, claim: int) -> None:
        reply = self.both(d.AskBatch("s", "run", batch, 1, d.ClaimName(5, "r", claim)))
        assert reply == d.BatchFate(self.model.ask(batch, claim))
        self.end()

    @rule(run=st.sampled_from(["", "run", "other"]))
    def forget(self, run: str) -> None:
        reply = self.both(ForgetSink("s", run))
        assert reply == SinkForgotten(0 if run == "other" else self.model.forget(), 0)
        self.end()

    @rule(
        ahead=st.integers(0, 2),
        partition=st.integers(0, 1),
        attempt=st.integers(0, 1),
        count=st.integers(1, 4),
        priority=PRIORITIES,
    )
    def stage(self, ahead: int, partition: int, attempt: int, count: int, priority: int) -> None:
        batch = self.model.batch + 1 + ahead
        new = self.messages([10] * count, [priority] * count, [None] * count)
        stage = c.SinkStage("t", "run", 1, batch, partition, attempt, count)
        self.both(stage, block(count, 10, priority))
        self.model.stages.setdefault((batch, partition, attempt), []).append(new)
        self.end()

    @rule(
        ahead=st.integers(0, 2),
        attempts=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), max_size=3),
    )
    def publish(self, ahead: int, attempts: list[tuple[int, int]]) -> None:
        batch = self.model.batch + 1 + ahead
        keys = list(dict.fromkeys((batch, *attempt) for attempt in attempts))
        blocks = [len(self.model.stages.get(key, ())) for key in keys]
        named = tuple((*key[1:], count) for key, count in zip(keys, blocks, strict=True))
        reply = self.both(c.SinkPublish("t", "run", 1, batch, named))
        if not all(blocks):
            assert reply.reason == "stage_lost"
        elif isinstance(reply, c.Refused):
            assert reply.reason == "queue_full"
        else:
            count = 0
            for key in keys:
                for staged in self.model.stages.pop(key, []):
                    for message in staged:
                        self.model.add(message)
                        count += 1
            assert reply.messages == count
            self.model.batch = batch
            for key in [k for k in self.model.stages if k[0] <= batch]:
                del self.model.stages[key]
        self.end()

    @rule(passed=st.sampled_from([1, 5, 10, 30, 100]))
    def tick(self, passed: int) -> None:
        # Time may not jump over an expiry: the timer would have fired in between.
        for _ in range(passed):
            self.queue.now += 1
            self.model.now = self.queue.now
            if self.queue.state.timer_ms and self.queue.state.timer_ms <= self.queue.now:
                self.both(c.Timer())
                self.model.expire_run()
                cancelled = [e.consumer for e in self.queue.of(CancelConsumer)]
                self.model.overdue()
                assert cancelled == self.model.cancels
                self.model.cancels.clear()
                self.model.due()
                self.end()

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "queue"):
            return
        model, stat = self.model, self.queue.stat()
        assert self.queue.ready() == [m.name for m in model.ready()]
        assert stat.bytes_ready == sum(m.size for m in model.ready())
        assert stat.returned == len(model.returned) + sum(map(len, model.back.values()))
        delayed = [
            (ready_ms, (index, at))
            for ready_ms, index, first, last, _, _ in self.queue.state.delayed
            for at in range(first, last + 1)
        ]
        assert delayed == [(m.ready, m.name) for m in model.delayed]
        assert stat.messages_delayed == len(model.delayed)
        letters = [
            (one.died_ms, one.reason, one.delivery_count, (one.entry, one.ordinal))
            for one in self.letters()
        ]
        died = sorted((at, why, m.failed, m.name) for at, why, m in model.letters)
        assert sorted(letters) == died
        assert [at for at, *_ in letters] == [at for at, *_ in model.letters]
        assert stat.messages_dlx == len(letters)
        assert stat.message_bytes_dlx == sum(m.size for _, _, m in model.letters)
        held = {x.key: {i: m.name for i, m in x.held.items()} for x in model.clients.values()}
        mine = {
            consumer.id: {
                i: (index, first + i - low)
                for low, high, index, first, *_ in consumer.held
                for i in range(low, high + 1)
            }
            for consumer in self.queue.state.all_consumers()
        }
        assert mine == held
        claimed = [*model.claims.values(), *(held for _, held in model.parts)]
        assert stat.messages_claimed == sum(map(len, claimed))
        parts = self.queue.state.readers["r"].parts
        assert [(part.origin, part.messages) for part in parts] == [
            (origin, len(held)) for origin, held in model.parts
        ]
        assert stat.messages_staged == sum(len(b) for s in model.stages.values() for b in s)

    def teardown(self) -> None:
        """The log again, with a restart from a snapshot somewhere, ends in the same bytes."""
        if not hasattr(self, "queue"):
            return
        machine = self.queue.machine
        state = machine.init()
        for at, (meta, data) in enumerate(self.queue.log):
            if at == len(self.queue.log) // 2:
                state = machine.restore(machine.snapshot(state))
            machine.apply(meta, data, state)
        assert machine.snapshot(state) == self.queue.digest()


TestAgainstModel = AgainstModel.TestCase
TestAgainstModel.settings = SHORT
