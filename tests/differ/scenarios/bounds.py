"""Names and times at their bounds; what keeps a queue with x-expires."""

from __future__ import annotations

from differ.script import KINDS, QUORUM, Script, both, scenario

LONG = "ä" * 126 + "€"
"""255 bytes of UTF-8."""
HALF = "ä" * 60
ODD = ("a b/c?d#e%2F", "\N{PILE OF POO}\N{ZERO WIDTH JOINER}", "\t\n", " ", "e\u0301", "\u00e9")
YEARS_MS = 315_360_000_000


@scenario
def long_names(s: Script) -> None:
    c = s.channel()
    assert len(LONG.encode()) == 255
    for kind in KINDS:
        c.declare(LONG, kind)
        c.publish("", LONG, "to the queue", mandatory=True)
        c.exchange(LONG, "topic", {"alternate-exchange": LONG})
        c.bind(LONG, LONG, LONG, {HALF: LONG})
        c.publish(LONG, LONG, "by the exchange", headers={HALF: LONG}, app_id=LONG)
        c.get(LONG, no_ack=True)
        c.get(LONG, no_ack=True)
        c.consume(LONG, LONG)
        c.publish("", LONG, "to the consumer")
        c.deliveries(1)
        c.ack()
        c.cancel(LONG)
        s.policy(LONG, f"^{LONG}$", {"max-length": 1})
        s.effective(LONG, LONG)
        s.clear_policy(LONG)
        c.unbind(LONG, LONG, LONG, {HALF: LONG})
        c.delete_exchange(LONG)
        c.delete(LONG)


@scenario
def odd_names(s: Script) -> None:
    c = s.channel()
    for name in ODD:
        c.declare(name, QUORUM)
        c.bind(name, "amq.topic", f"{name}.#")
        c.publish("amq.topic", f"{name}.{name}", name, mandatory=True)
    for name in ODD:
        c.get(name, no_ack=True)


@scenario
def times_of_queues(s: Script) -> None:
    c = s.channel()
    for key in ("x-message-ttl", "x-expires"):
        for value in (4_294_967_295, 4_294_967_296, YEARS_MS, YEARS_MS + 1):
            for kind in KINDS:
                c.declare(f"{key} {value} {kind['x-queue-type']}", {**kind, key: value})
    for q in both(c, {"x-message-ttl": YEARS_MS}):
        c.publish("", q, "a")
        c.publish("", q, "b", expiration="50")
        c.get_soon(q, no_ack=True)
    for value in (4_294_967_296, YEARS_MS, YEARS_MS + 1):
        s.policy("p", "^q$", {"message-ttl": value})
        s.policy("p", "^q$", {"expires": value})


@scenario
def what_renews_an_expiry(s: Script) -> None:
    c = s.channel()
    acts = ("nothing", "declare", "passive", "get", "publish", "consume", "purge", "bind")
    for kind in KINDS:
        for act in acts:
            c.declare(f"{kind['x-queue-type']} {act}", {**kind, "x-expires": 3000})
    s.wait(2.0)
    for kind in KINDS:
        name = kind["x-queue-type"]
        c.declare(f"{name} declare", {**kind, "x-expires": 3000})
        c.declare(f"{name} passive", passive=True)
        c.get(f"{name} get")
        c.publish("", f"{name} publish", "a")
        c.consume(f"{name} consume", "c")
        c.cancel("c")
        c.purge(f"{name} purge")
        c.bind(f"{name} bind", "amq.fanout")
    for _ in range(2):
        s.wait(2.0)
        for kind in KINDS:
            for act in acts:
                c.publish("", f"{kind['x-queue-type']} {act}", "is it there?", mandatory=True)
