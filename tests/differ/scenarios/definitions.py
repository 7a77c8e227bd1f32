"""Definitions of a vhost: what an export has, which imports are refused."""

from __future__ import annotations

from typing import Any

from differ.operating import Operator
from differ.script import CLASSIC, QUORUM, Script, scenario

KINDS = ("queues", "exchanges", "bindings", "policies", "parameters")


def queue(name: str, **more: Any) -> dict[str, Any]:
    """A queue of a document."""
    return {"name": name, "durable": True, "auto_delete": False, "arguments": {}, **more}


def exchange(name: str, kind: str, **more: Any) -> dict[str, Any]:
    """An exchange of a document."""
    flags = {"durable": True, "auto_delete": False, "internal": False}
    return {"name": name, "type": kind, **flags, "arguments": {}, **more}


def binding(source: str, destination: str, key: str = "", **more: Any) -> dict[str, Any]:
    """A binding of a document."""
    ends = {"source": source, "destination": destination, "destination_type": "queue"}
    return {**ends, "routing_key": key, "arguments": {}, **more}


def policy(pattern: str, definition: dict[str, Any]) -> dict[str, Any]:
    """A policy of a document."""
    parts = {"pattern": pattern, "definition": definition, "apply-to": "queues", "priority": 0}
    return {"name": "p", **parts}


@scenario
def an_empty_vhost(s: Script) -> None:
    with Operator(s) as operator:
        operator.exports(KINDS)


@scenario
def an_export(s: Script) -> None:
    c = s.channel()
    with Operator(s) as operator:
        c.declare("plain", auto_delete=True)
        c.declare("quorum", {**QUORUM, "x-max-length": 5, "x-overflow": "reject-publish"})
        c.declare("classic", {**CLASSIC, "x-message-ttl": 60_000})
        c.declare("passing", durable=False, auto_delete=True)
        c.declare("mine", durable=False, exclusive=True)
        c.exchange("news", "topic", {"alternate-exchange": "rest"}, durable=True)
        c.exchange("rest", "fanout", auto_delete=True)
        c.exchange("inside", "direct", durable=True, internal=True)
        c.exchange("spread", "x-consistent-hash", {"hash-header": "h"}, durable=True)
        c.bind("quorum", "news", "a.#", {"k": [1, "x"], "f": 1.5, "t": True})
        c.bind("classic", "amq.headers", "", {"x-match": "any", "n": 3})
        c.bind("mine", "rest")
        c.link("rest", "news", "b.*")
        s.policy("p", "^q", {"max-length": 7}, apply_to="queues", priority=3)
        s.policy("o", ".*", {"max-length-bytes": 1000}, operator=True)
        operator.limit("max-queues", 50)
        operator.exports(KINDS)


@scenario
def an_import(s: Script) -> None:
    c = s.channel()
    with Operator(s) as operator:
        document = {
            "queues": [
                queue("q", type="quorum", arguments={"x-queue-type": "quorum", "x-max-length": 2}),
                queue("c", type="classic"),
                queue("d", arguments={"x-queue-type": "classic"}),
            ],
            "exchanges": [exchange("x", "fanout"), exchange("i", "direct", internal=True)],
            "bindings": [binding("x", "q"), binding("x", "c"), binding("amq.direct", "c", "k")],
            "policies": [policy("^d", {"message-ttl": 60000})],
        }
        operator.imports("objects", document)
        c.publish("x", "", "a", mandatory=True)
        c.publish("amq.direct", "k", "b", mandatory=True)
        c.drain("q")
        c.drain("c")
        s.effective("d", "p")
        operator.imports("the same again", document)
        operator.exports(KINDS)
        operator.imports("nothing", {})
        more = {"queues": [queue("e", type="quorum")], "bindings": [binding("x", "e")]}
        operator.imports("more", more)
        c.publish("x", "", "c", mandatory=True)
        c.drain("e")


@scenario
def refused_imports(s: Script) -> None:
    c = s.channel()
    with Operator(s) as operator:
        operator.imports("a list", [])
        operator.imports("queues that are no list", {"queues": {"name": "q"}})
        operator.imports("a queue without a name", {"queues": [{"durable": True}]})
        operator.imports("a queue that is text", {"queues": ["q"]})
        operator.imports("an exchange without a type", {"exchanges": [{"name": "x"}]})
        operator.imports("a pattern", {"policies": [policy("(", {"max-length": 1})]})
        operator.imports("a policy's value", {"policies": [policy("q", {"max-length": "x"})]})
        operator.imports("a policy's keys", {"policies": [policy("q", {})]})
        operator.imports("a limit", {"parameters": [limits({"max-queues": "x"})]})
        operator.imports("an unknown limit", {"parameters": [limits({"max-files": 1})]})
        operator.imports("arguments", {"queues": [queue("q", arguments=5)]})
        c.declare("q", passive=True)
        operator.exports(KINDS)


def limits(value: dict[str, Any]) -> dict[str, Any]:
    """The limits of the vhost in a document."""
    return {"component": "vhost-limits", "name": "limits", "value": value}


@scenario
def what_is_left_out(s: Script) -> None:
    c = s.channel()
    with Operator(s) as operator:
        missing = {"exchanges": [exchange("x", "fanout")], "bindings": [binding("x", "missing")]}
        operator.imports("a binding of a missing queue", missing)
        c.exchange("x", "fanout", passive=True)
        kinds = {"exchanges": [exchange("y", "x-nobody-has-it"), exchange("z", "fanout")]}
        operator.imports("an unknown exchange type", kinds)
        c.exchange("z", "fanout", passive=True)
        values = {"queues": [queue("q", arguments={"x-max-length": "x"}), queue("p")]}
        operator.imports("a queue's argument", values)
        c.declare("p", passive=True)
        c.declare("other", CLASSIC)
        other = {"queues": [queue("other", type="quorum"), queue("r")]}
        operator.imports("a queue that is of another type here", other)
        c.declare("r", passive=True)
        c.declare("other", {**CLASSIC})
