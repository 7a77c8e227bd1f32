"""The drivers of one queue and of several behind one face: offsets as Spark stores them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from pyspark_warren.driver import ClaimDriver
from pyspark_warren.offset import Offset
from pyspark_warren.options import Options
from pyspark_warren.plan import Slice, pack
from pyspark_warren.port import BrokerPort, RenewedReader
from pyspark_warren.prefetch import PrefetchingDriver, prefetches
from pyspark_warren.queue_offsets import QueueOffsets
from pyspark_warren.queues_driver import QueuesDriver
from pyspark_warren.surroundings import Surroundings

_O = TypeVar("_O")


class ClaimSource(Protocol):
    """What Spark's calls need; see `ClaimDriver` for their order."""

    @property
    def attached(self) -> RenewedReader | None:
        """The registered reader, once there is one."""

    def initial(self) -> dict[str, Any]:
        """Return the offset where a query without a checkpoint starts."""

    def latest(self, start: dict[str, Any], limit: int | None) -> dict[str, Any]:
        """Settle up to `start`, then open the next claims; `start` when there is nothing."""

    def plan(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> tuple[tuple[Slice, ...], ...]:
        """Return the tasks of a micro-batch."""

    def settle(self, upto: Mapping[str, Any]) -> None:
        """Settle claims up to that offset."""

    def prepare_available_now(self) -> None:
        """Limit further batches to what is ready now."""

    def backlog(self) -> dict[str, Any]:
        """Return the counts for the query's progress."""

    def stop(self) -> None:
        """Give back what is held ahead; callable from any thread."""


class _Driver(Protocol[_O]):
    """`ClaimDriver` or `QueuesDriver`, with offsets of its own."""

    @property
    def attached(self) -> RenewedReader | None: ...
    def initial(self) -> _O: ...
    def latest(self, start: _O, limit: int | None) -> _O: ...
    def plan(self, start: _O, end: _O) -> tuple[Slice, ...]: ...
    def settle(self, upto: _O) -> None: ...
    def prepare_available_now(self) -> None: ...
    def backlog(self) -> dict[str, Any]: ...


def claim_source(broker: BrokerPort, options: Options, surroundings: Surroundings) -> ClaimSource:
    """Make the driver of what the options say."""
    if prefetches(options):
        ahead = PrefetchingDriver(broker, options, surroundings)
        return _Stored(ahead, Offset.from_dict, Offset.to_dict, _one_each, ahead.stop)
    if not options.several:
        one = ClaimDriver(broker, options, surroundings)
        return _Stored(one, Offset.from_dict, Offset.to_dict, _one_each)
    several = QueuesDriver(broker, options, surroundings)
    tasks = _one_each if options.partitions else pack
    return _Stored(several, QueueOffsets.from_dict, QueueOffsets.to_dict, tasks)


def _one_each(slices: tuple[Slice, ...]) -> tuple[tuple[Slice, ...], ...]:
    return tuple((each,) for each in slices)


class _Stored(Generic[_O]):
    """A driver with offsets that are read from their stored form, and stored."""

    def __init__(
        self,
        driver: _Driver[_O],
        parse: Callable[[Mapping[str, Any]], _O],
        store: Callable[[_O], dict[str, Any]],
        tasks: Callable[[tuple[Slice, ...]], tuple[tuple[Slice, ...], ...]],
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._driver = driver
        self._parse = parse
        self._store = store
        self._tasks = tasks
        self.prepare_available_now = driver.prepare_available_now
        self.backlog = driver.backlog
        self.stop = stop

    @property
    def attached(self) -> RenewedReader | None:
        return self._driver.attached

    def initial(self) -> dict[str, Any]:
        return self._store(self._driver.initial())

    def latest(self, start: dict[str, Any], limit: int | None) -> dict[str, Any]:
        offset = self._parse(start)
        end = self._driver.latest(offset, limit)
        return start if end == offset else self._store(end)

    def plan(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> tuple[tuple[Slice, ...], ...]:
        return self._tasks(self._driver.plan(self._parse(start), self._parse(end)))

    def settle(self, upto: Mapping[str, Any]) -> None:
        self._driver.settle(self._parse(upto))
