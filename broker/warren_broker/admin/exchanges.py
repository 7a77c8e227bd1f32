"""Handlers of the requests for exchanges and bindings."""

from __future__ import annotations

from typing import TypeVar

from warren_broker.admin.caller import PERFORMED, Answer, Asker, made_from
from warren_machines.metadata import commands as metadata
from warren_machines.metadata.view import MetadataView
from warren_wire.admin import exchanges as requests
from warren_wire.admin.exchanges import BindingInfo, ExchangeInfo
from warren_wire.admin.requests import Listed, Put
from warren_wire.arguments import storable

Command = TypeVar("Command", metadata.Bind, metadata.Unbind)


def _declare_exchange(
    asker: Asker, request: requests.DeclareExchangeRequest, answer: Answer
) -> None:
    asker.access.declare_exchange(request.name, request.arguments)
    asked = made_from(metadata.DeclareExchange, request, vhost=asker.vhost)
    created = asker.state.exchange(asker.vhost, request.name) is None
    asker.define(asker.broker.exchange_declaration(asked), answer, Put(created))


def _delete_exchange(asker: Asker, request: requests.DeleteExchangeRequest, answer: Answer) -> None:
    asker.access.delete_exchange(request.name)
    asker.define(metadata.DeleteExchange(asker.vhost, request.name, request.if_unused), answer)


def _list_exchanges(asker: Asker, request: requests.ListExchangesRequest, answer: Answer) -> None:
    found = MetadataView(asker.state).exchanges(asker.vhost)
    policies = asker.broker.definitions.policies(asker.vhost)
    shown = [
        made_from(ExchangeInfo, one, type=one.kind, policy=policies.of_exchange(one.name).policy)
        for one in found
    ]
    answer(Listed(tuple(shown)))


def _binding(asker: Asker, kind: type[Command], binding: BindingInfo) -> Command:
    to_queue = binding.destination_kind == "queue"
    asker.access.bind(binding.source, binding.destination, to_queue, binding.routing_key)
    said = {"vhost": asker.vhost, "to_queue": to_queue, "connection": asker.connection}
    return made_from(kind, binding, **said, arguments=storable(binding.arguments))


def _bind(asker: Asker, request: requests.BindRequest, answer: Answer) -> None:
    command = _binding(asker, metadata.Bind, request.binding)
    asker.broker.bind(command, asker.then(answer, lambda reply: PERFORMED))


def _unbind(asker: Asker, request: requests.UnbindRequest, answer: Answer) -> None:
    asker.define(_binding(asker, metadata.Unbind, request.binding), answer)


def _list_bindings(asker: Asker, request: requests.ListBindingsRequest, answer: Answer) -> None:
    to_queue = None if request.queue is request.exchange else request.queue is not None
    destination = request.exchange if request.queue is None else request.queue
    if not asker.access.has_tag("management"):
        # A client looks for its own binding before it removes one with arguments.
        if not request.source or not destination:
            asker.access.must_be("management", "see bindings of no named source and destination")
        else:
            key = request.routing_key or ""
            asker.access.bind(request.source, destination, bool(to_queue), key)
    found = MetadataView(asker.state).bindings(
        asker.vhost, request.source, destination, to_queue, request.routing_key
    )
    shown = [
        made_from(BindingInfo, one, destination_kind="queue" if one.to_queue else "exchange")
        for one in found
    ]
    answer(Listed(tuple(shown)))
