"""The audit log has each request that changes something, with old and new value."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from broker.admin.world import ManagementWorld
from warren_broker.admin import recording
from warren_broker.admin.caller import DOOR_HTTP, PERFORMED, Asker
from warren_wire import errors
from warren_wire.admin import claims, queues, users
from warren_wire.admin.exchanges import BindingInfo, binding_segment
from warren_wire.admin.requests import MessagesCounted, fields_in
from warren_wire.admin.resources import ROUTES

WORK = {
    claims.RegisterReaderRequest: "a driver's",
    claims.OpenClaimRequest: "a driver's",
    claims.RenewClaimsRequest: "a driver's",
    claims.GiveUpRequest: "a driver's",
    claims.DrawEpochRequest: "a driver's",
    claims.PublishBatchRequest: "a driver's",
    claims.DropBatchRequest: "a driver's",
    users.RenewTokenRequest: "a client's login",
}
"""Requests that are no administration: clients make them all the time, and no operator does."""
GIVEN: dict[str, Any] = {
    "action": "delete",
    "destination_queue": "q",
    "binding": binding_segment(BindingInfo("e", "q", "queue", "k", {})),
    "message": "1-2-3",
    "relay": "x",
}
"""Values of fields by their keys, where not any value is taken."""
DOORS = (DOOR_HTTP, "AMQP 1.0")


class World(ManagementWorld):
    users = {"ann": ()}
    grants = ()


def sample(shown: str) -> Any:
    """A request of that route, with any values that it takes."""
    route, kind = ROUTES[shown]
    found = {}
    for key, field in fields_in(kind).items():
        if (field.required or key in GIVEN or key in route.names) and key not in route.fixed:
            found[key] = GIVEN.get(key, _value(field.wanted))
    if kind in (claims.SettleClaimsRequest, claims.ReleaseClaimRequest):
        found["epoch"] = -1
    if kind in (claims.PublishBatchRequest, claims.DropBatchRequest):
        found["queues"] = {"q": "1:1:1" if kind is claims.PublishBatchRequest else "1:1"}
    return route.read(kind, found)


def _value(wanted: inspect.Type) -> Any:
    match wanted:
        case inspect.IntType():
            return 1
        case inspect.LiteralType():
            return wanted.values[0]
        case inspect.BoolType():
            return True
        case inspect.BytesType():
            return b""
        case inspect.DictType():
            return {}
        case inspect.ListType() | inspect.CollectionType() | inspect.VarTupleType():
            return []
    return "x"


class Asked:
    """A user's request that is answered at once, and what the audit log has of it."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, answer: Any, door: str = "AMQP 1.0"
    ) -> None:
        self.records: list[dict[str, Any]] = []
        self.answers: list[Any] = []
        made = World().made
        audit = SimpleNamespace(on_record=[1], change=self._changed)
        seal = SimpleNamespace(opened=lambda one: one)
        broker: Any = SimpleNamespace(
            audit=audit, definitions=SimpleNamespace(state=made.state), seal=seal
        )
        self.asker = Asker(broker, "/", "guest", 1, lambda call: call, door=door, peer="p")
        changes = {kind for route, kind in ROUTES.values() if route.method != "GET"}

        def done(asker: Asker, request: Any, told: Any) -> None:
            told(answer if type(request) in changes else errors.NotFound("it is not there"))

        handlers = dict.fromkeys(recording.HANDLERS, done)
        monkeypatch.setattr(recording, "HANDLERS", handlers)
        self.handlers = handlers

    def _changed(self, door: str, user: str, peer: str, action: str, **more: Any) -> None:
        self.records.append({"door": door, "user": user, "action": action, **more})

    def carry_out(self, request: Any) -> None:
        recording.carry_out(self.asker, request, self.answers.append)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("shown", [one for one in ROUTES if not one.startswith("GET ")])
