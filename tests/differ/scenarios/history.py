"""Exchanges of type x-recent-history: what a new binding gets."""

from __future__ import annotations

from differ.script import CLASSIC, QUORUM, Channel, Script, scenario


def holds(c: Channel, queue: str, count: int) -> None:
    """Wait for that many messages in a queue, and take them."""
    c.count(queue, count)
    c.drain(queue)


@scenario
def what_a_new_binding_gets(s: Script) -> None:
    c = s.channel()
    c.exchange("h", "x-recent-history", {"x-recent-history-length": 2}, durable=True)
    for body in "abc":
        c.publish("h", f"key {body}", body, headers={"n": 1}, message_id=body, mandatory=True)
    c.declare("q", QUORUM)
    c.bind("q", "h", "k")
    c.count("q", 2)
    c.get("q", no_ack=True)
    c.get("q", no_ack=True)
    c.publish("h", "", "d", mandatory=True)
    c.publish("h", "", "not kept", headers={"x-recent-history-no-store": True})
    c.publish("h", "", "no flag", headers={"x-recent-history-no-store": "true"})
    holds(c, "q", 3)
    c.declare("p", CLASSIC)
    c.bind("p", "h")
    holds(c, "p", 2)
    c.bind("q", "h", "k")
    s.wait(0.5)
    c.count("q", 0)
    c.unbind("q", "h", "k")
    c.bind("q", "h", "k")
    holds(c, "q", 2)


@scenario
def twenty_unless_said_otherwise(s: Script) -> None:
    c = s.channel()
    c.exchange("h", "x-recent-history")
    c.declare("before", QUORUM)
    c.bind("before", "h")
    for number in range(22):
        c.publish("h", "", f"{number}")
    c.count("before", 22)
    c.declare("after", QUORUM)
    c.bind("after", "h")
    holds(c, "after", 20)


@scenario
def a_history_that_goes_to_an_exchange(s: Script) -> None:
    c = s.channel()
    c.exchange("h", "x-recent-history")
    c.publish("h", "a.key", "a")
    c.publish("h", "b.key", "b")
    c.exchange("t", "topic")
    c.declare("q", QUORUM)
    c.bind("q", "t", "#")
    c.link("t", "h")
    c.count("q", 2)
    c.get("q", no_ack=True)
    c.get("q", no_ack=True)


@scenario
def a_history_ends_with_its_exchange(s: Script) -> None:
    c = s.channel()
    c.exchange("h", "x-recent-history")
    c.publish("h", "", "a")
    c.delete_exchange("h")
    c.exchange("h", "x-recent-history")
    c.declare("q", QUORUM)
    c.bind("q", "h")
    s.wait(0.5)
    c.count("q", 0)


@scenario
def lengths_of_a_history(s: Script) -> None:
    c = s.channel()
    for length in (0, -1, "5", 1.5, True):
        c.exchange("h", "x-recent-history", {"x-recent-history-length": length})
    c.exchange("h", "x-recent-history", {"x-recent-history-length": 1})
    c.exchange("h", "x-recent-history", {"x-recent-history-length": 2})
    c.exchange("h", "x-recent-history")
    c.exchange("h", "fanout")
    c.exchange("h", "x-recent-history", passive=True)
    c.exchange("f", "fanout")
    c.exchange("f", "x-recent-history")
    c.exchange("f", "x-random")
