"""A node is lost, or hangs, with queues that only it has: clients of the others continue."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, ChannelClosedByBroker, ConnectionClosedByBroker, NackError

from live.conftest import eventually
from live.load import connect
from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.connection import Connection
from warren.local import LocalCluster
from warren_broker.cluster.survey import SURVEY_PATIENCE_MS

pytestmark = [pytest.mark.live, pytest.mark.slow]
LONG_MS = 300_000
"""What waited for a node that is lost would wait that long: much more than PATIENCE_S."""
PASSING_KEPT_MS = 3_000
QUORUM = {"x-queue-type": "quorum"}
CLASSIC = {"x-queue-type": "classic"}
DURABLE = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)
Lose = Callable[[LocalCluster, int], None]


@contextmanager
def three(directory: Path, kept_ms: int, answer_ms: int = LONG_MS) -> Iterator[LocalCluster]:
    """Three nodes; node 2 leads no quorum queue of these tests."""
    settings = {
        "queues": {"consumer_disconnected_timeout_ms": kept_ms},
        "limits": {"operation_timeout_ms": answer_ms},
    }
    with LocalCluster(nodes=3, directory=directory, settings=settings) as made:
        yield made


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """They keep for long what a client of a lost node may want."""
    with three(tmp_path, LONG_MS) as made:
        yield made


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[LocalCluster]:
    """They keep it for PASSING_KEPT_MS."""
    with three(tmp_path, PASSING_KEPT_MS) as made:
        yield made


def suspected(cluster: LocalCluster) -> None:
    """Wait until node 1 suspects node 2, and no other."""
    with Connection(cluster.node_address(1)) as leading:
        eventually(
            lambda: (
                [one["name"] for one in Admin(leading).overview()["nodes"] if not one["alive"]]
                == [cluster.nodes[2].name]
            ),
            "it is suspected",
        )


def bodies(cluster: LocalCluster, queue: str, node: int = 0) -> list[bytes]:
    """What a queue holds, by gets."""
    with connect(cluster, node) as connection:
        channel = connection.channel()
        found = []
        while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
            found.append(got[2])
        return found


def exists(cluster: LocalCluster, queue: str, node: int = 0) -> bool:
    """Whether the queue is defined; an exclusive one is locked for others."""
    with connect(cluster, node) as connection:
        try:
            connection.channel().queue_declare(queue, passive=True)
        except ChannelClosedByBroker as closed:
            return closed.reply_code == 405 or "is down or inaccessible" in closed.reply_text
    return True


def fan_out(channel: BlockingChannel, own: BlockingChannel) -> str:
    """Bind the quorum queue `kept`, and an exclusive one of `own`, to `all`; return its name."""
    channel.queue_declare("kept", durable=True, arguments=QUORUM)
    channel.exchange_declare("all", "fanout")
    channel.queue_bind("kept", "all")
    name = own.queue_declare("", exclusive=True).method.queue
    own.queue_bind(name, "all")
    return name


@pytest.mark.parametrize("lose", [LocalCluster.kill, LocalCluster.pause])
def test_a_fanout_exchange_works_without_the_exclusive_queue_of_a_lost_node(
    cluster: LocalCluster, lose: Lose
) -> None:
    owner = connect(cluster, 2)
    with connect(cluster, 0) as publisher:
        channel = publisher.channel()
        channel.confirm_delivery()
        name = fan_out(channel, owner.channel())
        sent = [b"before"]
        channel.basic_publish("all", "", sent[0])
        lose(cluster, 2)
        began = time.monotonic()
        for number in range(20):  # the first ones wait until it is suspected
            sent.append(b"%d" % number)
            channel.basic_publish("all", "", sent[-1])
        assert time.monotonic() - began < PATIENCE_S
        suspected(cluster)
        channel.basic_publish("all", "", b"last")
        assert bodies(cluster, "kept") == [*sent, b"last"], "lost in the queue that all reach"
        if lose is LocalCluster.pause:  # of a process that has ended it is deleted soon
            assert exists(cluster, name), "the confirms did not wait for its end"
        _come_back(cluster, lose)


@pytest.mark.parametrize("lose", [LocalCluster.kill, LocalCluster.pause])
def test_the_exclusive_queue_of_a_lost_node_is_deleted_at_last(
    forgetful: LocalCluster, lose: Lose
) -> None:
    publisher, owner = connect(forgetful, 0), connect(forgetful, 2)
    channel = publisher.channel()
    channel.confirm_delivery()
    own = owner.channel()
    name = fan_out(channel, own)
    told: list[Any] = []
    own.add_on_cancel_callback(told.append)
    own.basic_consume(name, lambda *delivery: None, auto_ack=True)
    lose(forgetful, 2)
    eventually(lambda: not exists(forgetful, name), "it is deleted")
    _come_back(forgetful, lose)
    if lose is LocalCluster.pause:
        _its_owner_is_told(owner, own, name, told)
    eventually(lambda: not exists(forgetful, name, 2), "nothing of it is left on its node")
    channel.basic_publish("all", "", b"after")
    assert bodies(forgetful, "kept") == [b"after"]


def _come_back(cluster: LocalCluster, lose: Lose) -> None:
    if lose is LocalCluster.pause:
        cluster.resume(2)
    else:
        cluster.start(2)


def _its_owner_is_told(
    owner: pika.BlockingConnection, own: BlockingChannel, name: str, told: list[Any]
) -> None:
    """basic.cancel, and 404 for whatever it asks of the queue after that."""
    eventually(
        lambda: owner.process_data_events(0.05) or told, "the consumer is cancelled, or it is over"
    )
    with pytest.raises(ChannelClosedByBroker) as closed:
        own.queue_declare(name, passive=True)
    assert closed.value.reply_code == 404


def test_a_publisher_without_confirms_does_not_stall_when_a_node_hangs(
    cluster: LocalCluster,
) -> None:
    """More than a node keeps for a queue that does not answer (32 MiB) reaches those that do."""
    body, count = bytes(1 << 20), 80
    with connect(cluster, 0) as publisher, connect(cluster, 2) as owner:
        channel = publisher.channel()
        fan_out(channel, owner.channel())
        cluster.pause(2)
        for _ in range(count):
            channel.basic_publish("all", "", body)
        eventually(
            lambda: channel.queue_declare("kept", passive=True).method.message_count == count,
            "everything is in the quorum queue",
        )
        cluster.resume(2)


def test_one_that_hangs_for_a_moment_keeps_its_exclusive_queue(cluster: LocalCluster) -> None:
    with connect(cluster, 0) as publisher, connect(cluster, 2) as owner:
        channel = publisher.channel()
        channel.confirm_delivery()
        channel.exchange_declare("all", "fanout")
        own = owner.channel()
        name = own.queue_declare("", exclusive=True).method.queue
        own.queue_bind(name, "all")
        cluster.pause(2)
        channel.basic_publish(
            "all", "", b"meanwhile"
        )  # when it is suspected: unroutable from then on
        cluster.resume(2)

        def arrives() -> bool:
            channel.basic_publish("all", "", b"after")
            got = own.basic_get(name, auto_ack=True)
            while got[0] is not None and got[2] != b"after":
                got = own.basic_get(name, auto_ack=True)
            return got[2] == b"after"

        eventually(arrives, "it is routed to again")


@pytest.mark.parametrize("lose", [LocalCluster.kill, LocalCluster.pause])
@pytest.mark.specification("mirrored-queues: A durable queue will become unavailable until")
def test_a_durable_classic_queue_of_a_lost_node_is_refused_by_itself_alone(
    cluster: LocalCluster, lose: Lose
) -> None:
    with connect(cluster, 2) as there:
        there.channel().queue_declare("lasting", durable=True, arguments=CLASSIC)
        there.channel().queue_declare("ending", durable=True, auto_delete=True, arguments=CLASSIC)
    with connect(cluster, 0) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for name in ("lasting", "ending"):
            channel.basic_publish("", name, b"1", DURABLE, mandatory=True)
        lose(cluster, 2)
        with pytest.raises(NackError):
            for _ in range(1_000):
                channel.basic_publish("", "lasting", b"2", mandatory=True)
        for ask in (
            lambda one: one.queue_declare("lasting", durable=True, arguments=CLASSIC),
            lambda one: one.queue_declare("lasting", passive=True),
            lambda one: one.basic_get("lasting"),
            lambda one: one.basic_consume("lasting", lambda *delivery: None),
            lambda one: one.queue_purge("lasting"),
        ):
            began = time.monotonic()
            with pytest.raises(ChannelClosedByBroker) as closed:
                ask(connection.channel())
            assert closed.value.reply_code == 404 and time.monotonic() - began < PATIENCE_S
            node = cluster.nodes[2].name
            assert closed.value.reply_text == (
                f"NOT_FOUND - home node '{node}' of durable queue 'lasting' in vhost '/' is down "
                "or inaccessible"
            )
        assert connection.is_open
        _come_back(cluster, lose)
        eventually(lambda: _reachable(connection), "it is there again")
        for name in ("lasting", "ending"):
            assert b"1" in bodies(cluster, name), name


def _reachable(connection: pika.BlockingConnection) -> bool:
    try:
        connection.channel().queue_declare("lasting", passive=True)
    except ChannelClosedByBroker as closed:
        assert closed.reply_code == 404, closed
        return False
    return True


def _consumers(cluster: LocalCluster, queue: str) -> int:
    with connect(cluster, 0) as connection:
        declared = connection.channel().queue_declare(queue, passive=True)
        return int(declared.method.consumer_count)


@contextmanager
def expecting(cluster: LocalCluster, node: int, sent: set[bytes]) -> Iterator[None]:
    """A client of that node which has been given these results, in an auto-delete queue, and works
    on them while the node is lost: declared as Celery declares its queues for results (rpc://)."""
    connection = connect(cluster, node)
    channel = connection.channel()
    channel.queue_declare("results", durable=True, auto_delete=True)
    got: set[bytes] = set()
    channel.basic_consume("results", lambda one, method, properties, body: got.add(body))
    if not sent:
        sent.add(b"first")
        channel.basic_publish("", "results", b"first", DURABLE)
    eventually(lambda: connection.process_data_events(0.05) or sent <= got, "it gets them")
    yield
    with suppress(AMQPError):
        connection.close()


def test_a_durable_auto_delete_queue_outlives_its_clients_node_and_all_nodes(
    cluster: LocalCluster,
) -> None:
    """Before: its messages were lost with the node that declared it."""
    sent: set[bytes] = set()
    with connect(cluster, 0) as publisher:
        channel = publisher.channel()
        channel.confirm_delivery()
        with expecting(cluster, 2, sent):
            cluster.kill(2)
            channel.basic_publish("", "results", b"second", DURABLE, mandatory=True)
            sent.add(b"second")
    for end in (LocalCluster.kill, LocalCluster.stop_node):
        with expecting(cluster, 1, sent):
            for node in range(3):
                if cluster.is_running(node):
                    end(cluster, node)
        cluster.start()
        eventually(lambda: not _consumers(cluster, "results"), "its consumer is known to be lost")
    name = cluster.nodes[1].name
    with expecting(cluster, 1, sent), Connection(cluster.node_address(2)) as operator:
        Admin(operator).nodes.drain(name)
        eventually(lambda: not _consumers(cluster, "results"), "its client was sent away")
        Admin(operator).nodes.revive(name)
    with connect(cluster, 2) as connection:
        channel = connection.channel()
        declared = channel.queue_declare("results", durable=True, auto_delete=True)
        assert declared.method.message_count == len(sent)
        tag = channel.basic_consume("results", lambda *delivery: None)
        channel.basic_cancel(tag)
    assert not exists(cluster, "results")


@pytest.mark.parametrize("lose", [LocalCluster.kill, LocalCluster.pause])
@pytest.mark.parametrize("held", [0, 1])
def test_the_next_consumer_takes_over_from_a_single_active_one_on_a_lost_node(
    cluster: LocalCluster, lose: Lose, held: int
) -> None:
    # A node that merely hangs may have a client that works on what it holds.
    waits = lose is LocalCluster.pause and held
    arguments = {
        **QUORUM,
        "x-single-active-consumer": True,
        "x-consumer-disconnected-timeout": PASSING_KEPT_MS if waits else LONG_MS,
    }
    got: list[bytes] = []
    first, second = connect(cluster, 2), connect(cluster, 1)
    channel = second.channel()
    channel.queue_declare("single", durable=True, arguments=arguments)
    active = first.channel()
    active.basic_consume("single", lambda *delivery: None)
    channel.basic_consume(
        "single", lambda one, method, properties, body: got.append(body), auto_ack=True
    )
    with connect(cluster, 0) as publisher:
        to = publisher.channel()
        to.confirm_delivery()
        for number in range(held):
            to.basic_publish("", "single", b"held %d" % number)
        if held:
            eventually(lambda: first.process_data_events(0.05) or _taken(to), "it holds one")
        began = time.monotonic()
        lose(cluster, 2)
        suspected(cluster)  # what is published before is handed to its consumer still
        to.basic_publish("", "single", b"next")
        eventually(lambda: second.process_data_events(0.05) or b"next" in got, "the next one")
        assert not waits or time.monotonic() - began > PASSING_KEPT_MS / 1000
        assert got == [b"held 0"] * held + [b"next"]
        if lose is LocalCluster.pause:
            cluster.resume(2)
            to.basic_publish("", "single", b"later")
            eventually(lambda: second.process_data_events(0.05) or b"later" in got, "it continues")


def _taken(channel: BlockingChannel) -> bool:
    return not channel.queue_declare("single", passive=True).method.message_count


def test_definitions_do_not_wait_for_a_node_that_hangs(cluster: LocalCluster) -> None:
    with connect(cluster, 0) as connection:
        channel = connection.channel()
        cluster.pause(2)
        suspected(cluster)
        numbers = itertools.count()

        def soon() -> bool:
            """Declare a queue; were the node waited for, each would take SURVEY_PATIENCE_MS."""
            began = time.monotonic()
            channel.queue_declare(f"q{next(numbers)}", durable=True, arguments=QUORUM)
            return time.monotonic() - began < SURVEY_PATIENCE_MS / 1000

        for _ in range(10):
            eventually(soon, "a declaration that waits for nothing")
        cluster.resume(2)


def test_a_deletion_that_was_answered_too_late_leaves_no_queue(tmp_path: Path) -> None:
    """The queue's majority carries it out after the client was refused, and nothing else knew.

    Before: the queue stayed, for good. Declarations found it, publishes to it were confirmed, and
    a get or a consumer was told that there is no such queue.
    """
    with three(tmp_path, LONG_MS, answer_ms=500) as cluster:
        with connect(cluster, 0) as connection:
            channel = connection.channel()
            channel.queue_declare("late", durable=True, arguments=QUORUM)
            cluster.pause(1)
            cluster.pause(2)
            with pytest.raises(ConnectionClosedByBroker) as closed:
                channel.queue_delete("late")
            assert closed.value.reply_code == 541
        cluster.resume(1)
        cluster.resume(2)
        for node in range(3):
            eventually(lambda at=node: not exists(cluster, "late", at), "it is deleted")
        with connect(cluster, 1) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("late", durable=True, arguments=QUORUM)
            channel.basic_publish("", "late", b"new", mandatory=True)
        assert bodies(cluster, "late", 2) == [b"new"]
