"""The HTTP endpoint that Prometheus scrapes, on a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as GatherTimeout
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from warren_broker.broker.broker import Broker
from warren_broker.cluster.resource_alarms import ResourceAlarms
from warren_broker.config import NodeConfig
from warren_broker.http.bounded_connection import doors_of
from warren_broker.http.doors import listening_socket
from warren_broker.metrics import exposition
from warren_broker.metrics.exposition import MEMORY_BREAKDOWN, ScrapeView
from warren_broker.metrics.readings import Gathering, NodeReading, QueueTotals
from warren_broker.process.certificate_ends import certificate_files
from warren_broker.settings.http_settings import PrometheusSettings
from warren_raft.address_shares import AddressShares
from warren_raft.runtime.loop import Loop

log = logging.getLogger(__name__)
SCRAPERS_MAX = 16
"""Connections at once."""
SCRAPERS_PER_ADDRESS_MAX = 8
SCRAPE_PATIENCE_MS = 6_000
"""How long a connection keeps its place when another one needs it: longer than a scrape takes."""
SCRAPE_WAIT_MS = 0
"""One that needs a place and gets none is closed at once."""
PLAIN_TEXT = "text/plain"
GATHER_S_MAX = 5.0
"""A scrape is refused when the loop has not answered by then, or scrapes before it are not done."""
STREAMS_MAX = 2
"""Scrapes per object that are read at once."""
SCRAPE_PARAMETERS_MAX = 100
"""Parameters of one request."""


class NotReadable(Exception):
    """The node cannot be read now."""


class Metrics:
    """The texts of scrapes; one is made at a time, whatever the number of connections."""

    def __init__(
        self, loop: Loop, broker: Broker, alarms: ResourceAlarms, settings: NodeConfig
    ) -> None:
        self._loop = loop
        self._broker = broker
        self._alarms = alarms
        self._limits = settings.alarms
        self._data_dir: Path = settings.data_dir
        self._certificates = certificate_files(settings)
        self._turn = threading.BoundedSemaphore(1)
        self._streams = threading.BoundedSemaphore(STREAMS_MAX)
        self._times: dict[tuple[int, int], int] = {}
        self._totals = QueueTotals(broker)
        self._shown = False
        self._entries: dict[int, int] = {}
        self._written: dict[int, int] = {}

    def pieces(self, view: ScrapeView) -> Generator[bytes, None, None]:
        """Yield the text of the metrics; raises NotReadable. Not to be called on the loop's thread.

        The reading of a scrape per object is large, and is held until its client has read all: few
        of them are there at once. Other scrapes do not wait for a client.
        """
        if view.per_object:
            with _place(self._streams):
                yield from exposition.text_pieces(self._families(view))
            return
        with _place(self._turn):
            whole = b"".join(exposition.text_pieces(self._families(view)))
        yield whole

    def sums(self) -> list[Metric]:
        """Return the families of the sums; see `pieces`."""
        with _place(self._turn):
            return [*self._families(ScrapeView("aggregated", False))]

    def _families(self, view: ScrapeView) -> Iterator[Metric]:
        process = exposition.ProcessReading.taken(self._data_dir, self._certificates)
        reading = self._read(view.per_object)
        if view.per_object:
            self._find_times(reading)
        else:
            self._find_oldest(reading)
        return exposition.Readings(reading, process, self._limits, view).collect()

    def _find_times(self, reading: NodeReading) -> None:
        """Find when the oldest messages were written; those on disk are looked up once."""
        known, found = self._times, reading.times
        for queue in reading.queues:
            oldest = queue.work and queue.work.oldest
            if oldest:
                key = oldest[:2]
                found[key] = known.get(key) or oldest.read()
        self._times = found

    def _find_oldest(self, reading: NodeReading) -> None:
        """Do so for the sums: of each queue once, until it has another oldest message."""
        entries, written = self._entries, self._written
        if reading.whole:
            entries.clear()
            written.clear()
        for group, oldest in reading.oldest.items():
            if oldest is None:
                entries.pop(group, None)
                written.pop(group, None)
            elif entries.get(group) != oldest.entry:
                entries[group], written[group] = oldest.entry, oldest.read()
        reading.oldest_ms = min(filter(None, written.values()), default=0)
        for queue in reading.queues:
            at = queue.work and queue.work.oldest
            if at:
                reading.times[at[:2]] = written.get(at.group, 0)

    def _read(self, per_object: bool) -> NodeReading:
        found: Future[NodeReading] = Future()
        done: Callable[[NodeReading], None] = found.set_result
        totals, whole = (None, False) if per_object else (self._totals, not self._shown)
        if not per_object:
            self._shown = False
        gathering = Gathering(self._broker, self._alarms, totals, whole, done, found.set_exception)
        self._loop.post(gathering.start)
        try:
            reading = found.result(GATHER_S_MAX)
        except GatherTimeout as error:
            raise NotReadable("the node is busy, starts or stops") from error
        if not per_object:
            self._shown = True
        return reading


@contextmanager
def _place(places: threading.BoundedSemaphore) -> Iterator[None]:
    """Hold a place; raises NotReadable when none is free in time."""
    if not places.acquire(timeout=GATHER_S_MAX):
        raise NotReadable("other scrapes are under way")
    try:
        yield
    finally:
        places.release()


class ScrapeApplication:
    """Answers requests of an HTTP server (ASGI), each on a connection of its own."""

    def __init__(self, metrics: Metrics, paths: dict[str, ScrapeView]) -> None:
        self._metrics = metrics
        self._paths = paths

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        begun: list[bool] = []
        try:
            await self._answer(scope, send, begun)
        except Exception:  # the rim of this thread: one scrape ends
            log.exception("metrics: a scrape failed")
            if begun:
                raise  # which cuts the answer off: what was sent looks like no whole one
            await _refuse(send, HTTPStatus.INTERNAL_SERVER_ERROR, "a fault of the node")

    async def _answer(self, scope: Any, send: Any, begun: list[bool]) -> None:
        if scope["method"] != "GET":
            await _refuse(send, HTTPStatus.NOT_IMPLEMENTED, "only GET")
            return
        view = self._paths.get(scope["path"].rstrip("/"))
        if view is None:
            known = " and ".join(self._paths)
            await _refuse(send, HTTPStatus.NOT_FOUND, f"not found; there is {known}")
            return
        try:
            if view.groups is not None:
                view = asked(view, scope["query_string"].decode("latin-1"))
            pieces = self._metrics.pieces(view)
            piece = await _on_thread(partial(next, pieces, b""))
        except ValueError as error:
            await _refuse(send, HTTPStatus.BAD_REQUEST, str(error))
            return
        except NotReadable as error:
            await _refuse(send, HTTPStatus.SERVICE_UNAVAILABLE, f"not now: {error}")
            return
        begun.append(True)
        await _begin(send, HTTPStatus.OK, CONTENT_TYPE_PLAIN_0_0_4)
        while piece:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            piece = await _on_thread(partial(next, pieces, b""))
        await send({"type": "http.response.body", "body": b""})


async def _begin(send: Any, status: HTTPStatus, kind: str) -> None:
    headers = [(b"content-type", kind.encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": int(status), "headers": headers})


async def _refuse(send: Any, status: HTTPStatus, reason: str) -> None:
    await _begin(send, status, PLAIN_TEXT)
    await send({"type": "http.response.body", "body": f"{reason}\n".encode()})


async def _on_thread(work: Callable[[], bytes]) -> bytes:
    """Return what is made on a thread, for which the end of the process does not wait."""
    made: Future[bytes] = Future()

    def make() -> None:
        try:
            made.set_result(work())
        except Exception as error:  # passed on
            made.set_exception(error)

    try:
        threading.Thread(target=make, name="scrape", daemon=True).start()
    except RuntimeError as error:
        raise NotReadable("no thread can be started") from error
    return await asyncio.wrap_future(made)


def asked(view: ScrapeView, query: str) -> ScrapeView:
    """Return a view of the groups and vhosts that a query names.

    raises  ValueError: more than SCRAPE_PARAMETERS_MAX parameters
    """
    given = parse_qs(query, max_num_fields=SCRAPE_PARAMETERS_MAX)
    vhosts = frozenset(given["vhost"]) if "vhost" in given else None
    return replace(view, groups=tuple(given.get("family", ())), vhosts=vhosts)


class MetricsEndpoint:
    """The listening endpoint of a node, on a thread with an event loop of its own."""

    def __init__(self, metrics: Metrics, wanted: PrometheusSettings) -> None:
        """Listen; raises OSError with the address."""
        whole = "per-object" if wanted.return_per_object_metrics else "aggregated"
        paths = {
            wanted.path: ScrapeView(whole, wanted.return_per_object_metrics),
            f"{wanted.path}/per-object": ScrapeView("per-object", True),
            f"{wanted.path}/detailed": ScrapeView("detailed", True, groups=()),
            f"{wanted.path}/{MEMORY_BREAKDOWN}": ScrapeView(MEMORY_BREAKDOWN, False),
        }
        self._application = ScrapeApplication(metrics, paths)
        self._sock = listening_socket("prometheus.tcp", wanted.tcp.ip, wanted.tcp.port)
        self.address = f"{wanted.tcp.ip}:{self._sock.getsockname()[1]}"
        self._loop = asyncio.new_event_loop()
        self._closed = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()
        log.info("metrics for Prometheus at http://%s%s", self.address, wanted.path)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        shares: AddressShares[Any] = AddressShares(
            SCRAPERS_PER_ADDRESS_MAX, SCRAPERS_MAX, SCRAPERS_MAX, SCRAPE_PATIENCE_MS
        )
        what = "connections for metrics"
        doors_of(self._application, what, shares, SCRAPE_WAIT_MS).listen(self._sock, None)
        await self._closed.wait()
        self._loop.remove_reader(self._sock)
        self._sock.close()

    def close(self) -> None:
        """Stop listening; requests under way end with the process. A repeat is harmless."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closed.set)
            self._thread.join()
