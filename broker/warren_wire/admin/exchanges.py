"""Exchanges, bindings, the requests for them; the segment of a path that names a binding."""

from __future__ import annotations

import base64
import binascii
from typing import Any, ClassVar, Final, Literal, Self
from urllib.parse import quote, unquote

import msgspec

from warren_wire.admin.requests import AdminRequest, Text, route
from warren_wire.arguments import ARGUMENT_DEPTH_MAX
from warren_wire.errors import InvalidArgument
from warren_wire.undecodable import UNDECODABLE, nested_deeper

_NAMED: Final = {"name": "exchange"}
_QUERY: Final = {
    "source": "src",
    "queue": "dstq",
    "exchange": "dste",
    "routing_key": "key",
}


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
    """Declare an exchange; 409 when it exists with other settings. Answer: Put.

    kind       direct, fanout, topic, headers or another type that the node knows
    arguments  `alternate-exchange` and the type's own
    """

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


# ------------------------------------------------------------------ bindings


class BindingInfo(msgspec.Struct, frozen=True):
    """A binding from an exchange to a queue or to another exchange."""

    source: str
    destination: str
    destination_kind: Literal["queue", "exchange"] = "queue"
    routing_key: str = ""
    arguments: dict[str, Any] = {}


class BindRequest(AdminRequest[None], frozen=True, rename={"routing_key": "binding_key"}):
    """Bind a queue or an exchange to an exchange. Answer: Performed, also when it is bound; 404.

    destination_queue, destination_exchange  exactly one of them is not empty
    """

    ROUTES: ClassVar = (route("POST /bindings"),)
    source: str
    destination_queue: str = ""
    destination_exchange: str = ""
    routing_key: str = ""
    arguments: dict[str, Any] = {}

    @property
    def binding(self) -> BindingInfo:
        """The binding that is to be."""
        return BindingInfo(
            self.source,
            self.destination_queue or self.destination_exchange,
            "queue" if self.destination_queue else "exchange",
            self.routing_key,
            self.arguments,
        )

    def checked(self) -> Self:
        """See the base class."""
        if bool(self.destination_queue) == bool(self.destination_exchange):
            raise InvalidArgument(
                "a binding needs exactly one of destination_queue, destination_exchange"
            )
        return self


class UnbindRequest(AdminRequest[None], frozen=True, rename={"segment": "binding"}):
    """Remove a binding. Answer: Performed, also when there is none.

    segment  what `binding_segment` returned; it is in the answers' `location`
    """

    ROUTES: ClassVar = (route("DELETE /bindings/::binding"),)
    segment: Any

    @property
    def binding(self) -> BindingInfo:
        """The binding that is to go; raises InvalidArgument."""
        return parse_binding(self.segment)

    def checked(self) -> Self:
        """See the base class."""
        parse_binding(self.segment)
        return self


class ListBindingsRequest(AdminRequest[list[dict[str, Any]]], frozen=True, rename=_QUERY):
    """Return the bindings that match. Answer: Listed (BindingInfo).

    source, queue, exchange, routing_key  only those with it; None: any
    """

    ROUTES: ClassVar = (route("GET /bindings"),)
    source: Text | None = None
    queue: Text | None = None
    exchange: Text | None = None
    routing_key: Text | None = None

    def checked(self) -> Self:
        """See the base class."""
        if self.queue is not None and self.exchange is not None:
            raise InvalidArgument("bindings of dstq and dste at once: ask for one of them")
        return self


def binding_segment(binding: BindingInfo) -> str:
    """Return `src=…;dstq=…;key=…;args=…`, percent-encoded, arguments as base64 MessagePack."""
    arguments = b""
    if binding.arguments:
        arguments = base64.urlsafe_b64encode(
            msgspec.msgpack.encode(binding.arguments, order="sorted")
        )
    destination = "dstq" if binding.destination_kind == "queue" else "dste"
    return (
        f"src={quote(binding.source, safe='')};{destination}={quote(binding.destination, safe='')};"
        f"key={quote(binding.routing_key, safe='')};args={quote(arguments.decode(), safe='')}"
    )


def parse_binding(segment: str) -> BindingInfo:
    """Parse what `binding_segment` returned; raises Refusal."""
    parts: dict[str, str] = {}
    for part in segment.split(";"):
        key, separator, value = part.partition("=")
        if not separator or key in parts or key not in ("src", "dstq", "dste", "key", "args"):
            raise InvalidArgument(
                f"binding {segment[:200]!r}: src=…;dstq=…;key=…;args=… is expected"
            )
        parts[key] = unquote(value)
    if "src" not in parts or ("dstq" in parts) == ("dste" in parts):
        raise InvalidArgument(f"binding {segment[:200]!r} needs src and exactly one of dstq, dste")
    try:
        packed = base64.urlsafe_b64decode(parts.get("args", "").encode())
        arguments = msgspec.msgpack.decode(packed, type=dict[str, Any]) if packed else {}
    except (binascii.Error, ValueError, *UNDECODABLE):
        arguments = None
    if arguments is None or nested_deeper(arguments, ARGUMENT_DEPTH_MAX):
        raise InvalidArgument(f"binding {segment[:200]!r}: args is not what GET /bindings gave")
    kind: Any = "queue" if "dstq" in parts else "exchange"
    return BindingInfo(
        parts["src"],
        parts.get("dstq", parts.get("dste", "")),
        kind,
        parts.get("key", ""),
        arguments,
    )
