"""Claims: numbered holds on messages of a queue, stored by the broker.

A driver registers a reader, opens claims and settles them; any client that knows a claim's
number can fetch its messages, any number of times.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias
from urllib.parse import quote

from warren.calls import AdminCalls
from warren.connection import Connection
from warren.errors import PeerError, Unavailable, UsageError, WarrenError
from warren_wire.admin import claims as m
from warren_wire.amqp10.addresses import area_words
from warren_wire.amqp10.fetched import Run, decode_piece
from warren_wire.arguments import NAME_BYTES_MAX
from warren_wire.block.layout import AREAS
from warren_wire.queue_values.describe_command import ReadBy
from warren_wire.queue_values.give_up_command import Way

CLAIM_MESSAGES_MAX = 1 << 31


Registration: TypeAlias = m.ReaderRegistered
Claim: TypeAlias = m.ClaimOpened


@dataclass(frozen=True, slots=True)
class FetchedBlock:
    """A run of fetched messages.

    runs  (index, first, last, delivery_count, acquired_count) each, first and last both included;
          message k of the block is the k-th message of the runs. (index, ordinal) is a message's
          position in its queue; the counts are as before the claim
    data  an encoded block (`warren_wire.block.block`) with just these messages, a view
    """

    runs: tuple[Run, ...]
    data: memoryview

    @property
    def messages(self) -> int:
        """Return the number of messages."""
        return sum(last - first + 1 for _, first, last, _, _ in self.runs)


@dataclass(frozen=True, slots=True)
class ReaderStep:
    """What a driver asks of one reader at once, see `take_steps`.

    settles  settle all claims up to this number; 0: none
    opens    then open this claim, with the limits of `ClaimReader.open`; 0: none. It is the last
             settled + 1, or with `ahead` the one after it, while that one is open
    ahead    open it only if it is full: unless so many messages, or so many bytes, are ready, it
             is answered and not open
    """

    queue: str
    reader: str
    epoch: int
    settles: int = 0
    opens: int = 0
    max_messages: int = 0
    max_bytes: int = 0
    ttl_ms: int = 0
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class StepTaken:
    """The answer to a ReaderStep.

    messages  settled by this call
    claim     see `ClaimReader.open`. None: none was requested, or it was refused, and
              `ClaimReader.open` says why: nothing, or a node that carried it out before the
              settlement
    """

    messages: int
    claim: Claim | None


class ClaimReader(AdminCalls):
    """A named reader of one queue, as its driver sees it.

    epoch  the epoch of `register`; None before. A driver that continues an earlier registration may
           set it
    """

    def __init__(
        self, connection: Connection, queue: str, reader: str, epoch: int | None = None
    ) -> None:
        if not reader or len(reader) > 255:
            raise UsageError(f"reader {reader!r}: a name has 1 to 255 characters")
        super().__init__(connection)
        self.queue = queue
        self.reader = reader
        self.epoch = epoch

    def register(self, *, go_on_after: int = 0, expires_ms: int = 0) -> Registration:
        """Register with a new epoch: every older driver is `Fenced` from now on.

        go_on_after  lost claims (`ClaimLost`) up to this number count as settled; their messages
                     are in the queue, or held by others
        expires_ms   the queue forgets the reader once it has sent nothing for that long (see
                     `renew`) and holds no messages; its next request gets ClaimLost. 0: not by
                     itself
        """
        # One name for all attempts: a delayed attempt must not fence the driver when it arrives.
        call = uuid.uuid4().hex
        request = m.RegisterReaderRequest(self.queue, self.reader, call, go_on_after, expires_ms)
        registered = self.ask(request)
        self.epoch = registered.epoch
        return registered

    def open(
        self,
        number: int,
        *,
        max_messages: int,
        max_bytes: int,
        ttl_ms: int = 0,
        keep_empty: bool = False,
    ) -> Claim:
        """Claim up to that much from the head of the queue as claim `number`.

        number      the last settled + 1, see `register`; if it is open it is returned unchanged
        ttl_ms      0: the claim does not expire; else it expires unless renewed
        keep_empty  when nothing is ready, open a claim without messages: a repeat returns the same
                    even when messages have arrived, and it must be settled before the next one
        raises      ClaimLost for any other number (settled, released, expired, too far); Fenced
        """
        return self.ask(self._opening(number, max_messages, max_bytes, ttl_ms, keep_empty))

    def withdraw(self, number: int) -> int:
        """Give the messages of a claim back that was opened ahead; no delivery counts as failed.

        The claim stays open, and empty: its number is not used again. A repeat changes nothing.

        returns  the number of messages that were in the claim
        """
        return self.ask(m.GiveUpRequest(*self._claim(number), "withdraw", 1))

    def fetch(self, number: int, first: int, last: int) -> Iterator[FetchedBlock]:
        """See `fetch_claim`."""
        return fetch_claim(self.connection, self.queue, self.reader, number, first, last)

    def settle(self, number: int) -> int:
        """Settle all claims up to `number`; return the number of messages settled by this call.

        Raises ClaimLost when one of them expired or was released: none is settled then, and its
        messages may be read again. `register(go_on_after=number)` continues after them.
        """
        return self.ask(self._settling(number))

    def renew(self) -> None:
        """Renew claims: those with a ttl expire after that time from now. A sign of life, too."""
        self.ask(m.RenewClaimsRequest(self.queue, self.reader, self.registered_epoch()))

    def release(self, number: int = 0, *, failed: bool = False, undecided: bool = False) -> int:
        """Release claim `number`: its messages become ready (0: all, and forget the reader).

        A claim that a batch settles (`warren.stages.publish_batch`) becomes ready when the batch
        was not published, which it cannot be any more then; else it is settled. Raises Conflict
        when that is not known, see `undecided`.

        failed     count it as a failed delivery of each message
        undecided  release it although it is not known whether its batch was published
        returns    the number of messages released
        """
        return self.ask(m.ReleaseClaimRequest(*self._claim(number), failed, undecided))

    def give_up(self, number: int, way: Way, *, in_row_max: int, drop: bool = False) -> int:
        """Take all messages out of claim `number`, which stays open, for a batch without rows.

        The claim is settled as any other then. A repeat finds an empty claim and changes nothing.
        One that a batch settles is asked about first, as in `release`.

        way         "divide": its halves are the next claims of this reader; a single message is
                    claimed again, alone, when another claim has been settled after it;
                    "reject": dead-letter the messages; "release": give them back, as failed
        in_row_max  so many messages alone, or rejected claims, may fail one after another with no
                    claim settled in between; for one more Conflict is raised, and nothing changes
        drop        reject them also when the queue has no dead letter exchange: they are dropped
        returns     the number of messages that were in the claim
        raises      ClaimLost when it is not open, and not settled
        """
        return self.ask(m.GiveUpRequest(*self._claim(number), way, in_row_max, drop))

    def registered_epoch(self) -> int:
        """Return the epoch; raises UsageError when not registered."""
        if self.epoch is None:
            raise UsageError(f"reader {self.reader!r} is not registered; call register() first")
        return self.epoch

    def _claim(self, number: int) -> tuple[str, str, int, int]:
        """Return what names a claim in a request."""
        return self.queue, self.reader, number, self.registered_epoch()

    def _opening(
        self,
        number: int,
        max_messages: int,
        max_bytes: int,
        ttl_ms: int,
        keep_empty: bool = False,
        ahead: bool = False,
    ) -> m.OpenClaimRequest:
        """Return the request of `open`."""
        if max_messages < 1 or max_bytes < 1:
            raise UsageError(
                f"a claim of {max_messages} messages, {max_bytes} bytes: both must be 1 or more"
            )
        most = min(max_messages, CLAIM_MESSAGES_MAX)
        return m.OpenClaimRequest(*self._claim(number), most, max_bytes, ttl_ms, keep_empty, ahead)

    def _settling(self, number: int) -> m.SettleClaimsRequest:
        """Return the request of `settle`."""
        return m.SettleClaimsRequest(*self._claim(number))


def take_steps(
    connection: Connection, steps: Sequence[ReaderStep]
) -> list[StepTaken | WarrenError]:
    """Settle claims of several readers, then open the next ones, in one round trip.

    Where a queue's leader gets both at once they are one entry of its log.

    returns  for each what was done, or why not: claims that it would open are not open then, unless
             they were before. One that failed does not keep the others from their answers
    """
    asked = [_requests(connection, step) for step in steps]
    return [
        _taken(step, answers)
        for step, answers in zip(steps, AdminCalls(connection).ask_each(asked), strict=True)
    ]


def _requests(connection: Connection, step: ReaderStep) -> list[m.ReaderRequest[Any]]:
    reader = ClaimReader(connection, step.queue, step.reader, step.epoch)
    asked: list[m.ReaderRequest[Any]] = [reader._settling(step.settles)] if step.settles else []
    if step.opens:
        limits = (step.max_messages, step.max_bytes, step.ttl_ms)
        asked.append(reader._opening(step.opens, *limits, ahead=step.ahead))
    return asked


def _taken(step: ReaderStep, answers: list[Any]) -> StepTaken | WarrenError:
    messages = answers.pop(0) if step.settles else 0
    if isinstance(messages, WarrenError):
        return messages
    for opened in answers:
        if isinstance(opened, Unavailable):
            return opened
        if not isinstance(opened, WarrenError):
            return StepTaken(messages, opened)
    return StepTaken(messages, None)


def reader_path(queue: str, reader: str) -> str:
    """Return the path of a reader's requests."""
    return f"/queues/{quote(queue, safe='')}/readers/{quote(reader, safe='')}"


