"""Which requests of the administration the audit log has, and what it has of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias

import msgspec

from warren_broker.admin.caller import DOOR_HTTP, Answer, Asker, made_from
from warren_broker.admin.resources import HANDLERS
from warren_broker.broker.kept_definitions import Kept, definition_kept, exchange_kept, queue_kept
from warren_machines.metadata import commands as metadata
from warren_wire import errors
from warren_wire.admin import claims, exchanges, limits, parameters, queues
from warren_wire.admin.definitions import ImportReport
from warren_wire.admin.requests import AnyAdminRequest, Listed, fields_in, fields_of
from warren_wire.admin.resources import ROUTES
from warren_wire.arguments import storable


def carry_out(asker: Asker, request: AnyAdminRequest, answer: Answer) -> None:
    """Have a request's handler carry it out; what changes something is recorded.

    raises  Refusal
    """
    handler = HANDLERS[type(request)]
    if not _is_recorded(asker, request) or not asker.broker.audit.on_record:
        handler(asker, request, answer)
        return
    asked = _ASKED.get(type(request))
    if asked is not None:
        asked(asker, request, lambda before: _carry_out_between(asker, request, before, answer))
        return
    before = _kept(asker, request)

    def done(result: Any) -> None:
        _record(asker, request, before, result)
        answer(result)

    try:
        handler(asker, request, done)
    except errors.Refusal as refusal:
        _record(asker, request, before, refusal)
        raise


def _carry_out_between(
    asker: Asker, request: AnyAdminRequest, before: Kept | None, answer: Answer
) -> None:
    """Carry out what changes the state of a queue, of which the queue is asked once more."""

    def done(result: Any) -> None:
        def told(after: Kept | None) -> None:
            _record(asker, request, before, result, after)
            answer(result)

        if isinstance(result, errors.Refusal):
            told(None)
        else:
            _ASKED[type(request)](asker, request, told)

    try:
        HANDLERS[type(request)](asker, request, done)
    except errors.Refusal as refusal:
        done(refusal)


def _is_recorded(asker: Asker, request: AnyAdminRequest) -> bool:
    """Return whether it is an operator's change: over HTTP no driver settles its claims."""
    by_hand = asker.door == DOOR_HTTP and isinstance(request, claims.ReaderRequest)
    return request.changes() or by_hand


def _record(
    asker: Asker,
    request: AnyAdminRequest,
    before: Kept | None,
    result: object,
    after: Kept | None = None,
) -> None:
    if isinstance(result, errors.AccessRefused):
        return  # the door records it, as it does where there is no request yet
    taken, given = fields_of(request)
    target = {key: given.pop(key) for key in taken.names}
    asked = {key: value for key, value in given.items() if not _is_hidden(type(request), key)}
    more: dict[str, Any] = {"vhost": asker.vhost, "target": target, "old": before}
    if isinstance(result, errors.Refusal):
        more |= {"outcome": "failed", "detail": f"{result.word}: {result.detail}", "new": asked}
    elif type(request) in _ASKED:
        more |= {"target": target | asked, "new": after}
    elif type(request) in _KEPT or _twin(taken.pattern):
        more["new"] = after = _kept(asker, request)
        if before == after and type(request) in _DECLARATIONS:
            return  # clients declare what is there already
        if before and after and before.get(_HASH) != after.get(_HASH):
            more["detail"] = "the password is another one"
    else:
        more["new"] = result if isinstance(result, ImportReport) else asked or None
    asker.broker.audit.change(asker.door, asker.user, asker.peer, taken.shown, **more)


@cache
def _is_hidden(kind: type[AnyAdminRequest], key: str) -> bool:
    """Return whether a field is a secret, or a file."""
    field = fields_in(kind).get(key)
    return field is not None and (bool(field.said.get("secret")) or key in ("packed", "secret"))


_HASH: Final = "password_hash"
_READ_AT_ONCE: Final = ("users", "vhosts", "permissions", "policies", "operator-policies")
"""First parts of paths of which GET is answered at once, with what the definitions have."""


def _kept(asker: Asker, request: AnyAdminRequest) -> Kept | None:
    """Return what the definitions have of the object that a request names; None: nothing."""
    if type(request) in _KEPT:
        return _KEPT[type(request)](asker, request)
    taken, given = fields_of(request)
    twin = _twin(taken.pattern)
    if twin is None:
        return None
    route, kind = ROUTES[twin]
    found: list[Any] = []
    try:
        asked = route.read(kind, {key: given[key] for key in taken.names})
        HANDLERS[kind](asker, asked, found.append)
    except errors.Refusal:
        return None
    values = found[0].values if found and isinstance(found[0], Listed) else found
    if not values or isinstance(values[0], errors.Refusal):
        return None
    return msgspec.structs.asdict(values[0])


@cache
def _twin(pattern: tuple[str, ...]) -> str | None:
    shown = f"GET /{'/'.join(pattern)}"
    return shown if pattern[0] in _READ_AT_ONCE and shown in ROUTES else None


