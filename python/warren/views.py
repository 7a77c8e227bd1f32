"""What a queue holds, in every state: a read that takes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from warren.calls import AdminCalls
from warren.connection import Connection
from warren.errors import UsageError
from warren_wire.admin.queues import ViewEdgesRequest
from warren_wire.amqp10.addresses import WANT_BLOCKS, WANT_OUTLINES, WANT_TIMES, area_words
from warren_wire.amqp10.viewed import ViewHead, decode_view
from warren_wire.block.layout import AREAS
from warren_wire.message_states import STATES

EVERYTHING = 1 << 62
"""Above every log index."""


@dataclass(frozen=True, slots=True)
class ViewedBlock:
    """Some messages with their states: rows, and an encoded block of them, empty if not wanted."""

    head: ViewHead
    data: memoryview


def view_edges(connection: Connection, queue: str, states: Sequence[str], pieces: int) -> list[int]:
    """Return log indexes that cut what is in these states into about `pieces` equal pieces.

    Piece i is edges[i] <= index < edges[i + 1]; no edges: there is nothing. A message keeps its
    index for as long as it is in the queue, so pieces that are read one after the other have it
    at most once. Raises Conflict when the queue is scattered over too many runs.
    """
    asked = ViewEdgesRequest(queue, _checked(states), pieces)
    return list(AdminCalls(connection).ask(asked).edges)


def view(
    connection: Connection,
    queue: str,
    states: Sequence[str],
    *,
    first: int = 0,
    last: int = EVERYTHING,
    max_messages: int = 0,
    times: bool = True,
    blocks: bool = True,
    areas: int = AREAS,
) -> Iterator[ViewedBlock]:
    """Yield the messages in these states, state by state, as they are at one moment.

    Messages that leave the queue while they are read may be missing.

    first, last   log indexes first <= index < last: one piece of `view_edges`
    max_messages  0: all
    times         with the times at which they entered the queue
    blocks        with the messages themselves
    areas         of the blocks, as in `warren.claims.fetch_claim`
    raises        ConnectionLost after the first piece: the moment cannot be returned to
    """
    wanted = [WANT_TIMES] if times else []
    if blocks:
        wanted += [WANT_BLOCKS] if areas == AREAS else [WANT_OUTLINES, *area_words(areas)]
    source = (
        f"/queues/{quote(queue, safe='')}/view?states={','.join(_checked(states))}"
        f"&first={first}&last={last}&max={max_messages}&want={','.join(wanted)}"
    )
    for message in connection.stream(lambda: source, resumable=False):
        yield ViewedBlock(*decode_view(message))


def _checked(states: Sequence[str]) -> tuple[str, ...]:
    """Return the states; raises UsageError."""
    unknown = [name for name in states if name not in STATES]
    if unknown or not states:
        raise UsageError(f"states {', '.join(states) or 'none'}: name some of {', '.join(STATES)}")
    return tuple(states)
