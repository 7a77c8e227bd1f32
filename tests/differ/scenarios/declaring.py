"""Declarations: passive, equivalence, bad arguments, what is deleted by itself."""

from __future__ import annotations

from differ.script import CLASSIC, QUORUM, Script, scenario, specification

NUMBERS = (
    "x-message-ttl",
    "x-expires",
    "x-max-length",
    "x-max-length-bytes",
    "x-delivery-limit",
    "x-consumer-timeout",
    "x-consumer-disconnected-timeout",
)
QUORUM_ONLY = ("x-delivery-limit", "x-consumer-timeout", "x-consumer-disconnected-timeout")
WORDS = (
    "x-overflow",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-queue-leader-locator",
)


@scenario
def passive(s: Script) -> None:
    c = s.channel()
    c.declare("q", passive=True)
    c.declare("q", QUORUM)
    c.publish("", "q", "one")
    c.declare("q", passive=True)
    c.declare("q", CLASSIC, passive=True, durable=False)
    c.exchange("x", "direct", passive=True)
    c.exchange("amq.topic", "direct", passive=True)
    c.exchange("amq.topic", "no-such-type", passive=True)


@scenario
@specification("quorum-queues: Server-named queues")
def names(s: Script) -> None:
    c = s.channel()
    c.declare("amq.mine", QUORUM)
    c.declare("amq.mine", passive=True)
    c.exchange("amq.mine", "direct")
    c.exchange("amq.mine", "direct", passive=True)
    c.delete_exchange("amq.direct")
    c.delete_exchange("none")
    c.delete("none")
    c.declare("", CLASSIC)
    c.declare("", passive=True)
    c.declare("", QUORUM)
    c.exchange("", "direct")
    c.delete_exchange("")


@scenario
def equivalence_of_a_quorum_queue(s: Script) -> None:
    c = s.channel()
    c.declare("q", {**QUORUM, "x-max-length": 5})
    c.declare("q", {**QUORUM, "x-max-length": 5})
    c.declare("q", {**QUORUM, "x-max-length": 6})
    c.declare("q", {**QUORUM, "x-max-length": "5"})
    c.declare("q", {**QUORUM, "x-max-length": 5, "x-message-ttl": 1000})
    c.declare("q", QUORUM)
    c.declare("q", {**QUORUM, "x-max-length": 5, "x-other": 1})
    c.declare("q", {**CLASSIC, "x-max-length": 5})
    c.declare("q", {**QUORUM, "x-max-length": 5}, durable=False)
    c.declare("q", {**QUORUM, "x-max-length": 5}, auto_delete=True)
    c.declare("q", {**QUORUM, "x-max-length": 5}, exclusive=True)


@scenario
def equivalence_of_a_classic_queue(s: Script) -> None:
    c = s.channel()
    c.declare("q", {**CLASSIC, "x-message-ttl": 60_000, "x-dead-letter-exchange": "dead"})
    c.declare("q", {**CLASSIC, "x-message-ttl": 60_001, "x-dead-letter-exchange": "dead"})
    c.declare("q", {**CLASSIC, "x-message-ttl": 60_000, "x-dead-letter-exchange": "other"})
    c.declare("q", {**CLASSIC, "x-message-ttl": 60_000})
    c.declare("q", {**CLASSIC, "x-message-ttl": 60_000, "x-dead-letter-exchange": "dead"})
    c.declare("q", CLASSIC, durable=False)
    c.declare("p", {**CLASSIC, "x-max-priority": 5})
    c.declare("p", {**CLASSIC, "x-max-priority": 6})
    c.declare("p", CLASSIC)
    c.declare("s", {**CLASSIC, "x-single-active-consumer": True})
    c.declare("s", {**CLASSIC, "x-single-active-consumer": False})
    c.declare("s", CLASSIC)
    c.declare("t", CLASSIC, durable=False, exclusive=True)
    c.declare("t", CLASSIC, durable=False)
    c.declare("t", CLASSIC, durable=True, exclusive=True)


