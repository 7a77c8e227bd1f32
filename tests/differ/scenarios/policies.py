"""Policies and operator policies: what is refused, which applies, how they are merged."""

from __future__ import annotations

from collections.abc import Iterable

from differ.script import CLASSIC, QUORUM, Script, Table, scenario, specification

BAD = (
    {},
    {"no-such-key": 1},
    {"max-length": -1},
    {"max-length": "5"},
    {"max-length": 1.5},
    {"max-length-bytes": -1},
    {"overflow": "other"},
    {"overflow": 5},
    {"expires": 0},
    {"expires": -1},
    {"message-ttl": -1},
    {"message-ttl": "x"},
    {"dead-letter-exchange": 5},
    {"dead-letter-routing-key": 5},
    {"dead-letter-strategy": "sometimes"},
    {"delivery-limit": -2},
    {"delivery-limit": "x"},
    {"queue-leader-locator": "there"},
    {"alternate-exchange": 5},
    {"consumer-timeout": -1},
    {"consumer-timeout": "x"},
    {"consumer-disconnected-timeout": -1},
    {"target-group-size": 0},
    {"target-group-size": "x"},
    {"queue-mode": "other"},
    {"queue-version": 3},
    {"max-in-memory-length": -1},
    {"max-priority": 5},
    {"single-active-consumer": True},
)
BAD_RETRY = (
    {"delayed-retry-type": "sometimes"},
    {"delayed-retry-min": -1},
    {"delayed-retry-min": "x"},
    {"delayed-retry-max": -1},
)
KEYS = (
    {"max-length": 5},
    {"max-length-bytes": 5},
    {"overflow": "reject-publish"},
    {"expires": 60_000},
    {"message-ttl": 60_000},
    {"dead-letter-exchange": "x"},
    {"dead-letter-routing-key": "k"},
    {"dead-letter-strategy": "at-most-once"},
    {"delivery-limit": 5},
    {"consumer-timeout": 60_000},
    {"consumer-disconnected-timeout": 60_000},
    {"queue-leader-locator": "balanced"},
    {"target-group-size": 3},
    {"alternate-exchange": "x"},
    {"queue-mode": "lazy"},
    {"queue-version": 2},
    {"max-in-memory-length": 5},
    {"delayed-retry-type": "all", "delayed-retry-min": 1000, "delayed-retry-max": 5000},
)


def set_each(s: Script, definitions: Iterable[Table], *, operator: bool = False) -> None:
    """Set policies, each with a name of its own."""
    for number, definition in enumerate(definitions):
        s.policy(f"p{number}", "^q", definition, operator=operator)


@scenario
@specification("quorum-queues: it cannot be set or changed using a policy")
def definitions_that_are_refused(s: Script) -> None:
    set_each(s, BAD)


@scenario
def delayed_retry_that_is_refused(s: Script) -> None:
    set_each(s, BAD_RETRY)


@scenario
def operator_policies_that_are_refused(s: Script) -> None:
    set_each(s, (*BAD, *KEYS), operator=True)


@scenario
@specification("quorum-queues: The below table summarises the policy keys")
def keys_that_are_accepted(s: Script) -> None:
    set_each(s, KEYS)


@scenario
def parts_of_a_policy_that_are_refused(s: Script) -> None:
    s.policy("p", "(", {"max-length": 5})
    s.policy("p", "*", {"max-length": 5})
    s.policy("p", "^q", {"max-length": 5}, apply_to="everything")
    s.policy("p", "^q", {"max-length": 5}, apply_to="exchanges")
    s.policy("p", "^q", {"alternate-exchange": "x"}, apply_to="queues")
    s.clear_policy("p")
    s.clear_policy("never")
    s.clear_policy("never", operator=True)


