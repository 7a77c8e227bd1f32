"""Policies on a real cluster: over `Admin` and the command line, felt by pika's clients."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pika
import pytest

from live.conftest import Broker, eventually
from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.connection import Connection
from warren.errors import AccessRefused, NotFound, PeerError
from warren.uri import Address

pytestmark = pytest.mark.live


@pytest.fixture
def admin(admin: Admin) -> Iterator[Admin]:
    """It clears all policies after the test."""
    yield admin
    for operator in (False, True):
        for one in admin.policies.list("/", operator=operator):
            admin.policies.delete("/", one.name, operator=operator)


def ready(admin: Admin, queue: str) -> int:
    """Messages that can be delivered."""
    return admin.queues.get(queue).messages_ready


@pytest.fixture
def declared(channel: Any, queue_name: str) -> str:
    """A durable queue, over a channel with confirms."""
    channel.queue_declare(queue_name, durable=True, arguments={"x-queue-type": "quorum"})
    channel.confirm_delivery()
    return queue_name


@pytest.mark.specification("quorum-queues: Adheres to policies")
def test_a_limit_takes_effect_on_a_full_queue_and_ends_with_the_policy(
    admin: Admin, channel: Any, declared: str
) -> None:
    for _ in range(10):
        channel.basic_publish("", declared, b"x")
    admin.policies.put("/", "limit", f"^{declared}$", {"max-length": 4}, apply_to="quorum_queues")
    eventually(lambda: ready(admin, declared) == 4 or None, "the surplus is dropped")
    shown = admin.queues.get(declared)
    assert (shown.policy, shown.operator_policy) == ("limit", "")
    assert shown.effective_policy_definition == {"max-length": 4}
    assert shown.arguments == {"x-queue-type": "quorum"}, (
        "a policy is no argument: a redeclaration without it is equal"
    )
    channel.queue_declare(declared, durable=True)
    rule = {"max-length": 6, "overflow": "reject-publish"}
    admin.policies.put("/", "operators", "^.", rule, operator=True)
    eventually(
        lambda: admin.queues.get(declared).effective_policy_definition == {**rule, "max-length": 4},
        "the lower limit of both, and the operator's overflow",
    )
    eventually(lambda: refused(channel, declared) or None, "the queue is full")
    admin.policies.delete("/", "limit")
    eventually(lambda: not refused(channel, declared) or None, "the operator's 6 hold")
    admin.policies.delete("/", "operators", operator=True)
    eventually(lambda: ready(admin, declared) > 8 or refused(channel, declared), "no limit")
    assert admin.queues.get(declared).effective_policy_definition == {}


def refused(channel: Any, queue: str) -> bool | None:
    """Publish; whether it was nacked."""
    try:
        channel.basic_publish("", queue, b"x")
    except pika.exceptions.NackError:
        return True
    return None


def test_dead_letters_and_a_ttl_by_policy(admin: Admin, channel: Any, queue_name: str) -> None:
    dead = f"{queue_name}.dead"
    channel.queue_declare(queue_name, durable=True)
    channel.queue_declare(dead, durable=True)
    definition = {
        "dead-letter-exchange": "",
        "dead-letter-routing-key": dead,
        "message-ttl": 50,
    }
    admin.policies.put("/", "die", f"^{queue_name}$", definition, apply_to="queues")

    def expired() -> Any:
        # A message published before the policy took effect has no time to live, and keeps those
        # behind it from expiring.
        channel.queue_purge(queue_name)
        channel.basic_publish("", queue_name, b"x")
        for _ in range(20):
            got = channel.basic_get(dead, True)
            if got[0]:
                return got
            time.sleep(0.05)
        return None

    _, properties, body = eventually(
        expired,
        "the message expires and is dead-lettered",
    )
    assert body == b"x" and properties.headers["x-death"][0]["reason"] == "expired"
    admin.policies.delete("/", "die")
    channel.queue_delete(dead)


@pytest.mark.specification("quorum-queues: Policies provide a way to configure delayed retry")
def test_delayed_retry_by_policy_begins_and_ends_with_it(
    admin: Admin, channel: Any, declared: str
) -> None:
    channel.basic_publish("", declared, b"x")
    definition = {"delayed-retry-type": "all", "delayed-retry-min": 600_000}
    admin.policies.put("/", "retry", f"^{declared}$", definition, apply_to="quorum_queues")
    eventually(
        lambda: admin.queues.get(declared).delayed_retry == "all (min: 600000ms, max: 600000ms)",
        "the definitions have the policy",
    )

    def returned_and_delayed() -> bool:
        """Return it: the definitions have the policy, and the queue's leader soon follows them."""
        got, _, _ = channel.basic_get(declared)
        if got is not None:
            channel.basic_nack(got.delivery_tag, requeue=True)
        return got is None and admin.queues.get(declared).messages_delayed == 1

    eventually(returned_and_delayed, "the message is delayed")
    admin.policies.delete("/", "retry")
    eventually(lambda: admin.queues.get(declared).delayed_retry == "disabled", "the policy ends")
    assert admin.queues.get(declared).messages_delayed == 1, "what is delayed keeps its time"
    assert admin.delayed.retry(declared) == 1

    def returned_and_ready() -> bool:
        """Return it; a queue that has the policy yet delays it once more."""
        got, _, _ = eventually(
            lambda: next((got for got in [channel.basic_get(declared)] if got[0]), None),
            "the message to retry",
        )
        channel.basic_nack(got.delivery_tag, requeue=True)
        info = eventually(
            lambda: next(
                (i for i in [admin.queues.get(declared)] if i.messages_ready + i.messages_delayed),
                None,
            ),
            "it is back",
        )
        if info.messages_delayed:
            assert admin.delayed.retry(declared) == 1
        return info.messages_ready == 1

    eventually(returned_and_ready, "it is ready at once")
    with pytest.raises(PeerError, match="delayed-retry-min is required when delayed-retry-type"):
        admin.policies.put("/", "retry", "^q", {"delayed-retry-type": "all"})


