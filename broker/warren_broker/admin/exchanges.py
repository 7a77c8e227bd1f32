"""Handlers of the requests for exchanges."""

from __future__ import annotations

from warren_broker.admin.caller import Answer, Asker
from warren_machines.metadata import commands as metadata
from warren_machines.metadata.view import MetadataView
from warren_wire.admin import exchanges as requests
from warren_wire.admin.exchanges import ExchangeInfo
from warren_wire.admin.requests import Listed, Put


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
