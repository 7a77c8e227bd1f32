"""AMQP 1.0, frame by frame: opens, sessions, attaches, and how links are refused or ended."""

from __future__ import annotations

from typing import Any

from proton import UNDESCRIBED, Array, Data, Described, int32, symbol, ubyte, uint, ulong

from differ.links import MIXED, SETTLED, UNSETTLED, Links
from differ.script import CLASSIC, QUORUM, Script, both, scenario
from differ.wire10 import section

OUTCOMES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("released", {}),
    ("modified", {"delivery_failed": True}),
    ("modified", {"delivery_failed": True, "undeliverable_here": False}),
    ("modified", {"message_annotations": {symbol("x-note"): "n", symbol("x-opt-n"): int32(3)}}),
    ("rejected", {}),
    ("modified", {"undeliverable_here": True}),
)
NESTED: dict[Any, Any] = {
    symbol("x-opt-list"): ["one", int32(2), [True, None, {}], 2.5],
    symbol("x-opt-map"): {"k1": "v1", symbol("k2"): {"inner": [ubyte(7)]}},
    symbol("x-opt-array"): Array(UNDESCRIBED, Data.STRING, "foo", "bar"),
    symbol("x-opt-described"): Described(symbol("kind"), [uint(1), "a"]),
    symbol("x-opt-symbol"): symbol("s"),
    symbol("x-opt-long"): -7,
}
SINGLE = {**QUORUM, "x-single-active-consumer": True}


@scenario
def opens(s: Script) -> None:
    a = Links(s)
    a.open()
    a.begin()
    a.end()
    a.close()
    b = Links(s)
    b.open("127.0.0.1")
    b.close()


@scenario
def consumers_attach(s: Script) -> None:
    c = s.channel()
    a = Links(s)
    a.start()
    for q in both(c):
        a.consume(f"{q}-as-is", q)
        a.consume(f"{q}-mixed", q, snd_settle_mode=MIXED, rcv_settle_mode=ubyte(0))
        a.consume(f"{q}-settled", q, snd_settle_mode=SETTLED)
        a.consume(f"{q}-unsettled", q, snd_settle_mode=UNSETTLED)
        a.consume(
            f"{q}-size",
            q,
            max_message_size=ulong(1000),
            properties={symbol("rabbitmq:priority"): 3, symbol("other"): "x"},
            desired_capabilities=symbol("some"),
        )
        fields = {
            "address": f"/queues/{q}",
            "durable": uint(2),
            "expiry_policy": symbol("never"),
            "timeout": uint(5),
            "distribution_mode": symbol("move"),
            "capabilities": symbol("queue"),
            "default_outcome": Described(ulong(0x26), []),
        }
        a.consume(f"{q}-terminus", q, source=fields)


@scenario
def publishers_attach(s: Script) -> None:
    c = s.channel()
    c.declare("q", QUORUM)
    a = Links(s)
    a.start()
    a.publish_to("queue", "/queues/q")
    a.publish_to("exchange", "/exchanges/amq.direct/key")
    a.publish_to("default", "/exchanges/amq.direct")
    a.publish_to("anonymous", {"address": None})
    a.publish_to("settled", "/queues/q", snd_settle_mode=SETTLED, rcv_settle_mode=ubyte(1))
    a.publish_to("mixed", "/queues/q", snd_settle_mode=MIXED, max_message_size=ulong(1000))
    fields = {"address": "/queues/q", "durable": uint(1), "capabilities": symbol("queue")}
    a.publish_to("terminus", fields, properties={symbol("x"): "y"})


