"""Federated queues between two clusters: the document's sentences, and links that are killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from typer.testing import CliRunner

from live.conftest import Broker, eventually
from live.shovels import fill
from live.test_shovel import worker_pids
from live.test_tls import TlsBroker
from tests.certificates import Authority
from tests.connector.amqp.relay import Relay
from tests.patience import TooSlow, in_time, with_time_enough
from warren.admin import Admin
from warren.claims import ClaimReader
from warren.cli.app import app
from warren.connection import Connection
from warren.local import LocalCluster
from warren_broker.transfers.shovel.worker import DELAY_S_MAX

pytestmark = pytest.mark.live
PATIENCE_S = 2 * DELAY_S_MAX
"""A link that has failed again and again waits that long before it tries once more."""


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Broker]]:
    """An upstream and a downstream cluster."""
    directory = tmp_path_factory.mktemp("federation")
    with (
        LocalCluster(nodes=1, directory=directory / "up") as upstream,
        LocalCluster(nodes=1, directory=directory / "down") as downstream,
    ):
        made = [
            Broker(tuple(f"amqp://guest:guest@{host}/%2F" for host in one.addresses), one)
            for one in (upstream, downstream)
        ]
        yield made[0], made[1]


def command(broker: Broker, *words: str) -> str:
    """Run a command of the CLI."""
    assert broker.cluster is not None
    result = CliRunner().invoke(app, [*words, "--uri", broker.cluster.uri])
    assert result.exit_code == 0, result.output
    return result.output


def federate(broker: Broker, upstream: Broker, queue: str, /, **more: Any) -> None:
    """Make a queue federated, before or after it is declared."""
    value = json.dumps({"uri": upstream.uris[0], "reconnect-delay": 1, **more})
    command(broker, "parameters", "set", "federation-upstream", f"up-{queue}", value)
    policy = json.dumps({"federation-upstream": f"up-{queue}"})
    command(broker, "policies", "set", f"fed-{queue}", f"^{queue}$", policy, "--apply-to", "queues")


def declare(broker: Broker, queue: str, count: int = 0, **properties: Any) -> list[bytes]:
    """Declare a queue and publish messages with bodies of their own."""
    bodies = [f"{broker.uris[0]} {queue} {i}".encode() for i in range(count)]
    with broker.connect() as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        channel.confirm_delivery()
        for body in bodies:
            channel.basic_publish("", queue, body, pika.BasicProperties(**properties))
    return bodies


def ready(broker: Broker, queue: str) -> int:
    """Messages that are ready in a queue."""
    with broker.connect() as connection:
        made = connection.channel().queue_declare(queue, passive=True)
    return int(made.method.message_count)


def consume(broker: Broker, queue: str, count: int, prefetch: int = 50) -> list[tuple[Any, bytes]]:
    """Consume until that many different bodies have come; properties and bodies, in order."""
    found: list[tuple[Any, bytes]] = []
    with broker.connect() as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=prefetch)
        arriving = channel.consume(queue, inactivity_timeout=PATIENCE_S)
        for method, properties, body in arriving:
            assert method is not None, f"{len(found)} of {count} have come"
            found.append((properties, body))
            channel.basic_ack(method.delivery_tag)
            if len({one for _, one in found}) == count:
                break
        channel.cancel()
    return found


def consumers(broker: Broker, queue: str) -> int:
    """Number of a queue's consumers."""
    with broker.connect() as connection:
        made = connection.channel().queue_declare(queue, passive=True)
    return int(made.method.consumer_count)


