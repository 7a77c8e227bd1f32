"""What a node counts of messages by queue, exchange and vhost, rates between samples, a history.

Counts are of the clients of this node, and go up from its start on; a queue's are the sums over the
nodes. Lengths are known where the queue is led. Time is handed in.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Final, Generic, TypeVar

from warren_broker.counting.counters import CHURN
from warren_broker.counting.pair_counts import ExchangeKey, PairCounts, Row

COUNTED: Final = (
    *("publish", "deliver", "deliver_no_ack", "get", "get_no_ack", "get_empty", "redeliver"),
    "ack",
)
"""RabbitMQ's names of a queue's counts, in the order of a row."""
PUBLISH, DELIVER, DELIVER_NO_ACK, GET, GET_NO_ACK, GET_EMPTY, REDELIVER, ACK = range(len(COUNTED))
HANDED_OUT: Final = ("deliver", "deliver_no_ack", "get", "get_no_ack")
"""Those of which `deliver_get` is the sum."""
EXCHANGE_COUNTED: Final = ("publish_in", "publish_out")
"""RabbitMQ's names of an exchange's counts, in the order of a row."""
PUBLISH_IN, PUBLISH_OUT = range(len(EXCHANGE_COUNTED))
CHANNEL_COUNTED: Final = (*COUNTED, "confirm", "return_unroutable", "drop_unroutable")
"""RabbitMQ's names of a channel's counts, in the order of a row; those of COUNTED are at the same
places."""
CONFIRM, RETURN_UNROUTABLE, DROP_UNROUTABLE = range(len(COUNTED), len(CHANNEL_COUNTED))
OCTETS: Final = ("recv_oct", "send_oct")
"""RabbitMQ's names of a connection's counts, in the order of a row."""
VHOST_COUNTED: Final = (*CHANNEL_COUNTED, *OCTETS)
"""RabbitMQ's names of a vhost's counts; those of channels are at the same places."""
RECV_OCT, SEND_OCT = range(len(CHANNEL_COUNTED), len(VHOST_COUNTED))
NODE_STATS: Final = (
    *("mem_used", "fd_used", "sockets_used", "disk_free", *CHURN),
    *("context_switches", "gc_num", "io_write_count", "io_write_bytes", "io_sync_count"),
)
"""RabbitMQ's names of what a node has in use, which goes down, too, and of what comes and goes."""
LENGTHS: Final = ("messages", "messages_ready", "messages_unacknowledged")
"""RabbitMQ's names of a queue's lengths; they go down, too."""
UNKNOWN: Final = -1
"""A length in a sample of a node that did not lead the queue."""
FINE_SAMPLES: Final = 120
"""Samples of a queue that are kept as they were taken: ten minutes of 5 s each."""
COARSE_SAMPLES: Final = 60
"""Older ones, the last one of each minute."""
COARSE_MS: Final = 60_000
CAPACITY_MS: Final = 30_000
"""What was so long ago counts e times less in a queue's capacity."""
SAMPLES_MAX: Final = 300_000
"""Samples of all queues of a node, 28.8 MB; where more queues change, each keeps fewer."""
EXCHANGE_SAMPLES_MAX: Final = 60_000
"""Those of all exchanges, 2.9 MB."""
VHOST_SAMPLES_MAX: Final = 30_000
"""Those of all vhosts, 4.1 MB."""
CONNECTION_SAMPLES_MAX: Final = 60_000
"""Those of all connections, 2.9 MB."""
CHANNEL_SAMPLES_MAX: Final = 60_000
"""Those of all channels, 7.2 MB."""
KeyT = TypeVar("KeyT", bound=Hashable)


def sample_width(names: Sequence[str]) -> int:
    """Return the numbers of a sample: milliseconds since the epoch, counts, lengths."""
    return 1 + len(names) + len(LENGTHS)


def zero_row() -> Row:
    """Return counts of nothing yet."""
    return [0] * len(COUNTED)


def zero_vhost_row() -> Row:
    """Return a vhost's counts of nothing yet."""
    return [0] * len(VHOST_COUNTED)


