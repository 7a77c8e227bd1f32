"""The log exchange on model nodes: lines of any thread, bounded, and never about themselves."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from broker.cluster.client.test_history import bodies
from broker.cluster.membership.clusters import begun
from broker.cluster.universe import Universe
from warren_broker.cluster.client import node_messages
from warren_broker.cluster.client.node_messages import (
    LINE_BYTES_MAX,
    LOG_EXCHANGE,
    WAITING_LINES_MAX,
    LogExchange,
    LogLine,
)
from warren_broker.process.logs import LogPublishing
from warren_machines.metadata import commands as metadata

ON: dict[str, Any] = {"log": {"exchange": True}}


@pytest.fixture
def universe() -> Iterator[Universe]:
    """Queue q on all nodes gets the lines of all levels."""
    made = begun(settings=ON)
    made.until(lambda: there(made), "the exchange is declared")
    command = metadata.Bind("/", LOG_EXCHANGE, "q", True, "#")
    answer = made.call("a", lambda broker, done: broker.bind(command, done))
    assert isinstance(answer, metadata.MetadataDone)
    yield made
    made.close()


def there(universe: Universe) -> bool:
    """Every node knows the exchange."""
    return all(
        one.broker.definitions.exchange("/", LOG_EXCHANGE) is not None
        for one in universe.running.values()
    )


def exchange(universe: Universe, node: str = "a") -> LogExchange:
    """That node's exchange."""
    return universe.running[node].broker.log_exchange


def line(text: str = "text") -> LogLine:
    return LogLine("info", text, 1_700_000_000)


def test_nothing_is_declared_while_it_is_off() -> None:
    universe = begun()
    assert not exchange(universe).on and not exchange(universe).takes("any")
    for _ in range(20):
        universe.step()
    assert not there(universe)
    universe.close()


def test_lines_of_other_threads_are_published(universe: Universe) -> None:
    thread = threading.Thread(target=lambda: [exchange(universe).tell(line(x)) for x in "abc"])
    thread.start()
    thread.join()
    universe.until(lambda: len(bodies(universe)) == 3, "the lines")
    assert bodies(universe) == ["a\n", "b\n", "c\n"]


def test_lines_that_wait_are_bounded_and_counted(universe: Universe) -> None:
    source = exchange(universe)
    for _ in range(WAITING_LINES_MAX + 7):
        source.tell(line())
    universe.until(lambda: len(bodies(universe)) == WAITING_LINES_MAX, "those that fit")
    assert source.publisher.dropped == 7
    source.tell(line("next"))
    universe.until(lambda: bodies(universe)[-1] == "next\n", "lines flow again")


def test_a_long_line_is_cut(universe: Universe) -> None:
    exchange(universe).tell(line("x" * 100_000))
    universe.until(lambda: len(bodies(universe)) == 1, "the line")
    assert bodies(universe) == ["x" * (LINE_BYTES_MAX - 1) + "\n"]


def test_a_queue_without_a_leader_holds_up_nothing(universe: Universe) -> None:
    for node in "bc":
        universe.kill(node)
    source = exchange(universe)
    for _ in range(3):
        for _ in range(100):
            source.tell(line("x" * LINE_BYTES_MAX))
        universe.step()
    assert 0 < source.publisher.dropped < 300
    dropped = source.publisher.dropped
    for node in "bc":
        universe.start(node)
    universe.until(lambda: not source.publisher.unconfirmed_bytes, "what was sent is stored")
    assert len(bodies(universe)) == 300 - dropped


def test_no_line_leads_to_the_next(universe: Universe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishing a line logs a line; so do drops: neither is published."""
    source = exchange(universe)
    publish = source.publisher.publishing.publish

    def chatty(*args: Any, **values: Any) -> Any:
        logging.getLogger("warren_broker.chatty").warning("a line is published")
        return publish(*args, **values)

    monkeypatch.setattr(source.publisher.publishing, "publish", chatty)
    publishing = LogPublishing(source, "debug")
    try:
        logging.getLogger("some").warning("first")
        universe.until(lambda: len(bodies(universe)) == 1, "the line")
        source.publisher.drop(1, "a test")
        for _ in range(20):
            universe.step()
        (body,) = bodies(universe)
        assert body.endswith("WARNING some: first\n")
        logging.getLogger("some").warning("second")
        universe.until(lambda: len(bodies(universe)) == 2, "the next line")
    finally:
        publishing.end()
    assert not source.takes(node_messages.lines_log.name) and source.takes("warren_broker.chatty")