@pytest.mark.specification(
    "federated-queues: A federated queue links to other queues",
    "federated-queues: It will retrieve messages from upstream queues in order",
    "federated-queues: The upstream queues do not need to be reconfigured",
    "federated-queues: basic.get cannot retrieve messages over federation",
    "federated-queues: message ordering is only preserved for messages",
)
def test_messages_move_only_while_a_local_consumer_needs_them(two: tuple[Broker, Broker]) -> None:
    upstream, downstream = two
    bodies = declare(upstream, "moves", 30, headers={"k": 1}, priority=3, message_id="m")
    declare(downstream, "moves")
    federate(downstream, upstream, "moves")
    runs = eventually(lambda: state(downstream, "moves") == "running" or None, "the link runs")
    assert runs
    # basic.get finds nothing and brings nothing, and nothing else has moved.
    with downstream.connect() as connection:
        assert connection.channel().basic_get("moves")[0] is None
    assert (ready(upstream, "moves"), consumers(upstream, "moves")) == (30, 0)
    found = consume(downstream, "moves", 30)
    assert [body for _, body in found] == bodies
    properties = found[0][0]
    assert (properties.priority, properties.message_id) == (3, "m")
    (hop,) = properties.headers.pop("x-received-from")
    assert properties.headers == {"k": 1}
    assert (hop["queue"], hop["redelivered"], hop["visit-count"]) == ("moves", False, 1)
    assert "guest" not in hop["uri"]
    eventually(lambda: ready(upstream, "moves") == 0 or None, "all are acknowledged upstream")
    eventually(lambda: consumers(upstream, "moves") == 0 or None, "the link pauses")


@pytest.mark.specification(
    "federated-queues: The federated queue will only retrieve messages when it has run out",
)
def test_local_messages_come_first_and_a_consumer_without_room_is_no_demand(
    two: tuple[Broker, Broker],
) -> None:
    upstream, downstream = two
    declare(upstream, "local", 5)
    declare(downstream, "local", 3)
    federate(downstream, upstream, "local")
    eventually(lambda: state(downstream, "local") == "running" or None, "the link runs")
    with downstream.connect() as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=2)
        held: list[int] = []
        channel.basic_consume("local", lambda c, method, p, b: held.append(method.delivery_tag))
        while len(held) < 2:
            connection.process_data_events(1)
        assert ready(upstream, "local") == 5 and ready(downstream, "local") == 1
        channel.basic_ack(held[1], multiple=True)

        def fetched() -> bool | None:
            connection.process_data_events(0)
            return len(held) == 4 or None

        eventually(fetched, "one local and one fetched message")
    consume(downstream, "local", 6)  # of eight, two are acknowledged
    eventually(lambda: ready(upstream, "local") == 0 or None, "nothing is left upstream")


@pytest.mark.specification(
    "federated-queues: The intent is to ensure that messages are only transferred",
    "federated-queues: This is implemented using consumer priorities",
)
def test_a_consumer_of_the_upstream_queue_comes_first(two: tuple[Broker, Broker]) -> None:
    upstream, downstream = two
    declare(upstream, "spare")
    declare(downstream, "spare")
    federate(downstream, upstream, "spare")
    with upstream.connect() as near, downstream.connect() as far:
        seen: list[bytes] = []
        there: list[bytes] = []
        one, other = near.channel(), far.channel()
        one.basic_consume("spare", lambda c, m, p, body: seen.append(body), auto_ack=True)
        other.basic_consume("spare", lambda c, m, p, body: there.append(body), auto_ack=True)
        eventually(lambda: consumers(upstream, "spare") == 2 or None, "the link consumes")
        for i in range(20):
            one.basic_publish("", "spare", str(i).encode())

        def came() -> bool | None:
            near.process_data_events(0)
            far.process_data_events(0)
            return len(seen) == 20 or None

        eventually(came, "the near consumer gets all")
        assert there == []


@pytest.mark.specification(
    "federated-queues: One can even form 'loops",
    "federated-queues: In a set of mutually-federated queues, messages will move",
)
def test_two_queues_each_upstream_of_the_other_do_not_pass_messages_to_and_fro(
    two: tuple[Broker, Broker],
) -> None:
    one, other = two
    for broker, upstream in (two, (other, one)):
        declare(broker, "both")
        federate(broker, upstream, "both")
    for broker in two:
        eventually(lambda broker=broker: state(broker, "both") == "running" or None, "runs")
    bodies = declare(one, "both", 40)
    found = consume(other, "both", 40)
    assert [body for _, body in found] == bodies  # each once, by one hop
    assert {len(properties.headers["x-received-from"]) for properties, _ in found} == {1}
    back = declare(other, "both", 40)
    assert sorted(body for _, body in consume(one, "both", 40)) == sorted(back)