def fetch_claim(
    connection: Connection,
    queue: str,
    reader: str,
    number: int,
    first: int,
    last: int,
    areas: int = AREAS,
    read_by: ReadBy | None = None,
) -> Iterator[FetchedBlock]:
    """Yield messages first ≤ i < last of an open claim, in claim order, from any node.

    areas  of the blocks: AREA_PROPERTIES, AREA_BODIES; in another one every message is empty, and
           is not sent. Routes, priorities and expiry are always there
    read_by  the batch that reads the claim, for `warren claims list`; noted when first is 0

    Changes nothing else; may be called any number of times, concurrently, by any client. When a
    connection is lost, the next one continues where it stopped. Raises ClaimLost when there is no
    such claim (any more), NotFound when there is no such queue, Unavailable.
    """
    wanted = ClaimSlice(queue, reader, number, first, last, read_by)
    for _, piece in fetch_slices(connection, [wanted], areas):
        yield piece


@dataclass(frozen=True, slots=True)
class ClaimSlice:
    """Messages first ≤ i < last of an open claim; read_by: see `fetch_claim`."""

    queue: str
    reader: str
    number: int
    first: int
    last: int
    read_by: ReadBy | None = None


def fetch_slices(
    connection: Connection, slices: Sequence[ClaimSlice], areas: int = AREAS
) -> Iterator[tuple[int, FetchedBlock]]:
    """Yield the messages of several slices, one slice after another, with their numbers.

    They are requested ahead (`Connection.streams`): many short ones take little more than one round
    trip. Raises what `fetch_claim` raises, at the slice that it is about.
    """
    for each in slices:
        if not 0 <= each.first <= each.last:
            raise UsageError(f"a slice from {each.first} to {each.last}: it must not be negative")
    numbers = [at for at, each in enumerate(slices) if each.first < each.last]
    parts = [_Part(slices[at]) for at in numbers]
    sources = [partial(part.source, areas) for part in parts]
    ended = 0
    for at, message in connection.streams(sources):
        for part in parts[ended:at]:
            part.check_whole()
        ended = at
        piece = FetchedBlock(*decode_piece(message))
        parts[at].position += piece.messages
        yield numbers[at], piece
        if at == len(parts) - 1 and parts[at].position >= slices[numbers[at]].last:
            return  # all is there, although the node has not closed the link yet
    for part in parts[ended:]:
        part.check_whole()


