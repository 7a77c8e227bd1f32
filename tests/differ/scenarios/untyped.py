"""Durable queues that name no type: in RabbitMQ classic ones.

Each is declared over and over, as clients do it that know of no types.
"""

from __future__ import annotations

from typing import Any

from differ.script import CLASSIC, QUORUM, Channel, Script, scenario

LETTERS = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters"}


def declared(s: Script, arguments: dict[str, Any] | None = None, *bodies: str) -> Channel:
    """A channel with the queue `q`, and a queue for its letters."""
    c = s.channel()
    c.declare("q", arguments or {})
    c.declare("letters", CLASSIC)
    for body in bodies:
        c.publish("", "q", body)
    return c


@scenario
def untyped_equivalence(s: Script) -> None:
    c = declared(s)
    c.declare("q", CLASSIC)
    c.declare("q", {"x-queue-type": ""})
    c.declare("q", QUORUM)
    c.declare("q", {"x-max-length": 5})
    c.declare("q", {"x-other": 5})
    c.declare("q", {"x-queue-mode": "lazy"})
    c.declare("q", auto_delete=True)
    c.declare("typed", QUORUM)
    c.declare("mine", exclusive=True)


@scenario
def untyped_arguments(s: Script) -> None:
    c = s.channel()
    given: tuple[tuple[str, Any], ...] = (
        ("x-max-priority", 0),
        ("x-max-priority", 5),
        ("x-max-priority", 255),
        ("x-max-priority", 256),
        ("x-overflow", "drop-head"),
        ("x-overflow", "reject-publish"),
        ("x-overflow", "reject-publish-dlx"),
        ("x-overflow", "other"),
        ("x-queue-mode", "lazy"),
        ("x-queue-version", 2),
        ("x-queue-master-locator", "min-masters"),
        ("x-queue-leader-locator", "balanced"),
        ("x-single-active-consumer", True),
        ("x-expires", 60_000),
        ("x-message-ttl", 0),
        ("x-max-length-bytes", 0),
        ("x-max-age", "1D"),
    )
    for number, (name, value) in enumerate(given):
        c.declare(f"q{number}", {name: value})


@scenario
def untyped_rejected_more_often_than_a_delivery_limit(s: Script) -> None:
    c = declared(s, LETTERS, "a")
    for _ in range(24):
        c.get_soon("q")
        c.reject(requeue=True)
    c.get_soon("q")
    c.count("letters", 0)


@scenario
def untyped_order_of_what_comes_back(s: Script) -> None:
    c = declared(s, None, *"abcdef")
    c.qos(4)
    c.consume("q", "c")
    c.deliveries(4)
    c.nack(2)
    c.arrives()
    c.cancel("c")
    c.recover()
    c.count("q", 6)
    other = s.channel("other")
    for _ in range(6):
        other.get_soon("q", no_ack=True)


@scenario
def untyped_order_with_priorities(s: Script) -> None:
    c = declared(s, {"x-max-priority": 9})
    for body, priority in (("a", 1), ("b", 5), ("c", None), ("d", 9), ("e", 5), ("f", 200)):
        more = {} if priority is None else {"priority": priority}
        c.publish("", "q", body, **more)
    for _ in range(3):
        c.get_soon("q")
    c.nack(multiple=True)
    for _ in range(6):
        c.get_soon("q", no_ack=True)


@scenario
def untyped_without_priorities(s: Script) -> None:
    c = declared(s)
    for body, priority in (("a", 1), ("b", 9), ("c", 4)):
        c.publish("", "q", body, priority=priority)
    c.drain("q")


@scenario
def untyped_refusing_with_letters(s: Script) -> None:
    c = declared(s, {"x-max-length": 2, "x-overflow": "reject-publish-dlx", **LETTERS})
    c.select_confirms()
    for body in "abcd":
        c.publish("", "q", body)
    c.count("q", 2)
    c.count("letters", 2)
    c.drain("letters")
    c.get_soon("q", no_ack=True)
    c.publish("", "q", "e")
    c.count("q", 2)