@pytest.mark.long
def test_a_link_and_a_node_that_are_killed_lose_and_double_nothing(
    two: tuple[Broker, Broker],
) -> None:
    upstream, downstream = two
    assert upstream.cluster is not None and downstream.cluster is not None
    bodies = declare(upstream, "killed", 3_000)
    declare(downstream, "killed")
    federate(downstream, upstream, "killed", **{"prefetch-count": 50})
    found = [body for _, body in consume(downstream, "killed", 100)]
    for pid in worker_pids(downstream.cluster.pid(0)):
        os.kill(pid, signal.SIGKILL)
    found += [body for _, body in consume(downstream, "killed", 300)]
    upstream.cluster.kill(0)
    upstream.cluster.start(0)
    while left := len(bodies) - len(set(found)):
        found += [body for _, body in consume(downstream, "killed", min(left, 500))]
    assert sorted(found) == sorted(bodies)


def test_a_link_that_is_cut_leaves_to_others_nothing_that_it_may_have_moved(
    two: tuple[Broker, Broker],
) -> None:
    upstream, downstream = two
    assert upstream.cluster is not None
    port = int(upstream.cluster.addresses[0].rpartition(":")[2])
    bodies = declare(upstream, "cut", 1_500)
    declare(downstream, "cut")
    with Relay(port) as relay:
        far = Broker((f"amqp://guest:guest@{relay.hosts}/%2F",))
        federate(downstream, far, "cut", **{"prefetch-count": 200})
        found = []
        for turn in range(4):
            found += [body for _, body in consume(downstream, "cut", 60 + 40 * turn)]
            relay.refusing = turn % 2 == 1
            relay.cut()
            if relay.refusing:  # what it may have moved is with neither queue's consumers
                # On a busy machine the link has moved more than was consumed.
                if there := min(100, ready(upstream, "cut")):
                    found += [body for _, body in consume(upstream, "cut", there)]
                relay.refusing = False
        while left := len(bodies) - len(set(found)):
            found += [body for _, body in consume(downstream, "cut", min(left, 500))]
    assert sorted(found) == sorted(bodies), "none is lost, none comes twice"
    assert ready(upstream, "cut") == ready(downstream, "cut") == 0


def test_a_queue_that_is_its_own_upstream_is_refused_in_words(two: tuple[Broker, Broker]) -> None:
    _, downstream = two
    declare(downstream, "itself")
    federate(downstream, downstream, "itself")

    def refused() -> str | None:
        found = links(downstream, "itself")
        return found[0].reason or None if found else None

    assert "the source and the destination are the same" in eventually(refused, "it is refused")


@pytest.mark.specification(
    "federated-queues: In order for RabbitMQ to recognize that a queue",
    "federated-queues: Matching queues will be federated",
)
def test_a_link_begins_changes_and_ends_with_what_it_is_made_of(two: tuple[Broker, Broker]) -> None:
    upstream, downstream = two
    declare(downstream, "lives")
    policy = json.dumps({"federation-upstream": "up-lives"})
    command(downstream, "policies", "set", "fed-lives", "^lives$", policy, "--apply-to", "queues")
    assert links(downstream, "lives") == []  # its upstream does not exist
    bad = upstream.uris[0].replace("guest:guest", "guest:wrong")
    value = {"uri": bad, "reconnect-delay": 1}
    command(downstream, "parameters", "set", "federation-upstream", "up-lives", json.dumps(value))

    def reason() -> str | None:
        found = links(downstream, "lives")
        return found[0].reason or None if found else None

    words = eventually(reason, "the link says why it fails")
    assert "refused" in words and "wrong" not in words
    assert "up-lives" in command(downstream, "federation", "status")
    federate(downstream, upstream, "lives")
    eventually(lambda: state(downstream, "lives") == "running" or None, "the new URI is used")
    command(downstream, "policies", "clear", "fed-lives")
    eventually(lambda: not links(downstream, "lives") or None, "no policy, no link")
    federate(downstream, upstream, "lives")
    eventually(lambda: state(downstream, "lives") == "running" or None, "it is back")
    with downstream.connect() as connection:
        connection.channel().queue_delete("lives")
    eventually(lambda: not links(downstream, "lives") or None, "no queue, no link")


