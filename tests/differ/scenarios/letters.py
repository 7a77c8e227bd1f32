"""Dead letters that are kept until their targets have confirmed them (at least once)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from differ.operating import Operator
from differ.scenarios.dead_letters import to
from differ.script import CLASSIC, QUORUM, Channel, Script, Table, scenario


def keeping(key: str, exchange: str = "") -> Table:
    """The arguments of a queue that keeps its letters."""
    strategy = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
    return {**QUORUM, **to(key, exchange), **strategy}


@contextmanager
def channel_and_operator(s: Script) -> Iterator[tuple[Channel, Operator]]:
    """Yield a channel, and an operator opened after it."""
    c = s.channel()
    with Operator(s) as operator:
        yield c, operator


def rejected(c: Channel, queue: str, *bodies: str) -> None:
    """Publish messages and reject them in their order."""
    for body in bodies:
        c.publish("", queue, body)
    for _ in bodies:
        c.get(queue)
        c.reject(requeue=False)


@scenario
def every_reason_at_least_once(s: Script) -> None:
    c = s.channel()
    c.declare("dead", QUORUM)
    c.declare("q", keeping("dead"))
    c.publish("", "q", "rejected", headers={"h": "kept", "CC": ["nowhere"], "BCC": ["hidden"]})
    c.get("q")
    c.reject(requeue=False)
    c.get_soon("dead", no_ack=True)
    c.publish("", "q", "nacked")
    c.get("q")
    c.nack(requeue=False)
    c.get_soon("dead", no_ack=True)
    c.publish("", "q", "failed twice")
    c.get("q")
    c.reject()
    c.get("q")
    c.reject(requeue=False)
    c.get_soon("dead", no_ack=True)
    c.publish("", "q", "expired", expiration="100", delivery_mode=2, priority=2)
    c.get_soon("dead", no_ack=True)
    c.declare("limited", {**keeping("dead"), "x-delivery-limit": 0})
    c.reject_one("limited", "too often")
    c.get_soon("dead", no_ack=True)


@scenario
def the_target_is_missing(s: Script) -> None:
    with channel_and_operator(s) as (c, operator):
        c.declare("q", keeping("target"))
        operator.counts("q", 0, 0, 0, 0)
        c.publish("", "q", "a")
        c.publish("", "q", "b")
        operator.counts("q", 2, 2, 0, 0)
        c.get("q")
        operator.counts("q", 2, 1, 1, 0)
        c.reject(requeue=False)
        operator.counts("q", 2, 1, 0, 1)
        c.count("q")
        c.get("q")
        c.reject(requeue=False)
        operator.counts("q", 2, 0, 0, 2)
        c.declare("target", QUORUM)
        c.get_soon("target", no_ack=True)
        c.get_soon("target", no_ack=True)
        operator.counts("q", 0, 0, 0, 0)
        c.delete("target")
        rejected(c, "q", "c")
        operator.counts("q", 1, 0, 0, 1)
        other = s.channel("other")
        other.declare("target", QUORUM)
        other.get_soon("target", no_ack=True)
        operator.counts("q", 0, 0, 0, 0)


@scenario
def the_exchange_is_missing_then_without_a_route(s: Script) -> None:
    with channel_and_operator(s) as (c, operator):
        c.declare("q", keeping("k", "x"))
        rejected(c, "q", "a")
        operator.counts("q", 1, 0, 0, 1)
        c.exchange("x", "direct")
        c.declare("target", QUORUM)
        c.bind("target", "x", "other")
        s.wait(1.5)
        operator.counts("q", 1, 0, 0, 1)
        c.bind("target", "x", "k")
        c.get_soon("target", no_ack=True)
        operator.counts("q", 0, 0, 0, 0)


@scenario
def the_target_is_full(s: Script) -> None:
    with channel_and_operator(s) as (c, operator):
        target = "classic"
        c.declare(target, {**CLASSIC, "x-max-length": 1, "x-overflow": "reject-publish"})
        c.declare("q", keeping(target))
        rejected(c, "q", "a")
        c.count(target, 1)
        operator.counts("q", 0, 0, 0, 0)
        rejected(c, "q", "b")
        operator.counts("q", 1, 0, 0, 1)
        s.wait(1.5)
        operator.counts("q", 1, 0, 0, 1)
        c.get(target, no_ack=True)
        c.get_soon(target, no_ack=True)
        operator.counts("q", 0, 0, 0, 0)


@scenario
def one_of_two_targets_is_full(s: Script) -> None:
    with channel_and_operator(s) as (c, operator):
        c.declare("full", {**CLASSIC, "x-max-length": 0, "x-overflow": "reject-publish"})
        c.declare("free", QUORUM)
        for target in ("full", "free"):
            c.bind(target, "amq.fanout")
        c.declare("q", keeping("", "amq.fanout"))
        rejected(c, "q", "a")
        c.get_soon("free", no_ack=True)
        operator.counts("q", 1, 0, 0, 1)
        c.unbind("full", "amq.fanout")
        c.delete("full")
        operator.counts("q", 0, 0, 0, 0)


@scenario
def waiting_letters_count_for_the_limit(s: Script) -> None:
    with channel_and_operator(s) as (c, operator):
        c.declare("q", {**keeping("target"), "x-max-length": 2})
        rejected(c, "q", "a", "b")
        operator.counts("q", 2, 0, 0, 2)
        c.publish("", "q", "c")
        s.wait(0.5)
        c.publish("", "q", "d")
        c.declare("target", QUORUM)
        c.get_soon("target", no_ack=True)
        c.get_soon("target", no_ack=True)


@scenario
def purge_and_delete_with_waiting_letters(s: Script) -> None:
    with channel_and_operator(s) as (c, operator):
        c.declare("q", keeping("target"))
        rejected(c, "q", "a")
        c.publish("", "q", "b")
        operator.counts("q", 2, 1, 0, 1)
        c.purge("q")
        operator.counts("q", 0, 0, 0, 0)
        c.delete("q")
        c.declare("target", QUORUM)
        s.wait(1.5)
        c.count("target")


@scenario
def the_strategy_is_switched(s: Script) -> None:
    c = s.channel()
    kept = {"dead-letter-strategy": "at-least-once", "overflow": "reject-publish"}
    with Operator(s) as operator:
        c.declare("q", {**QUORUM, **to("target")})
        rejected(c, "q", "dropped at once")
        operator.counts("q", 0, 0, 0, 0)
        s.policy("p", "^q$", kept)
        s.effective("q", "p")
        rejected(c, "q", "a")
        operator.counts("q", 1, 0, 0, 1)
        s.policy("p", "^q$", {**kept, "dead-letter-strategy": "at-most-once"})
        operator.counts("q", 0, 0, 0, 0)
        s.policy("p", "^q$", kept)
        s.effective("q", "p")
        rejected(c, "q", "b")
        operator.counts("q", 1, 0, 0, 1)
        s.policy("p", "^q$", {"dead-letter-strategy": "at-least-once", "overflow": "drop-head"})
        operator.counts("q", 0, 0, 0, 0)
        s.policy("p", "^q$", kept)
        s.effective("q", "p")
        rejected(c, "q", "c")
        operator.counts("q", 1, 0, 0, 1)
        c.declare("target", QUORUM)
        c.get_soon("target", no_ack=True)
        operator.counts("q", 0, 0, 0, 0)
        c.get("target", no_ack=True)


@scenario
def where_it_cannot_be_at_least_once(s: Script) -> None:
    with channel_and_operator(s) as (c, operator):
        drops = {key: value for key, value in keeping("target").items() if key != "x-overflow"}
        c.declare("drop-head", drops)
        rejected(c, "drop-head", "a")
        operator.counts("drop-head", 0, 0, 0, 0)
        alone = {key: value for key, value in keeping("").items() if "exchange" not in key}
        c.declare("without", {k: v for k, v in alone.items() if "routing-key" not in k})
        rejected(c, "without", "a")
        operator.counts("without", 0, 0, 0, 0)


@scenario
def letters_keep_their_order(s: Script) -> None:
    with channel_and_operator(s) as (c, operator):
        c.declare("q", keeping("target"))
        rejected(c, "q", *"abcdef")
        operator.counts("q", 6, 0, 0, 6)
        c.declare("target", QUORUM)
        c.count("target", 6)
        c.drain("target")


@scenario
def a_cycle_of_kept_letters(s: Script) -> None:
    with channel_and_operator(s) as (c, operator):
        c.declare("q", {**keeping("q"), "x-message-ttl": 100})
        c.publish("", "q", "a")
        s.wait(1.5)
        operator.counts("q", 1, 0, 0, 1)
