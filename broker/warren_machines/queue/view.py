"""What a queue holds, message by message, and of sinks: reads that change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from warren_machines.queue.places import SOURCES, Names, ViewRow
from warren_machines.queue.sinks.sink_state import SinkRun
from warren_machines.queue.state import QueueState
from warren_wire.admin.queues import EDGES_MAX

SCANNED_MAX: Final = 250_000
"""Runs that one view looks at: the leader does nothing else meanwhile."""
VIEW_ROWS_MAX: Final = 200_000
"""Rows of one view, so that a peer message can hold them."""
PIECE_ROWS: Final = 50_000
"""Rows of one piece of `edges_of`: a piece has room to grow before it is read."""
SinkRow: TypeAlias = tuple[str, str, int, int, tuple[tuple[int, int], ...], int, int, int]
"""(sink, run, epoch, last batch or -1, ((batch, messages), …) remembered, attempts staged, their
messages, when it is forgotten unless it is heard before, 0: not by itself)."""


class ViewTooLarge(Exception):
    """The queue, or this piece of it, is scattered over too many runs for one view."""


def view_of(
    state: QueueState, wanted: frozenset[str], first: int, last: int, count_max: int
) -> tuple[tuple[str, ...], tuple[ViewRow, ...]]:
    """Return names and rows of the messages in these states, state by state.

    They come in the order of `places`.

    first, last  log indexes first ≤ index < last only
    count_max    messages; 0: all
    raises       ViewTooLarge
    """
    names = Names()
    rows: list[ViewRow] = []
    left = count_max or 1 << 62
    for row in _rows(state, wanted, names):
        if not first <= row[2] < last:
            continue
        size = row[4] - row[3] + 1
        if size > left:
            row = (*row[:4], row[3] + left - 1, *row[5:])
        if len(rows) == VIEW_ROWS_MAX:
            raise ViewTooLarge(
                f"more than {VIEW_ROWS_MAX} runs of messages in one piece; ask for smaller pieces, "
                "or for fewer messages"
            )
        rows.append(row)
        left -= size
        if left <= 0:
            break
    return names.all(), tuple(rows)


def edges_of(state: QueueState, wanted: frozenset[str], pieces: int) -> tuple[int, ...]:
    """Return log indexes that cut the messages in these states into about that many equal pieces.

    More pieces where one would have too many rows, fewer where a block is larger than a piece.
    Piece i is edges[i] ≤ index < edges[i + 1]; nothing when there is no such message.
    raises  ViewTooLarge
    """
    found: dict[int, tuple[int, int]] = {}
    total = 0
    for row in _rows(state, wanted, Names()):
        messages, rows = found.get(row[2], (0, 0))
        size = row[4] - row[3] + 1
        found[row[2]] = messages + size, rows + 1
        total += size
    edges: list[int] = []
    taken = cut = rows_taken = 0
    for index in sorted(found):
        messages, rows = found[index]
        full = taken >= total * (cut + 1) // pieces or rows_taken + rows > PIECE_ROWS
        if not edges or (full and len(edges) < EDGES_MAX):
            edges.append(index)
            cut = taken * pieces // total
            rows_taken = 0
        taken += messages
        rows_taken += rows
    return (*edges, max(found) + 1) if found else ()


def _rows(state: QueueState, wanted: frozenset[str], names: Names) -> Iterator[ViewRow]:
    """Yield every row; raises ViewTooLarge after SCANNED_MAX."""
    scanned = 0
    for name, rows in SOURCES.items():
        if name not in wanted:
            continue
        for _, _, row in rows(state, names, None, True):
            scanned += 1
            if scanned > SCANNED_MAX:
                raise ViewTooLarge(
                    f"the queue's messages are in more than {SCANNED_MAX} runs; ask for fewer of "
                    "its states, or for its first messages only"
                )
            yield row


def sinks_of(
    state: QueueState, sink: str, run: str, count_max: int
) -> tuple[int, tuple[SinkRow, ...]]:
    """Return how many runs there are, and the first `count_max` of them.

    They come in the order in which they would be forgotten, the last ones first: by sink, the one
    that published (or began) last before all others, then by run.

    sink, run  only those of that name; "": all
    """
    # Sinks are bounded, and so are the runs of one, but not so tightly that all should be visited.
    total = sum(len(runs) if not run else run in runs for _, runs in _sinks(state, sink))
    found: list[SinkRow] = []
    for name, runs in _sinks(state, sink):
        for each in reversed(runs) if not run else (run,):
            if each not in runs:
                continue
            if len(found) >= count_max:
                return total, tuple(found)
            known = runs[each]
            found.append(
                (
                    name,
                    each,
                    known.epoch,
                    known.last_batch,
                    tuple((batch.batch, batch.messages) for batch in known.published),
                    len(known.stages),
                    sum(part.messages for part in known.stages.values()),
                    known.heard_ms + known.expires_ms,
                )
            )
    return total, tuple(found)


def _sinks(state: QueueState, sink: str) -> Iterator[tuple[str, dict[str, SinkRun]]]:
    """Yield sinks with their runs, the one that published last first."""
    for name in reversed(state.runs) if not sink else (sink,):
        if name in state.runs:
            yield name, state.runs[name]
