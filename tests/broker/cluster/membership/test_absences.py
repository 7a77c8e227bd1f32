"""An unreachable node holds up no client that has nothing to do with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker.cluster.membership.clusters import begun, declare
from broker.cluster.membership.test_incarnations import Nobody
from broker.cluster.universe import Universe
from warren_broker.access import requests
from warren_broker.cluster.client.routed_runs import PublishedRun
from warren_machines.metadata import commands as metadata
from warren_machines.metadata.commands import QueueIs
from warren_machines.queue.commands import Checkout, Count, Get, Purge, StatReply
from warren_wire import errors
from warren_wire.kernel import PRIORITY_DEFAULT, TTL_NONE, MessageTable, Route

PATIENCE_MS = 60_000
HOME_DOWN = "home node 'c' of durable queue 'lasting' in vhost '/' is down or inaccessible"


@pytest.fixture
def universe() -> Iterator[Universe]:
    """Node c alone has an exclusive, two transient (one auto-delete) and a durable classic queue;
    the first three and the quorum queue q are bound to a fanout exchange."""
    made = begun()
    at_c(made, "own", exclusive=True)
    at_c(made, "transient", durable=False)
    at_c(made, "deleting", durable=False, auto_delete=True)
    at_c(made, "lasting", arguments={"x-queue-type": "classic"})
    define(made, metadata.DeclareExchange("/", "fan", "fanout"))
    for name in ("q", "own", "transient", "deleting"):
        define(made, metadata.Bind("/", "fan", name, True, connection=5 if name == "own" else 0))
    publish(made, "fan").all_confirmed()
    yield made
    made.close()


def at_c(universe: Universe, name: str, **more: Any) -> None:
    """A queue declared through c."""
    given = {"durable": True, "exclusive": False, "auto_delete": False, "arguments": {}, **more}
    answer = universe.call(
        "c",
        lambda broker, done: broker.declare_queue(
            "/", name, connection=5, server_named=False, done=done, **given
        ),
    )
    assert isinstance(answer, QueueIs) and answer.queue.home == "c", answer


def define(universe: Universe, command: Any) -> None:
    """Change the definitions through c."""
    answer = universe.call("c", lambda broker, done: broker.definitions.submit(command, done))
    assert isinstance(answer, metadata.MetadataDone | metadata.BindingIs), answer


class Published(PublishedRun):
    """What a publisher on node a hears."""

    def __init__(self, universe: Universe) -> None:
        self.universe = universe
        self.parts: int | None = None
        self.heard: dict[int, bool] = {}

    confirms = True

    def routed(self, parts: Any) -> Any:
        self.parts = len(parts)
        return parts

    def confirmed(self, number: int, part: Any, ok: bool, refused: Any) -> None:
        assert number not in self.heard, "a confirm that came twice"
        self.heard[number] = ok

    @property
    def complete(self) -> bool:
        return self.parts is not None and len(self.heard) == self.parts

    def all_confirmed(self) -> bool:
        """Wait for every part; whether all have it."""
        self.universe.until(lambda: self.complete, "every part is answered")
        return all(self.heard.values())


def publish(universe: Universe, exchange: str, key: str = "", node: str = "a") -> Published:
    """One message."""
    published = Published(universe)
    table = MessageTable()
    route = Route(exchange.encode(), key.encode(), False)
    table.append(route, b"\0\0", b"body", PRIORITY_DEFAULT, TTL_NONE, 0)
    one = universe.running[node]
    one.loop.call_soon(lambda: one.broker.publishing.publish("/", table, 0, 1, published))
    universe.step()
    return published


def names(universe: Universe, node: str = "a") -> list[str]:
    """The queues that are defined there."""
    return sorted(queue.name for queue in universe.running[node].broker.definitions.state.queues())


def ready(universe: Universe) -> int:
    """Messages ready in q."""
    answer = universe.call(
        "a",
        lambda broker, done: broker.queue_counts(
            broker.definitions.state.queue("/", "q"), False, done
        ),
    )
    assert isinstance(answer, StatReply), answer
    return answer.messages_ready


def for_one_step(universe: Universe, parts: int) -> None:
    """A publish is confirmed without waiting for anything but the quorum queue's majority."""
    published = publish(universe, "fan")
    began = universe.now
    assert published.all_confirmed() and published.parts == parts
    assert universe.now - began < 500, universe.now - began


@pytest.mark.parametrize("leave", [Universe.kill, Universe.cut_off])
def test_its_passing_queues_take_no_part_in_routing(universe: Universe, leave: Any) -> None:
    leave(universe, "c")
    universe.step()
    for_one_step(universe, 1)
    assert ready(universe) == 2
    published = publish(universe, "", "transient")
    assert published.parts == 0, "unroutable"