@scenario
def which_policy_applies(s: Script) -> None:
    c = s.channel()
    c.declare("q", QUORUM)
    c.declare("k", CLASSIC)
    s.effective("q")
    s.policy("all", "^", {"max-length": 9})
    s.effective("q", "all")
    s.effective("k", "all")
    s.policy("quorum", "^", {"max-length": 8}, apply_to="quorum_queues", priority=1)
    s.effective("q", "quorum")
    s.effective("k", "all")
    s.policy("classic", "^", {"max-length": 7}, apply_to="classic_queues", priority=2)
    s.effective("k", "classic")
    s.effective("q", "quorum")
    s.policy("queues", "^", {"max-length": 6}, apply_to="queues", priority=3)
    s.effective("q", "queues")
    s.effective("k", "queues")
    s.policy("exchanges", "^", {"alternate-exchange": "x"}, apply_to="exchanges", priority=9)
    s.policy("other", "^other$", {"max-length": 1}, priority=10)
    s.effective("q", "queues")
    s.policy("queues", "^k$", {"max-length": 5}, apply_to="queues", priority=3)
    s.effective("q", "quorum")
    s.clear_policy("quorum")
    s.effective("q", "all")
    s.clear_policy("all")
    s.effective("q", "")
    s.effective("k", "queues")


@scenario
def keys_of_quorum_queues_and_a_classic_one(s: Script) -> None:
    c = s.channel()
    c.declare("q", QUORUM)
    c.declare("k", CLASSIC)
    s.policy("p", "^", {"delivery-limit": 5})
    s.effective("q", "p")
    s.effective("k")
    s.policy("p", "^", {"delivery-limit": 5, "max-length": 7})
    s.effective("q", "p")
    s.effective("k")
    s.policy("p", "^", {"consumer-timeout": 60_000})
    s.effective("k")


@scenario
@specification("quorum-queues: The value of -1 disables the limit")
def merged_with_an_operator_policy(s: Script) -> None:
    c = s.channel()
    c.declare("q", QUORUM)
    s.policy("user", "^", {"max-length": 9, "message-ttl": 9000, "overflow": "reject-publish"})
    operators = {"max-length": 5, "message-ttl": 99_000, "expires": 60_000}
    s.policy("operator", "^", operators, operator=True)
    s.effective("q", "user")
    s.wait(0.5)
    s.effective("q")
    s.policy("operator", "^", {"delivery-limit": -1, "overflow": "drop-head"}, operator=True)
    s.wait(0.5)
    s.effective("q")
    s.policy("user", "^", {"delivery-limit": 5})
    s.wait(0.5)
    s.effective("q")
    s.clear_policy("user")
    s.effective("q", "")
    s.clear_policy("operator", operator=True)
    s.wait(0.5)
    s.effective("q")


@scenario
def a_limit_and_an_argument(s: Script) -> None:
    c = s.channel()
    c.declare("low", {**QUORUM, "x-max-length": 2})
    c.declare("high", {**QUORUM, "x-max-length": 9})
    for number in range(5):
        c.publish("", "low", f"{number}")
        c.publish("", "high", f"{number}")
    c.count("low", 2)
    c.count("high", 5)
    s.policy("p", "^", {"max-length": 4})
    s.effective("high", "p")
    c.publish("", "low", "5")
    c.publish("", "high", "5")
    c.count("low", 2)
    c.count("high", 4)
    s.policy("p", "^", {"max-length": 1})
    c.count("low", 1)
    c.count("high", 1)
    c.drain("low")
    c.drain("high")
    s.clear_policy("p")
    s.effective("high", "")
    s.wait(0.5)
    for number in range(5):
        c.publish("", "low", f"{number}")
        c.publish("", "high", f"{number}")
    c.count("low", 2)
    c.count("high", 5)


@scenario
def a_time_to_live_and_an_argument(s: Script) -> None:
    c = s.channel()
    c.declare("q", {**QUORUM, "x-message-ttl": 60_000})
    s.policy("p", "^", {"message-ttl": 200})
    s.effective("q", "p")
    s.wait(0.5)
    c.publish("", "q", "short")
    c.count("q", 0)
    s.policy("p", "^", {"message-ttl": 90_000})
    s.wait(1.0)
    c.publish("", "q", "long")
    s.wait(0.6)
    c.count("q")


