"""Random commands of all kinds on a queue, and on members that are restored amid them.

Every member applies the same entries, so replies, effects and snapshots must be the same, also of
one that was restored from a snapshot: what it keeps in another order than the others would show in
what a consumer gets under a number, and an acknowledgement would settle another message there.

`python -m tests.machines.queue.members FIRST SECONDS` runs seeds from FIRST on, and prints each
failure's seed; with 0 SECONDS it runs that seed alone.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections import Counter
from random import Random
from typing import Any

from tests.machines.queue.fields import differences
from tests.machines.queue.world import Queue, block, check, config, named_block
from warren_machines.queue import commands as c
from warren_machines.queue.commands import Modify
from warren_machines.queue.delayed.delay_commands import EnqueueDelayed
from warren_machines.queue.filters.filter_commands import Judge, Judged
from warren_machines.queue.filters.filters import Filter
from warren_machines.queue.relays.relay_commands import EnqueueRelayed, ReleaseRelay
from warren_machines.queue.state import Consumer, QueueState
from warren_wire.queue_values.give_up_command import GiveUpClaim

STEPS = 120
OPERATOR, PUBLISHER = 8, 9
"""Uplinks without consumers."""
FILTERS = (b"even blocks", b"even ordinals", b"every third", b"nothing", b"everything")
ORDINALS = 30
"""More than a block has here."""


def matches(text: bytes, index: int, ordinal: int) -> bool:
    """What a filter says of a message."""
    return {
        b"even blocks": index % 2 == 0,
        b"even ordinals": ordinal % 2 == 0,
        b"every third": (index + ordinal) % 3 == 0,
        b"nothing": False,
        b"everything": True,
    }[text]


def drawn(chance: Random) -> dict[str, Any]:
    """Settings of a queue that may be changed."""
    return {
        "max_length": chance.choice((None, None, None, 0, 3, 10, 40)),
        "max_length_bytes": chance.choice((None, None, 50)),
        "overflow": chance.choice(("drop-head", "reject-publish", "reject-publish-dlx")),
        "message_ttl_ms": chance.choice((None, None, 0, 20, 200)),
        "delivery_limit": chance.choice((-1, 0, 1, 20)),
        "dead_letter_exchange": chance.choice((None, "dlx")),
        "dead_letter_strategy": chance.choice(("at-most-once", "at-least-once")),
        "consumer_timeout_ms": chance.choice((None, None, 30, 200)),
        "consumer_disconnected_timeout_ms": chance.choice((20, 60_000)),
        "priority_max": chance.choice((0, 5, 31)),
        "delayed_retry_type": chance.choice(("disabled", "disabled", "all", "failed")),
        "delayed_retry_min_ms": chance.choice((1, 20)),
        "deduplication": chance.random() < 0.15,
        "deduplication_window": chance.choice((3, 100)),
    }


class Members:
    """A queue, and states of it that were restored from its snapshots.

    lives  node to its uplink, which ends with it
    """

    def __init__(self, seed: int) -> None:
        self.chance = chance = Random(seed)
        self.kept: dict[str, Any] = {
            "kind": (kind := chance.choice(("quorum", "quorum", "classic"))),
            "replicated": kind == "classic" and chance.random() < 0.5,
            "single_active_consumer": chance.random() < 0.3,
        }
        settings = config(**self.kept, **drawn(chance))
        self.queue = Queue(settings, stride=chance.choice((1, 1, 7, 300)))
        self.restored: list[QueueState] = []
        self.lives = {"n1": 11, "n2": 12, "n3": 13}
        self.numbers = 0
        self.brought: Counter[int] = Counter()

    def run(self) -> None:
        """Do STEPS things."""
        steps = (
            *(self._publish,) * 5,
            *(self._consume,) * 3,
            *(self._judge,) * 3,
            *(self._settle,) * 5,
            *(self._leave, self._get, self._suspect, self._resume),
            *(self._claim,) * 2,
            *(self._pass_time,) * 2,
            *(self._operate, self._restore),
        )
        for _ in range(STEPS):
            self.chance.choice(steps)()
        self._restore()

    def do(self, command: c.AnyCommand, data: bytes | None = None, uplink: int = OPERATOR) -> None:
        """One command, on every member."""
        node = next((name for name, life in self.lives.items() if life == uplink), "other")
        reply = self.queue.submit(command, data=data, uplink=uplink, node=node, number=uplink)
        self._follow(reply)

    def _follow(self, reply: Any) -> None:
        meta, data = self.queue.log[-1]
        for state in self.restored:
            applied = self.queue.machine.apply(meta, data, state)
            check(state)
            assert reply is None or applied.reply == reply, (applied.reply, reply)
            assert applied.effects == self.queue.effects, (applied.effects, self.queue.effects)

    def _restore(self) -> None:
        snapshot = self.queue.machine.snapshot(self.queue.state)
        made = self.queue.machine.restore(snapshot)
        for state in (made, *self.restored):
            assert self.queue.machine.snapshot(state) == snapshot
        check(made)
        forgotten = list(differences(self.queue.state, made))
        assert not forgotten, forgotten
        self.restored = [*self.restored[-1:], made]

    # ------------------------------------------------------------ clients

    def _publish(self) -> None:
        chance = self.chance
        count = chance.choice((1, 1, 2, 5, 20))
        kind = chance.random()
        if kind < 0.6:
            ttls = [chance.choice((None, 0, 5, 50)) for _ in range(count)]
            data = block(
                count,
                size=chance.choice((0, 10, 100)),
                priorities=sorted(chance.choice((0, 4, 4, 9)) for _ in range(count))[::-1],
                ttls_ms=chance.choice((None, None, ttls)),
            )
            self.do(c.Enqueue(), data, PUBLISHER)
        elif kind < 0.7:
            names = [chance.choice(("a", "b", "c", None)) for _ in range(count)]
            self.do(c.Enqueue(), named_block(names), PUBLISHER)
        elif kind < 0.8:
            delays = ((count, chance.choice((0, 5, 50))),)
            self.do(EnqueueDelayed(delays), block(count), PUBLISHER)
        else:
            origin = chance.choice((5, 6))
            first = self.brought[origin] = max(1, self.brought[origin] + chance.randrange(-3, 4))
            command = EnqueueRelayed(origin, max(0, first - 3), ((count, first),))
            self.do(command, block(count), PUBLISHER)

    def _consume(self) -> None:
        chance = self.chance
        self.numbers += 1
        given: dict[str, Any] = {
            "prefetch": chance.choice((0, 1, 3, 10)),
            "priority": chance.choice((0, 0, 0, 1, -1)),
            "exclusive": chance.random() < 0.05,
            "explicit_credit": chance.random() < 0.3,
            "no_ack": chance.random() < 0.15,
            "timeout_ms": chance.choice((None, None, None, 10)),
        }
        kind = chance.random()
        if kind < 0.35:
            given |= {"relay": chance.choice("rsa"), "origin": 2_000 + self.numbers}
        elif kind < 0.75:
            given["filter"] = chance.choice(FILTERS)
        session = chance.choice((self.numbers + 100, self.numbers + 100, 1, 2))
        uplink = chance.choice(list(self.lives.values()))
        self.do(c.Checkout(self.numbers, session, "t", **given), uplink=uplink)

    def _any(self) -> Consumer | None:
        """A consumer of a node that lives."""
        found = [
            one for one in self.queue.state.all_consumers() if one.uplink in self.lives.values()
        ]
        return self.chance.choice(found) if found else None

    def _settle(self) -> None:
        one, chance = self._any(), self.chance
        if one is None:
            return
        if one.held:
            end = one.held[-1][1]
            first = chance.randrange(one.held[0][0], end + 1)
            some = ((first, chance.randrange(first, min(end, first + 5) + 1)),)
            failed = chance.random() < 0.5
            notes = chance.choice(((), (("k", b"\x01"),)))
            ready_ms = chance.choice((0, 0, self.queue.now + 20))
            command: c.AnyCommand = chance.choice(
                (
                    c.Settle(one.id, some),
                    c.Settle(one.id, ((0, end),)),
                    c.Return(one.id, some, failed),
                    c.Return(one.id, ((first, end),), failed, unseen=True),
                    c.Discard(one.id, some, failed),
                    Modify(one.id, some, failed, chance.random() < 0.2, notes, ready_ms),
                )
            )
            self.do(command, uplink=one.uplink)
        if one.explicit or one.no_ack:
            delivered = max(0, one.next_msg_id - chance.choice((0, 0, 1)))
            drain = chance.random() < 0.3
            credit = c.Credit(one.id, delivered, chance.choice((0, 1, 5)), drain)
            self.do(credit, uplink=one.uplink)

    def _leave(self) -> None:
        one = self._any()
        if one is not None:
            end = c.SessionDown(one.session, self.chance.random() < 0.5)
            self.do(self.chance.choice((c.Cancel(one.id), end)), uplink=one.uplink)

    def _get(self) -> None:
        self.numbers += 1
        command = c.Get(self.numbers, self.numbers + 100, self.chance.random() < 0.4)
        self.do(command, uplink=self.chance.choice(list(self.lives.values())))

    def _resume(self) -> None:
        one = self._any()
        if one is not None:
            seen = max(0, one.next_msg_id - self.chance.randrange(3))
            self.do(c.Resume(one.id, seen), uplink=one.uplink)

    def _claim(self) -> None:
        chance, readers = self.chance, self.queue.state.readers
        name = chance.choice(("x", "y"))
        reader = readers.get(name)
        if reader is None or chance.random() < 0.1:
            self.do(c.RegisterReader(name))
            return
        number = chance.choice([*reader.claims, reader.settled + 1])
        way = chance.choice(("divide", "reject", "release"))
        self.do(
            chance.choice(
                (
                    c.OpenClaim(name, number, reader.epoch, chance.choice((1, 10)), 10**6, 50),
                    c.OpenClaim(name, reader.settled + 1, reader.epoch, 10, 10**6, 0, True),
                    c.SettleClaims(name, number, reader.epoch),
                    c.ReleaseClaim(name, chance.choice((number, 0)), reader.epoch),
                    GiveUpClaim(name, number, reader.epoch, way, 10, drop=True),
                )
            )
        )

    # ------------------------------------------------------------ nodes

    def _judge(self) -> None:
        """The leader has asked some of the filters."""
        found = [self._said(one) for one in self.queue.state.filters if self.chance.random() < 0.7]
        if found:
            self.do(Judge(tuple(found)))

    def _said(self, one: Filter) -> Judged:
        state = self.queue.state
        to = max(one.judged, state.filters.newest - self.chance.choice((0, 0, 0, 20)))
        whole, parts = [], []
        for index in state.contents.after(one.judged):
            bits = sum(1 << at for at in range(ORDINALS) if matches(one.text, index, at))
            if index > to:
                break
            if one.text == b"everything":
                whole.append(index)
            elif bits:
                parts.append((index, bits.to_bytes(ORDINALS // 8 + 1, "little")))
        return Judged(one.id, one.judged, to, tuple(whole), tuple(parts))

    def _suspect(self) -> None:
        chance = self.chance
        node = chance.choice(list(self.lives))
        if chance.random() < 0.3:
            over, self.lives[node] = self.lives[node], max(self.lives.values()) + 1
            self.do(c.NodeDown(over, node, over))
        elif chance.random() < 0.5:
            self.do(c.NodeSuspected(node, chance.random() < 0.5, chance.random() < 0.3))
        else:
            self.do(c.NodeBack(node))

    def _pass_time(self) -> None:
        self.queue.tick(self.chance.choice((0, 1, 5, 30, 30, 1_000, 90_000_000)))
        self._follow(None)

    def _operate(self) -> None:
        chance, letters = self.chance, list(self.queue.state.letters)
        if letters and chance.random() < 0.7:
            number, _, first, last, *_ = letters[0]
            self.do(c.SettleLetters(((number, first, last),)))
        elif chance.random() < 0.1:
            self.do(ReleaseRelay(chance.choice("rsa")))
        elif chance.random() < 0.7:
            self.do(c.Configure(config(**self.kept, **drawn(chance))))
        else:
            self.do(c.Purge())


def main(first: int, seconds: float) -> None:
    """Run seeds until the time is over."""
    end, seed, failures = time.monotonic() + seconds, first, 0
    while seed == first or time.monotonic() < end:
        try:
            Members(seed).run()
        except Exception:
            failures += 1
            print(f"seed {seed}:")
            traceback.print_exc()
        seed += 1
    print(f"{seed - first} seeds, {failures} failures")


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
