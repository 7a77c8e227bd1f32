"""Consumers, basic.get, acknowledgements, recover."""

from __future__ import annotations

from differ.script import CLASSIC, KINDS, QUORUM, Script, both, scenario, specification


@scenario
@specification("reliability-guide: Conversely if the redelivered flag is not set")
def get(s: Script) -> None:
    c = s.channel()
    c.get("none")
    for q in both(c):
        c.get(q)
        for body in "abcd":
            c.publish("", q, body, content_type="text/plain", headers={"h": 1})
        c.get(q)
        c.get(q)
        c.get(q, no_ack=True)
        c.count(q)
        c.reject(requeue=False)
        c.get(q)


@scenario
def consumers_that_are_counted(s: Script) -> None:
    c = s.channel()
    for q in both(c):
        c.publish("", q, "a")
        c.get(q)
        c.declare(q, passive=True)
        c.consume(q, q)
        c.consume(q, f"{q} too")
        s.channel("other").declare(q, passive=True)


@scenario
@specification("reliability-guide: If a message is delivered to a consumer and then requeued")
def nack_and_reject(s: Script) -> None:
    c = s.channel()
    for q in both(c):
        for body in "abcdef":
            c.publish("", q, body)
        for _ in range(4):
            c.get(q)
        last = c.tag
        c.nack(last - 1)
        c.get_soon(q, no_ack=True)
        c.reject(last - 2)
        c.get_soon(q, no_ack=True)
        c.nack(last, multiple=True)
        c.get_soon(q, no_ack=True)
        c.get_soon(q, no_ack=True)
        c.get(q)
        c.nack(requeue=False)
        c.get(q)
        c.reject(requeue=False)
        c.get(q)


@scenario
def unknown_delivery_tags(s: Script) -> None:
    c = s.channel()
    c.declare("q", QUORUM)
    c.publish("", "q", "a")
    c.ack(1)
    c.nack(7)
    c.reject(7)
    c.get("q")
    c.ack(5, multiple=True)
    c.get_soon("q")
    c.ack()
    c.ack()
    c.ack(0, multiple=True)
    c.ack(0)
    c.nack(0, multiple=True)


@scenario
def recover(s: Script) -> None:
    c = s.channel()
    for q in both(c):
        for body in "abc":
            c.publish("", q, body)
        for _ in range(2):
            c.get(q)
        c.recover()
        for _ in range(3):
            c.get_soon(q)
        c.ack(multiple=True)
    c.recover(requeue=False)


@scenario
@specification(
    "quorum-queues: Consumers should use manual acknowledgements",
    "reliability-guide: Conversely if the redelivered flag is not set",
)
def what_a_closed_channel_held(s: Script) -> None:
    c = s.channel()
    other = s.channel("other")
    for q in both(c):
        for body in "abc":
            c.publish("", q, body)
        c.get(q)
        c.get(q)
        c.close()
        for _ in range(3):
            other.get_soon(q)
        other.ack(multiple=True)


@scenario
@specification("quorum-queues: Client crash / Connection loss")
def what_a_lost_connection_held(s: Script) -> None:
    c = s.channel()
    other = s.channel("other")
    for kind in KINDS:
        q = kind["x-queue-type"]
        other.declare(q, kind)
        other.publish("", q, "a")
        c.consume(q, "c")
        c.deliveries(1)
        c.lose()
        other.get_soon(q)
        other.ack()


@scenario
@specification(
    "quorum-queues: Quorum queues keep track of the number of unsuccessful",
    "quorum-queues: The header x-acquired-count has been introduced",
)
def counts_of_deliveries(s: Script) -> None:
    c = s.channel()
    for q in both(c):
        c.publish("", q, "a", headers={"h": 1})
        c.get(q)
        c.nack()
        c.get_soon(q)
        c.reject()
        c.get_soon(q)
        c.recover()
        c.get_soon(q)
        c.close()
        c.get_soon(q)
        c.ack()


@scenario
def a_delivery_count_of_the_publisher(s: Script) -> None:
    c = s.channel()
    c.declare("q", QUORUM)
    c.publish("", "q", "a", headers={"x-delivery-count": 7, "x-acquired-count": 9})
    c.get("q")
    c.reject()
    c.get_soon("q")