@scenario
def equivalence_of_an_exchange(s: Script) -> None:
    c = s.channel()
    c.exchange("x", "direct", {"alternate-exchange": "other"}, durable=True)
    c.exchange("x", "direct", {"alternate-exchange": "other"}, durable=True)
    c.exchange("x", "direct", {"alternate-exchange": "another"}, durable=True)
    c.exchange("x", "direct", durable=True)
    c.exchange("x", "fanout", {"alternate-exchange": "other"}, durable=True)
    c.exchange("x", "direct", {"alternate-exchange": "other"})
    c.exchange("x", "direct", {"alternate-exchange": "other"}, durable=True, auto_delete=True)
    c.exchange("x", "direct", {"alternate-exchange": "other"}, durable=True, internal=True)
    c.exchange("y", "direct", {"alternate-exchange": 5})
    c.exchange("y", "no-such-type")
    c.exchange("y", "")


@scenario
@specification("quorum-queues: Non-durable queues")
def what_a_quorum_queue_cannot_be(s: Script) -> None:
    c = s.channel()
    c.declare("q", QUORUM, durable=False)
    c.declare("q", QUORUM, auto_delete=True)
    c.declare("q", QUORUM, exclusive=True)
    c.declare("q1", {**QUORUM, "x-max-priority": 5})
    c.declare("q2", {**QUORUM, "x-overflow": "reject-publish-dlx"})
    c.declare("q3", {"x-queue-type": "other"})
    c.declare("q4", {"x-queue-type": 5})
    c.declare("q5", {"x-queue-type": "QUORUM"})


@scenario
def numbers_of_a_quorum_queue(s: Script) -> None:
    c = s.channel()
    for name in NUMBERS:
        for number, value in enumerate((-1, 0, "5", 1.5, True, None, [5], 5)):
            c.declare(f"q.{name}.{number}", {**QUORUM, name: value})


@scenario
def numbers_of_a_classic_queue(s: Script) -> None:
    c = s.channel()
    for name in (*(name for name in NUMBERS if name not in QUORUM_ONLY), "x-max-priority"):
        for number, value in enumerate((-1, 0, "5", 1.5, 5)):
            c.declare(f"q.{name}.{number}", {**CLASSIC, name: value})


@scenario
def words(s: Script) -> None:
    c = s.channel()
    for kind in (QUORUM, CLASSIC):
        for name in WORDS:
            for value in (5, True, "other", ""):
                c.declare(
                    f"q.{kind['x-queue-type']}.{name}.{value}",
                    {**kind, name: value},
                )


@scenario
def the_greatest_numbers(s: Script) -> None:
    c = s.channel()
    for name in ("x-message-ttl", "x-expires"):
        for value in (4_294_967_295, 315_360_000_000, 315_360_000_001):
            c.declare(f"q.{name}.{value}", {**QUORUM, name: value})
    for value in (32, 255, 256):
        c.declare(f"q.priority.{value}", {**CLASSIC, "x-max-priority": value})


@scenario
@specification("quorum-queues: The group size argument provided should be")
def group_sizes(s: Script) -> None:
    c = s.channel()
    for name in ("x-quorum-initial-group-size", "x-quorum-target-group-size"):
        for number, value in enumerate((0, -1, 1, "1", 9)):
            c.declare(f"q.{name}.{number}", {**QUORUM, name: value})
        c.declare(f"q.classic.{name}", {**CLASSIC, name: 1})


@scenario
@specification(
    "at-least-once-dead-lettering: For at-least-once dead lettering to work it must be of"
)
def arguments_of_the_other_type(s: Script) -> None:
    c = s.channel()
    c.declare("q1", {**CLASSIC, "x-dead-letter-strategy": "at-least-once"})
    c.declare("q2", {**QUORUM, "x-dead-letter-strategy": "sometimes"})
    c.declare("q3", {**QUORUM, "x-dead-letter-strategy": "at-most-once"})
    c.declare("q4", {**CLASSIC, "x-delayed-retry-type": "all"})
    c.declare("q5", {**CLASSIC, "x-delayed-retry-min": 5})
    c.declare("q6", {**QUORUM, "x-queue-mode": "lazy"})
    c.declare("q7", {**CLASSIC, "x-queue-mode": "lazy"})
    c.declare("q8", {**CLASSIC, "x-queue-mode": "other"})
    c.declare("q18", {**CLASSIC, "x-queue-mode": 5})
    c.declare("q19", {**CLASSIC, "x-delivery-limit": 5})
    c.declare("q20", {**CLASSIC, "x-consumer-timeout": 5})
    c.declare("q21", {**CLASSIC, "x-consumer-disconnected-timeout": 5})
    c.declare("q9", {**CLASSIC, "x-queue-version": 2})
    c.declare("q10", {**QUORUM, "x-queue-version": 2})
    c.declare("q11", {**QUORUM, "x-max-in-memory-length": 5})
    c.declare("q12", {**QUORUM, "x-unheard-of": "x"})
    c.declare("q13", {**CLASSIC, "x-unheard-of": "x"})
    c.declare("q14", {**QUORUM, "x-single-active-consumer": "yes"})
    c.declare("q15", {**CLASSIC, "x-single-active-consumer": "yes"})
    c.declare("q16", {**QUORUM, "x-dead-letter-routing-key": "k"})
    c.declare("q17", {**CLASSIC, "x-dead-letter-routing-key": "k"})


