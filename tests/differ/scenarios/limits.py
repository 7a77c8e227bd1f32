"""Length limits, times to live, priorities."""

from __future__ import annotations

from differ.script import CLASSIC, QUORUM, Script, both, scenario, specification


@scenario
@specification(
    "quorum-queues: Quorum queues has support for queue length",
    "quorum-queues: The drop-head and reject-publish overflow",
)
def drop_head(s: Script) -> None:
    c = s.channel()
    for q in both(c, {"x-max-length": 2}):
        for body in "abcd":
            c.publish("", q, body)
        c.count(q, 2)
        c.get(q)
        c.publish("", q, "e")
        c.publish("", q, "f")
        c.nack()
        c.count(q, 2)
        c.drain(q)


@scenario
@specification("quorum-queues: Quorum queues has support for queue length")
def drop_head_by_bytes(s: Script) -> None:
    c = s.channel()
    for q in both(c, {"x-max-length-bytes": 10}):
        for body in ("aaaa", "bbbb", "cc", "d", "eeeeeeeeee", "f"):
            c.publish("", q, body)
        c.publish("", q, "too long for it")
        c.count(q)
        c.drain(q)


@scenario
@specification("quorum-queues: The drop-head and reject-publish overflow")
def reject_publish(s: Script) -> None:
    c = s.channel()
    for q in both(c, {"x-max-length": 2, "x-overflow": "reject-publish"}):
        c.publish("", q, "a")
        c.publish("", q, "b")
        s.wait(0.5)
        c.publish("", q, "c")
        s.wait(0.5)
        c.publish("", q, "d", mandatory=True)
        c.get(q, no_ack=True)
        s.wait(0.5)
        c.publish("", q, "e")
        c.drain(q)


@scenario
def a_full_queue_among_others(s: Script) -> None:
    c = s.channel()
    c.declare("full", {**CLASSIC, "x-max-length": 0, "x-overflow": "reject-publish"})
    c.declare("free", CLASSIC)
    c.bind("full", "amq.fanout")
    c.bind("free", "amq.fanout")
    c.publish("amq.fanout", "", "a")
    c.drain("free")
    c.drain("full")


@scenario
def max_length_of_nothing(s: Script) -> None:
    c = s.channel()
    for q in both(c, {"x-max-length": 0}):
        c.publish("", q, "a")
        c.count(q, 0)
        c.consume(q, "c", no_ack=True)
        c.publish("", q, "b")
        c.quiet()
        c.cancel("c")


@scenario
@specification("quorum-queues: Quorum queues support both Queue TTL")
def message_ttl(s: Script) -> None:
    c = s.channel()
    for q in both(c, {"x-message-ttl": 300}):
        c.publish("", q, "a")
        c.publish("", q, "b", expiration="60000")
        c.publish("", q, "c", expiration="50")
        s.wait(1.0)
        c.count(q, 0)
        c.publish("", q, "d")
        c.get(q)
        s.wait(0.8)
        c.nack()
        c.count(q, 0)
        c.get(q)


@scenario
@specification("quorum-queues: Quorum queues support both Queue TTL")
def expiration_of_messages(s: Script) -> None:
    c = s.channel()
    for q in both(c):
        c.publish("", q, "first", expiration="200")
        c.publish("", q, "stays")
        c.publish("", q, "behind", expiration="200")
        s.wait(0.8)
        c.count(q)
        c.get(q, no_ack=True)
        c.get(q, no_ack=True)
        for value in ("-1", "soon", "", "1.5", "4294967295", "315360000001", " 5"):
            c.publish("", q, value, expiration=value)
        c.drain(q)
        s.channel("other").publish("", q, "more than 32 bits", expiration="4294967296")


@scenario
def ttl_of_nothing(s: Script) -> None:
    c = s.channel()
    consumer = s.channel("consumer")
    for q in both(c, {"x-message-ttl": 0}):
        c.publish("", q, "a")
        c.count(q, 0)
        c.get(q)
        consumer.consume(q, "c")
        c.publish("", q, "b")
        consumer.deliveries(1)
        consumer.nack()
        consumer.quiet()
        consumer.cancel("c")
        c.declare(f"{q}.each", {"x-queue-type": q})
        c.publish("", f"{q}.each", "a", expiration="0")
        c.get(f"{q}.each")


@scenario
def the_shorter_of_two_times(s: Script) -> None:
    c = s.channel()
    c.declare("q", {**QUORUM, "x-message-ttl": 60_000})
    c.publish("", "q", "short", expiration="200")
    s.wait(0.8)
    c.count("q", 0)
    c.publish("", "q", "kept", expiration="50000")
    c.get("q", no_ack=True)


@scenario
@specification(
    "quorum-queues: Unlike the previous",
    "quorum-queues: Priority values higher than 31 will be clamped",
)
def priorities_of_a_quorum_queue(s: Script) -> None:
    c = s.channel()
    c.declare("q", QUORUM)
    for priority in (0, 5, None, 31, 4, 255, 3, 32, 5, 1):
        given = {} if priority is None else {"priority": priority}
        c.publish("", "q", f"p{priority}", **given)
    c.drain("q")
    c.publish("", "q", "low", priority=1)
    c.publish("", "q", "high", priority=9)
    c.get("q")
    c.nack()
    c.publish("", "q", "higher", priority=20)
    c.drain("q")


@scenario
@specification("quorum-queues: they do not retain their original priority")
def returned_messages_come_first_whatever_their_priority(s: Script) -> None:
    c = s.channel()
    c.declare("q", QUORUM)
    for priority in (9, 1, 5):
        c.publish("", "q", f"p{priority}", priority=priority)
    for _ in range(3):
        c.get("q")
    c.nack(3)
    c.nack(1)
    c.publish("", "q", "p31", priority=31)
    c.nack(2)
    c.drain("q")


@scenario
def priorities_of_a_classic_queue(s: Script) -> None:
    c = s.channel()
    c.declare("q", {**CLASSIC, "x-max-priority": 10})
    for priority in (0, 5, None, 10, 4, 255, 5, 11, 1):
        given = {} if priority is None else {"priority": priority}
        c.publish("", "q", f"p{priority}", **given)
    c.drain("q")
    c.publish("", "q", "low", priority=1)
    c.get("q")
    c.publish("", "q", "high", priority=9)
    c.publish("", "q", "low too", priority=1)
    c.nack()
    c.drain("q")


@scenario
@specification("quorum-queues: Message expiration (TTL) scans now run")
def a_low_priority_does_not_keep_a_higher_one_from_expiring(s: Script) -> None:
    c = s.channel()
    c.declare("q", QUORUM)
    c.publish("", "q", "low", priority=0)
    c.publish("", "q", "high", priority=9, expiration="200")
    c.publish("", "q", "behind low", priority=0, expiration="200")
    s.wait(0.8)
    c.count("q")
    c.drain("q")


@scenario
def drop_head_and_priorities(s: Script) -> None:
    c = s.channel()
    c.declare("q", {**QUORUM, "x-max-length": 2})
    c.publish("", "q", "high", priority=9)
    c.publish("", "q", "low", priority=0)
    c.publish("", "q", "middle", priority=5)
    c.count("q", 2)
    c.drain("q")