@scenario
def attaches_refused(s: Script) -> None:
    sources = (
        "/queues/none",
        "/queues/a/b",
        "/queues/%zz",
        "queues/q",
        "/queue/q",
        "/amq/queue/q",
        "/exchanges/amq.direct/key",
        "",
    )
    targets = (
        "/queues/none",
        "/queues/",
        "/exchanges/none",
        "/exchanges/none/key",
        "/exchanges/",
        "/exchanges/amq.direct/a/b",
        "/exchanges/amq.default",
        "/exchanges//key",
        "q",
        "/topic/a",
        "/amq/queue/q",
        "",
    )
    for at, source in enumerate(sources):
        a = Links(s, f"s{at}")
        a.start()
        a.attach("link", source=source, target="/t", receives=True, until=("detach",))
    for at, target in enumerate(targets):
        a = Links(s, f"t{at}")
        a.start()
        a.attach("link", source="/s", target=target, until=("flow", "detach"))


@scenario
def attaches_without_terminus(s: Script) -> None:
    a = Links(s)
    a.start()
    a.attach("link", receives=True, until=("detach",))
    b = Links(s)
    b.start()
    b.attach("null", source={"address": None}, target="/t", receives=True, until=("detach",))


@scenario
def active_with_two_consumers_of_a_quorum_queue(s: Script) -> None:
    c = s.channel()
    c.declare("q", SINGLE)
    a, b = Links(s, "a"), Links(s, "b")
    a.start()
    a.consume("link", "q")
    a.arrives("flow")
    a.credit("link", 10)
    a.quiet()
    b.start()
    b.consume("link", "q")
    b.quiet()
    b.credit("link", 10, until=("flow",))
    a.credit("link", 20)
    a.quiet()
    a.detach("link")
    b.arrives("flow")
    c.publish("", "q", "m")
    b.arrives("transfer")
    b.settle("link", "accepted")
    b.quiet()


@scenario
def active_with_two_consumers_of_a_classic_queue(s: Script) -> None:
    c = s.channel()
    c.declare("q", {**CLASSIC, "x-single-active-consumer": True})
    a, b = Links(s, "a"), Links(s, "b")
    for each in (a, b):
        each.start()
        each.consume("link", "q")
        each.credit("link", 10)
    b.quiet()
    a.detach("link")
    c.publish("", "q", "m")
    b.arrives("transfer")
    b.quiet()


@scenario
def active_without_a_single_one(s: Script) -> None:
    c = s.channel()
    for q in both(c):
        a, b = Links(s, "a"), Links(s, "b")
        for each in (a, b):
            each.start()
            each.consume("link", q)
            each.quiet()
            each.credit("link", 10, until=("flow",) if q == "quorum" else ())
            each.quiet()
        a.detach("link")
        b.quiet()
        b.credit("link", 0, drain=True, until=("flow",))
        b.quiet()
        b.credit("link", 5, drain=True, until=("flow",))
        b.quiet()


@scenario
def active_before_credit(s: Script) -> None:
    c = s.channel()
    c.declare("q", SINGLE)
    a, b = Links(s, "a"), Links(s, "b")
    a.start()
    a.consume("link", "q")
    a.arrives("flow")
    b.start()
    b.consume("link", "q")
    b.quiet()
    a.detach("link")
    b.arrives("flow")
    b.credit("link", 3)
    b.quiet()
    b.credit("link", 0, drain=True, until=("flow",))
    b.quiet()


@scenario
def active_and_messages(s: Script) -> None:
    c = s.channel()
    c.declare("q", SINGLE)
    for body in "abc":
        c.publish("", "q", body)
    a, b = Links(s, "a"), Links(s, "b")
    a.start()
    a.consume("link", "q")
    a.arrives("flow")
    a.credit("link", 2, until=("transfer",))
    a.arrives("transfer")
    b.start()
    b.consume("link", "q")
    b.credit("link", 2, until=("flow",))
    a.lose()
    b.arrives("transfer")
    b.arrives("transfer")
    b.quiet()


@scenario
def active_by_priority(s: Script) -> None:
    c = s.channel()
    c.declare("q", SINGLE)
    a, b = Links(s, "a"), Links(s, "b")
    for each, priority in ((a, 0), (b, 5)):
        each.start()
        each.consume("link", "q", properties={symbol("rabbitmq:priority"): int32(priority)})
        each.arrives("flow")
        each.credit("link", 2)
    a.arrives("flow")
    b.quiet()
    b.detach("link")
    a.arrives("flow")


