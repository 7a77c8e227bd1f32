"""A view of what a queue holds: every message once, in its state, and nothing is changed."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.machines.queue.logs import grow
from tests.machines.queue.world import Queue
from warren_machines.queue import view
from warren_machines.queue.commands import Checkout, Discard, OpenClaim, RegisterReader, Return
from warren_machines.queue.places import ViewRow
from warren_machines.queue.queue_snapshot import snapshot
from warren_machines.queue.view import ViewTooLarge, edges_of, view_of
from warren_wire.message_states import STATES

ALL = frozenset(STATES)
EVERYTHING = 1 << 62


def places(rows: tuple[ViewRow, ...]) -> list[tuple[str, int, int]]:
    """State, index and ordinal of each message."""
    return [
        (STATES[row[0]], row[2], ordinal) for row in rows for ordinal in range(row[3], row[4] + 1)
    ]


def pieces(queue: Queue, count: int) -> list[tuple[ViewRow, ...]]:
    """The rows of every piece."""
    edges = edges_of(queue.state, ALL, count)
    return [view_of(queue.state, ALL, low, high, 0)[1] for low, high in pairwise(edges)]


@pytest.mark.parametrize("seed", range(12))
def test_a_view_has_every_message_of_a_grown_log_once(seed: int) -> None:
    queue = grow(seed)
    before = snapshot(queue.state)
    words = {"ready": "ready", "delayed": "delayed", "letters": "dead", "held": "held"}
    words |= {"claim": "claimed", "relay": "held", "job": "kept", "kept": "kept"}
    expected = sorted(
        (words[where.split()[0]], index, ordinal)
        for where, index, first, last in queue.state.runs_in_use()
        if where.split()[0] != "stage"
        for ordinal in range(first, last + 1)
    )
    _, rows = view_of(queue.state, ALL, 0, EVERYTHING, 0)
    assert sorted(places(rows)) == expected
    for count in (1, 3, 50):
        cut = [place for piece in pieces(queue, count) for place in places(piece)]
        assert sorted(cut) == expected
    for state in STATES:
        _, rows = view_of(queue.state, frozenset({state}), 0, EVERYTHING, 0)
        assert sorted(places(rows)) == [place for place in expected if place[0] == state]
    assert snapshot(queue.state) == before


def test_what_a_row_says() -> None:
    queue = Queue(
        dead_letter_exchange="dlx",
        dead_letter_strategy="at-least-once",
        overflow="reject-publish",
        delayed_retry_type="all",
        delayed_retry_min_ms=100,
        delayed_retry_max_ms=100,
    )
    queue.put(9)
    queue.do(RegisterReader("spark"))
    queue.do(OpenClaim("spark", 1, 1, 2, 10**6, 5_000))
    queue.now += 7
    queue.do(Checkout(1, 1, "worker", 4))
    delivered = queue.now
    queue.now += 2
    queue.do(Return(1, ((2, 2),), True))
    queue.do(Discard(1, ((3, 3),)))
    names, rows = view_of(queue.state, ALL, 0, EVERYTHING, 0)
    by_state = {STATES[row[0]]: row for row in reversed(rows)}
    held, claimed, delayed = by_state["held"], by_state["claimed"], by_state["delayed"]
    assert (names[held[1]], held[3], held[4], held[7]) == ("worker", 2, 3, delivered)
    assert (names[claimed[1]], claimed[3], claimed[4], claimed[9]) == ("spark", 0, 1, 1)
    assert claimed[8] > queue.now and delayed[8] == queue.now + 100
    assert (delayed[1], delayed[3], delayed[5], delayed[6]) == (-1, 4, 1, 1)
    dead = by_state["dead"]
    assert (names[dead[1]], dead[3], dead[7]) == ("rejected", 5, queue.now)
    assert by_state["ready"][3:5] == (8, 8)


def test_the_first_messages_and_a_piece_of_the_log() -> None:
    queue = Queue()
    indexes = [queue.put(4, priorities=priority) for priority in (4, 9, 4)]
    _, rows = view_of(queue.state, ALL, 0, EVERYTHING, 6)
    assert places(rows) == [("ready", indexes[1], n) for n in range(4)] + [
        ("ready", indexes[0], n) for n in range(2)
    ]
    _, rows = view_of(queue.state, ALL, indexes[1], indexes[2], 0)
    assert places(rows) == [("ready", indexes[1], n) for n in range(4)]


def test_pieces_are_about_equal() -> None:
    queue = Queue()
    for _ in range(40):
        queue.put(5)
    sizes = [len(places(piece)) for piece in pieces(queue, 8)]
    assert len(sizes) == 8 and max(sizes) <= 2 * min(sizes), sizes
    assert edges_of(Queue().state, ALL, 8) == ()


def test_a_queue_in_too_many_runs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue()
    for _ in range(9):
        queue.put(1)
    monkeypatch.setattr(view, "PIECE_ROWS", 2)
    assert max(len(piece) for piece in pieces(queue, 1)) == 2
    monkeypatch.setattr(view, "VIEW_ROWS_MAX", 5)
    with pytest.raises(ViewTooLarge, match="more than 5 runs of messages in one piece"):
        view_of(queue.state, ALL, 0, EVERYTHING, 0)
    assert len(view_of(queue.state, ALL, 0, EVERYTHING, 5)[1]) == 5
    monkeypatch.setattr(view, "SCANNED_MAX", 8)
    with pytest.raises(ViewTooLarge, match="in more than 8 runs"):
        edges_of(queue.state, ALL, 1)