def test_a_queue_that_is_declared_under_a_policy_has_it_from_its_first_message(
    admin: Admin, channel: Any, queue_name: str
) -> None:
    definition = {"max-length": 2, "overflow": "reject-publish"}
    admin.policies.put("/", "first", f"^{queue_name}$", definition)
    channel.queue_declare(queue_name, durable=True)
    channel.confirm_delivery()
    assert [refused(channel, queue_name) for _ in range(4)] == [None, None, True, True]


def test_an_alternate_exchange_by_policy(admin: Admin, channel: Any, queue_name: str) -> None:
    exchange, rest = f"{queue_name}.x", f"{queue_name}.rest"
    channel.queue_declare(queue_name, durable=True)
    channel.exchange_declare(exchange, "direct")
    channel.exchange_declare(rest, "fanout")
    channel.queue_bind(queue_name, rest)
    channel.basic_publish(exchange, "nowhere", b"lost")
    definition = {"alternate-exchange": rest}
    admin.policies.put("/", "ae", f"^{exchange}$", definition, apply_to="exchanges")
    channel.basic_publish(exchange, "nowhere", b"kept")
    got = eventually(
        lambda: next((got for got in [channel.basic_get(queue_name, True)] if got[0]), None),
        "what is unroutable",
    )
    assert got[2] == b"kept"
    for name in (exchange, rest):
        channel.exchange_delete(name)


def test_what_cannot_be_set_is_refused(admin: Admin) -> None:
    for definition, text in (
        ({"max-length": -1}, "-1 is not a valid maximum length"),
        ({"no-such-key": 1}, 'no-such-key">>,1}\\] are not recognised policy settings'),
    ):
        with pytest.raises(PeerError, match=text):
            admin.policies.put("/", "bad", ".*", definition)
    with pytest.raises(PeerError, match="pattern should be regular expression"):
        admin.policies.put("/", "bad", "(", {"max-length": 1})
    with pytest.raises(NotFound, match="no policy 'bad'"):
        admin.policies.delete("/", "bad")
    assert not admin.policies.list()


def test_a_policymaker_may_set_policies_and_no_operator_policies(
    admin: Admin, broker: Broker
) -> None:
    admin.users.put("pol", password="p", tags=["policymaker"])
    admin.permissions.put("/", "pol", configure="^$", write="^$", read="^$")
    hosts = broker.cluster.address.hosts
    with Connection(Address(hosts=hosts, user="pol", password="p")) as own:
        Admin(own).policies.put("/", "theirs", "^none$", {"max-length": 1})
        with pytest.raises(AccessRefused, match="the tag 'administrator' is needed"):
            Admin(own).policies.put("/", "theirs", "^none$", {"max-length": 1}, operator=True)
        Admin(own).policies.delete("/", "theirs")
    admin.users.delete("pol")


def test_the_command_line(admin: Admin, broker: Broker) -> None:
    def warren(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "warren.cli", *words],
            env={"WARREN_URI": broker.cluster.uri, "COLUMNS": "200", "TERM": "dumb"},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    definition = '{"max-length": 1000, "overflow": "reject-publish"}'
    done = warren("policies", "set", "p", "^q", definition, "--priority", "-3")
    assert done.returncode == 0 and "policy p in vhost / set" in done.stdout, done
    listed = json.loads(warren("policies", "list", "--json").stdout)
    assert listed == [
        {
            "vhost": "/",
            "name": "p",
            "pattern": "^q",
            "apply-to": "all",
            "definition": {"max-length": 1000, "overflow": "reject-publish"},
            "priority": -3,
        }
    ]
    assert '"max-length": 1000' in warren("policies", "list").stdout
    assert warren("operator-policies", "set", "o", ".*", '{"expires": 5000}').returncode == 0
    assert warren("operator-policies", "clear", "o").returncode == 0
    bad = warren("policies", "set", "p", ".*", '{"max-length": "many"}')
    assert bad.returncode != 0 and "is not a valid maximum length" in bad.stderr
    assert warren("policies", "set", "p", ".*", "max-length").returncode != 0
    assert warren("policies", "clear", "p").returncode == 0
    assert warren("policies", "clear", "p").returncode != 0