@scenario
@specification(
    "quorum-queues: Starting with RabbitMQ 4.3, the delivery limit is based",
    "quorum-queues: When a message has been redelivered more times",
    "quorum-queues: The default delivery limit can be disabled",
)
def delivery_limit(s: Script) -> None:
    c = s.channel()
    c.declare("dead", QUORUM)
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    c.declare("q", {**QUORUM, "x-delivery-limit": 1, **dead})
    c.publish("", "q", "a")
    for _ in range(2):
        c.get_soon("q")
        c.nack()
    for _ in range(2):
        c.get_soon("q")
        c.reject()
    c.get_soon("dead", no_ack=True)
    c.get("q")
    c.declare("none", {**QUORUM, "x-delivery-limit": 0, **dead})
    c.publish("", "none", "b")
    c.get("none")
    c.reject()
    c.get_soon("dead", no_ack=True)
    c.declare("unlimited", {**QUORUM, "x-delivery-limit": -1, **dead})
    c.publish("", "unlimited", "c")
    for _ in range(25):
        c.get_soon("unlimited")
        c.reject()
    c.get_soon("unlimited", no_ack=True)


@scenario
@specification("quorum-queues: Starting with RabbitMQ 4.0, the delivery limit")
def the_default_delivery_limit(s: Script) -> None:
    c = s.channel()
    c.declare("q", QUORUM)
    c.publish("", "q", "a")
    for _ in range(20):
        c.get_soon("q")
        c.reject()
    c.get_soon("q")
    c.reject()
    c.count("q", 0)


@scenario
@specification("reliability-guide: Acknowledgements can be used in both directions")
def prefetch(s: Script) -> None:
    c = s.channel()
    for q in both(c):
        c.qos(2)
        c.consume(q, q)
        for body in "abcd":
            c.publish("", q, body)
        c.deliveries(2)
        c.quiet()
        c.ack(multiple=True)
        c.deliveries(2)
        c.ack(multiple=True)
        c.cancel(q)
    c.qos(1, size=5)


@scenario
@specification("quorum-queues: Quorum queues do not support global QoS")
def shared_prefetch(s: Script) -> None:
    c = s.channel()
    c.declare("quorum", QUORUM)
    c.declare("classic", CLASSIC)
    c.qos(2, shared=True)
    c.consume("classic", "c1")
    c.consume("classic", "c2")
    for body in "abc":
        c.publish("", "classic", body)
    c.deliveries(2)
    c.quiet()
    c.ack()
    c.deliveries(1)
    c.consume("quorum", "c3")


@scenario
def consumer_errors(s: Script) -> None:
    c = s.channel()
    c.consume("none", "c")
    c.declare("q", QUORUM)
    c.consume("q", "c", {"x-priority": "high"})
    c.consume("q", "c", {"x-stream-offset": "first"})
    c.consume("q", "c1", {"x-cancel-on-ha-failover": True})
    c.consume("q", "c2", {"x-unheard-of": 1})
    c.consume("q", "c3")
    c.cancel("never")
    c.declare("k", CLASSIC)
    c.consume("k", "d", {"x-priority": "high"})
    c.consume("k", "d", {"x-stream-offset": "first"})
    c.consume("k", "d", {"x-cancel-on-ha-failover": True})


@scenario
@specification("quorum-queues: Quorum queues support consumer priorities")
def consumer_priorities(s: Script) -> None:
    c = s.channel()
    for q in both(c):
        c.qos(1)
        c.consume(q, f"{q}.low", {"x-priority": -5})
        c.consume(q, f"{q}.none")
        c.consume(q, f"{q}.high", {"x-priority": 5})
        for body in "abcd":
            c.publish("", q, body)
            s.wait(0.1)
        c.deliveries(3)
        c.quiet()
        c.ack()
        c.deliveries(1)
        c.ack(multiple=True)
        for tag in ("low", "none", "high"):
            c.cancel(f"{q}.{tag}")
        c.delete(q)


@scenario
@specification("quorum-queues: Consumer exclusivity")
def exclusive_consumers(s: Script) -> None:
    c = s.channel()
    for kind in KINDS:
        q = kind["x-queue-type"]
        other = s.channel("other")
        c.declare(q, kind)
        c.consume(q, f"{q}.one", exclusive=True)
        other.consume(q, "two")
        other.consume(q, "three", exclusive=True)
        c.cancel(f"{q}.one")
        other.consume(q, "four")
        s.channel("third").consume(q, "five", exclusive=True)