class _Part:
    """A slice that is being fetched, up to `position`."""

    def __init__(self, wanted: ClaimSlice) -> None:
        self._wanted = wanted
        self.position = wanted.first

    def source(self, areas: int) -> str:
        """Return the address of what is missing."""
        wanted = self._wanted
        said = _said(wanted.read_by) if self.position == 0 else ""
        path = f"{reader_path(wanted.queue, wanted.reader)}/claims/{wanted.number}"
        return f"{path}?first={self.position}&last={wanted.last}{_want(areas)}{said}"

    def check_whole(self) -> None:
        """Raise PeerError when the claim has ended before the slice."""
        wanted = self._wanted
        if self.position < wanted.last:
            raise PeerError(
                f"queue {wanted.queue!r}: claim {wanted.number} of reader {wanted.reader!r} ended "
                f"at message {self.position}, before {wanted.last}; ask for no more than the claim "
                "holds"
            )


def _want(areas: int) -> str:
    """Return the part of a fetch's address that says which areas; both: nothing."""
    return "" if areas == AREAS else f"&want={','.join(area_words(areas))}"


def _said(read_by: ReadBy | None) -> str:
    """Return the part of a fetch's address that says what reads the claim."""
    if read_by is None:
        return ""
    name = read_by.name.encode()[:NAME_BYTES_MAX].decode(errors="ignore")
    query = quote(read_by.query, safe="")
    return f"&query={query}&name={quote(name, safe='')}&batch={read_by.batch}"


def browse(
    connection: Connection, queue: str, max_messages: int, areas: int = AREAS
) -> Iterator[FetchedBlock]:
    """Yield up to that many ready messages, in delivery order, without a change.

    areas  as in `fetch_claim`

    A connection lost after the first piece raises ConnectionLost: browsing cannot be continued.
    """
    if max_messages < 1:
        raise UsageError(f"browse {max_messages} messages: at least 1")
    source = f"/queues/{quote(queue, safe='')}/browse?max={max_messages}{_want(areas)}"
    for message in connection.stream(lambda: source, resumable=False):
        yield FetchedBlock(*decode_piece(message))
