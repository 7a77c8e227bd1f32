"""Exchanges: which queues a message reaches, what is refused."""

from __future__ import annotations

from differ.script import CLASSIC, QUORUM, Channel, Script, Table, scenario, specification


def queues(c: Channel, *names: str) -> None:
    for name in names:
        c.declare(name, QUORUM)


def drain_each(c: Channel, *names: str) -> None:
    for name in names:
        c.drain(name)


@scenario
@specification("quorum-queues: After declaration a quorum queue can be bound")
def direct_and_fanout(s: Script) -> None:
    c = s.channel()
    queues(c, "a", "b")
    c.bind("a", "amq.direct", "k")
    c.bind("a", "amq.direct", "k")
    c.bind("b", "amq.direct", "l")
    c.bind("b", "amq.fanout", "ignored")
    c.bind("a", "amq.fanout", "")
    for key, body in {"k": "1", "l": "2", "m": "3"}.items():
        c.publish("amq.direct", key, body, mandatory=True)
    c.publish("amq.fanout", "whatever", "4", mandatory=True)
    c.unbind("a", "amq.direct", "k")
    c.publish("amq.direct", "k", "5", mandatory=True)
    drain_each(c, "a", "b")


@scenario
@specification("quorum-queues: After declaration a quorum queue can be bound")
def topic(s: Script) -> None:
    c = s.channel()
    patterns = {
        "a": "*.orange.*",
        "b": "*.*.rabbit",
        "c": "lazy.#",
        "d": "#",
        "e": "",
        "f": "#.#",
        "g": "*",
        "h": "a.#.b",
        "i": "..",
    }
    queues(c, *patterns)
    for queue, pattern in patterns.items():
        c.bind(queue, "amq.topic", pattern)
    for key in (
        "quick.orange.rabbit",
        "lazy",
        "lazy.orange.male.rabbit",
        "orange",
        "",
        ".",
        "..",
        "a.b",
        "a.x.b",
        "a.x.y.b",
        "a.x.b.c",
        "#",
        "*",
        "lazy.",
    ):
        c.publish("amq.topic", key, key or "empty")
    drain_each(c, *patterns)


@scenario
@specification("quorum-queues: After declaration a quorum queue can be bound")
def headers(s: Script) -> None:
    c = s.channel()
    tables: dict[str, Table] = {
        "all": {"x-match": "all", "a": 1, "b": "two"},
        "any": {"x-match": "any", "a": 1, "b": "two"},
        "default": {"a": 1, "b": "two"},
        "x-all": {"x-match": "all", "a": 1, "x-c": 3},
        "with-x": {"x-match": "all-with-x", "a": 1, "x-c": 3},
        "any-with-x": {"x-match": "any-with-x", "x-c": 3},
        "empty": {},
        "empty-any": {"x-match": "any"},
        "void": {"x-match": "all", "a": None},
    }
    queues(c, *tables)
    for queue, table in tables.items():
        c.bind(queue, "amq.headers", "", table)
    for body, given in {
        "both": {"a": 1, "b": "two"},
        "a": {"a": 1},
        "string": {"a": "1", "b": "two"},
        "float": {"a": 1.0},
        "large": {"a": 1, "b": "two", "c": 70_000},
        "x": {"a": 1, "x-c": 3},
        "only-x": {"x-c": 3},
        "nothing": {},
        "true": {"a": True},
    }.items():
        c.publish("amq.headers", "", body, headers=given)
    c.publish("amq.headers", "", "without")
    drain_each(c, *tables)


@scenario
def alternate_exchanges(s: Script) -> None:
    c = s.channel()
    c.exchange("first", "direct", {"alternate-exchange": "second"})
    c.exchange("second", "direct", {"alternate-exchange": "third"})
    c.exchange("third", "fanout")
    c.publish("first", "k", "nobody", mandatory=True)
    queues(c, "q")
    c.bind("q", "third")
    c.publish("first", "k", "third", mandatory=True)
    queues(c, "p")
    c.bind("p", "second", "k")
    c.publish("first", "k", "second", mandatory=True)
    c.delete_exchange("second")
    c.publish("first", "k", "missing", mandatory=True)
    drain_each(c, "q", "p")
    c.exchange("loop", "direct", {"alternate-exchange": "loop"})
    c.publish("loop", "k", "round", mandatory=True)