@scenario
def single_active_consumer(s: Script) -> None:
    c = s.channel()
    other = s.channel("other")
    for q in both(c, {"x-single-active-consumer": True}):
        c.consume(q, f"{q}.one")
        other.consume(q, f"{q}.two")
        c.publish("", q, "a")
        c.publish("", q, "b")
        c.deliveries(2)
        other.quiet()
        c.ack()
        c.cancel(f"{q}.one")
        c.publish("", q, "c")
        other.deliveries(1)
        other.ack()
        s.channel("third").consume(q, "three", exclusive=True)
        other.cancel(f"{q}.two")


@scenario
def single_active_consumer_by_priority(s: Script) -> None:
    c = s.channel()
    other = s.channel("other")
    c.declare("q", {**QUORUM, "x-single-active-consumer": True})
    c.consume("q", "low", {"x-priority": 1})
    c.publish("", "q", "a")
    c.deliveries(1)
    other.consume("q", "high", {"x-priority": 9})
    c.publish("", "q", "b")
    other.quiet()
    c.ack()
    other.deliveries(1)
    c.quiet()


@scenario
@specification(
    "reliability-guide: Under some circumstances the server needs to be able",
    "reliability-guide: Note that consumer cancel notification is a RabbitMQ extension",
)
def cancelled_by_the_broker(s: Script) -> None:
    c = s.channel()
    other = s.channel("other")
    unaware = s.channel("unaware", capabilities={})
    for q in both(c):
        c.consume(q, f"{q}.one")
        unaware.consume(q, f"{q}.two")
        other.delete(q)
        c.arrives()
        unaware.quiet()


@scenario
def a_consumer_deletes_its_own_queue(s: Script) -> None:
    c = s.channel()
    c.declare("q", QUORUM)
    c.consume("q", "c")
    c.delete("q")
    c.arrives()


@scenario
@specification(
    "quorum-queues: When a consumer holds unacknowledged messages beyond",
    "quorum-queues: For AMQP 0.9.1 clients: The consumer is cancelled",
    "quorum-queues: Set when declaring a queue to apply to all consumers",
)
def consumer_timeout(s: Script) -> None:
    c = s.channel()
    other = s.channel("other")
    c.declare("q", {**QUORUM, "x-consumer-timeout": 1000})
    c.publish("", "q", "a")
    c.consume("q", "c")
    c.deliveries(1)
    c.arrives()
    other.get_soon("q")
    other.reject(requeue=False)


@scenario
@specification("quorum-queues: For AMQP 0.9.1 clients: The consumer is cancelled")
def consumer_timeout_without_the_capability(s: Script) -> None:
    c = s.channel(capabilities={})
    other = s.channel("other")
    other.declare("q", {**QUORUM, "x-consumer-timeout": 1000})
    other.publish("", "q", "a")
    c.consume("q", "c")
    c.deliveries(1)
    c.arrives()
    other.get_soon("q")


@scenario
@specification("quorum-queues: Set when creating a consumer to apply")
def consumer_timeout_of_the_consumer(s: Script) -> None:
    c = s.channel()
    c.declare("q", {**QUORUM, "x-consumer-timeout": 60_000})
    c.publish("", "q", "a")
    c.consume("q", "c", {"x-consumer-timeout": 1000})
    c.deliveries(1)
    c.arrives()
    c.consume("q", "d", {"x-consumer-timeout": "soon"})
    c.consume("q", "d", {"x-consumer-timeout": -1})


@scenario
def a_cancelled_consumer_keeps_what_it_holds(s: Script) -> None:
    c = s.channel()
    for q in both(c):
        c.publish("", q, "a")
        c.consume(q, "c")
        c.deliveries(1)
        c.cancel("c")
        c.count(q)
        c.nack()
        c.get_soon(q)
        c.ack()


@scenario
def consumer_tags(s: Script) -> None:
    c = s.channel()
    c.declare("q", QUORUM)
    c.consume("q", "")
    c.consume("q", "same")
    c.consume("q", "same")


@scenario
def purge(s: Script) -> None:
    c = s.channel()
    c.purge("none")
    for q in both(c):
        for body in "abc":
            c.publish("", q, body)
        c.get(q)
        c.purge(q)
        c.count(q)
        c.nack()
        c.get_soon(q)
        c.ack()