@pytest.mark.parametrize("trusted", [False, True])
def test_the_user_of_a_message_is_kept_only_when_it_is_trusted(
    two: tuple[Broker, Broker], trusted: bool
) -> None:
    upstream, downstream = two
    queue = f"trust-{trusted}"
    declare(upstream, queue, 1, user_id="guest")
    declare(downstream, queue)
    federate(downstream, upstream, queue, **{"trust-user-id": trusted})
    ((properties, _),) = consume(downstream, queue, 1)
    assert properties.user_id == ("guest" if trusted else None)


@pytest.mark.specification(
    "federated-queues: Federated queues cannot currently cause messages to traverse"
)
def test_messages_do_not_pass_through_a_queue_without_consumers(two: tuple[Broker, Broker]) -> None:
    upstream, downstream = two
    declare(upstream, "first", 3)
    for queue in ("second", "third"):
        declare(downstream, queue)
    federate(downstream, upstream, "second", queue="first")
    federate(downstream, downstream, "third", queue="second")
    for queue in ("second", "third"):
        eventually(lambda queue=queue: state(downstream, queue) == "running" or None, "runs")
    with downstream.connect() as connection:
        connection.channel().basic_consume("third", lambda *delivery: None)
        eventually(lambda: consumers(downstream, "second") == 1 or None, "the second link consumes")
        assert (ready(upstream, "first"), consumers(upstream, "first")) == (3, 0)
        # With a consumer between them they move there.
        assert len(consume(downstream, "second", 3)) >= 3


def publish(broker: Broker, queue: str, count: int, **properties: Any) -> None:
    """Publish to a queue that is there."""
    with broker.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for i in range(count):
            channel.basic_publish("", queue, b"%d" % i, pika.BasicProperties(**properties))


def make(broker: Broker, queue: str, arguments: dict[str, Any]) -> None:
    """Declare a queue with arguments."""
    with broker.connect() as connection:
        connection.channel().queue_declare(queue, durable=True, arguments=arguments)


def is_running(broker: Broker, queue: str) -> None:
    """Wait until the queue's link runs."""
    eventually(lambda: state(broker, queue) == "running" or None, f"the link of {queue} runs")


@pytest.mark.long
def test_what_a_circle_brings_back_to_a_queue_with_deduplication_is_dropped(
    two: tuple[Broker, Broker],
) -> None:
    one, other = two
    for broker in two:
        make(broker, "once", {"x-deduplication": True})
    for broker, upstream in (two, (other, one)):
        federate(broker, upstream, "once")
        is_running(broker, "once")
    for name in ("a", "b", "c"):
        publish(one, "once", 1, headers={"x-deduplication-id": name})
    with other.connect() as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume("once", lambda *delivery: None)
        eventually(lambda: ready(one, "once") == 0 or None, "all have moved")
        eventually(lambda: ready(other, "once") == 2 or None, "one is held")
    eventually(lambda: consumers(other, "once") == 0 or None, "the consumer has gone")
    with one.connect() as connection, Connection(one.cluster.uri) as operator:
        connection.channel().basic_consume("once", lambda *delivery: None)
        shown = Admin(operator)

        def dropped() -> bool | None:
            return shown.queues.get("once").duplicates_dropped == 3 or None

        eventually(dropped, "they are duplicates")
        assert (shown.queues.get("once").messages, ready(other, "once")) == (0, 0)


def test_an_upstream_queue_that_is_auto_delete_ends_with_the_demand(
    two: tuple[Broker, Broker],
) -> None:
    """Of many: the link brings 15 to 30 until it hears on a busy machine that the demand ended."""
    upstream, downstream = two
    count = 1_000
    fill(upstream, "fleeting", count, auto_delete=True)
    declare(downstream, "fleeting")
    federate(downstream, upstream, "fleeting", **{"prefetch-count": 5})
    is_running(downstream, "fleeting")
    with downstream.connect() as connection, Connection(upstream.cluster.uri) as operator:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume("fleeting", lambda *delivery: None)

        def is_deleted() -> bool | None:
            return not Admin(operator).queues.list("^fleeting$") or None

        eventually(is_deleted, "it ends, with what it had")
    assert 0 < ready(downstream, "fleeting") < count


