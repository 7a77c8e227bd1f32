"""Shovels with ends over AMQP 1.0 on real nodes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from proton import Message
from proton.utils import BlockingConnection

from live.conftest import Broker, eventually
from live.shovels import clean, fill, gone, shows, taken, worker_pids
from warren.admin import Admin

pytestmark = pytest.mark.live
OVER_10 = {"src-protocol": "amqp10", "dest-protocol": "amqp10"}


@pytest.fixture
def admin(admin: Admin) -> Iterator[Admin]:
    """It deletes all shovels and their queues after the test."""
    yield admin
    clean(admin)


def ends(source: str, target: str, **more: Any) -> dict[str, Any]:
    """A shovel's value between two queues of this cluster; 10 in a name: over AMQP 1.0."""
    value: dict[str, Any] = {"src-uri": "amqp://", "dest-uri": "amqp://"}
    for side, queue in (("src", source), ("dest", target)):
        if side in more.get("over_10", ()):
            value |= {f"{side}-protocol": "amqp10", f"{side}-address": f"/queues/shovel-{queue}"}
        else:
            value[f"{side}-queue"] = f"shovel-{queue}"
    return value


def test_messages_keep_their_properties_through_any_mix_of_protocols(
    broker: Broker, admin: Admin
) -> None:
    said = {"message_id": "m", "headers": {"k": 1}, "priority": 3, "delivery_mode": 2}
    bodies = fill(broker, "shovel-a", 40, **said)
    for name in "bcd":
        admin.queues.declare(f"shovel-{name}")
    marks = {"dest-add-forward-headers": True, "dest-add-timestamp-header": True}
    first = {**ends("a", "b", over_10=("dest",)), **marks, "src-delete-after": 40}
    added = {"dest-application-properties": {"app": "set"}, "dest-properties": {"subject": "s"}}
    second = {**ends("b", "c", over_10=("src", "dest")), **added, "src-delete-after": 40}
    third = {**ends("c", "d", over_10=("src",)), "src-delete-after": 40, "src-prefetch-count": 7}
    for name, value in (("first", first), ("second", second), ("third", third)):
        admin.parameters.put("shovel", "/", name, value)
    eventually(lambda: not admin.shovels.list("/") or None, "everything has moved through all")
    found = taken(broker, "shovel-d")
    assert sorted(body for _, body in found) == sorted(bodies)
    properties = found[0][0]
    assert (properties.message_id, properties.priority, properties.delivery_mode) == ("m", 3, 2)
    headers = properties.headers
    assert headers.pop("x-opt-shovelled-timestamp") > 1_700_000_000_000
    assert headers == {
        "k": 1,
        "app": "set",
        "x-opt-shovelled-by": "local",
        "x-opt-shovel-type": "dynamic",
        "x-opt-shovel-name": "first",
    }
    assert [admin.queues.get(f"shovel-{name}").messages for name in "abcd"] == [0] * 4


def test_the_queues_that_a_message_names_get_it_once(broker: Broker, admin: Admin) -> None:
    """Before, a link to one queue had the annotation x-cc, and they got it again with each hop."""
    for name in "abcd":
        admin.queues.declare(f"shovel-{name}")
    bodies = fill(broker, "shovel-a", 10, headers={"CC": ["shovel-c"], "k": 1})
    for hop in (ends("a", "b", over_10=("dest",)), ends("b", "d", over_10=("src", "dest"))):
        admin.parameters.put("shovel", "/", "hop", {**hop, "src-delete-after": 10})
        eventually(lambda: not admin.shovels.list("/") or None, "everything has moved")
    found = taken(broker, "shovel-d")
    assert sorted(body for _, body in found) == sorted(bodies)
    assert {str(properties.headers) for properties, _ in found} == {"{'k': 1}"}
    assert sorted(body for _, body in taken(broker, "shovel-c")) == sorted(bodies)


