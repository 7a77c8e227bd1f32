"""Queries on a RabbitMQ that takes tokens, each for several of a token's lives."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from connector.amqp.query import Query, Queue
from connector.amqp.rabbitmq import OneRabbitMQ
from connector.amqp.relay import Relay
from connector.amqp.stream_query import Stream, StreamQuery
from connector.amqp.test_publish import Declared, batch, write
from connector.oauth.endpoint import SECRET, Answer, TokenEndpoint, granting
from pyspark_warren import errors
from pyspark_warren.streams.offset import OffsetSlice
from pyspark_warren.streams.read import SliceReading
from tests.certificates import Authority
from tests.patience import PATIENCE_S
from tests.signing_key import CLIENT, SigningKey

pytestmark = [pytest.mark.live, pytest.mark.slow]

LIFE_S = 5.0
LIVES = 4


@pytest.fixture
def endpoint(key: SigningKey, tmp_path: Path) -> Iterator[TokenEndpoint]:
    """It grants tokens that live for LIFE_S, over TLS."""
    authority = Authority(tmp_path / "authority")
    with TokenEndpoint(granting(key, LIFE_S), authority.issue("login")) as made:
        made.ca_file = str(authority.cert)
        yield made


@contextmanager
def steadily(publish: Callable[[int], None]) -> Iterator[None]:
    """Publish ten messages every half second while the block runs."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(0.5):
            publish(10)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(PATIENCE_S)


def over(endpoint: TokenEndpoint) -> Callable[[], bool]:
    """Return what is true when LIVES tokens were followed by another one."""
    end = time.monotonic() + PATIENCE_S

    def done() -> bool:
        assert time.monotonic() < end, endpoint.asked
        return len(endpoint.asked) > LIVES

    return done


def renewed(relay: Relay, endpoint: TokenEndpoint) -> None:
    """Tokens were renewed on open connections: there were fewer connections than tokens.

    On a machine that is not starved it is one connection of a task, and two of a query.
    """
    assert relay.made < len(endpoint.asked), (relay.made, len(endpoint.asked))


def only_version_4(rabbitmq: OneRabbitMQ) -> None:
    """Skip where the broker leaves connections open after the end of their tokens."""
    if int(rabbitmq.name.split()[1].split(".")[0]) < 4:
        pytest.skip(f"{rabbitmq.name} leaves connections open when their tokens end")


def test_a_queue_over_four_tokens(
    rabbitmq: OneRabbitMQ, endpoint: TokenEndpoint, tmp_path: Path
) -> None:
    """Rows lost 0, doubled 0."""
    queue = Queue(rabbitmq)
    with Relay(rabbitmq.port) as relay:
        given = {**endpoint.options(), "hosts": relay.hosts}
        with Query(queue, tmp_path, **given) as query:
            with steadily(queue.publish):
                query.follow(over(endpoint), 1000)
            renewed(relay, endpoint)
            query.finish()
    assert queue.bodies
    shown = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert SECRET.encode() not in shown


def test_a_stream_over_four_tokens(rabbitmq: OneRabbitMQ, endpoint: TokenEndpoint) -> None:
    stream = Stream(rabbitmq)
    given = endpoint.options()
    with StreamQuery(stream, **given) as query:
        with steadily(stream.publish):
            query.follow(over(endpoint), 1000)
        query.run()
        assert stream.bodies and query.bodies() == stream.bodies
    assert len(endpoint.asked) >= LIVES


def test_one_slice_of_a_stream_over_four_tokens(
    rabbitmq: OneRabbitMQ, endpoint: TokenEndpoint
) -> None:
    """A task that reads for longer than its token lives, on one connection."""
    stream = Stream(rabbitmq)
    with Relay(rabbitmq.port) as relay, steadily(stream.publish):
        options = stream.options(**endpoint.options(), hosts=relay.hosts)
        rows: list[bytes] = []
        done = over(endpoint)
        reading = SliceReading(options, OffsetSlice(0, 1_000_000))
        for each in reading.rows():
            rows += each.stored.column("body").to_pylist()
            if done():
                break
        reading.close()
        renewed(relay, endpoint)
    assert rows == stream.bodies[: len(rows)]