def _queue(asker: Asker, request: Any) -> Kept | None:
    return queue_kept(asker.state, asker.vhost, request.name)


def _binding(asker: Asker, request: exchanges.BindRequest | exchanges.UnbindRequest) -> Kept | None:
    asked = request.binding
    said = {"vhost": asker.vhost, "to_queue": asked.destination_kind == "queue"}
    command = made_from(metadata.Bind, asked, **said, arguments=storable(asked.arguments))
    return definition_kept(asker.state, command)


def _exchange(asker: Asker, request: Any) -> Kept | None:
    return exchange_kept(asker.state, asker.vhost, request.name)


def _parameter(asker: Asker, request: Any) -> Kept | None:
    scope = asker.state.scopes.get(request.vhost)
    found = None if scope is None else scope.parameters.get((request.component, request.name))
    return None if found is None else {"value": asker.broker.seal.opened(found).value}


def _global_parameter(asker: Asker, request: Any) -> Kept | None:
    found = asker.state.global_parameters.get(request.name)
    return None if found is None else {"value": found.value}


def _limits(asker: Asker, request: Any) -> Kept | None:
    scope, user = asker.state.scopes.get(request.name), asker.state.users.get(request.name)
    found = None if scope is None else scope.vhost
    if request.of == "user":
        return None if user is None else dict(user.limits)
    return None if found is None else dict(found.limits)


def _ask(asker: Asker, question: AnyAdminRequest, done: Callable[[Any], None]) -> None:
    """Ask as the request's user; None: there is no answer."""
    answer: Answer = asker.guard(lambda it: done(None if isinstance(it, errors.Refusal) else it))
    try:
        HANDLERS[type(question)](asker, question, answer)
    except errors.Refusal:
        done(None)


def _reader(asker: Asker, request: claims.ReaderRequest[Any], done: KeptDone) -> None:
    def told(queue: queues.QueueInfo | None) -> None:
        known = queue.readers if queue is not None else ()
        reader = next((one for one in known if one.name == request.reader), None)
        fields = ("epoch", "settled", "open_claims", "in_parts", "bound")
        done(None if reader is None else {name: getattr(reader, name) for name in fields})

    _ask(asker, queues.GetQueueRequest(request.queue), told)


def _relay(asker: Asker, request: queues.ReleaseRelayRequest, done: KeptDone) -> None:
    def told(queue: queues.QueueInfo | None) -> None:
        known = queue.relays if queue is not None else ()
        relay = next((one for one in known if one.name == request.relay), None)
        done(None if relay is None else {"messages": relay.messages})

    _ask(asker, queues.GetQueueRequest(request.name), told)


def _sink(asker: Asker, request: queues.ForgetSinkRequest, done: KeptDone) -> None:
    def told(sinks: queues.SinksInfo | None) -> None:
        fields = ("run", "epoch", "last_batch", "messages_staged")
        known = sinks.runs if sinks is not None else ()
        runs = [{name: getattr(one, name) for name in fields} for one in known]
        done({"runs": sinks.total, "newest": runs} if sinks is not None and sinks.total else None)

    asked = queues.ListSinksRequest(request.name, request.sink, request.run, SINK_RUNS_SHOWN)
    _ask(asker, asked, told)


SINK_RUNS_SHOWN: Final = 10
"""Runs of a sink that is forgotten, in its record."""
KeptDone: TypeAlias = Callable[[Kept | None], None]
_ASKED: Final[dict[type, Callable[[Asker, Any, KeptDone], None]]] = {
    claims.SettleClaimsRequest: _reader,
    claims.ReleaseClaimRequest: _reader,
    queues.ForgetSinkRequest: _sink,
    queues.ReleaseRelayRequest: _relay,
}
"""Requests about what only a queue's leader knows: it is asked before and after."""
_DECLARATIONS: Final = frozenset(
    {
        *(queues.DeclareQueueRequest, queues.DeleteQueueRequest),
        *(exchanges.DeclareExchangeRequest, exchanges.DeleteExchangeRequest),
        *(exchanges.BindRequest, exchanges.UnbindRequest),
    }
)
_KEPT: Final[dict[type, Callable[[Asker, Any], Kept | None]]] = {
    queues.DeclareQueueRequest: _queue,
    queues.DeleteQueueRequest: _queue,
    exchanges.DeclareExchangeRequest: _exchange,
    exchanges.DeleteExchangeRequest: _exchange,
    exchanges.BindRequest: _binding,
    exchanges.UnbindRequest: _binding,
    parameters.PutParameterRequest: _parameter,
    parameters.DeleteParameterRequest: _parameter,
    parameters.PutGlobalParameterRequest: _global_parameter,
    parameters.DeleteGlobalParameterRequest: _global_parameter,
    limits.PutLimitRequest: _limits,
    limits.ReplaceLimitsRequest: _limits,
    limits.ClearLimitsRequest: _limits,
}