@scenario
def delete_if(s: Script) -> None:
    c = s.channel()
    c.declare("q", CLASSIC)
    c.publish("", "q", "one")
    c.delete("q", if_empty=True)
    other = s.channel("other")
    other.consume("q", "c")
    c.delete("q", if_unused=True)
    other.deliveries(1)
    other.ack()
    other.cancel("c")
    c.delete("q", if_unused=True, if_empty=True)
    c.delete("q")


@scenario
def delete_if_of_a_quorum_queue(s: Script) -> None:
    c = s.channel()
    c.declare("q", QUORUM)
    c.delete("q", if_empty=True)
    c.declare("q", QUORUM)
    c.delete("q", if_unused=True)


@scenario
@specification("mirrored-queues: Exclusive queues will be deleted when the connection")
def exclusive_queues(s: Script) -> None:
    owner = s.channel("owner")
    other = s.channel("other")
    owner.declare("q", CLASSIC, exclusive=True, durable=False)
    owner.declare("q", CLASSIC, exclusive=True, durable=False)
    other.declare("q", CLASSIC, exclusive=True, durable=False)
    other.declare("q", passive=True)
    other.consume("q", "c")
    other.get("q")
    other.purge("q")
    other.delete("q")
    other.bind("q", "amq.direct", "k")
    other.publish("", "q", "from the other")
    owner.get("q", no_ack=True)
    owner.hang_up()
    other.gone("q")


@scenario
def auto_delete_queues(s: Script) -> None:
    c = s.channel()
    c.declare("q", CLASSIC, auto_delete=True, durable=False)
    c.consume("q", "c1")
    c.consume("q", "c2")
    c.cancel("c1")
    c.count("q")
    c.cancel("c2")
    c.count("q")
    other = s.channel("other")
    c.declare("q2", CLASSIC, auto_delete=True, durable=False)
    other.consume("q2", "c")
    other.hang_up()
    c.gone("q2")


@scenario
def auto_delete_exchanges(s: Script) -> None:
    c = s.channel()
    c.exchange("x", "fanout", auto_delete=True)
    c.declare("q", QUORUM)
    c.bind("q", "x")
    c.unbind("q", "x")
    c.exchange("x", "fanout", passive=True)
    c.exchange("y", "fanout", auto_delete=True)
    c.exchange("z", "fanout")
    c.link("z", "y")
    c.delete_exchange("z")
    c.exchange("y", "fanout", passive=True)


@scenario
def binding_errors(s: Script) -> None:
    c = s.channel()
    c.declare("q", QUORUM)
    c.bind("q", "none", "k")
    c.bind("none", "amq.direct", "k")
    c.bind("none", "none", "k")
    c.bind("q", "", "k")
    c.unbind("q", "amq.direct", "never")
    c.unbind("q", "none", "k")
    c.unbind("none", "amq.direct", "k")
    c.link("none", "amq.direct")
    c.link("amq.direct", "none")
    c.link("", "amq.direct")
    c.exchange("x", "headers")
    c.bind("q", "x", "", {"x-match": "some"})
    c.bind("q", "x", "", {"x-match": 5})
    c.exchange("busy", "direct")
    c.bind("q", "busy", "k")
    c.delete_exchange("busy", if_unused=True)
    c.delete_exchange("busy")


@scenario
@specification("quorum-queues: Queue TTL")
def queue_ttl(s: Script) -> None:
    c = s.channel()
    c.declare("classic", {**CLASSIC, "x-expires": 1500})
    c.declare("quorum", {**QUORUM, "x-expires": 1500})
    s.wait(2.5)
    c.gone("classic")
    c.gone("quorum")
    c.declare("held", {**QUORUM, "x-expires": 1500})
    c.consume("held", "c")
    s.wait(3.0)
    c.count("held")
    c.cancel("c")
    s.wait(2.5)
    c.gone("held")
