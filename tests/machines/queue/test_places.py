"""Pages of a queue: every message once, in the order of its state, and nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from tests.machines.queue.logs import a_block, a_command, grow
from tests.machines.queue.world import Queue, config
from warren_machines.queue import commands as c
from warren_machines.queue.places import BrowsePlace, Holder, page_of
from warren_machines.queue.queue_snapshot import restore, snapshot
from warren_machines.queue.ready import backlog, leaves
from warren_machines.queue.ready.backlog import Backlog
from warren_machines.queue.ready.leaves import Leaves
from warren_machines.queue.state import QueueState
from warren_machines.queue.view import view_of
from warren_raft.int_runs import pack
from warren_wire.message_states import STATES

ALL = frozenset(STATES)
Message = tuple[str, int, int]


def look(
    state: QueueState, after: BrowsePlace | None, count: int, own: bool = True
) -> tuple[list[Message], BrowsePlace | None]:
    """State, index and ordinal of the messages of a page, and its end."""
    page = page_of(state, ALL, after, count, own)
    assert page.next is None or page.next.is_one
    found = [(STATES[row[0]], row[2], o) for row in page.rows for o in range(row[3], row[4] + 1)]
    assert len(found) == count or page.next is None, (len(found), page.next)
    return found, page.next


def walk(state: QueueState, count: int) -> list[Message]:
    """All pages."""
    found, place = look(state, None, count)
    while place is not None:
        more, place = look(state, place, count)
        found += more
    return found


def whole(state: QueueState) -> list[Message]:
    """The same, all at once."""
    rows = view_of(state, ALL, 0, 1 << 62, 0)[1]
    return [(STATES[row[0]], row[2], o) for row in rows for o in range(row[3], row[4] + 1)]


@pytest.fixture(params=[False, True])
def short_pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks and leaves of few runs, so that short logs have many."""
    if request.param:
        monkeypatch.setattr(backlog, "CHUNK_RUNS_MAX", 3)
        monkeypatch.setattr(leaves, "LEAF_ROWS_MAX", 3)
        monkeypatch.setattr("warren_machines.queue.ready.returned_runs.LEAF_ROWS_MAX", 3)
        monkeypatch.setattr("warren_machines.queue.letters.letter_queue.LEAF_ROWS_MAX", 3)
        monkeypatch.setattr(leaves, "LEAVES_UNPACKED_MAX", 1)


@pytest.mark.usefixtures("short_pieces")
@pytest.mark.parametrize("seed", range(14))
def test_pages_of_a_grown_log(seed: int) -> None:
    queue = grow(seed)
    before = snapshot(queue.state)
    every = whole(queue.state)
    for count in (1, 2, 7, 1_000):
        assert walk(queue.state, count) == every
    # A member that was restored gives chunks and leaves other numbers: nothing is left out.
    other = restore(before)
    assert walk(other, 3) == every
    found, place = look(queue.state, None, 3)
    members = (queue.state, other)
    while place is not None:
        members = members[1], members[0]
        more, place = look(members[0], place, 3, own=False)
        found += more
    assert found == every
    assert snapshot(queue.state) == before == snapshot(other)


def _stands(state: QueueState) -> dict[tuple[int, int], tuple[str, object]]:
    """Each message's state, and what has it."""
    page = page_of(state, ALL, None, 1 << 40, True)
    return {
        (row[2], ordinal): (STATES[row[0]], (row[9], row[1] >= 0 and page.holders[row[1]]))
        for row in page.rows
        for ordinal in range(row[3], row[4] + 1)
    }


@pytest.mark.usefixtures("short_pieces")
@pytest.mark.parametrize("seed", range(14))
def test_what_stays_is_met_once_while_the_queue_moves(seed: int) -> None:
    random, queue = Random(seed), grow(seed, 60)
    stays = _stands(queue.state)
    found, place = look(queue.state, None, 4)
    while place is not None:
        for _ in range(2):
            queue.now += 1
            enqueues = random.random() < 0.3
            command = c.Enqueue() if enqueues else a_command(random, queue)
            if isinstance(command, c.Purge | c.RetryDelayed):
                continue
            queue.submit(command, data=a_block(random) if enqueues else None, uplink=50, node="m")
            now = _stands(queue.state)
            stays = {one: at for one, at in stays.items() if now.get(one) == at}
        more, place = look(queue.state, place, 4)
        found += more
    for (index, ordinal), (name, _) in stays.items():
        assert found.count((name, index, ordinal)) == 1, (name, index, ordinal)


