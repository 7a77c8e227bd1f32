"""What the metrics endpoint answers; its places are those of the HTTP API (test_doors)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.core import GaugeMetricFamily

from warren_broker.metrics import endpoint
from warren_broker.metrics.endpoint import (
    STREAMS_MAX,
    Metrics,
    NotReadable,
    ScrapeApplication,
)
from warren_broker.metrics.exposition import ScrapeView

PATHS = {"/metrics": ScrapeView("aggregated", False), "/d": ScrapeView("detailed", True, groups=())}


def answered(path: str, text: Any, method: str = "GET", query: bytes = b"") -> tuple[int, bytes]:
    """Status and body of one request."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    def pieces(view: ScrapeView) -> Iterator[bytes]:
        made = text(view)
        yield made[:3]
        yield made[3:]

    application = ScrapeApplication(SimpleNamespace(pieces=pieces), PATHS)  # type: ignore[arg-type]
    scope = {"method": method, "path": path, "query_string": query}
    asyncio.run(application(scope, None, send))
    start, *bodies = sent
    assert dict(start["headers"])[b"connection"] == b"close"
    assert [bool(one.get("more_body")) for one in bodies] == [True] * (len(bodies) - 1) + [False]
    return start["status"], b"".join(one["body"] for one in bodies)


def text_of(view: ScrapeView) -> bytes:
    return f"{view.endpoint} {view.groups} {view.vhosts}".encode()


def test_a_path_and_its_query_choose_what_is_shown() -> None:
    assert answered("/metrics/", text_of) == (200, b"aggregated None None")
    query = b"family=a&family=b&vhost=%2F"
    assert answered("/d", text_of, query=query) == (
        200,
        b"detailed ('a', 'b') frozenset({'/'})",
    )
    assert answered("/", text_of) == (404, b"not found; there is /metrics and /d\n")
    assert answered("/d", text_of, query=b"&".join([b"family=a"] * 101))[0] == 400
    assert answered("/metrics", text_of, "POST")[0] == 501


def test_a_thread_that_cannot_be_started_ends_one_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    """It once kept its place: after 16 of them every scrape was refused."""

    def refused(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        assert answered("/metrics", text_of) == (503, b"not now: no thread can be started\n")
    assert answered("/metrics", text_of)[0] == 200


def test_a_fault_ends_one_scrape(caplog: pytest.LogCaptureFixture) -> None:
    def fails(view: ScrapeView) -> bytes:
        raise ZeroDivisionError

    assert answered("/metrics", fails) == (500, b"a fault of the node\n")
    assert "a scrape failed" in caplog.text


def test_a_fault_in_the_middle_cuts_the_answer_off(caplog: pytest.LogCaptureFixture) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message["type"])

    def pieces(view: ScrapeView) -> Iterator[bytes]:
        yield b"first"
        raise ZeroDivisionError

    application = ScrapeApplication(SimpleNamespace(pieces=pieces), PATHS)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        asyncio.run(application({"method": "GET", "path": "/metrics"}, None, send))
    assert sent == ["http.response.start", "http.response.body"], "no end, and no second start"
    assert "a scrape failed" in caplog.text


def test_slow_clients_hold_few_readings_of_each_object(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each may have 50,000 queues; other scrapes do not wait for these clients."""
    metrics = object.__new__(Metrics)
    metrics._turn = threading.BoundedSemaphore(1)
    metrics._streams = threading.BoundedSemaphore(STREAMS_MAX)
    monkeypatch.setattr(endpoint, "GATHER_S_MAX", 0.01)
    one = GaugeMetricFamily("one", "text", value=1)
    monkeypatch.setattr(metrics, "_families", lambda view: iter([one] * 20_000))
    slow = [metrics.pieces(PATHS["/d"]) for _ in range(STREAMS_MAX + 1)]
    for stream in slow[:-1]:
        assert next(stream)
    with pytest.raises(NotReadable):
        next(slow[-1])
    (whole,) = metrics.pieces(PATHS["/metrics"])
    assert whole.count(b"one 1.0") == 20_000
    slow[0].close()
    assert b"one 1.0" in next(metrics.pieces(PATHS["/d"])), "its place is free again"
