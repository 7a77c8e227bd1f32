"""The HTTP endpoint that Prometheus scrapes, on a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as GatherTimeout
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from warren_broker.broker.broker import Broker
from warren_broker.cluster.resource_alarms import ResourceAlarms
from warren_broker.config import NodeConfig
from warren_broker.http.bounded_connection import doors_of
from warren_broker.http.doors import listening_socket
from warren_broker.metrics import exposition
from warren_broker.metrics.exposition import MEMORY_BREAKDOWN, ScrapeView
from warren_broker.metrics.readings import Gathering, NodeReading
from warren_broker.process.certificate_ends import certificate_files
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
        self._turn = threading.Lock()

    def text(self, view: ScrapeView) -> bytes:
        """Return the metrics; raises Unavailable. Not to be called on the loop's thread."""
        if not self._turn.acquire(timeout=GATHER_S_MAX):
            raise NotReadable("other scrapes are under way")
        try:
            process = exposition.ProcessReading.taken(self._data_dir, self._certificates)
            return exposition.text(self._read(view.per_object), process, self._limits, view)
        finally:
            self._turn.release()

    def _read(self, per_object: bool) -> NodeReading:
        found: Future[NodeReading] = Future()
        done: Callable[[NodeReading], None] = found.set_result
        gathering = Gathering(self._broker, self._alarms, per_object, done, found.set_exception)
        self._loop.post(gathering.start)
        try:
            return found.result(GATHER_S_MAX)
        except GatherTimeout as error:
            raise NotReadable("the node is busy, starts or stops") from error


class ScrapeApplication:
    """Answers requests of an HTTP server (ASGI), each on a connection of its own."""

    def __init__(self, metrics: Metrics, paths: dict[str, ScrapeView]) -> None:
        self._metrics = metrics
        self._paths = paths

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        try:
            status, body, kind = await self._answer(scope)
        except Exception:  # the rim of this thread: one scrape ends
            log.exception("metrics: a scrape failed")
            status, body, kind = (
                HTTPStatus.INTERNAL_SERVER_ERROR,
                b"a fault of the node\n",
                PLAIN_TEXT,
            )
        headers = {
            "content-type": kind,
            "content-length": str(len(body)),
            "connection": "close",
        }
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": int(status), "headers": encoded})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Any) -> tuple[HTTPStatus, bytes, str]:
        """Return status, body and content type."""
        if scope["method"] != "GET":
            return HTTPStatus.NOT_IMPLEMENTED, b"only GET\n", PLAIN_TEXT
        view = self._paths.get(scope["path"].rstrip("/"))
        if view is None:
            known = " and ".join(self._paths)
            return HTTPStatus.NOT_FOUND, f"not found; there is {known}\n".encode(), PLAIN_TEXT
        try:
            if view.groups is not None:
                view = asked(view, scope["query_string"].decode("latin-1"))
            body = await _on_thread(partial(self._metrics.text, view))
        except ValueError as error:
            return HTTPStatus.BAD_REQUEST, f"{error}\n".encode(), PLAIN_TEXT
        except NotReadable as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, f"not now: {error}\n".encode(), PLAIN_TEXT
        return HTTPStatus.OK, body, CONTENT_TYPE_PLAIN_0_0_4


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

    def __init__(
        self, loop: Loop, broker: Broker, alarms: ResourceAlarms, settings: NodeConfig
    ) -> None:
        """Listen; raises OSError with the address."""
        wanted = settings.prometheus
        whole = "per-object" if wanted.return_per_object_metrics else "aggregated"
        paths = {
            wanted.path: ScrapeView(whole, wanted.return_per_object_metrics),
            f"{wanted.path}/per-object": ScrapeView("per-object", True),
            f"{wanted.path}/detailed": ScrapeView("detailed", True, groups=()),
            f"{wanted.path}/{MEMORY_BREAKDOWN}": ScrapeView(MEMORY_BREAKDOWN, False),
        }
        self._application = ScrapeApplication(Metrics(loop, broker, alarms, settings), paths)
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