@scenario
def a_queue_deleted_under_its_links(s: Script) -> None:
    c = s.channel()
    for q in both(c):
        a, b = Links(s, "consumer"), Links(s, "publisher")
        a.start()
        a.consume("link", q)
        a.credit("link", 10, until=("flow",) if q == "quorum" else ())
        b.start()
        b.publish_to("link", f"/queues/{q}")
        b.publish("link")
        a.arrives("transfer")
        c.delete(q)
        a.arrives("detach")
        b.arrives("detach")


@scenario
def an_exchange_deleted_under_its_publisher(s: Script) -> None:
    c = s.channel()
    c.exchange("x", "fanout")
    a = Links(s)
    a.start()
    a.publish_to("link", "/exchanges/x")
    c.delete_exchange("x")
    a.publish("link")
    a.arrives("detach")


@scenario
def a_queue_that_another_connection_has(s: Script) -> None:
    c = s.channel()
    c.declare("x", exclusive=True, durable=False)
    a = Links(s)
    a.start()
    a.consume("consumer", "x", until="detach")
    b = Links(s)
    b.start()
    b.publish_to("publisher", "/queues/x")
    b.publish("publisher")
    c.declare("q", CLASSIC)
    c.consume("q", "only", exclusive=True)
    d = Links(s)
    d.start()
    d.consume("consumer", "q", until="detach")


@scenario
def rights_that_miss(s: Script) -> None:
    c = s.channel()
    c.declare("q", QUORUM)
    c.declare("other", QUORUM)
    s.broker.change("PUT", "/users/differ-poor", {"password": "poor", "tags": ""})
    rights = {"configure": "^$", "write": "^(q|amq.direct)$", "read": "^other$"}
    s.broker.change("PUT", f"/permissions/{s.vhost}/differ-poor", rights)
    for at in range(3):
        a = Links(s, str(at), "differ-poor", "poor")
        a.start()
        if at == 0:
            a.consume("consumer", "q", until="detach")
        elif at == 1:
            a.publish_to("publisher", "/queues/other")
        else:
            a.publish_to("publisher", {"address": None})
            a.publish("publisher", to="/exchanges/amq.topic/key")
    s.broker.change("DELETE", "/users/differ-poor", None)


@scenario
def messages_refused(s: Script) -> None:
    c = s.channel()
    c.declare("q", QUORUM)
    c.exchange("internal", "fanout", internal=True)
    a = Links(s)
    a.start()
    a.publish_to("publisher", {"address": None})
    a.publish("publisher", to="/queues/none")
    a.publish("publisher", to="/exchanges/amq.direct/none")
    a.publish("publisher", to="/queues/q", user_id=b"guest")
    a.publish("publisher", to="/exchanges/none/key")
    for at, fields in enumerate(
        ({"to": "q"}, {}, {"to": "/queues/"}, {"to": "/queues/q", "user_id": b"x"})
    ):
        b = Links(s, f"b{at}")
        b.start()
        b.publish_to("publisher", {"address": None})
        b.publish("publisher", **fields)
        b.quiet()
    d = Links(s, "d")
    d.start()
    d.publish_to("publisher", "/queues/q")
    d.publish("publisher", b"x" * 17_000_000, until=("disposition",))
    e = Links(s, "e")
    e.start()
    e.publish_to("publisher", "/exchanges/internal/key")
    f = Links(s, "f")
    f.start()
    f.publish_to("publisher", "/queues/q", snd_settle_mode=SETTLED)
    f.publish("publisher", user_id=b"x", settled=True, until=("detach",))
    for at, raw in enumerate(
        (b"", b"\x01\x02", b"\x00\x53\x75\xa0\x05ab", section("amqp-value", None))
    ):
        g = Links(s, f"g{at}")
        g.start()
        g.publish_to("publisher", "/queues/q")
        g.publish_raw("publisher", raw)
        g.quiet()


