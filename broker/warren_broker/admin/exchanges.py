"""Handlers of the requests for exchanges and bindings."""

from __future__ import annotations

from typing import Any

from warren_broker.admin.caller import Answer, Asker
from warren_machines.metadata import commands as metadata
from warren_machines.metadata.view import MetadataView
from warren_wire.admin import exchanges as requests
from warren_wire.admin.exchanges import BindingInfo, ExchangeInfo
from warren_wire.admin.requests import Listed, Performed, Put
from warren_wire.arguments import storable


def _declare_exchange(
    asker: Asker, request: requests.DeclareExchangeRequest, answer: Answer
) -> None:
    asker.access.declare_exchange(request.name, request.arguments)
    asked = metadata.DeclareExchange(
        asker.vhost,
        request.name,
        request.kind,
        request.durable,
        request.auto_delete,
        request.internal,
        request.arguments,
    )
    created = asker.state.exchange(asker.vhost, request.name) is None
    asker.define(asker.broker.exchange_declaration(asked), answer, Put(created))


def _delete_exchange(asker: Asker, request: requests.DeleteExchangeRequest, answer: Answer) -> None:
    asker.access.delete_exchange(request.name)
    asker.define(metadata.DeleteExchange(asker.vhost, request.name, request.if_unused), answer)


def _list_exchanges(asker: Asker, request: requests.ListExchangesRequest, answer: Answer) -> None:
    found = MetadataView(asker.state).exchanges(asker.vhost)
    policies = asker.broker.definitions.policies(asker.vhost)
    answer(
        Listed(
            tuple(
                ExchangeInfo(
                    exchange.name,
                    exchange.kind,
                    exchange.durable,
                    exchange.auto_delete,
                    exchange.internal,
                    exchange.arguments,
                    policies.of_exchange(exchange.name).policy,
                )
                for exchange in found
            )
        )
    )


def _binding(asker: Asker, binding: BindingInfo) -> dict[str, Any]:
    to_queue = binding.destination_kind == "queue"
    asker.access.bind(binding.source, binding.destination, to_queue, binding.routing_key)
    return {
        "vhost": asker.vhost,
        "source": binding.source,
        "destination": binding.destination,
        "to_queue": to_queue,
        "routing_key": binding.routing_key,
        "arguments": storable(binding.arguments),
        "connection": asker.connection,
    }


def _bind(asker: Asker, request: requests.BindRequest, answer: Answer) -> None:
    command = metadata.Bind(**_binding(asker, request.binding))
    asker.broker.bind(command, asker.then(answer, lambda reply: Performed()))


def _unbind(asker: Asker, request: requests.UnbindRequest, answer: Answer) -> None:
    asker.define(metadata.Unbind(**_binding(asker, request.binding)), answer)


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
    answer(
        Listed(
            tuple(
                BindingInfo(
                    binding.source,
                    binding.destination,
                    "queue" if binding.to_queue else "exchange",
                    binding.routing_key,
                    binding.arguments,
                )
                for binding in found
            )
        )
    )