def test_each_request_that_changes_something_is_recorded(
    monkeypatch: pytest.MonkeyPatch, shown: str, door: str
) -> None:
    request = sample(shown)
    asked = Asked(monkeypatch, PERFORMED, door)
    asked.carry_out(request)
    assert asked.answers == [PERFORMED]
    declares = type(request) in recording._DECLARATIONS  # nothing has changed: it is there already
    if type(request) in WORK and not isinstance(request, claims.ReaderRequest):
        assert asked.records == []
    elif type(request) in WORK:
        assert len(asked.records) == (door == DOOR_HTTP)
    elif not declares:
        assert [(one["action"], one["user"], one["door"]) for one in asked.records] == [
            (shown, "guest", door)
        ]
    refused = Asked(monkeypatch, errors.NotFound("there is none"), door)
    refused.carry_out(request)
    if type(request) not in WORK:
        assert [one["outcome"] for one in refused.records] == ["failed"]


def test_what_drivers_do_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, MessagesCounted(3))
    asked.carry_out(claims.SettleClaimsRequest("q", "r", 5, 2))
    asked.carry_out(claims.ReleaseClaimRequest("q", "r", 5, 2))
    assert len(asked.answers) == 2 and asked.records == []


def _queue(**parts: Any) -> Any:
    return msgspec.convert(
        {
            "name": "q",
            "vhost": "/",
            "type": "quorum",
            "durable": True,
            "exclusive": False,
            "auto_delete": False,
            "leader": "a",
            "replicas": [],
            **parts,
        },
        queues.QueueInfo,
    )


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("epoch", [-1, 7])
def test_a_settle_shows_the_reader_before_and_after(
    monkeypatch: pytest.MonkeyPatch, door: str, epoch: int
) -> None:
    asked = Asked(monkeypatch, MessagesCounted(9), door)
    at = SimpleNamespace(settled=3)

    def get(asker: Asker, request: Any, done: Any) -> None:
        reader = {"name": "r", "epoch": 7, "settled": at.settled, "open_claims": 2}
        done(_queue(readers=[{**reader, "last_heard_ms": 0}]))

    def settle(asker: Asker, request: Any, done: Any) -> None:
        at.settled = 5
        done(MessagesCounted(9))

    asked.handlers[queues.GetQueueRequest] = get
    asked.handlers[claims.SettleClaimsRequest] = settle
    asked.carry_out(claims.SettleClaimsRequest("q", "r", 5, epoch))
    assert asked.answers == [MessagesCounted(9)]
    if epoch >= 0 and door != DOOR_HTTP:
        assert asked.records == []
        return
    (record,) = asked.records
    assert (record["old"]["settled"], record["new"]["settled"]) == (3, 5)
    assert record["target"] == {"queue": "q", "reader": "r", "number": 5, "epoch": epoch}


def test_forgotten_sinks_and_relays_are_shown_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Asked(monkeypatch, MessagesCounted(4))
    run = queues.SinkInfo("s", "run", 3, 8, (), 1, 4, 0)
    there = [queues.SinksInfo(1, (run,)), queues.SinksInfo(0, ())]
    asked.handlers[queues.ListSinksRequest] = lambda asker, request, done: done(there.pop(0))
    asked.carry_out(queues.ForgetSinkRequest("q", "s"))
    relays = [[{"name": "shovel", "messages": 4}], []]
    asked.handlers[queues.GetQueueRequest] = lambda asker, request, done: done(
        _queue(relays=relays.pop(0))
    )
    asked.carry_out(queues.ReleaseRelayRequest("q", "shovel"))
    sink, relay = asked.records
    newest = [{"run": "run", "epoch": 3, "last_batch": 8, "messages_staged": 4}]
    assert (sink["old"], sink["new"]) == ({"runs": 1, "newest": newest}, None)
    assert (relay["old"], relay["new"]) == ({"messages": 4}, None)


def test_what_cannot_be_asked_is_recorded_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, MessagesCounted(4))

    def away(asker: Asker, request: Any, done: Any) -> None:
        raise errors.Unavailable("no leader")

    asked.handlers[queues.GetQueueRequest] = away
    asked.carry_out(claims.ReleaseClaimRequest("q", "r", 0, -1))
    asked.handlers[claims.ReleaseClaimRequest] = away
    asked.carry_out(claims.ReleaseClaimRequest("q", "r", 0, -1))
    assert [one.get("outcome", "done") for one in asked.records] == ["done", "failed"]
    assert isinstance(asked.answers[1], errors.Unavailable)