@pytest.mark.parametrize("over_10", [(), ("src",), ("dest",)])
def test_properties_named_as_keys_do_not_hold_up_a_shovel(
    broker: Broker, admin: Admin, over_10: tuple[str, ...]
) -> None:
    """Over AMQP 1.0 they are properties as any other; a header CC that is no list is refused."""
    for name in "abc":
        admin.queues.declare(f"shovel-{name}")
    own = Message(body=b"x", properties={"CC": "shovel-c", "BCC": "shovel-c", "k": 1})
    place = broker.cluster.addresses[0]
    connection = BlockingConnection(f"amqp://{place}", user="guest", password="guest")
    connection.create_sender("/queues/shovel-a").send(own)
    connection.close()
    admin.parameters.put("shovel", "/", "mine", ends("a", "b", over_10=over_10))
    eventually(lambda: admin.queues.get("shovel-b").messages or None, "it has moved")
    ((properties, _),) = taken(broker, "shovel-b")
    assert (properties.headers["k"], admin.queues.get("shovel-c").messages) == (1, 0)


def test_what_is_wrong_at_a_link_is_said_in_words(broker: Broker, admin: Admin) -> None:
    fill(broker, "shovel-a", 1)
    place = broker.cluster.addresses[0]
    wrong: dict[str, tuple[dict[str, Any], str]] = {
        "login": ({"src-uri": f"amqp://guest:none@{place}"}, "user or password is refused"),
        "port": ({"src-uri": "amqp://127.0.0.1:1"}, "src-uri amqp://guest@127.0.0.1:1/%2F: Conn"),
        "host": ({"dest-uri": "amqp://no.invalid"}, "the host's name has no address"),
        "queue": ({"src-address": "/queues/shovel-none"}, "amqp:not-found: no queue 'shovel-none'"),
        "target": ({"dest-address": "/queues/shovel-none"}, "dest-uri amqp:///%2F: amqp:not"),
        "address": ({"dest-address": "b"}, "amqp:invalid-field"),
    }
    admin.queues.declare("shovel-b")
    for name, (more, _) in wrong.items():
        admin.parameters.put(
            "shovel", "/", name, {**ends("a", "b", over_10=("src", "dest")), **more}
        )
    for name, (_, reason) in wrong.items():
        found = shows(
            admin, name, lambda one, reason=reason: reason in one.reason, f"{name}: {reason}"
        )  # type: ignore[misc]
        assert found.forwarded == 0 and found.src_protocol == "amqp10"
    assert admin.queues.get("shovel-a").messages == 1


def test_a_link_that_refuses_or_ends_loses_nothing(broker: Broker, admin: Admin) -> None:
    bodies = fill(broker, "shovel-a", 5)
    admin.queues.declare("shovel-b", arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    admin.parameters.put("shovel", "/", "mine", ends("a", "b", over_10=("src", "dest")))
    shows(admin, "mine", lambda one: one.blocked_status == "refused", "the queue is full")
    assert admin.queues.get("shovel-a").messages >= 1, "what is refused is not acknowledged"
    found = []

    def moved() -> bool | None:
        found.extend(body for _, body in taken(broker, "shovel-b"))
        return admin.queues.get("shovel-a").messages == 0 or None

    eventually(moved, "refused messages are published again")
    found += [body for _, body in taken(broker, "shovel-b")]
    assert sorted(found) == sorted(bodies)
    admin.queues.delete("shovel-b")
    more = fill(broker, "shovel-a", 3)
    shows(admin, "mine", lambda one: "shovel-b" in one.reason, "the reason is told")
    eventually(lambda: admin.queues.get("shovel-a").messages == 3 or None, "they are still there")
    admin.queues.declare("shovel-b")
    eventually(lambda: admin.queues.get("shovel-b").messages == 3 or None, "it attaches again")
    assert sorted(body for _, body in taken(broker, "shovel-b")) == sorted(more)


def test_a_message_that_a_link_refuses_is_dead_lettered_alone(broker: Broker, admin: Admin) -> None:
    admin.users.put("shovel-mover", password="p")
    admin.permissions.put("/", "shovel-mover", configure=".*", write=".*", read=".*")
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "shovel-letters"}
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": 2, **letters}
    admin.queues.declare("shovel-a", arguments=arguments)
    for name in ("shovel-letters", "shovel-b"):
        admin.queues.declare(name)
    with broker.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(40):
            refused = {"user_id": "guest", "message_id": "bad"} if number == 15 else {}
            properties = pika.BasicProperties(**refused)
            channel.basic_publish("", "shovel-a", f"{number}".encode(), properties)
    value = {**ends("a", "b", over_10=("src", "dest")), "dest-uri": "amqp://shovel-mover:p@/%2F"}
    admin.parameters.put("shovel", "/", "mine", value)
    shows(admin, "mine", lambda one: "message-id 'bad'" in one.reason, "the message is named")
    eventually(lambda: admin.queues.get("shovel-a").messages == 0 or None, "the others are moved")
    assert [body for _, body in taken(broker, "shovel-letters")] == [b"15"]
    found = {body for _, body in taken(broker, "shovel-b")}
    assert found == {f"{number}".encode() for number in range(40)} - {b"15"}
    admin.users.delete("shovel-mover")


