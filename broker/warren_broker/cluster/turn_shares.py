"""The steps of a turn, shared among the clients: work that takes more continues in later turns.

architecture.md (the work of a turn) has the rule. One input of a client may take its share of
this turn at once, which is all that nearly every one needs. The others wait in a circle, and each
turn goes round it with a number of steps that does not depend on how many wait.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from warren_broker.cluster.turns import Work as DividedWork
from warren_machines.steps import Steps, T, Work
from warren_raft.runtime.loop import Loop
from warren_wire.errors import Refusal

log = logging.getLogger(__name__)
SHARE_STEPS: Final = 2_000
"""Steps that a client may take at once per turn, and that one which waits takes at a time: less
than a millisecond."""
ROUND_STEPS: Final = 8_000
"""Steps per turn for all that wait, together: a message of another client is confirmed after a few
turns, of which each is longer by that."""


WORK_STEPS: Final = 128
"""Steps of a request's work (`cluster.turns`), of some nanoseconds, that count as one here."""


class _Item(NamedTuple):
    work: Work[Any]
    done: Callable[[Any], None]
    refused: Callable[[Refusal], None]
    lasting: bool


@dataclass(slots=True, eq=False, repr=False)
class Share:
    """What one client takes of each turn; its work is done in order.

    steps     which its work counts
    busy      whether work waits for a later turn
    on_free   called when nothing waits any more, in a later turn than it began to
    on_fault  called with what work that waited has raised; the rest of its work is dropped
    Invariant: it is busy while `_waiting` has work.
    """

    _shares: TurnShares
    on_free: Callable[[], None] | None
    on_fault: Callable[[Exception], None] | None
    _client: int | None
    steps: Steps = field(default_factory=lambda: Steps(0))
    busy: bool = False
    _waiting: deque[_Item] = field(default_factory=deque)
    _turn: int = -1
    _closed: bool = False

    @property
    def waiting(self) -> int:
        """How much work waits."""
        return len(self._waiting)

    def run(
        self,
        work: Work[T],
        done: Callable[[T], None],
        refused: Callable[[Refusal], None],
        lasting: bool = False,
    ) -> None:
        """Do work now as far as the share goes, after what waits; the rest of it in later turns.

        One of the two is called, once; neither if the share is closed meanwhile. Raises what is
        raised in this turn.

        lasting  it is done to its end where the share is closed: some queues have the message
        """
        item = _Item(work, done, refused, lasting)
        if self._waiting:
            self._waiting.append(item)
            return
        if self._turn != self._shares.turn:
            self.begin(SHARE_STEPS)
        tell = _continued(item)
        if tell is not None:
            tell()
        elif lasting or not self._closed:
            self.busy = True
            self._waiting.append(item)
            self._shares.wait(self)

    def begin(self, steps: int) -> None:
        """Let it take so many steps at once in this turn."""
        self._turn = self._shares.turn
        self.steps.limit = self.steps.taken + steps

    def run_alone(self, call: Callable[[], None]) -> None:
        """Call what counts no steps and may take long: once in a turn for all that wait."""

        def work() -> Work[None]:
            if self.steps.left < SHARE_STEPS // 2:
                yield
            self.steps.take(ROUND_STEPS)
            call()

        self.run(work(), _nothing, _nothing)

    def advance(self) -> int:
        """Continue what waits; return how many steps were taken."""
        before = self.steps.taken
        self.steps.limit = before + SHARE_STEPS
        while self._waiting and self.steps.left > 0:
            self.steps.take()
            item = self._waiting[0]
            try:
                tell = _continued(item)
                if tell is not None:
                    self._ended()
                    tell()
            except Exception as fault:
                if self._waiting and self._waiting[0] is item:
                    self._ended()
                self._failed(fault)
        if not self._waiting and self.on_free is not None:
            self.on_free()
        return self.steps.taken - before

    def _ended(self) -> None:
        self._waiting.popleft()
        self.busy = bool(self._waiting)

    def _failed(self, fault: Exception) -> None:
        # The fault boundary of work that waits: the loop would end with it.
        log.error("work that waited for a later turn failed", exc_info=fault)
        on_fault = self.on_fault
        if on_fault is not None:
            self.close()
            on_fault(fault)

    def close(self) -> None:
        """Drop what waits, unless it is lasting; further work has what this turn's share gives."""
        self._closed = True
        left = [item._replace(done=_nothing) for item in self._waiting if item.lasting]
        self._waiting = deque(left)
        self.busy = bool(left)
        self.on_free = self.on_fault = None
        self._shares.closed(self._client)