@scenario
def sessions_and_links_at_most(s: Script) -> None:
    a = Links(s)
    a.open(quiet=True)
    for number in range(63):
        a.begin(number, quiet=True)
    a.begin(63)
    a.begin(64)


@scenario
def outcomes_at_a_quorum_queue(s: Script) -> None:
    _outcomes(s, QUORUM, ("flow",))


@scenario
def outcomes_at_a_classic_queue(s: Script) -> None:
    _outcomes(s, CLASSIC, ())


def _outcomes(s: Script, kind: dict[str, str], after_credit: tuple[str, ...]) -> None:
    c = s.channel()
    c.declare("q", kind)
    a = Links(s)
    a.start()
    a.consume("link", "q")
    a.credit("link", 1, until=after_credit)
    for body in "abcdef":
        c.publish("", "q", body)
    a.arrives("transfer")
    a.settle("link", "accepted")
    for count, (state, fields) in enumerate(OUTCOMES, 1):
        a.credit("link", 1, count=count, until=("transfer",))
        a.settle("link", state, **fields)
    a.credit("link", 9, count=len(OUTCOMES) + 1, until=("transfer",))
    a.quiet()


@scenario
def annotations_that_are_lists_maps_and_arrays(s: Script) -> None:
    """In deliveries of the queue, and in its dead letters over either protocol."""
    c = s.channel()
    c.declare("dead", QUORUM)
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    c.declare("q", {**QUORUM, **letters})
    a = Links(s)
    a.start()
    a.consume("letters", "dead")
    a.credit("letters", 1, until=("flow",))
    a.consume("link", "q")
    a.credit("link", 1, until=("flow",))
    c.publish("", "q", "a", headers={"x-own": 1, "other": 2})
    a.arrives("transfer")
    a.settle("link", "modified", message_annotations=NESTED)
    a.credit("link", 1, count=1, until=("transfer",))
    more = {symbol("x-opt-list"): ["other"], symbol("x-opt-more"): {"k": 1}}
    a.settle("link", "modified", undeliverable_here=True, message_annotations=more)
    a.arrives("transfer")
    a.settle("letters", "released")
    c.get_soon("dead")


@scenario
def an_outcome_that_is_not_settled(s: Script) -> None:
    c = s.channel()
    c.declare("q", QUORUM)
    a = Links(s)
    a.start()
    a.consume("link", "q")
    a.credit("link", 1, until=("flow",))
    c.publish("", "q", "m")
    a.arrives("transfer")
    a.settle("link", "accepted", settled=False, until=("disposition",))
    a.quiet()


@scenario
def a_policy_sets_the_consumer_timeout(s: Script) -> None:
    c = s.channel()
    c.declare("q", QUORUM)
    a, b = Links(s, "before"), Links(s, "after")
    a.start()
    a.consume("link", "q")
    s.policy("timeouts", "^q$", {"consumer-timeout": 1000}, apply_to="queues")
    s.effective("q", "timeouts")
    s.wait(1.0)
    b.start()
    b.consume("link", "q")
    a.credit("link", 1, until=("flow",))
    c.publish("", "q", "m")
    a.arrives("transfer")
    b.credit("link", 2, until=("flow",))
    c.publish("", "q", "n")
    b.arrives("transfer")
    b.arrives("disposition")
    b.quiet()
    a.quiet()
    a.credit("link", 1, count=1, until=("transfer",))
    b.settle("link", "accepted")
    c.publish("", "q", "o")
    b.arrives("transfer")


@scenario
def a_policy_lets_a_queue_expire(s: Script) -> None:
    c = s.channel()
    for q in both(c):
        a, b = Links(s, "publisher"), Links(s, "consumer")
        a.start()
        a.publish_to("link", f"/queues/{q}")
        a.publish("link")
        b.start()
        b.consume("link", q)
        s.policy(f"expiry-{q}", f"^{q}$", {"expires": 500}, apply_to="queues")
        s.wait(1.5)
        b.quiet()
        b.detach("link")
        a.arrives("detach")