@pytest.mark.usefixtures("short_pieces")
def test_any_place_that_a_client_names() -> None:
    random = Random(1)
    numbers = (-(1 << 40), -1, 0, 1, 2, 8, 9, 64, 300, 1 << 40, 1 << 63)
    for seed in range(14):
        state = grow(seed).state
        before, every = snapshot(state), set(whole(state))
        for _ in range(60):
            number = random.randrange(5)
            key = tuple(random.choice(numbers) for _ in range((6, 3, 4, 4, 3)[number]))
            place = BrowsePlace(number, random.choice(("", "r", "x", "no")), key)
            assert place.is_one
            found, _ = look(state, place, 1_000, own=random.random() < 0.5)
            assert set(found) <= every and len(found) == len(set(found)), (seed, place)
        assert snapshot(state) == before


def test_consumers_take_from_the_front_meanwhile() -> None:
    queue = Queue()
    for _ in range(300):
        queue.put(3)
    queue.do(c.Checkout(1, 1, "worker", 60))
    held = queue.state.find(1, 1)
    assert held is not None
    queue.do(c.Return(1, ((0, 59),), False))
    queue.do(c.Settle(1, ((60, 89),)))
    found, place = look(queue.state, None, 10)
    while place is not None:
        first = held.held[0][0]
        queue.do(c.Settle(1, ((first, first + 4),)))
        queue.put(1)
        more, place = look(queue.state, place, 10)
        found += more
    ready = [one for one in found if one[0] == "ready"]
    assert len(ready) == len(set(ready))
    there = {one for one in queue.ready() if one[0] <= 300}
    assert there and there <= {one[1:] for one in ready}


def test_who_has_a_message() -> None:
    queue = Queue(
        dead_letter_exchange="dlx", dead_letter_strategy="at-least-once", overflow="reject-publish"
    )
    queue.put(9)
    queue.do(c.RegisterReader("spark"))
    queue.do(c.OpenClaim("spark", 1, 1, 2, 10**6, 5_000))
    queue.do(c.Checkout(1, 5, "worker", 3))
    queue.do(c.Get(2, 6, False))
    queue.do(c.Discard(1, ((0, 0),)))
    page = page_of(queue.state, ALL, None, 100, True)
    by = {STATES[row[0]]: page.holders[row[1]] for row in reversed(page.rows) if row[1] >= 0}
    assert by["held"] == Holder("worker", "n1", 5)
    assert Holder("", "n1", 6) in page.holders
    assert by["claimed"] == Holder("spark") and by["dead"] == Holder("rejected")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Count the chunks and leaves that are read."""
    counted = [0]
    for kind in (backlog._Chunk, leaves.Leaf):
        read = kind.read

        def counting(self, read=read):  # type: ignore[no-untyped-def]
            counted[0] += 1
            return read(self)

        monkeypatch.setattr(kind, "read", counting)
    yield counted


def test_a_page_of_ten_million_messages(reads: list[int]) -> None:
    """Ten million of each state that has so many, one by one: a page reads some chunks of a few."""
    count, per = 10_000_000, 1_000
    state = QueueState(config())
    ones = pack([0] * per)
    chunks = [pack(range(1024 * n, 1024 * n + per)) + ones + ones for n in range(count // per)]
    state.order.lanes[4] = Backlog(chunks)
    state.order.mask, state.order.counts[4], state.order.count = 1 << 4, count, count
    rows = [
        pack(range(500 * n, 500 * n + 500)) * 2 + pack([0] * 500) * 4 for n in range(count // 500)
    ]
    state.delayed.load((count, 0, 0), (), rows)
    state.letters.load((count, count, 0), rows)
    state.order.returned.move_from(Leaves(rows))
    state.order.returned_count = count
    for name, middle in (
        ("ready", BrowsePlace(0, "", (64, 9_000, 9_000, 0, 9_000 * 500, 0))),
        ("ready", BrowsePlace(0, "", (8, 5_000 << 40, 0, 0, 1024 * 5_000, 0))),
        ("delayed", BrowsePlace(2, "", (1, 5_000_000, 5_000_000, 0))),
        ("dead", BrowsePlace(4, "", (5_000_000, 5_000_000, 0))),
    ):
        reads[0] = 0
        page = page_of(state, frozenset({name}), middle, 1_000, True)
        assert sum(row[4] - row[3] + 1 for row in page.rows) == 1_000
        assert page.rows[0][2] == middle.at[-2] + 1
        assert reads[0] <= 8, (name, reads)