def test_a_sink_over_four_tokens(rabbitmq: OneRabbitMQ, endpoint: TokenEndpoint) -> None:
    """A task with rows that come slowly, on one connection."""
    queue = Declared(rabbitmq.connect)
    done = over(endpoint)
    published: list[int] = []

    def rows() -> Iterator[pa.RecordBatch]:
        while not done():
            published.append(len(published))
            yield batch(b"%d " % published[-1])
            time.sleep(0.5)

    with Relay(rabbitmq.port) as relay:
        write(relay.hosts, rows(), routingKey=queue.name, **endpoint.options())
        renewed(relay, endpoint)
    found = queue.ids_by_row()
    assert sorted(found) == published and all(len(set(ids)) == 1 for ids in found.values())


def test_a_file_that_something_else_renews(
    rabbitmq: OneRabbitMQ, key: SigningKey, tmp_path: Path
) -> None:
    queue, file, new = Declared(rabbitmq.connect), tmp_path / "token", tmp_path / "new"
    written = 0

    def rows() -> Iterator[pa.RecordBatch]:
        nonlocal written
        for number in range(8 * LIVES):
            if number % 5 == 0:
                new.write_text(key.token(LIFE_S))
                new.rename(file)
                written += 1
            yield batch(b"%d " % number)
            time.sleep(0.5)

    with Relay(rabbitmq.port) as relay:
        write(relay.hosts, rows(), routingKey=queue.name, tokenFile=str(file))
        assert relay.made < written, (relay.made, written)
    found = queue.ids_by_row()
    assert sorted(found) == list(range(8 * LIVES))
    assert all(len(set(ids)) == 1 for ids in found.values())


def test_connections_of_other_clients_are_not_shared(
    rabbitmq: OneRabbitMQ, key: SigningKey, tmp_path: Path
) -> None:
    """Tasks of one process for two queries: each publishes with the rights of its own token."""
    queue = Declared(rabbitmq.connect)
    may, may_not = tmp_path / "may", tmp_path / "may_not"
    may.write_text(key.token(60))
    may_not.write_text(key.token(60, scope=["rabbitmq.read:*/*"]))
    write(rabbitmq.hosts, [batch(b"1 ")], routingKey=queue.name, tokenFile=str(may))
    with pytest.raises(errors.BrokerRefusedError, match="ACCESS_REFUSED"):
        write(rabbitmq.hosts, [batch(b"2 ")], routingKey=queue.name, tokenFile=str(may_not))
    assert list(queue.ids_by_row()) == [1]


def test_an_endpoint_that_is_away_for_longer_than_a_token_lives(
    rabbitmq: OneRabbitMQ, endpoint: TokenEndpoint, tmp_path: Path
) -> None:
    """The broker ends the connection, the driver's log says why, and the query continues."""
    only_version_4(rabbitmq)
    queue = Queue(rabbitmq)
    grant = endpoint.answer
    with Query(queue, tmp_path, **endpoint.options()) as query:
        with steadily(queue.publish):
            query.follow(lambda: query.commits > 1, 1000)
            assert query.driver is not None
            lane = query.driver.queues[queue.name].lane
            assert lane is not None
            endpoint.answer = lambda _: Answer(503)
            assert lane.wait(lambda: "token endpoint" in lane.down_text, PATIENCE_S)
            assert "answers 503" in lane.down_text and lane.down_s() > 0
            endpoint.answer = grant
            assert lane.wait(lambda: lane.down_s() == 0, PATIENCE_S)
        query.finish()


def test_a_client_that_is_refused_while_the_query_runs(
    rabbitmq: OneRabbitMQ, endpoint: TokenEndpoint, tmp_path: Path
) -> None:
    only_version_4(rabbitmq)
    queue = Queue(rabbitmq)
    queue.publish(1)
    with Query(queue, tmp_path, **endpoint.options()) as query:
        query.follow(lambda: query.commits > 1, 1000)
        assert query.driver is not None
        lane = query.driver.queues[queue.name].lane
        assert lane is not None
        endpoint.answer = lambda _: Answer(401, {"error": "invalid_client"})
        with pytest.raises(errors.TokenError, match=r"^\[WARREN_TOKEN\] .*401: invalid_client"):
            lane.wait(lambda: False, PATIENCE_S)


def test_a_broker_that_refuses_the_token_names_the_user_of_it(
    rabbitmq: OneRabbitMQ, key: SigningKey, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    for token in (key.token(60, aud=["another"], scope=["another.read:*/*"]), "opaque"):
        file.write_text(token)
        with pytest.raises(errors.BrokerRefusedError, match="refuses the (login|vhost)") as told:
            write(rabbitmq.hosts, [batch(b"1 ")], routingKey="q", tokenFile=str(file))
        assert token not in str(told.value) and CLIENT not in str(told.value)
        file = tmp_path / "other"
