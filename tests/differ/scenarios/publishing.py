"""Confirms, mandatory, transactions, properties, user ids."""

from __future__ import annotations

from differ.script import CLASSIC, QUORUM, Script, both, scenario, specification
from tests.message_properties import EVERY


@scenario
@specification("reliability-guide: it can set the mandatory flag on a basic.publish")
def mandatory(s: Script) -> None:
    c = s.channel()
    c.publish("", "none", "body", mandatory=True, message_id="m", headers={"h": 1})
    c.publish("", "none", "body")
    c.publish("amq.fanout", "", "body", mandatory=True)


@scenario
def immediate(s: Script) -> None:
    c = s.channel()
    c.declare("q", QUORUM)
    c.publish("", "q", "a", immediate=True)
    c.count("q")


@scenario
def an_exchange_that_is_missing(s: Script) -> None:
    c = s.channel(confirm=False)
    c.publish("none", "k", "a")
    c.published()
    c.count("none")


@scenario
def every_property(s: Script) -> None:
    c = s.channel()
    for q in both(c):
        c.publish(
            "",
            q,
            "body",
            **EVERY,
            message_type="t",
            headers={
                "text": "t",
                "small": 1,
                "negative": -70_000,
                "long": 1 << 40,
                "true": True,
                "void": None,
                "float": 0.5,
                "list": [1, "two", {"three": 3}],
                "table": {"a": {"b": []}},
                "bytes": bytearray(b"\x00\xff"),
            },
        )
        c.get(q, no_ack=True)


@scenario
def user_ids(s: Script) -> None:
    c = s.channel()
    c.declare("q", QUORUM)
    c.publish("", "q", "a", user_id="guest")
    c.publish("", "q", "b", user_id="someone")
    c.drain("q")


@scenario
@specification("mirrored-queues: a tx.commit-ok will only be returned")
def transactions(s: Script) -> None:
    c = s.channel(confirm=False)
    other = s.channel("other")
    c.transaction("commit")
    c.transaction("rollback")
    c.declare("q", QUORUM)
    c.transaction("select")
    c.publish("", "q", "a")
    c.publish("", "q", "b")
    other.count("q")
    c.transaction("commit")
    other.count("q", 2)
    c.publish("", "q", "c")
    c.transaction("rollback")
    other.count("q")
    c.get("q")
    c.ack()
    c.transaction("rollback")
    c.ack()
    c.transaction("commit")
    c.publish("", "none", "d", mandatory=True)
    c.transaction("commit")
    c.arrives()
    c.select_confirms()


@scenario
def transactions_on_a_confirming_channel(s: Script) -> None:
    c = s.channel()
    c.transaction("select")
    c.select_confirms()
    c.select_confirms()


@scenario
def nack_in_a_transaction(s: Script) -> None:
    c = s.channel(confirm=False)
    other = s.channel("other")
    for kind in (QUORUM, CLASSIC):
        q = kind["x-queue-type"]
        other.declare(q, kind)
        other.publish("", q, "a")
        c.transaction("select")
        c.get_soon(q)
        c.nack()
        other.get(q)
        c.transaction("commit")
        other.get_soon(q, no_ack=True)


@scenario
def direct_reply_to(s: Script) -> None:
    c = s.channel(confirm=False)
    c.publish("", "q", "too early", reply_to="amq.rabbitmq.reply-to")
    c.published()
    c.consume("amq.rabbitmq.reply-to", "r")
    c.consume("amq.rabbitmq.reply-to", "r", no_ack=True)
    c.declare("amq.rabbitmq.reply-to", passive=True)
    c.declare("amq.rabbitmq.reply-to.none", passive=True)
    c.consume("amq.rabbitmq.reply-to", "again", no_ack=True)


@scenario
@specification("reliability-guide: Acknowledgements can be used in both directions")
def to_more_than_one_queue(s: Script) -> None:
    c = s.channel()
    for q in both(c):
        c.bind(q, "amq.fanout")
    for body in "abc":
        c.publish("amq.fanout", "", body, mandatory=True)
    c.drain("quorum")
    c.drain("classic")
