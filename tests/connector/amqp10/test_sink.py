"""The sink at AMQP 1.0 brokers: what arrives, refusals by name, faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from proton import Message
from proton.utils import BlockingConnection

from connector.amqp.relay import Relay
from connector.amqp10.brokers import Artemis, Broker10, Queue10, RabbitMQ10, Warren10
from pyspark_warren import errors
from pyspark_warren.options.options import parse_options
from pyspark_warren.sink.others import write_published
from pyspark_warren.sink.writer import Attempt, WrittenPart
from tests.patience import PATIENCE_S
from warren.stages import SinkDriver

pytestmark = [pytest.mark.live, pytest.mark.slow]


def write(hosts: str, rows: Any, **more: str) -> WrittenPart:
    """One attempt at partition 0 of batch 7 of sink `s` in run `r`."""
    options = parse_options({"hosts": hosts, "broker": "amqp10", **more}, "write")
    attempt = Attempt.drawn(SinkDriver("s", "r", 1), 7, 0)
    return write_published(options, attempt, iter(rows), "publishing to a test")


def batch(bodies: list[bytes], **columns: Any) -> pa.RecordBatch:
    """Rows with these bodies."""
    made = {name: pa.array(values) for name, values in columns.items()}
    return pa.record_batch({"body": pa.array(bodies, pa.binary()), **made})


def batches(count: int, size: int, each: int = 250) -> Iterator[pa.RecordBatch]:
    """Rows with bodies of that size, which begin with their number."""
    for first in range(0, count, each):
        yield batch([b"%d " % i + bytes(size) for i in range(first, min(count, first + each))])


def messages(queue: Queue10, count: int, address: str = "") -> list[Message]:
    """Take so many messages, with another client."""
    made = BlockingConnection(f"amqp://guest:guest@{queue.broker.hosts}", timeout=PATIENCE_S)
    try:
        receiver = made.create_receiver(
            address or queue.broker.address(queue.name), credit=min(count, 1000)
        )
        found = []
        for _ in range(count):
            found.append(receiver.receive(PATIENCE_S))
            receiver.accept()
            if len(found) % 500 == 0:
                receiver.flow(500)
        return found
    finally:
        made.close()


def test_rows_arrive_with_their_properties_and_ids(broker: Broker10) -> None:
    queue = Queue10(broker)
    rows = batch(
        [b"one", b"two"],
        message_id=["mine", None],
        content_type=["text/plain", "text/csv"],
        priority=pa.array([7, None], pa.int32()),
        headers=pa.array([[("n", 7)], []], pa.map_(pa.string(), pa.int64())),
    )
    write(broker.hosts, [rows], routingKey=queue.name)
    first, second = messages(queue, 2)
    assert (bytes(first.body), bytes(second.body)) == (b"one", b"two")
    assert (first.id, second.id) == ("mine", "s-r-7-0-1")
    assert (first.content_type, first.priority, first.durable) == ("text/plain", 7, True)
    assert first.properties == {"n": 7}


def test_large_and_small_rows_arrive_once_and_in_order(broker: Broker10) -> None:
    queue = Queue10(broker)
    rows = [*batches(600, 100), batch([b"large" + bytes(3 << 20)])]
    write(broker.hosts, rows, routingKey=queue.name, publishWindow="200")
    found = [bytes(each.body) for each in messages(queue, 601)]
    assert [body.split(b" ")[0] for body in found[:-1]] == [b"%d" % n for n in range(600)]
    assert found[-1] == b"large" + bytes(3 << 20)


def test_rows_of_a_cut_connection_are_sent_again(broker: Broker10) -> None:
    queue = Queue10(broker)
    _, _, port = broker.hosts.rpartition(":")
    with Relay(int(port)) as relay:
        relay.cut_after = 200_000
        write(relay.hosts, batches(1000, 1000), routingKey=queue.name, publishWindow="100")
        assert relay.made > 1, "it was cut"
    count = queue.ready()
    ids = Counter(each.id for each in messages(queue, count))
    assert set(ids) == {f"s-r-7-0-{n}" for n in range(1000)} and count < 1300, count


def test_an_address_that_is_not_there_is_named(broker: Broker10) -> None:
    wanted = errors.NotRoutableError if broker.name == "none" else errors.BrokerRefusedError
    with pytest.raises(wanted, match="(?i)not[- ]found|not exist|no queue|AMQ"):
        write(broker.hosts, [batch([b"x"])], routingKey="there-is-none")


def test_a_wrong_password_is_refused(broker: Broker10) -> None:
    with pytest.raises(errors.BrokerRefusedError, match="refuses the login"):
        write(broker.hosts, [batch([b"x"])], routingKey="q", password="wrong")


@pytest.mark.parametrize("name", ["warren", "rabbitmq"])
def test_a_row_that_routes_to_no_queue_is_named(name: str, request: pytest.FixtureRequest) -> None:
    broker: RabbitMQ10 = request.getfixturevalue(name)
    with pytest.raises(errors.NotRoutableError, match=r"row 0 .*'nobody'.*releases"):
        write(broker.hosts, [batch([b"x"])], exchange="amq.direct", routingKey="nobody")


def test_routes_of_rows_are_addresses(warren: Warren10) -> None:
    queues = [Queue10(warren) for _ in range(3)]
    keys = [queues[n % 3].name for n in range(30)]
    write(warren.hosts, [batch([b"%d" % n for n in range(30)], routing_key=keys)])
    for at, queue in enumerate(queues):
        found = [int(bytes(each.body)) for each in messages(queue, 10)]
        assert found == list(range(at, 30, 3))


def test_a_full_address_rejects_by_name(artemis: Artemis) -> None:
    queue = Queue10(artemis)
    artemis.order(f"fail-when-full {queue.name}")
    with pytest.raises(errors.PublishError, match=r"row \d+ .*reject.*resource-limit-exceeded"):
        write(artemis.hosts, batches(400, 10_000), routingKey=queue.name, confirmTimeout="20s")


def test_artemis_drops_a_row_that_it_has(artemis: Artemis) -> None:
    queue = Queue10(artemis)
    for _ in range(2):  # Spark runs a task again
        given = {"routingKey": queue.name, "deduplicationHeader": "true"}
        write(artemis.hosts, batches(50, 10), **given)
    assert queue.ready() == 50


def test_an_exchange_is_an_address_and_the_key_a_subject(
    artemis: Artemis,
) -> None:
    queue = Queue10(artemis)
    write(artemis.hosts, [batch([b"x"])], exchange=queue.name, routingKey="news.today")
    (found,) = messages(queue, 1)
    assert (found.subject, found.id) == ("news.today", "s-r-7-0-0")