@pytest.mark.parametrize("leave", [Universe.kill, Universe.cut_off])
def test_what_is_under_way_to_them_is_not_waited_for(universe: Universe, leave: Any) -> None:
    one = universe.running["a"]
    # 1. The messages leave for c.  2. They are lost with the connection.  3. c is suspected.
    published = publish(universe, "fan")
    universe.mail = [letter for letter in universe.mail if letter[1] != "c"]
    assert not published.complete
    leave(universe, "c")
    universe.step()
    assert published.all_confirmed() and published.parts == 4
    # Publishers would wait for what counts here.
    universe.until(lambda: not one.cluster.in_flight.size_bytes, "nothing is counted as under way")


@pytest.mark.specification("mirrored-queues: A non-durable one will be deleted")
def test_they_are_deleted_at_once_when_its_process_is_gone(universe: Universe) -> None:
    universe.kill("c")
    began = universe.now
    universe.until(lambda: names(universe) == ["lasting", "q"], "they are deleted")
    assert universe.now - began < 2_000


def test_they_are_deleted_after_the_timeout_when_it_is_silent(universe: Universe) -> None:
    universe.cut_off("c")
    began = universe.now
    universe.until(lambda: names(universe) == ["lasting", "q"], "they are deleted")
    assert PATIENCE_MS <= universe.now - began < PATIENCE_MS + 2_000


def test_they_are_deleted_when_whoever_led_the_definitions_dies_before(universe: Universe) -> None:
    if universe.logs[0].leader == "c":
        universe._elect(universe.logs[0], "a")
    universe.cut_off("c")
    universe.until(lambda: universe.logs[0].leader not in (None, "c"), "another one leads")
    leader = universe.logs[0].leader
    assert leader is not None
    began = universe.now
    universe.until(lambda: universe.now - began > PATIENCE_MS / 2, "half the time is over")
    other = "a" if leader == "b" else "b"
    universe._elect(universe.logs[0], other)
    universe.until(lambda: names(universe, other) == ["lasting", "q"], "they are deleted")
    assert universe.now - began < 2 * PATIENCE_MS


def test_one_that_is_back_in_time_has_its_queues_and_what_was_under_way(
    universe: Universe,
) -> None:
    universe.cut_off("c")
    universe.step()
    for_one_step(universe, 1)
    universe.cut.clear()
    universe.until(lambda: universe.running["a"].host.connected("c"), "it is heard of again")
    for_one_step(universe, 4)
    assert {"own", "transient", "deleting"} <= set(names(universe))
    one = universe.running["a"]
    universe.until(lambda: one.cluster.in_flight.size_bytes == 0, "everything is answered")


def test_the_owner_of_a_queue_that_was_deleted_meanwhile_is_told(universe: Universe) -> None:
    told: list[str] = []

    class Owner(Nobody):
        def cancelled(self, consumer: int, reason: str, timeout_ms: int | None) -> None:
            told.append(reason)

    def consume(broker: Any, done: Any) -> None:
        queue = broker.queues.find("/", "own", 5)
        command = Checkout(broker.ids.consumer(), 1, "t", 10)
        broker.consuming.checkout(queue, command, Owner(), done)

    assert universe.call("c", consume) == requests.RequestDone()
    universe.cut_off("c")
    universe.until(lambda: "own" not in names(universe), "it is deleted")
    universe.cut.clear()
    universe.until(lambda: told == ["deleted"], "the consumer is told")
    assert names(universe, "c") == ["lasting", "q"]


# ------------------------------------------------------------------ durable classic queues


@pytest.mark.parametrize("leave", [Universe.kill, Universe.cut_off])
@pytest.mark.specification("mirrored-queues: A durable queue will become unavailable until")
def test_a_durable_classic_queue_of_it_is_refused_at_once(universe: Universe, leave: Any) -> None:
    leave(universe, "c")
    universe.step()

    def queue(broker: Any) -> Any:
        return broker.definitions.state.queue("/", "lasting")

    began = universe.now
    asked: list[Any] = [
        lambda broker, done: broker.queue_counts(queue(broker), True, done),
        lambda broker, done: broker.purge_queue("/", "lasting", 0, done),
        lambda broker, done: broker.consuming.get(queue(broker), Get(7, 1), done),
        lambda broker, done: broker.consuming.checkout(
            queue(broker), Checkout(8, 1, "t", 1), Nobody(), done
        ),
        lambda broker, done: broker.queues.ask(queue(broker), Purge(), done),
    ]
    for call in asked:
        answer = universe.call("a", call)
        assert isinstance(answer, errors.HomeNodeDown) and answer.detail == HOME_DOWN
        assert (answer.reply_code, answer.ends) == (404, "channel")
    assert universe.now - began < 500