class MessageCounts:
    """The counts of each queue, exchange and vhost; changed for whole runs of messages.

    rows       of queues, by group
    exchanges  of those through which clients have published: messages that came, and that queues
               were given, once for each
    vhosts     of those in which clients have done something
    pairs      of channels, exchanges and queues; None: not counted

    Invariant: no count goes down
    """

    __slots__ = ("exchanges", "pairs", "rows", "vhosts")

    def __init__(self, pairs: bool = False) -> None:
        self.pairs = PairCounts(COUNTED) if pairs else None
        self.rows: defaultdict[int, Row] = defaultdict(zero_row)
        self.exchanges: defaultdict[ExchangeKey, Row] = defaultdict(
            lambda: [0] * len(EXCHANGE_COUNTED)
        )
        self.vhosts: defaultdict[str, Row] = defaultdict(zero_vhost_row)

    def row(self, group: int) -> Row:
        """Return the counts of a queue, which the caller may increase."""
        return self.rows[group]

    def published(self, group: int, count: int) -> None:
        """Count messages that a client's run has for a queue."""
        self.rows[group][PUBLISH] += count

    def through(self, vhost: str, exchange: str, came: int, went: int) -> None:
        """Count messages that came to an exchange, and what went from it to queues."""
        row = self.exchanges[vhost, exchange]
        row[PUBLISH_IN] += came
        row[PUBLISH_OUT] += went

    def claimed(self, vhost: str, group: int, count: int) -> None:
        """Count messages of a claim that a reader was given."""
        self.rows[group][DELIVER] += count
        self.vhosts[vhost][DELIVER] += count

    def settled(self, vhost: str, group: int, count: int) -> None:
        """Count messages of claims that were settled."""
        self.rows[group][ACK] += count
        self.vhosts[vhost][ACK] += count

    def forget(self, group: int) -> None:
        """Drop the counts of a deleted queue."""
        self.rows.pop(group, None)
        if self.pairs is not None:
            self.pairs.forget_queue(group)

    def forget_exchange(self, key: ExchangeKey) -> None:
        """Drop the counts of a deleted exchange."""
        self.exchanges.pop(key, None)
        if self.pairs is not None:
            self.pairs.forget_exchange(key)


class _Capacity:
    """The share of time in which a queue could hand out a message at once, of late.

    Invariant: 0 <= share <= 1; `open` has held since `since_ms`
    """

    __slots__ = ("open", "share", "since_ms")

    def __init__(self, at_ms: int) -> None:
        self.share = 0.0
        self.open = False
        self.since_ms = at_ms

    def at(self, at_ms: int) -> float:
        """Return the share, with the time that has passed since the last look."""
        kept = math.exp((self.since_ms - at_ms) / CAPACITY_MS)
        return self.share * kept + self.open * (1 - kept)

    def look(self, at_ms: int, is_open: bool) -> None:
        """Note what is so from now on."""
        self.share, self.since_ms, self.open = self.at(at_ms), at_ms, is_open


