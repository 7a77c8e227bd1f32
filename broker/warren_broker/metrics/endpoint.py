"""The HTTP endpoint that Prometheus scrapes, on threads of its own."""

from __future__ import annotations

import ipaddress
import logging
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as GatherTimeout
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from warren_broker.broker.broker import Broker
from warren_broker.cluster.resource_alarms import ResourceAlarms
from warren_broker.config import NodeConfig
from warren_broker.metrics import exposition
from warren_broker.metrics.exposition import MEMORY_BREAKDOWN, ScrapeView
from warren_broker.metrics.readings import Gathering, NodeReading
from warren_broker.process.certificate_ends import certificate_files
from warren_raft.address_shares import AddressShares
from warren_raft.runtime.loop import Loop

log = logging.getLogger(__name__)
SCRAPERS_MAX = 16
"""Connections at once, one thread each."""
SCRAPERS_PER_ADDRESS_MAX = 8
SCRAPE_PATIENCE_MS = 6_000
"""How long a connection keeps its place when another one needs it: longer than a scrape takes. One
that needs a place and gets none is closed at once."""
CONNECTION_S_MAX = 15.0
"""A connection is closed after this time, whatever it does."""
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


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = SCRAPERS_MAX

    def __init__(self, address: tuple[str, int], handler: Callable[..., Any]) -> None:
        if ipaddress.ip_address(address[0]).version == 6:
            self.address_family = socket.AF_INET6
        # A connection that has lost its place still has its thread for a moment.
        self._free = threading.BoundedSemaphore(2 * SCRAPERS_MAX)
        self._lock = threading.Lock()
        self._places: AddressShares[socket.socket] = AddressShares(
            SCRAPERS_PER_ADDRESS_MAX, SCRAPERS_MAX, 1, SCRAPE_PATIENCE_MS
        )
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind, without the name look-up of the standard library, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection on a thread of its own, if it can have a place.

        Where no thread can be started, the caller ends the connection (`handle_error`).
        """
        if not self._enter(request, str(client_address[0])):
            log.warning(
                "metrics: %s refused, %d connections, of which one address may have %d",
                client_address,
                self._places.held,
                SCRAPERS_PER_ADDRESS_MAX,
            )
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._leave(request)  # which the thread would have done
            raise

    def _enter(self, request: socket.socket, host: str) -> bool:
        """Return whether a connection has a place; what has one for too long may lose it."""
        if not self._free.acquire(blocking=False):
            return False
        now_ms = int(time.monotonic() * 1000)
        with self._lock:
            self._places.tick(now_ms, 0)
            self._places.wait(request, host, now_ms)
            started = self._places.start(now_ms)
            if started is None:
                self._places.end(request)
        if started is None:
            self._free.release()
            return False
        if started.evicted is not None:
            _cut(started.evicted)
        return True

    def _leave(self, request: socket.socket) -> None:
        with self._lock:
            self._places.end(request)
        self._free.release()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection for at most CONNECTION_S_MAX."""
        try:
            self._serve(request, client_address)
        finally:
            self._leave(request)

    def _serve(self, request: Any, client_address: Any) -> None:
        limit = threading.Timer(CONNECTION_S_MAX, _cut, (request,))
        limit.daemon = True
        try:
            limit.start()
        except RuntimeError:  # no thread can be started: a connection without a limit is not served
            log.warning("metrics: %s refused, no thread can be started", client_address)
            self.shutdown_request(request)
            return
        try:
            super().process_request_thread(request, client_address)
        finally:
            limit.cancel()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what ended a connection, or that no thread could be started for it."""
        log.info("metrics: the connection of %s ended", client_address, exc_info=True)


def _cut(request: socket.socket) -> None:
    try:
        request.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it is closed


class _Handler(BaseHTTPRequestHandler):
    """A request; its line and headers are bounded by the standard library."""

    timeout = CONNECTION_S_MAX
    server_version = "Warren"
    sys_version = ""

    def __init__(self, metrics: Metrics, paths: dict[str, ScrapeView], *arguments: Any) -> None:
        self._metrics = metrics
        self._paths = paths
        super().__init__(*arguments)

    def do_GET(self) -> None:
        """Answer with the metrics of the path."""
        path, _, query = self.path.partition("?")
        view = self._paths.get(path.rstrip("/"))
        if view is None:
            known = " and ".join(self._paths)
            self._answer(HTTPStatus.NOT_FOUND, f"not found; there is {known}\n".encode())
            return
        try:
            body = self._metrics.text(view if view.groups is None else asked(view, query))
        except ValueError as error:
            self._answer(HTTPStatus.BAD_REQUEST, f"{error}\n".encode())
            return
        except NotReadable as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"not now: {error}\n".encode())
            return
        self._answer(HTTPStatus.OK, body, CONTENT_TYPE_PLAIN_0_0_4)

    def _answer(self, status: HTTPStatus, body: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log a request at the level DEBUG."""
        log.debug("metrics: %s %s", self.client_address, format % arguments)


def asked(view: ScrapeView, query: str) -> ScrapeView:
    """Return a view of the groups and vhosts that a query names.

    raises  ValueError: more than SCRAPE_PARAMETERS_MAX parameters
    """
    given = parse_qs(query, max_num_fields=SCRAPE_PARAMETERS_MAX)
    vhosts = frozenset(given["vhost"]) if "vhost" in given else None
    return replace(view, groups=tuple(given.get("family", ())), vhosts=vhosts)


class MetricsEndpoint:
    """The listening endpoint of a node."""

    def __init__(
        self, loop: Loop, broker: Broker, alarms: ResourceAlarms, settings: NodeConfig
    ) -> None:
        """Listen; raises OSError with the address."""
        wanted = settings.prometheus
        address = (wanted.tcp.ip, wanted.tcp.port)
        whole = "per-object" if wanted.return_per_object_metrics else "aggregated"
        paths = {
            wanted.path: ScrapeView(whole, wanted.return_per_object_metrics),
            f"{wanted.path}/per-object": ScrapeView("per-object", True),
            f"{wanted.path}/detailed": ScrapeView("detailed", True, groups=()),
            f"{wanted.path}/{MEMORY_BREAKDOWN}": ScrapeView(MEMORY_BREAKDOWN, False),
        }
        metrics = Metrics(loop, broker, alarms, settings)
        try:
            self._server = _Server(address, partial(_Handler, metrics, paths))
        except OSError as error:
            said = f"prometheus.tcp: cannot listen on {address[0]}:{address[1]}: {error.strerror}"
            raise OSError(error.errno, said) from error
        self.address = f"{address[0]}:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="metrics", daemon=True
        )
        self._thread.start()
        log.info("metrics for Prometheus at http://%s%s", self.address, wanted.path)

    def close(self) -> None:
        """Stop listening; requests under way end with the process, or after CONNECTION_S_MAX."""
        self._server.shutdown()
        self._server.server_close()
