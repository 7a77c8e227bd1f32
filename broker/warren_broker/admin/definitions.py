"""Definitions and parameters as `/management` resources.

The paths are those of RabbitMQ's HTTP API without `/api`. Definitions need the tag `administrator`,
parameters `policymaker`, global parameters `administrator`.

A file of definitions is JSON, compressed by zlib: an answer has few parts, and a request few bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from warren_broker.admin import resource
from warren_broker.admin.resource import Body, ManagementRequest, Names, Query, Result
from warren_machines.definition_files.document import DOCUMENT_BYTES_MAX
from warren_machines.metadata.records import Parameter
from warren_machines.metadata.upstreams import check_upstream
from warren_wire.admin.definition_values import ImportReport
from warren_wire.arguments import plain
from warren_wire.errors import InvalidArgument
from warren_wire.links.definition import parse_shovel
from warren_wire.parameter_values import FEDERATION_UPSTREAM, SHOVEL, check_json, check_parameter

PACKED_BYTES_MAX: Final = 64 << 20
"""Of a file as it comes; one request over AMQP 1.0 has less (`Limits10.request_bytes_max`)."""

# ------------------------------------------------------------------ requests


class ExportRequest(ManagementRequest, frozen=True):
    """GET /definitions, /definitions/:vhost. Answer: Exported; 404 without the vhost.

    vhost  None: everything
    """

    vhost: str | None = None


class ImportRequest(ManagementRequest, frozen=True):
    """POST /definitions, /definitions/:vhost, with ?dry-run=true: only checked. Answer: Imported.

    vhost   that everything is imported into; None: the vhosts that the file names
    packed  the file, compressed: see `unpack`
    """

    packed: bytes
    vhost: str | None = None
    dry_run: bool = False

    def __repr__(self) -> str:
        return f"ImportRequest(vhost={self.vhost!r}, dry_run={self.dry_run!r})"


class ListParametersRequest(ManagementRequest, frozen=True):
    """GET /parameters, /parameters/:component, /parameters/:component/:vhost.

    Answer: Listed (ParameterInfo), by vhost, component and name; None: of all.
    """

    component: str | None = None
    vhost: str | None = None


class PutParameterRequest(ManagementRequest, frozen=True):
    """PUT /parameters/:component/:vhost/:name, /global-parameters/:name. Answer: Put."""

    parameter: Parameter


class DeleteParameterRequest(ManagementRequest, frozen=True):
    """DELETE /parameters/:component/:vhost/:name, /global-parameters/:name. Answer: Performed.

    vhost  "": a global one
    """

    component: str
    vhost: str
    name: str


class ListGlobalParametersRequest(ManagementRequest, frozen=True):
    """GET /global-parameters. Answer: Listed (GlobalParameterInfo), by name."""


AnyDefinitionRequest: TypeAlias = (
    ExportRequest
    | ImportRequest
    | ListParametersRequest
    | PutParameterRequest
    | DeleteParameterRequest
    | ListGlobalParametersRequest
)

# ------------------------------------------------------------------ results


class ExportedFile(Result, frozen=True):
    """A file's bytes, and a note for every object that is not in it as it is."""

    data: bytes
    notes: tuple[str, ...]


class Imported(Result, frozen=True):
    """What was imported, or would be."""

    report: ImportReport


# ------------------------------------------------------------------ bodies, routes


class PutParameterBody(Body, frozen=True):
    """PUT of a parameter; the names may be repeated, as in RabbitMQ."""

    value: Any
    component: Any = None
    vhost: Any = None
    name: Any = None


def _import(names: Names, query: Query, body: Any) -> ManagementRequest:
    if not isinstance(body, bytes):
        raise InvalidArgument("the body must be a file of definitions, compressed by zlib")
    return ImportRequest(
        packed=body,
        vhost=names[0] if names else None,
        dry_run=resource.is_set(query, "dry-run"),
    )


def unpack(packed: bytes) -> bytes:
    """Return a file's bytes; raise InvalidArgument when it is damaged or too large."""
    inflating = zlib.decompressobj()
    try:
        data = inflating.decompress(packed, DOCUMENT_BYTES_MAX + 1)
    except zlib.error as error:
        raise InvalidArgument(f"definitions that are not compressed by zlib: {error}") from None
    if len(data) > DOCUMENT_BYTES_MAX:
        raise InvalidArgument(
            f"definitions of more than {DOCUMENT_BYTES_MAX:,} bytes; import them in parts, such "
            "as one vhost at a time"
        )
    if not inflating.eof:
        raise InvalidArgument("definitions that are not complete")
    return data


def _list_parameters(names: Names, query: Query, body: Any) -> ManagementRequest:
    component, vhost = (*names, None, None)[:2]
    return ListParametersRequest(component=component, vhost=vhost)


def _put_parameter(names: Names, query: Query, body: Any) -> ManagementRequest:
    component, vhost, name = names
    value = plain(resource.read_body(PutParameterBody, body).value)
    resource.filled("vhost", vhost)
    check_parameter(component, resource.filled("parameter", name), value)
    if component == SHOVEL:
        parse_shovel(vhost, name, value)
    elif component == FEDERATION_UPSTREAM:
        check_upstream(name, value)
    return PutParameterRequest(parameter=Parameter(vhost, component, name, value))


def _put_global(names: Names, query: Query, body: Any) -> ManagementRequest:
    value = plain(resource.read_body(PutParameterBody, body).value)
    check_json(value)
    return PutParameterRequest(
        parameter=Parameter("", "", resource.filled("parameter", names[0]), value)
    )


def _delete_parameter(names: Names, query: Query, body: Any) -> ManagementRequest:
    component, vhost, name = names
    return DeleteParameterRequest(
        component=component, vhost=resource.filled("vhost", vhost), name=name
    )


def _delete_global(names: Names, query: Query, body: Any) -> ManagementRequest:
    return DeleteParameterRequest(component="", vhost="", name=names[0])


_PARAMETER = "/parameters/:component/:vhost/:name"
ROUTES: tuple[resource.ManagementRoute, ...] = (
    resource.route("GET", "/definitions", resource.from_names(lambda: ExportRequest())),
    resource.route(
        "GET", "/definitions/:vhost", resource.from_names(lambda vhost: ExportRequest(vhost=vhost))
    ),
    resource.route("POST", "/definitions", _import, "administrator", bytes_max=PACKED_BYTES_MAX),
    resource.route(
        "POST", "/definitions/:vhost", _import, "administrator", bytes_max=PACKED_BYTES_MAX
    ),
    resource.route("GET", "/parameters", _list_parameters),
    resource.route("GET", "/parameters/:component", _list_parameters),
    resource.route("GET", "/parameters/:component/:vhost", _list_parameters),
    resource.route("PUT", _PARAMETER, _put_parameter, "policymaker"),
    resource.route("DELETE", _PARAMETER, _delete_parameter),
    resource.route("GET", "/global-parameters", resource.from_names(ListGlobalParametersRequest)),
    resource.route("PUT", "/global-parameters/:name", _put_global, "administrator"),
    resource.route("DELETE", "/global-parameters/:name", _delete_global),
)

# ------------------------------------------------------------------ answers


def _exported(result: ExportedFile) -> resource.Answer:
    return 200, {"document": zlib.compress(result.data), "notes": list(result.notes)}


RENDERERS: dict[type[Result], Callable[[Any], resource.Answer]] = {
    ExportedFile: _exported,
    Imported: lambda result: (200, resource.plain_value(result.report)),
}


def to_file(document: dict[str, Any]) -> bytes:
    """Return a document as the bytes of a file, indented."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2)