def test_what_is_published_to_it_is_refused_and_the_other_queues_have_it(
    universe: Universe,
) -> None:
    define(universe, metadata.Bind("/", "fan", "lasting", True))
    universe.until(lambda: publish(universe, "fan").parts == 5, "a knows the binding")
    before = ready(universe)
    universe.kill("c")
    universe.step()
    published = publish(universe, "fan")
    assert not published.all_confirmed() and sorted(published.heard.values()) == [False, True]
    assert ready(universe) == before + 1


def test_what_was_under_way_to_it_is_refused(universe: Universe) -> None:
    published = publish(universe, "", "lasting")
    universe.mail.clear()
    assert not published.complete
    universe.kill("c")
    universe.step()
    assert published.heard == {0: False}


def test_what_was_asked_of_it_before_it_died_is_refused_then(universe: Universe) -> None:
    answers: list[Any] = []
    broker = universe.running["a"].broker
    queue = broker.definitions.state.queue("/", "lasting")
    assert queue is not None
    broker.queues.ask(queue, Purge(), answers.append)
    broker.queue_counts(queue, True, answers.append)
    universe.kill("c")
    universe.step()
    assert [type(answer) for answer in answers] == [errors.HomeNodeDown] * 2


def test_a_consumer_that_was_refused_meanwhile_keeps_no_message(
    universe: Universe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "warren_broker.cluster.client.uplink.COMMANDS_MAX", 1
    )  # each in its own entry
    assert publish(universe, "", "lasting").all_confirmed()
    answers: list[Any] = []
    consuming = universe.running["a"].broker.consuming
    queue = universe.running["a"].broker.definitions.state.queue("/", "lasting")
    assert queue is not None
    consuming.checkout(queue, Checkout(8, 1, "t", 10), Nobody(), answers.append)
    universe.cut_off("c")
    universe.until(lambda: bool(answers), "the consumer is refused")
    assert isinstance(answers[0], errors.HomeNodeDown)
    consuming.session_down(1, False)
    universe.cut.clear()
    universe.until(lambda: universe.running["a"].host.connected("c"), "a hears it again")

    def counted() -> bool:
        found = universe.call("a", lambda broker, done: broker.queue_counts(queue, False, done))
        return isinstance(found, StatReply) and (found.messages_ready, found.consumers) == (1, 0)

    universe.until(counted, "the message is ready again, and there is no consumer")


def test_it_may_be_deleted_while_its_node_is_away_and_does_not_come_back(
    universe: Universe,
) -> None:
    universe.kill("c")
    universe.step()
    answer = universe.call(
        "a", lambda broker, done: broker.delete_queue("/", "lasting", False, True, 0, done)
    )
    assert isinstance(answer, errors.PreconditionFailed), "whether it is empty is not known"
    answer = universe.call(
        "a", lambda broker, done: broker.delete_queue("/", "lasting", False, False, 0, done)
    )
    assert answer == requests.MessageCount(0)
    universe.start("c")
    universe.until(universe.ready, "c is back")
    universe.until(lambda: names(universe, "c") == ["q"], "it has let go of it")


@pytest.mark.parametrize("name", ["lasting", "ending"])
def test_it_is_there_again_with_its_node(universe: Universe, name: str) -> None:
    """A durable auto-delete queue, too, as it has had no consumer that would be its last."""
    at_c(universe, "ending", auto_delete=True, arguments={"x-queue-type": "classic"})
    universe.until(lambda: "ending" in names(universe), "a knows it")
    assert publish(universe, "", name).all_confirmed()
    universe.kill("c")
    universe.until(lambda: "own" not in names(universe), "what ends with its process is deleted")
    refused = publish(universe, "", name)
    assert refused.parts == 1 and not refused.all_confirmed()
    universe.start("c")
    universe.until(universe.ready, "c is back")
    universe.until(lambda: universe.running["a"].host.connected("c"), "a hears it")
    broker = universe.running["a"].broker
    queue = broker.definitions.state.queue("/", name)
    assert queue is not None
    answer = universe.call("a", lambda broker, done: broker.queues.ask(queue, Purge(), done))
    assert answer == Count(1)


def test_a_quorum_queue_of_one_member_waits_for_it(universe: Universe) -> None:
    declare(universe, "single", 1)
    queue = universe.running["a"].broker.definitions.state.queue("/", "single")
    assert queue is not None and queue.home == "" and not queue.passing
