"""Tracing: the messages of amq.rabbitmq.trace."""

from __future__ import annotations

from differ.script import CLASSIC, QUORUM, Channel, Script, both, scenario
from tests.message_properties import EVERY

TRACE = "amq.rabbitmq.trace"
PUBLISHED = "published"
DELIVERED = "delivered"


def traced(s: Script) -> tuple[Channel, Channel]:
    """Turn tracing on; return the channel of the traces' two queues, and one that is traced."""
    c = s.channel("tracer")
    for queue, key in ((PUBLISHED, "publish.#"), (DELIVERED, "deliver.#")):
        c.declare(queue, CLASSIC)
        c.bind(queue, TRACE, key)
    s.trace(True)
    return c, s.channel()


@scenario
def what_is_published(s: Script) -> None:
    tracer, c = traced(s)
    c.exchange("x", "topic")
    for queue in both(c):
        c.bind(queue, "x", "both.*")
    for exchange, key in (("", "quorum"), ("x", "both.queues"), ("x", "no.queue"), ("", "none")):
        c.publish(exchange, key, "body")
        tracer.get_soon(PUBLISHED, no_ack=True)
    tracer.get(DELIVERED)


@scenario
def properties_of_what_is_published(s: Script) -> None:
    tracer, c = traced(s)
    c.declare("q", QUORUM)
    headers = {"text": "t", "long": 1 << 40, "true": True, "list": [1, {"two": 2}]}
    given = {**EVERY, "delivery_mode": 2, "message_type": "t", "headers": headers}
    c.publish("", "q", "body", **given)
    tracer.get_soon(PUBLISHED, no_ack=True)


@scenario
def sender_selected_keys(s: Script) -> None:
    tracer, c = traced(s)
    for queue in both(c):
        c.publish("", "none", "body", headers={"CC": [queue, "other"], "BCC": ["third"]})
        tracer.get_soon(PUBLISHED, no_ack=True)
        c.get(queue, no_ack=True)
        tracer.get_soon(DELIVERED, no_ack=True)


@scenario
def what_is_delivered(s: Script) -> None:
    tracer, c = traced(s)
    c.declare("quorum", QUORUM)
    c.publish("", "quorum", "body", message_id="m", headers={"n": 1})
    c.get("quorum")
    tracer.get_soon(DELIVERED, no_ack=True)
    c.reject()
    c.get_soon("quorum")
    tracer.get_soon(DELIVERED, no_ack=True)
    c.nack()
    c.consume("quorum", "one", no_ack=True)
    c.deliveries(1)
    tracer.get_soon(DELIVERED, no_ack=True)


@scenario
def a_dead_letter_is_delivered(s: Script) -> None:
    tracer, c = traced(s)
    c.declare("letters", CLASSIC)
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters"}
    c.declare("q", {**CLASSIC, **dead})
    c.publish("", "q", "body", expiration="0")
    tracer.get_soon(PUBLISHED, no_ack=True)
    c.count("letters", 1)
    tracer.get(PUBLISHED)


@scenario
def traces_are_not_traced(s: Script) -> None:
    tracer, c = traced(s)
    c.declare("q", QUORUM)
    c.publish("", "q", "body")
    tracer.get_soon(PUBLISHED)
    tracer.ack()
    tracer.consume(DELIVERED, "traces", no_ack=True)
    c.get("q")
    tracer.deliveries(1)
    tracer.quiet()


@scenario
def only_while_it_is_on(s: Script) -> None:
    tracer, c = traced(s)
    c.declare("q", CLASSIC)
    s.trace(False)
    c.publish("", "q", "before")
    s.trace(True)
    s.trace(True)
    c.publish("", "q", "while")
    tracer.get_soon(PUBLISHED, no_ack=True)
    s.trace(False)
    c.publish("", "q", "after")
    c.get("q", no_ack=True)
    tracer.get(PUBLISHED)
    tracer.get(DELIVERED)