@pytest.mark.long
@pytest.mark.parametrize("over_10", [("src", "dest"), ("src",), ("dest",)])
def test_a_killed_process_is_replaced_and_each_message_comes_once(
    broker: Broker, admin: Admin, over_10: tuple[str, ...]
) -> None:
    """Before: at most src-prefetch-count came twice where an end was over AMQP 1.0."""
    bodies = fill(broker, "shovel-a", 2_000)
    admin.queues.declare("shovel-b")
    value = {**ends("a", "b", over_10=over_10), "src-prefetch-count": 100}
    admin.parameters.put("shovel", "/", "mine", value)
    nodes = [one.name for one in broker.cluster.nodes]
    killed = 0
    while killed < 3 and admin.queues.get("shovel-a").messages:
        before = admin.queues.get("shovel-b").messages
        eventually(
            lambda at=before: admin.queues.get("shovel-b").messages > at or None, "it moves them"
        )
        node = admin.shovels.get("/", "mine").node
        for worker in worker_pids(broker.cluster.pid(nodes.index(node))):
            os.kill(worker, signal.SIGKILL)
            killed += 1
    assert killed
    eventually(lambda: admin.queues.get("shovel-a").messages == 0 or None, "it moves the rest")
    moved = [body for _, body in taken(broker, "shovel-b")]
    assert sorted(moved) == sorted(bodies)
    admin.shovels.delete("/", "mine")
    assert gone(admin, "mine")


def test_a_shovel_that_is_paused_again_and_again_fails_no_delivery(
    broker: Broker, admin: Admin
) -> None:
    """Before: what was under way counted as failed, and a delivery limit dead-lettered it."""
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": 1}
    admin.queues.declare("shovel-a", arguments=arguments)
    bodies = [f"{number}".encode() for number in range(30)]
    with broker.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for body in bodies:
            channel.basic_publish("", "shovel-a", body)
    full = {"x-max-length": 2, "x-overflow": "reject-publish"}
    admin.queues.declare("shovel-b", arguments=full)
    admin.parameters.put("shovel", "/", "mine", ends("a", "b", over_10=("src", "dest")))
    for _ in range(4):
        shows(admin, "mine", lambda one: one.blocked_status == "refused", "the queue is full")
        admin.shovels.pause("/", "mine")
        shows(admin, "mine", lambda one: one.state == "paused", "it is paused")
        admin.shovels.pause("/", "mine", False)
    moved: list[bytes] = []

    def all_moved() -> bool | None:
        moved.extend(body for _, body in taken(broker, "shovel-b"))
        return len(moved) >= len(bodies) or None

    eventually(all_moved, "none was dropped")
    assert sorted(moved) == sorted(bodies)
