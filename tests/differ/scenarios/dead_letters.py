"""Dead letters: which messages, where to, with which headers."""

from __future__ import annotations

from differ.script import KINDS, QUORUM, Script, Table, both, scenario, specification


def to(key: str, exchange: str = "") -> Table:
    return {"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": key}


@scenario
@specification(
    "quorum-queues: Dead letter exchanges",
    "quorum-queues: Messages published to the source quorum queue are persisted",
    "reliability-guide: If a consumer determines that it cannot handle a message",
    "at-least-once-dead-lettering: to republish those messages to a special-purpose exchange",
    "at-least-once-dead-lettering: expired: Message TTL exceeded",
    "at-least-once-dead-lettering: rejected: Consumer sent basic.reject",
    "at-least-once-dead-lettering: maxlen: Queue length exceeded",
    "at-least-once-dead-lettering: delivery_limit: Delivery limit exceeded",
    "at-least-once-dead-lettering: If the persistence flag is not set, dead lettered",
)
def every_reason(s: Script) -> None:
    c = s.channel()
    for kind in KINDS:
        q = kind["x-queue-type"]
        dead = f"{q}.dead"
        c.declare(dead, kind)
        c.declare(q, {**kind, **to(dead)})
        c.publish("", q, "rejected", headers={"h": "kept"})
        c.get(q)
        c.reject(requeue=False)
        c.get_soon(dead, no_ack=True)
        c.publish("", q, "nacked")
        c.get(q)
        c.nack(requeue=False)
        c.get_soon(dead, no_ack=True)
        c.publish("", q, "expired", expiration="100", delivery_mode=2, priority=2)
        c.get_soon(dead, no_ack=True)
        c.declare(f"{q}.short", {**kind, **to(dead), "x-max-length": 1})
        c.publish("", f"{q}.short", "first")
        c.publish("", f"{q}.short", "second")
        c.get_soon(dead, no_ack=True)
    c.declare("limited", {**QUORUM, **to("quorum.dead"), "x-delivery-limit": 0})
    c.reject_one("limited", "too often")
    c.get_soon("quorum.dead", no_ack=True)


@scenario
def through_more_than_one_queue(s: Script) -> None:
    c = s.channel()
    for kind in KINDS:
        q = kind["x-queue-type"]
        c.declare(f"{q}.three", kind)
        c.declare(f"{q}.two", {**kind, **to(f"{q}.three")})
        c.declare(f"{q}.one", {**kind, **to(f"{q}.two")})
        c.publish("", f"{q}.one", "a", headers={"CC": ["nowhere"], "BCC": ["nowhere too"]})
        c.get(f"{q}.one")
        c.reject(requeue=False)
        c.get_soon(f"{q}.two")
        c.reject(requeue=False)
        c.get_soon(f"{q}.three")
        c.ack()


@scenario
def the_same_queue_again(s: Script) -> None:
    c = s.channel()
    for kind in KINDS:
        q = kind["x-queue-type"]
        c.declare(q, {**kind, **to(q)})
        c.publish("", q, "a")
        for _ in range(3):
            c.get_soon(q)
            c.reject(requeue=False)
        c.get_soon(q)
        c.ack()


@scenario
def a_loop_of_expiry_ends(s: Script) -> None:
    c = s.channel()
    for kind in KINDS:
        q = kind["x-queue-type"]
        c.declare(q, {**kind, **to(q), "x-message-ttl": 100})
        c.publish("", q, "a")
        c.count(q, 0)
        s.wait(0.5)
        c.get(q)


@scenario
def a_loop_of_two_queues(s: Script) -> None:
    c = s.channel()
    c.declare("work", {**QUORUM, **to("wait")})
    c.declare("wait", {**QUORUM, **to("work"), "x-message-ttl": 150})
    c.publish("", "work", "a")
    for _ in range(3):
        c.get_soon("work")
        c.reject(requeue=False)
    c.get_soon("work")


@scenario
def without_a_routing_key(s: Script) -> None:
    c = s.channel()
    c.exchange("dead", "topic")
    c.declare("letters", QUORUM)
    c.bind("letters", "dead", "#")
    for q in both(c, {"x-dead-letter-exchange": "dead"}):
        c.bind(q, "amq.direct", "a.key")
        c.publish("amq.direct", "a.key", "1", headers={"CC": ["other"], "BCC": ["hidden"]})
        c.get(q)
        c.reject(requeue=False)
        c.get_soon("letters", no_ack=True)
        c.get("letters", no_ack=True)


@scenario
def with_a_routing_key_and_cc(s: Script) -> None:
    c = s.channel()
    c.declare("letters", QUORUM)
    c.declare("q", {**QUORUM, **to("letters")})
    c.publish("", "q", "1", headers={"CC": ["letters"], "BCC": ["hidden"]})
    c.drain("letters")
    c.get("q")
    c.reject(requeue=False)
    c.get_soon("letters", no_ack=True)
    c.get("letters")


@scenario
@specification(
    "quorum-queues: at-most-once remains the default",
    "at-least-once-dead-lettering: Dead lettered messages may arrive at the target queues",
)
def nowhere_to_go(s: Script) -> None:
    c = s.channel()
    c.declare("q", {**QUORUM, **to("k", "missing")})
    c.publish("", "q", "a")
    c.get("q")
    c.reject(requeue=False)
    c.count("q", 0)
    c.declare("p", {**QUORUM, **to("none")})
    c.publish("", "p", "a")
    c.get("p")
    c.reject(requeue=False)
    c.count("p", 0)


@scenario
def a_death_that_the_client_wrote(s: Script) -> None:
    c = s.channel()
    c.declare("dead", QUORUM)
    c.declare("q", {**QUORUM, **to("dead")})
    c.publish("", "q", "1", headers={"x-death": "none", "x-first-death-queue": "mine"})
    c.get("q")
    c.reject(requeue=False)
    c.get_soon("dead", no_ack=True)


@scenario
def dead_letters_keep_their_order(s: Script) -> None:
    c = s.channel()
    c.declare("dead", QUORUM)
    c.declare("q", {**QUORUM, **to("dead"), "x-max-length": 3})
    for number in range(9):
        c.publish("", "q", f"{number}")
    c.count("dead", 6)
    c.drain("dead")
    c.drain("q")


@scenario
def deleting_and_purging_are_no_deaths(s: Script) -> None:
    c = s.channel()
    c.declare("dead", QUORUM)
    c.declare("q", {**QUORUM, **to("dead")})
    c.publish("", "q", "a")
    c.purge("q")
    c.publish("", "q", "b")
    c.delete("q")
    s.wait(0.3)
    c.count("dead")
