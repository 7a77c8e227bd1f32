"""Exchanges, and the requests for them."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import msgspec

from warren_wire.admin.requests import AdminRequest, route

_NAMED: Final = {"name": "exchange"}


class ExchangeInfo(msgspec.Struct, frozen=True):
    """An exchange's settings."""

    name: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: dict[str, Any] = {}
    policy: str = ""


class DeclareExchangeRequest(AdminRequest[None], frozen=True, rename=_NAMED | {"kind": "type"}):
    """Declare an exchange; 409 when it exists with other settings. Answer: Put."""

    ROUTES: ClassVar = (route("PUT /exchanges/:exchange", http="/exchanges/:vhost/:exchange"),)
    name: str
    kind: str = "direct"
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, Any] = {}


class DeleteExchangeRequest(
    AdminRequest[None], frozen=True, rename=_NAMED | {"if_unused": "if-unused"}
):
    """Delete an exchange if it exists. Answer: Performed."""

    ROUTES: ClassVar = (route("DELETE /exchanges/:exchange"),)
    name: str
    if_unused: bool = False


class ListExchangesRequest(AdminRequest[list[ExchangeInfo]], frozen=True):
    """Return all exchanges of the vhost, by name. Answer: Listed (ExchangeInfo)."""

    ROUTES: ClassVar = (route("GET /exchanges", "management"),)