@scenario
def dead_letters_and_an_argument(s: Script) -> None:
    c = s.channel()
    for name in ("by-argument", "by-policy"):
        c.declare(name, QUORUM)
    argument = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "by-argument"}
    c.declare("q", {**QUORUM, **argument})
    c.declare("p", QUORUM)
    definition = {"dead-letter-exchange": "", "dead-letter-routing-key": "by-policy"}
    s.policy("d", "^[qp]$", definition)
    s.effective("p", "d")
    s.wait(0.5)
    for queue in "qp":
        c.publish("", queue, queue)
        c.get(queue)
        c.reject(requeue=False)
    c.get_soon("by-argument", no_ack=True)
    c.get_soon("by-policy", no_ack=True)


@scenario
@specification(
    "quorum-queues: It is possible to set a delivery limit for a queue using",
    "quorum-queues: The value of -1 disables the limit",
)
def a_delivery_limit_by_policy(s: Script) -> None:
    c = s.channel()
    c.declare("q", {**QUORUM, "x-delivery-limit": 9})
    s.policy("p", "^", {"delivery-limit": 0})
    s.effective("q", "p")
    s.wait(0.5)
    c.publish("", "q", "a")
    c.get("q")
    c.reject()
    c.count("q", 0)
    s.policy("p", "^", {"delivery-limit": -1})
    s.wait(1.0)
    c.publish("", "q", "b")
    for _ in range(10):
        c.get_soon("q")
        c.reject()
    c.count("q", 0)


@scenario
@specification("quorum-queues: Apply a consumer timeout to all queues")
def a_consumer_timeout_by_policy(s: Script) -> None:
    c = s.channel()
    s.policy("p", "^", {"consumer-timeout": 1000})
    c.declare("q", QUORUM)
    c.publish("", "q", "a")
    c.consume("q", "c")
    c.deliveries(1)
    c.arrives()


@scenario
def an_alternate_exchange_by_policy(s: Script) -> None:
    c = s.channel()
    c.exchange("x", "direct")
    c.exchange("rest", "fanout")
    c.declare("q", QUORUM)
    c.bind("q", "rest")
    c.publish("x", "k", "lost", mandatory=True)
    s.policy("p", "^x$", {"alternate-exchange": "rest"}, apply_to="exchanges")
    s.wait(0.5)
    c.publish("x", "k", "kept", mandatory=True)
    c.exchange("y", "direct", {"alternate-exchange": "none"})
    s.policy("p", "^y$", {"alternate-exchange": "rest"}, apply_to="exchanges")
    s.wait(0.5)
    c.publish("y", "k", "the argument is first", mandatory=True)
    c.publish("x", "k", "cleared", mandatory=True)
    c.drain("q")


@scenario
def expires_by_policy(s: Script) -> None:
    c = s.channel()
    c.declare("q", QUORUM)
    c.declare("a", {**QUORUM, "x-expires": 60_000})
    s.policy("p", "^", {"expires": 700})
    s.wait(1.5)
    c.gone("q")
    c.gone("a")


@scenario
def overflow_by_policy(s: Script) -> None:
    c = s.channel()
    c.declare("q", {**QUORUM, "x-overflow": "drop-head", "x-max-length": 1})
    c.declare("p", {**QUORUM, "x-max-length": 1})
    s.policy("p", "^", {"overflow": "reject-publish"})
    s.effective("p", "p")
    s.wait(0.5)
    for queue in "qp":
        for body in "abc":
            c.publish("", queue, body)
            s.wait(0.4)
        c.count(queue)


@scenario
def keys_of_mirrored_queues(s: Script) -> None:
    for definition in (
        {"ha-mode": "all"},
        {"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic"},
        {"ha-mode": "nodes", "ha-params": ["somewhere@else"]},
        {"ha-promote-on-shutdown": "always", "ha-promote-on-failure": "when-synced"},
        {"queue-master-locator": "min-masters"},
    ):
        s.policy("p", "^q$", definition)
    s.policy("p", "^q$", {"ha-mode": "sometimes"})
    s.policy("p", "^q$", {"ha-mode": "all"}, operator=True)
