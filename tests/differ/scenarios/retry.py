"""Delayed retry."""

from __future__ import annotations

from differ.script import QUORUM, Channel, Script, Table, scenario, specification


def delaying(kind: str, least: int = 2000, most: int | None = 60_000) -> Table:
    found = {**QUORUM, "x-delayed-retry-type": kind, "x-delayed-retry-min": least}
    return found if most is None else {**found, "x-delayed-retry-max": most}


def returned(s: Script, kind: str) -> None:
    c = s.channel()
    c.declare("q", delaying(kind))
    for act in ("nack", "reject", "recover", "close"):
        c.publish("", "q", act)
        c.get("q")
        if act == "nack":
            c.nack()
        elif act == "reject":
            c.reject()
        elif act == "recover":
            c.recover()
        else:
            c.close()
        s.wait(0.1)
        c.get("q")
        c.count("q")
        c.get_soon("q", no_ack=True) if c.empty else c.ack()


def delaying_channel(s: Script, delay_ms: int) -> Channel:
    """A channel with the queue q, which delays all that is returned to it."""
    c = s.channel()
    c.declare("q", delaying("all", delay_ms))
    return c


@scenario
@specification(
    "quorum-queues: x-delayed-retry-type - Retry type",
    "quorum-queues: all - All returned messages are delayed",
)
def type_all(s: Script) -> None:
    returned(s, "all")


@scenario
@specification(
    "quorum-queues: x-delayed-retry-type - Retry type",
    "quorum-queues: failed - Only messages with incremented",
)
def type_failed(s: Script) -> None:
    returned(s, "failed")


@scenario
@specification(
    "quorum-queues: x-delayed-retry-type - Retry type",
    "quorum-queues: returned - Only messages without incremented",
)
def type_returned(s: Script) -> None:
    returned(s, "returned")


@scenario
@specification(
    "quorum-queues: x-delayed-retry-type - Retry type",
    "quorum-queues: disabled - Delayed retry is not applied",
)
def type_disabled(s: Script) -> None:
    returned(s, "disabled")


@scenario
@specification("quorum-queues: x-delayed-retry-min - Minimum delay")
def values_without_a_meaning(s: Script) -> None:
    c = s.channel()
    cases: tuple[Table, ...] = (
        {"x-delayed-retry-type": "sometimes", "x-delayed-retry-min": 5000},
        {"x-delayed-retry-type": 5, "x-delayed-retry-min": 5000},
        {"x-delayed-retry-type": "all"},
        {"x-delayed-retry-type": "all", "x-delayed-retry-min": -5},
        {"x-delayed-retry-type": "all", "x-delayed-retry-min": "5000"},
    )
    for number, arguments in enumerate(cases):
        q = f"q{number}"
        c.declare(q, {**QUORUM, **arguments})
        c.publish("", q, "a")
        c.get(q)
        c.nack()
        s.wait(0.1)
        c.get(q)


@scenario
def purge_takes_delayed_messages(s: Script) -> None:
    c = delaying_channel(s, 60_000)
    for body in "abc":
        c.publish("", "q", body)
        c.get("q")
        c.nack()
    c.publish("", "q", "d")
    s.wait(0.2)
    c.count("q")
    c.purge("q")
    c.count("q")
    c.get("q")


@scenario
def delayed_messages_count_for_the_limit(s: Script) -> None:
    c = s.channel()
    limit = {"x-max-length": 2, "x-overflow": "reject-publish"}
    c.declare("q", {**delaying("all", 60_000), **limit})
    for body in "ab":
        c.publish("", "q", body)
    for _ in range(2):
        c.get("q")
        c.nack()
    s.wait(0.5)
    c.publish("", "q", "c")
    s.wait(0.5)
    c.publish("", "q", "d")
    c.get("q")


@scenario
def the_delivery_limit_is_not_delayed(s: Script) -> None:
    c = s.channel()
    c.declare("dead", QUORUM)
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    c.declare("q", {**delaying("all", 60_000), **dead, "x-delivery-limit": 0})
    c.reject_one("q", "a")
    c.get_soon("dead", no_ack=True)


@scenario
def delayed_messages_expire(s: Script) -> None:
    c = delaying_channel(s, 3000)
    c.publish("", "q", "a", expiration="500")
    c.get("q")
    c.nack()
    s.wait(1.0)
    c.count("q")
    s.wait(2.5)
    c.count("q", 0)
    c.get("q")


@scenario
def the_order_in_which_delays_end(s: Script) -> None:
    c = delaying_channel(s, 1500)
    for body in "abc":
        c.publish("", "q", body)
    for _ in range(3):
        c.get("q")
    c.nack(2)
    s.wait(0.1)
    c.nack(1)
    s.wait(0.1)
    c.nack(3)
    c.publish("", "q", "d")
    s.wait(3.0)
    c.drain("q")


@scenario
@specification("quorum-queues: Policies provide a way to configure delayed retry")
def by_policy(s: Script) -> None:
    c = s.channel()
    c.declare("q", QUORUM)
    definition = {"delayed-retry-type": "all", "delayed-retry-min": 60_000}
    s.policy("p", "^q$", definition, apply_to="quorum_queues")
    s.effective("q", "p")
    s.wait(0.5)
    c.publish("", "q", "a")
    c.get("q")
    c.nack()
    s.wait(0.1)
    c.get("q")
    c.purge("q")
    s.clear_policy("p")
    s.effective("q", "")
    s.wait(0.5)
    c.publish("", "q", "b")
    c.get("q")
    c.nack()
    c.get_soon("q")