def said(broker: Broker, queue: str) -> str:
    """Wait until the queue's link says why it fails."""

    def reason() -> str | None:
        found = links(broker, queue)
        return found[0].reason or None if found else None

    return str(eventually(reason, f"the link of {queue} says why it fails"))


def test_a_limit_of_connections_refuses_a_link_in_words_until_it_is_raised(
    two: tuple[Broker, Broker],
) -> None:
    """The state said that the vhost is missing or refused."""
    upstream, downstream = two
    declare(upstream, "unconnected")
    declare(downstream, "unconnected")
    assert downstream.cluster is not None
    with Connection(downstream.cluster.address) as connection:
        admin = Admin(connection)
        admin.limits.put("vhost", "/", "max-connections", 0)
        try:
            federate(downstream, upstream, "unconnected")
            assert "connection limit (0) is reached" in said(downstream, "unconnected")
        finally:
            admin.limits.clear("vhost", "/")
    is_running(downstream, "unconnected")


@pytest.mark.specification("federated-queues: a message will have its timer reset")
@pytest.mark.long
def test_the_time_to_live_begins_again_with_a_move(two: tuple[Broker, Broker]) -> None:
    with_time_enough(lambda ttl_s: moved_at_half_its_life(*two, ttl_s), 10)


def moved_at_half_its_life(upstream: Broker, downstream: Broker, ttl_s: float) -> None:
    ttl_ms = round(ttl_s * 1000)
    by_queue, by_message = {"x-message-ttl": ttl_ms}, str(ttl_ms)
    limited, plain, half, whole = (f"ttl-{what}-{ttl_s:g}" for what in ("q", "m", "half", "whole"))
    for broker in (upstream, downstream):
        make(broker, limited, by_queue)
        make(broker, plain, {})
    for queue in (limited, plain):
        federate(downstream, upstream, queue)
        is_running(downstream, queue)
    for clock in (half, whole):
        make(upstream, clock, {})
    begun = time.monotonic()
    publish(upstream, limited, 1)
    publish(upstream, plain, 1, expiration=by_message)
    publish(upstream, half, 1, expiration=str(ttl_ms // 2))
    publish(upstream, whole, 1, expiration=by_message)
    eventually(lambda: ready(upstream, half) == 0 or None, "half of the time is over")
    with downstream.connect() as connection:
        channel = connection.channel()
        held: list[bytes] = []
        for queue in (limited, plain):
            channel.basic_consume(queue, lambda c, m, p, body: held.append(body))
        while len(held) < 2:
            connection.process_data_events(1)
            if len(held) < 2 and time.monotonic() > begun + ttl_s:
                raise TooSlow("they may have died upstream")
    # The consumer has gone without acknowledging: both messages are ready here.
    eventually(lambda: ready(upstream, whole) == 0 or None, "upstream they would be dead")
    with in_time(begun + 1.5 * ttl_s):
        assert (ready(downstream, limited), ready(downstream, plain)) == (1, 1)
    for queue in (limited, plain):
        eventually(lambda queue=queue: ready(downstream, queue) == 0 or None, "they die here too")


@pytest.mark.specification("federated-queues: Each individual queue applies its arguments")
def test_a_length_limit_holds_for_its_own_queue_only(two: tuple[Broker, Broker]) -> None:
    upstream, downstream = two
    make(upstream, "length", {})
    make(downstream, "length", {"x-max-length": 2})
    federate(downstream, upstream, "length")
    is_running(downstream, "length")
    publish(upstream, "length", 10)
    publish(downstream, "length", 10)
    assert (ready(upstream, "length"), ready(downstream, "length")) == (10, 2)
    found = consume(downstream, "length", 10)
    assert [body for _, body in found][:2] == [b"8", b"9"]  # the local ones that were kept
    assert [body for _, body in found[2:]] == [b"%d" % i for i in range(len(found) - 2)]


def test_a_claim_is_no_demand(two: tuple[Broker, Broker]) -> None:
    upstream, downstream = two
    for queue in ("claimed", "after-claim"):
        declare(upstream, queue, 5)
        declare(downstream, queue)
        federate(downstream, upstream, queue)
        is_running(downstream, queue)
    publish(downstream, "claimed", 2)
    assert downstream.cluster is not None
    with Connection(downstream.cluster.address) as connection:
        reader = ClaimReader(connection, "claimed", "reader")
        position = reader.register().settled
        assert reader.open(position + 1, max_messages=10, max_bytes=1 << 20).messages == 2
        # The demand of all queues is looked at together: that of another one was seen since.
        consume(downstream, "after-claim", 5)
        assert (ready(upstream, "claimed"), consumers(upstream, "claimed")) == (5, 0)


def test_demand_that_comes_and_goes_counts_no_delivery_upstream(two: tuple[Broker, Broker]) -> None:
    upstream, downstream = two
    count = 300
    make(upstream, "limited", {"x-queue-type": "quorum", "x-delivery-limit": 1})
    make(downstream, "limited", {})
    federate(downstream, upstream, "limited", **{"prefetch-count": 20})
    publish(upstream, "limited", count)
    is_running(downstream, "limited")
    for taken in range(0, count, 20):  # each consumer that comes and goes begins and ends a demand
        found = consume(downstream, "limited", 20, prefetch=1)
        assert [body for _, body in found] == [b"%d" % i for i in range(taken, taken + 20)]
    assert not any(hop["redelivered"] for p, _ in found for hop in p.headers["x-received-from"])
    assert ready(upstream, "limited") == 0


def test_uris_are_tried_in_turn_and_a_link_connects_again(two: tuple[Broker, Broker]) -> None:
    upstream, downstream = two
    assert upstream.cluster is not None
    declare(downstream, "turns")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        dead = f"amqp://guest:guest@127.0.0.1:{closed.getsockname()[1]}"
        federate(downstream, upstream, "turns", uri=dead)
        assert "refused" in said(downstream, "turns").lower()
        federate(downstream, upstream, "turns", uri=[dead, upstream.uris[0]])
        is_running(downstream, "turns")
        upstream.cluster.kill(0)
        eventually(lambda: state(downstream, "turns") != "running" or None, "it has noticed")
        assert said(downstream, "turns")
        upstream.cluster.start(0)
        is_running(downstream, "turns")
        publish(upstream, "turns", 3)
        assert len(consume(downstream, "turns", 3)) == 3


@pytest.mark.specification("federated-queues: The federated queue will connect to all its upstream")
def test_a_link_over_tls_checks_the_certificate(two: tuple[Broker, Broker], tmp_path: Path) -> None:
    _, downstream = two
    other = Authority(tmp_path / "other")
    with TlsBroker(tmp_path) as far:
        upstream = Broker((f"amqp://guest:guest@127.0.0.1:{far.plain_port}/%2F",), far.cluster)
        bodies = declare(upstream, "secured", 5)
        declare(downstream, "secured")
        uri = f"amqps://guest:guest@127.0.0.1:{far.port}/%2F?cacertfile="
        federate(downstream, upstream, "secured", uri=f"{uri}{other.cert}")
        assert "certificate" in said(downstream, "secured")
        assert state(downstream, "secured") == "terminated"
        federate(downstream, upstream, "secured", uri=f"{uri}{far.authority.cert}")
        assert [body for _, body in consume(downstream, "secured", 5)] == bodies
        command(downstream, "policies", "clear", "fed-secured")
        eventually(lambda: not links(downstream, "secured") or None, "the link ends")


def links(broker: Broker, queue: str) -> list[Any]:
    """The links of a queue."""
    assert broker.cluster is not None
    with Connection(broker.cluster.address) as connection:
        return [one for one in Admin(connection).federation.links() if one.dest_queue == queue]


def state(broker: Broker, queue: str) -> str:
    """The state of a queue's only link; "": it has none yet."""
    found = links(broker, queue)
    assert len(found) < 2
    return found[0].state if found else ""