def _counted(work: DividedWork[T], steps: Steps) -> Work[T]:
    """Do a request's work while there are steps; one piece of it at least is not interrupted."""
    owed = 0
    while True:
        if steps.left <= 0:
            yield
        try:
            owed += next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        steps.take(owed // WORK_STEPS)
        owed %= WORK_STEPS


def _nothing(result: object) -> None:
    pass


def _continued(item: _Item) -> Callable[[], None] | None:
    """Continue work; return what tells its end, None: it waits."""
    try:
        next(item.work)
    except StopIteration as end:
        return partial(item.done, end.value)
    except Refusal as refusal:
        return partial(item.refused, refusal)
    return None


class TurnShares:
    """The shares of one node's loop.

    Invariant: `_circle` has each share with waiting work once, but for the one that is continued
    just now; `_go_round` is scheduled once while there is any.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._circle: deque[Share] = deque()
        self._listed: set[Share] = set()
        self._scheduled = False
        self._clients: dict[Hashable, Share] = {}
        self._kept: dict[Hashable, Share] = {}
        self._kept_turn = -1
        self._begun = (-1, 0)  # of requests: a turn, and the steps that they may begin with in it

    @property
    def turn(self) -> int:
        """The number of the loop's turn."""
        return self._loop.turn

    def open(
        self,
        client: int,
        on_free: Callable[[], None],
        on_fault: Callable[[Exception], None],
    ) -> Share:
        """Make the share of a client with that number, which the client closes."""
        share = self._clients[client] = Share(self, on_free, on_fault, client)
        return share

    def closed(self, client: int | None) -> None:
        """Forget a client's share: it is closed."""
        self._clients.pop(client, None)

    def of(self, key: Hashable) -> Share:
        """Return a client's share, or one of the node's own: the same while its work waits."""
        if self._kept_turn != self._loop.turn:
            self._kept_turn = self._loop.turn
            self._kept = {key: share for key, share in self._kept.items() if share.busy}
        share = self._clients.get(key) or self._kept.get(key)
        if share is None:
            share = self._kept[key] = Share(self, None, None, None)
        return share

    def divide(
        self,
        work: DividedWork[T],
        done: Callable[[T], None],
        refused: Callable[[Refusal], None],
        on_fault: Callable[[Exception], None] | None = None,
    ) -> None:
        """Do the work of one request: at once what is little, else it has its place in the circle.

        Its client chooses how many requests there are. So those of one turn may take ROUND_STEPS at
        once together, and each of them SHARE_STEPS; in the circle each has its slice of the round,
        and a small one ends soon, however large the others are.

        on_fault  called with what the work raises in a later turn
        """
        turn, left = self._begun
        if turn != self._loop.turn:
            left = ROUND_STEPS
        share = Share(self, None, on_fault, None)
        share.begin(max(0, min(SHARE_STEPS, left)))
        try:
            share.run(_counted(work, share.steps), done, refused)
        finally:
            self._begun = self._loop.turn, left - share.steps.taken

    def wait(self, share: Share) -> None:
        """Put a share with waiting work into the circle."""
        if share not in self._listed:
            self._listed.add(share)
            self._circle.append(share)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._go_round)

    def _go_round(self) -> None:
        """Continue what waits, in turn, with ROUND_STEPS; the rest in the loop's next turn."""
        left, self._scheduled = ROUND_STEPS, False
        while self._circle and left > 0:
            share = self._circle.popleft()
            self._listed.discard(share)
            left -= 1 + share.advance()
            if share.busy:
                self.wait(share)
        if self._circle and not self._scheduled:
            self.wait(self._circle[0])
