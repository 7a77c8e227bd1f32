"""The endpoint's places, one for each connection: each is free again, whatever it met."""

from __future__ import annotations

import socket
import threading
import urllib.request
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.patience import PATIENCE_S
from warren_broker.metrics import endpoint
from warren_broker.metrics.endpoint import SCRAPERS_MAX, _Handler, _Server
from warren_broker.metrics.exposition import ScrapeView


@pytest.fixture
def server() -> Iterator[_Server]:
    """A server that answers every scrape alike."""
    metrics: Any = SimpleNamespace(text=lambda view: b"# metrics\n")
    paths = {"/metrics": ScrapeView("aggregated", False)}
    made = _Server(("127.0.0.1", 0), partial(_Handler, metrics, paths))
    thread = threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()


def scrape(server: _Server) -> bytes:
    """One scrape."""
    url = f"http://127.0.0.1:{server.server_port}/metrics"
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return cast(bytes, answer.read())


def ended(server: _Server) -> bool:
    """Whether a connection is ended without an answer."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=PATIENCE_S) as sock:
        try:
            sock.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            return sock.recv(1) == b""
        except ConnectionError:
            return True


@pytest.mark.parametrize("fails", ["the connection's thread", "its time limit"])
def test_a_thread_that_cannot_be_started_keeps_no_place(
    server: _Server, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """After 16 such connections every scrape was refused until the node's next start."""

    def refused(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    assert scrape(server) == b"# metrics\n"
    with monkeypatch.context() as patched:
        if fails == "its time limit":
            timers = SimpleNamespace(Timer=_timer(refused), Thread=threading.Thread)
            patched.setattr(endpoint, "threading", timers)
        else:
            patched.setattr(threading.Thread, "start", refused)
        assert all(ended(server) for _ in range(2 * SCRAPERS_MAX))
    assert scrape(server) == b"# metrics\n"


def _timer(refused: Any) -> Any:
    return lambda *_: SimpleNamespace(start=refused, cancel=lambda: None)