@scenario
def untyped_refusing(s: Script) -> None:
    c = declared(s, {"x-max-length": 2, "x-overflow": "reject-publish", **LETTERS})
    c.select_confirms()
    for body in "abc":
        c.publish("", "q", body)
    c.count("q", 2)
    c.count("letters", 0)


@scenario
def untyped_dropping(s: Script) -> None:
    c = declared(s, {"x-max-length": 2, **LETTERS}, *"abcd")
    c.count("letters", 2)
    c.drain("letters")
    c.drain("q")


@scenario
def untyped_with_a_policy_for_overflow(s: Script) -> None:
    c = declared(s, {"x-overflow": "reject-publish", **LETTERS})
    s.policy("p", "^q$", {"max-length": 1, "overflow": "reject-publish-dlx"})
    s.effective("q", "p")
    c.select_confirms()
    for body in "ab":
        c.publish("", "q", body)
    c.count("q", 1)
    c.count("letters", 0)


@scenario
def untyped_with_a_single_active_consumer(s: Script) -> None:
    c = declared(s, {"x-single-active-consumer": True}, "a", "b")
    c.get_soon("q")
    c.ack()
    other = s.channel("other")
    other.consume("q", "first")
    other.deliveries(1)
    c.publish("", "q", "c")
    other.deliveries(1)
    c.get("q")


@scenario
def untyped_with_an_exclusive_consumer(s: Script) -> None:
    c = declared(s, None, "a")
    c.consume("q", "c", exclusive=True)
    c.deliveries(1)
    other = s.channel("other")
    other.consume("q", "d")
    other = s.channel("third")
    other.get("q")


@scenario
def untyped_auto_delete(s: Script) -> None:
    c = s.channel()
    c.declare("q", auto_delete=True)
    c.declare("q", CLASSIC, auto_delete=True)
    c.consume("q", "c")
    c.cancel("c")
    c.gone("q")


@scenario
def untyped_server_named(s: Script) -> None:
    c = s.channel()
    c.declare("")
    c.publish("", "", "a")


@scenario
def untyped_renewed_by_declarations(s: Script) -> None:
    c = s.channel()
    for _ in range(4):
        c.declare("q", {"x-expires": 1_500})
        s.wait(0.6)
    c.declare("q", passive=True)
    s.wait(0.6)
    c.declare("q", passive=True)
    s.wait(3)
    c.declare("q", passive=True)


@scenario
def untyped_conditional_deletes(s: Script) -> None:
    c = declared(s, None, "a")
    c.delete("q", if_empty=True)
    c.consume("q", "c")
    c.deliveries(1)
    other = s.channel("other")
    other.delete("q", if_unused=True)
    c.ack()
    c.cancel("c")
    other = s.channel("third")
    other.count("q", 0)
    other.delete("q", if_unused=True, if_empty=True)


@scenario
def untyped_expiring_and_dying(s: Script) -> None:
    c = declared(s, {**LETTERS, "x-message-ttl": 300})
    c.publish("", "q", "a", headers={"h": 1})
    c.count("letters", 1)
    c.drain("letters")
    c.publish("", "q", "b")
    c.get("q")
    c.reject(requeue=False)
    c.count("letters", 1)
    c.drain("letters")


@scenario
def untyped_bound_to_a_local_random_exchange(s: Script) -> None:
    c = declared(s)
    c.exchange("x", "x-local-random")
    c.bind("q", "x", "")
    c.publish("x", "", "a")
    c.get_soon("q")


@scenario
def untyped_active_consumer_and_priorities(s: Script) -> None:
    c = declared(s, {"x-single-active-consumer": True})
    c.consume("q", "first")
    other = s.channel("other")
    other.consume("q", "urgent", {"x-priority": 5})
    for body in "ab":
        other.publish("", "q", body)
    for holder in (c, other):
        holder.quiet()