@scenario
def exchange_to_exchange(s: Script) -> None:
    c = s.channel()
    c.exchange("up", "topic")
    c.exchange("down", "fanout")
    c.exchange("inner", "fanout", internal=True)
    c.link("down", "up", "a.#")
    c.link("inner", "up", "#")
    c.link("up", "down", "")
    queues(c, "q", "p")
    c.bind("q", "down")
    c.bind("p", "inner")
    c.publish("up", "a.b", "1", mandatory=True)
    c.publish("up", "b", "2", mandatory=True)
    c.publish("down", "k", "3", mandatory=True)
    c.publish("inner", "k", "4", mandatory=True)
    c.unlink("down", "up", "a.#")
    c.publish("up", "a.b", "5", mandatory=True)
    c.unlink("down", "up", "a.#")
    drain_each(c, "q", "p")


@scenario
def cc_and_bcc(s: Script) -> None:
    c = s.channel()
    queues(c, "a", "b", "d")
    c.publish("", "a", "1", headers={"CC": ["b", "a"], "BCC": ["d"]})
    for queue in ("a", "b", "d"):
        c.get(queue, no_ack=True)
        c.get(queue, no_ack=True)
    c.publish("", "a", "2", headers={"CC": "b"})
    c.publish("", "a", "3", headers={"BCC": [1]})
    c.publish("", "none", "4", headers={"CC": ["b"]}, mandatory=True)
    c.publish("", "none", "5", headers={"CC": ["none either"]}, mandatory=True)
    c.drain("b")


@scenario
def consistent_hash(s: Script) -> None:
    c = s.channel()
    queues(c, "a", "b")
    c.exchange("x", "x-consistent-hash")
    for no_weight in ("0", "-1", "heavy", "1.5", ""):
        c.bind("a", "x", no_weight)
    c.publish("x", "k", "nobody", mandatory=True)
    for weight in ("1", "1", "2"):
        c.bind("a", "x", weight)
    for number in range(5):
        c.publish("x", f"{number}", f"{number}", mandatory=True)
    c.drain("a")
    c.unbind("a", "x", "1")
    c.publish("x", "k", "nobody", mandatory=True)
    c.exchange("h", "x-consistent-hash", {"hash-header": "h"})
    c.exchange("p", "x-consistent-hash", {"hash-property": "message_id"})
    c.exchange("n1", "x-consistent-hash", {"hash-header": "h", "hash-property": "message_id"})
    c.exchange("n2", "x-consistent-hash", {"hash-property": "app_id"})
    c.exchange("n3", "x-consistent-hash", {"hash-header": 5})
    c.bind("b", "h", "1")
    c.publish("h", "k", "without", mandatory=True)
    c.publish("h", "k", "with", mandatory=True, headers={"h": "x"})
    c.publish("h", "k", "number", mandatory=True, headers={"h": 5})
    c.publish("h", "k", "list", mandatory=True, headers={"h": [5]})
    c.drain("b")
    c.bind("b", "p", "1")
    c.publish("p", "k", "without", mandatory=True)
    c.publish("p", "k", "with", mandatory=True, message_id="x")
    c.drain("b")


@scenario
def modulus_hash_and_random(s: Script) -> None:
    c = s.channel()
    queues(c, "a")
    for kind in ("x-modulus-hash", "x-random"):
        c.exchange(kind, kind)
        c.publish(kind, "k", "nobody", mandatory=True)
        c.bind("a", kind, "k")
        c.publish(kind, "k", "1", mandatory=True)
        c.publish(kind, "l", "2", mandatory=True)
        c.drain("a")


@scenario
def local_random(s: Script) -> None:
    c = s.channel()
    queues(c, "quorum")
    c.declare("classic", CLASSIC)
    c.exchange("x", "x-local-random")
    c.publish("x", "k", "nobody", mandatory=True)
    c.bind("quorum", "x", "k")
    c.bind("classic", "x", "k")
    c.publish("x", "k", "1", mandatory=True)
    c.publish("x", "l", "2", mandatory=True)
    c.drain("classic")


@scenario
@specification("reliability-guide: the producer can just declare a destination queue")
def the_default_exchange(s: Script) -> None:
    c = s.channel()
    queues(c, "q")
    c.publish("", "q", "1", mandatory=True)
    c.publish("", "none", "2", mandatory=True)
    c.publish("none", "k", "3")
    c.publish("amq.rabbitmq.trace", "k", "4", mandatory=True)
    c.drain("q")


@scenario
def wildcards_of_a_topic(s: Script) -> None:
    """At most two `#` in a binding key, of queues and of exchanges."""
    c = s.channel()
    queues(c, "q")
    c.exchange("x", "topic")
    c.bind("q", "x", "#.b.#")
    c.publish("x", "a.b.c", "two", mandatory=True)
    c.drain("q")
    s.channel().bind("q", "x", "#.#.#")
    s.channel().bind("q", "amq.direct", "#.#.#")
    s.channel().link("amq.fanout", "x", ".".join(["#", "a"] * 20))
    s.channel().unbind("q", "x", "#.#.#")