class _Series:
    """The samples of one queue; `fine` and, before it, `coarse` have `width` numbers for each.

    at_ms    when it was last looked at
    mark     what the caller gave then: the same one means the same lengths
    whole    nothing was dropped: before the first sample all counts were 0
    capacity  of a queue that is led; None: it was never
    """

    __slots__ = (
        *("at_ms", "capacity", "coarse", "counts", "fine", "lengths", "mark", "rates", "whole"),
        "width",
    )

    def __init__(self, at_ms: int, counts: int) -> None:
        self.at_ms = at_ms
        self.capacity: _Capacity | None = None
        self.mark = UNKNOWN
        self.width = 1 + counts + len(LENGTHS)
        self.counts: Sequence[int] = (0,) * counts
        self.lengths: tuple[int, ...] | None = None
        self.rates = (0.0,) * (counts + len(LENGTHS))
        self.fine = array("q")
        self.coarse = array("q")
        self.whole = True

    def append(self, epoch_ms: int) -> None:
        """Keep a sample of what is known now."""
        lengths = self.lengths or (UNKNOWN,) * len(LENGTHS)
        self.fine.extend((epoch_ms, *self.counts, *lengths))

    def set_back(self, epoch_ms: int) -> None:
        """Date the latest sample back to now, and drop the others that are dated later."""
        if not self.fine or self.fine[-self.width] <= epoch_ms:
            return
        latest = self.fine[-self.width :]
        for kept in (self.fine, self.coarse):
            while kept and kept[-self.width] >= epoch_ms:
                del kept[-self.width :]
        self.whole = self.whole and bool(self.fine or self.coarse)
        latest[0] = epoch_ms
        self.fine.extend(latest)

    def trim(self, samples: int) -> int:
        """Drop the oldest samples but so many; return how many are left."""
        fine, coarse, width = self.fine, self.coarse, self.width
        fine_max = min(FINE_SAMPLES, max(1, samples * 2 // 3))
        while len(fine) > fine_max * width:
            if fine[0] // COARSE_MS != fine[width] // COARSE_MS:
                coarse.extend(fine[:width])
            del fine[:width]
        excess = len(coarse) - min(COARSE_SAMPLES, samples // 3) * width
        if excess > 0:
            del coarse[:excess]
            self.whole = False
        return self.size()

    def size(self) -> int:
        """Return the number of samples."""
        return (len(self.fine) + len(self.coarse)) // self.width


class CountHistory(Generic[KeyT]):
    """The rates and the latest samples of the queues that change, or of exchanges, or of vhosts.

    A sample is kept when something has changed since the one before, so an idle queue takes none.

    Invariant: after `trim` at most `samples_max` samples, or two of each queue
    """

    def __init__(
        self, at_ms: int, samples_max: int = SAMPLES_MAX, names: Sequence[str] = COUNTED
    ) -> None:
        """at_ms: when counting began; names: of the counts."""
        self._counts = len(names)
        self._no_rates = (0.0,) * (len(names) + len(LENGTHS))
        self._series: dict[KeyT, _Series] = {}
        self._began_ms = at_ms
        self._samples_max = samples_max
        self._share = FINE_SAMPLES + COARSE_SAMPLES

    def __iter__(self) -> Iterator[KeyT]:
        return iter(self._series)

    def unchanged(self, group: KeyT, at_ms: int, mark: int, counts: Sequence[int] | None) -> bool:
        """Return whether a queue is as it was; then its rates are 0 from now on.

        mark    differs when lengths may; UNKNOWN where the queue is not led
        counts  None: there are none
        """
        series = self._series.get(group)
        if series is None:
            return counts is None and mark == UNKNOWN
        if series.mark != mark or (counts is not None and series.counts != counts):
            return False
        series.at_ms = at_ms
        series.rates = self._no_rates
        return True

    def sample(
        self,
        group: KeyT,
        now: tuple[int, int],
        mark: int,
        counts: Sequence[int] | None,
        lengths: tuple[int, ...] | None,
        is_open: bool | None = None,
    ) -> None:
        """Note a queue's counts and lengths; None: there are none here.

        now      milliseconds of a clock that goes evenly, and since the epoch
        is_open  it has consumers, and none of its messages waits for one; None: it is not led
        """
        at_ms, epoch_ms = now
        series = self._series.get(group)
        if series is None:
            series = self._series[group] = _Series(self._began_ms, self._counts)
        elapsed_s = (at_ms - series.at_ms) / 1000
        if elapsed_s <= 0:
            return  # the next look finds what has changed
        before, known = series.counts, series.lengths
        series.counts = list(counts) if counts is not None else before
        series.lengths, series.mark, series.at_ms = lengths, mark, at_ms
        grown = [new - old for new, old in zip(series.counts, before, strict=True)]
        if lengths is not None and known is not None:
            grown += [new - old for new, old in zip(lengths, known, strict=True)]
        else:
            grown += [0] * len(LENGTHS)
        series.rates = tuple([one / elapsed_s for one in grown])
        if is_open is None:
            series.capacity = None
        else:
            series.capacity = series.capacity or _Capacity(at_ms)
            series.capacity.look(at_ms, is_open)
        if any(grown) or lengths != known:
            series.append(epoch_ms)
            series.trim(self._share)

    def looked(self, at_ms: int, groups: Iterable[KeyT]) -> None:
        """End a look at all queues, of which these are left: the others are forgotten."""
        left = set(groups)
        for group in [group for group in self._series if group not in left]:
            del self._series[group]
        self._began_ms = at_ms
        series = self._series.values()
        share = self._samples_max // max(1, len(series))
        self._share = max(2, min(FINE_SAMPLES + COARSE_SAMPLES, share))
        if sum([one.size() for one in series]) > self._samples_max:
            for one in series:
                one.trim(self._share)

    def set_back(self, epoch_ms: int) -> None:
        """Have no sample that is dated later than now: the clock was set back.

        1. It is set back by an hour.  2. Samples are looked for by their time, in their order:
        for an hour those that are taken now were not found, and counts were shown as 0.
        """
        for one in self._series.values():
            one.set_back(epoch_ms)

    def total(self) -> tuple[int, ...]:
        """Return the sums of the lengths of the queues that are led here."""
        known = [one.lengths for one in self._series.values() if one.lengths is not None]
        return tuple(map(sum, zip(*known, strict=True))) or (0,) * len(LENGTHS)

    def lengths_by(self, owner: Callable[[KeyT], str]) -> dict[str, tuple[int, ...]]:
        """Return the sums of the lengths of the queues that are led here, by what `owner` says."""
        found: dict[str, tuple[int, ...]] = {}
        for group, one in self._series.items():
            if one.lengths is not None:
                name = owner(group)
                known = found.get(name)
                found[name] = (
                    one.lengths
                    if known is None
                    else tuple([a + b for a, b in zip(known, one.lengths, strict=True)])
                )
        return found

    def lengths(self, group: KeyT) -> tuple[int, ...]:
        """Return the lengths at the last look; empty: they are not known here."""
        series = self._series.get(group)
        return () if series is None else series.lengths or ()

    def rates(self, group: KeyT) -> tuple[float, ...]:
        """Return the rates per second of a queue's counts and lengths."""
        series = self._series.get(group)
        return self._no_rates if series is None else series.rates

    def capacity(self, group: KeyT, at_ms: int) -> float:
        """Return the share of time in which a queue could hand out a message at once; 0: none."""
        series = self._series.get(group)
        found = None if series is None else series.capacity
        return 0.0 if found is None else found.at(at_ms)

    def changed_ms(self, group: KeyT) -> int:
        """Return when the last change was seen, in milliseconds since the epoch; 0: never."""
        series = self._series.get(group)
        return series.fine[-series.width] if series is not None and series.fine else 0

    def samples(self, group: KeyT) -> tuple[bool, list[int]]:
        """Return a queue's samples, the oldest first, `sample_width` numbers each.

        returns  first, whether all counts were 0 before the first one
        """
        series = self._series.get(group)
        if series is None:
            return True, []
        return series.whole, [*series.coarse, *series.fine]
