"""What the metrics endpoint answers; its places are those of the HTTP API (test_doors)."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from warren_broker.metrics.endpoint import ScrapeApplication
from warren_broker.metrics.exposition import ScrapeView

PATHS = {"/metrics": ScrapeView("aggregated", False), "/d": ScrapeView("detailed", True, groups=())}


def answered(path: str, text: Any, method: str = "GET", query: bytes = b"") -> tuple[int, bytes]:
    """Status and body of one request."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    application = ScrapeApplication(SimpleNamespace(text=text), PATHS)  # type: ignore[arg-type]
    scope = {"method": method, "path": path, "query_string": query}
    asyncio.run(application(scope, None, send))
    start, body = sent
    assert dict(start["headers"])[b"connection"] == b"close"
    return start["status"], body["body"]


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
