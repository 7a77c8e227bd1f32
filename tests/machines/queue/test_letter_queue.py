"""The letters of a queue: the packed rows against a plain list."""

from __future__ import annotations

from functools import lru_cache
from random import Random

import pytest

from warren_machines.queue.letters import letter_queue
from warren_machines.queue.letters.letter_queue import REASONS, LetterQueue
from warren_machines.queue.ready import leaves

Single = tuple[int, int, str, int]
"""(index, ordinal, reason, died_ms)."""


@pytest.fixture(autouse=True)
def small_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (letter_queue, leaves):
        monkeypatch.setattr(module, "LEAF_ROWS_MAX", 4)
    monkeypatch.setattr(leaves, "LEAVES_UNPACKED_MAX", 2)
    # `check` and `after` read every leaf at every step, and few have changed since the last one.
    decoded = lru_cache(leaves.decode_leaf)
    monkeypatch.setattr(leaves, "decode_leaf", lambda data: list(decoded(data)))


def singles(letters: LetterQueue) -> list[Single]:
    return [(one.entry, one.ordinal, one.reason, one.died_ms) for one in letters.after((0, 0), 999)]


def copied(letters: LetterQueue) -> LetterQueue:
    made = LetterQueue()
    made.load((letters.count, letters.next_number, letters.size_bytes), letters.dump())
    return made


def test_messages_that_die_together_are_one_row() -> None:
    letters = LetterQueue()
    letters.add(5, 0, 2, "expired", 10)
    letters.add(5, 3, 3, "expired", 10)
    letters.add(5, 4, 4, "rejected", 10)
    letters.add(5, 5, 5, "rejected", 11)
    letters.add(6, 6, 6, "rejected", 11)
    assert [row[:4] for row in letters] == [(1, 5, 0, 3), (2, 5, 4, 4), (3, 5, 5, 5), (4, 6, 6, 6)]


def test_a_number_is_never_used_again() -> None:
    letters = LetterQueue()
    letters.add(5, 0, 0, "expired", 10)
    assert letters.remove(1, 0, 0) == [(5, 0, 0)]
    letters = copied(letters)
    letters.add(5, 1, 1, "expired", 10)
    assert letters.remove(1, 0, 9) == [] and letters.count == 1


@pytest.mark.parametrize("seed", range(25))
def test_they_do_what_a_list_does(seed: int) -> None:
    random = Random(seed)
    letters, twin = LetterQueue(), LetterQueue()  # the twin comes from bytes again and again
    plain: list[Single] = []
    index = now = 0
    for _ in range(200):
        kind = random.random()
        if kind < 0.5:
            index += 1
            now += random.choice((0, 0, 5))
            first = 0
            for _ in range(random.randint(1, 3)):
                last = first + random.choice((0, 0, 1, 6))
                reason = random.choice(REASONS)
                letters.add(index, first, last, reason, now)
                twin.add(index, first, last, reason, now)
                plain += [(index, at, reason, now) for at in range(first, last + 1)]
                first = last + random.choice((1, 1, 2))
        elif kind < 0.95 and plain:
            chosen = random.choice(letters.after((0, 0), random.choice((3, 30, 300))))
            width = random.choice((0, 0, 2, 10))
            gone = letters.remove(chosen.number, chosen.ordinal, chosen.ordinal + width)
            assert gone == twin.remove(chosen.number, chosen.ordinal, chosen.ordinal + width)
            assert gone and gone[0][:2] == (chosen.entry, chosen.ordinal)
            names = {(entry, at) for entry, low, high in gone for at in range(low, high + 1)}
            plain = [one for one in plain if one[:2] not in names]
        else:
            twin = copied(twin)
        letters.check()
        twin.check()
        assert letters.dump() == twin.dump()
        assert singles(letters) == plain
        if plain:
            everything = letters.after((0, 0), 999)
            at = random.randrange(len(everything))
            some = letters.after(everything[at].place, 5)
            assert some == everything[at + 1 : at + 6], "whatever was removed before it"
            gap = (everything[at].number, everything[at].ordinal - 1)
            assert letters.after(gap, 1)[0] == everything[at]
    assert len(letters.clear()) and not letters.count and not letters.dump()
