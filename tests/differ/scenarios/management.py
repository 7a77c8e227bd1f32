"""Requests of AMQP 1.0 management: codes, texts, keys and types of answers."""

from __future__ import annotations

from typing import Any

from proton import UNDESCRIBED, Array, Data, symbol, ulong

from differ.links import SETTLED, Links
from differ.script import Script, scenario


def queue(**fields: Any) -> dict[str, Any]:
    """Return the body that declares a queue."""
    return {"durable": True, "exclusive": False, "auto_delete": False, "arguments": {}, **fields}


@scenario
def queues_requested(s: Script) -> None:
    a = Links(s)
    a.manage()
    quorum, classic = {"x-queue-type": "quorum"}, {"x-queue-type": "classic"}
    a.request("PUT", "/queues/q", queue(arguments=quorum))
    a.request("PUT", "/queues/q", queue(arguments=quorum))
    a.request("PUT", "/queues/q", queue(arguments=classic))
    a.request("PUT", "/queues/q", queue(arguments={**quorum, "x-max-length": ulong(5)}))
    a.request("GET", "/queues/q")
    a.request("GET", "/queues/none")
    a.request("PUT", "/queues/c", queue(arguments=classic, auto_delete=True))
    a.request("GET", "/queues/c")
    a.request("PUT", "/queues/amq.mine", queue())
    a.request("PUT", "/queues/x", queue(arguments={"x-queue-type": "other"}))
    a.request("PUT", "/queues/x", queue(arguments={**quorum, "x-max-length": "5"}))
    a.request("PUT", "/queues/x", queue(arguments={**quorum, "x-expires": 0}))
    a.request("PUT", "/queues/x", queue(arguments={**quorum, "x-max-priority": 5}))
    a.request("PUT", "/queues/x", queue(durable=False, arguments=quorum))
    a.request("PUT", "/queues/x", {"durable": "yes"})
    a.request("PUT", "/queues/x", {"unknown": True})
    a.request("DELETE", "/queues/none")
    a.request("DELETE", "/queues/q/messages")
    a.request("DELETE", "/queues/none/messages")
    a.request("DELETE", "/queues/q")


@scenario
def queues_in_use_requested(s: Script) -> None:
    c = s.channel()
    c.declare("x", exclusive=True, durable=False)
    a = Links(s)
    a.manage()
    a.request("GET", "/queues/x")
    a.request("PUT", "/queues/x", queue(durable=False, exclusive=True))
    a.request("DELETE", "/queues/x")
    a.request("DELETE", "/queues/x/messages")
    a.request("PUT", "/queues/mine", queue(exclusive=True, durable=False))
    a.request("GET", "/queues/mine")
    a.request("POST", "/bindings", binding("amq.direct", "x"))


@scenario
def a_name_for_replies_requested(s: Script) -> None:
    a, b = Links(s, "requester"), Links(s)
    a.start()
    source = {
        "dynamic": True,
        "expiry_policy": symbol("link-detach"),
        "capabilities": Array(UNDESCRIBED, Data.SYMBOL, symbol("rabbitmq:volatile-queue")),
    }
    a.attach("link", source=source, target="/t", receives=True, snd_settle_mode=SETTLED)
    b.manage()
    b.request("GET", a.address)
    a.detach("link")
    b.request("GET", a.address)


@scenario
def exchanges_requested(s: Script) -> None:
    a = Links(s)
    a.manage()
    direct = {"durable": True, "type": "direct", "auto_delete": False, "internal": False}
    a.request("PUT", "/exchanges/e", {**direct, "arguments": {}})
    a.request("PUT", "/exchanges/e", {**direct, "arguments": {}})
    a.request("PUT", "/exchanges/e", {**direct, "type": "fanout", "arguments": {}})
    a.request("PUT", "/exchanges/e", {**direct, "durable": False, "arguments": {}})
    a.request("PUT", "/exchanges/other", {"type": "nothing"})
    a.request("PUT", "/exchanges/amq.mine", {"type": "direct"})
    a.request("PUT", "/exchanges/amq.default", {"type": "direct"})
    a.request("PUT", "/exchanges/", {"type": "direct"})
    a.request("PUT", "/exchanges/plain", {})
    a.request("DELETE", "/exchanges/plain")
    a.request("DELETE", "/exchanges/none")
    a.request("DELETE", "/exchanges/amq.direct")
    a.request("DELETE", "/exchanges/amq.default")
    a.request("DELETE", "/exchanges/e")


def binding(source: str, destination: str, key: str = "k", **fields: Any) -> dict[str, Any]:
    """Return the body that binds a queue."""
    named = {"source": source, "destination_queue": destination, "binding_key": key}
    return {**named, "arguments": {}, **fields}


@scenario
def bindings_requested(s: Script) -> None:
    a = Links(s)
    a.manage()
    a.request("PUT", "/queues/q", queue(arguments={"x-queue-type": "quorum"}))
    a.request("POST", "/bindings", binding("amq.direct", "q"))
    a.request("POST", "/bindings", binding("amq.direct", "q"))
    a.request("POST", "/bindings", binding("none", "q"))
    a.request("POST", "/bindings", binding("amq.direct", "none"))
    a.request("POST", "/bindings", binding("", "q"))
    a.request("GET", "/bindings?src=amq.direct&dstq=q&key=k")
    a.request("GET", "/bindings?src=none&dstq=q&key=k")
    a.request("DELETE", "/bindings/src=amq.direct;dstq=q;key=k;args=")
    a.request("DELETE", "/bindings/src=amq.direct;dstq=q;key=k;args=")
    a.request("DELETE", "/bindings/src=none;dstq=q;key=k;args=")
    a.request("DELETE", "/bindings/other")


@scenario
def paths_and_tokens_requested(s: Script) -> None:
    a = Links(s)
    a.manage()
    a.request("PUT", "/queues/a%2Fb%20c", queue(arguments={"x-queue-type": "quorum"}))
    a.request("GET", "/queues/a%2Fb%20c")
    a.request("GET", "/queues/%zz")
    a.request("PUT", "/queues/", queue())
    a.request("PUT", "/auth/tokens", b"secret")


@scenario
def requests_without_rights(s: Script) -> None:
    c = s.channel()
    c.declare("q", {"x-queue-type": "quorum"})
    s.broker.change("PUT", "/users/differ-poor", {"password": "poor", "tags": ""})
    rights = {"configure": "^$", "write": "^$", "read": "^$"}
    s.broker.change("PUT", f"/permissions/{s.vhost}/differ-poor", rights)
    asked: tuple[tuple[str, str, Any], ...] = (
        ("PUT", "/queues/x", queue()),
        ("GET", "/queues/q", None),
        ("DELETE", "/queues/q", None),
        ("DELETE", "/queues/q/messages", None),
        ("PUT", "/exchanges/e", {"type": "direct"}),
        ("DELETE", "/exchanges/amq.fanout", None),
        ("POST", "/bindings", binding("amq.direct", "q")),
        ("GET", "/bindings?src=amq.direct&dstq=q&key=k", None),
    )
    for at, request in enumerate(asked):
        a = Links(s, str(at), "differ-poor", "poor")
        a.manage()
        a.request(*request)
    s.broker.change("DELETE", "/users/differ-poor", None)
