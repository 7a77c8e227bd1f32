"""Export and import of definitions, and runtime parameters, as an administrator sees them."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec

from warren.connection import Connection
from warren.errors import UsageError
from warren_wire.admin.definition_values import GlobalParameterInfo, ImportReport, ParameterInfo

IMPORT_S = 120.0
"""How long an import may take: it answers when every queue is there."""


@dataclass(frozen=True, slots=True)
class ExportedDefinitions:
    """Definitions in RabbitMQ's JSON format.

    data   the file
    notes  objects that are not in it, or not as they are
    """

    data: bytes
    notes: tuple[str, ...]

    @property
    def document(self) -> dict[str, Any]:
        """Return the file's content."""
        found: dict[str, Any] = json.loads(self.data)
        return found


class DefinitionCalls:
    """The part of `Admin` that concerns definitions; each raises AccessRefused, Unavailable.

    Definitions and global parameters need the tag `administrator`, parameters `policymaker`. What
    cannot be set or imported is a PeerError or Conflict, with the broker's text.
    """

    connection: Connection

    def export_definitions(self, vhost: str | None = None) -> ExportedDefinitions:
        """All definitions, or those of one vhost; NotFound."""
        found = self.connection.request("GET", _definitions(vhost), timeout_s=IMPORT_S)
        data = zlib.decompress(found["document"])
        return ExportedDefinitions(data, tuple(found["notes"]))

    def import_definitions(
        self, data: bytes, vhost: str | None = None, *, dry_run: bool = False
    ) -> ImportReport:
        """Import a file, all of it or, when that is refused, nothing.

        data     JSON in RabbitMQ's format
        vhost    to import everything into; None: the vhosts that the file names
        dry_run  only report what would be done
        """
        path = _definitions(vhost) + ("?dry-run=true" if dry_run else "")
        found = self.connection.request("POST", path, zlib.compress(data, 9), timeout_s=IMPORT_S)
        return msgspec.convert(found, ImportReport)

    # -------------------------------------------------------------- parameters

    def parameters(
        self, vhost: str | None = None, component: str | None = None
    ) -> list[ParameterInfo]:
        """Runtime parameters of a vhost and a component; None: of all."""
        if vhost is None:
            path = "/parameters" if component is None else f"/parameters/{_quoted(component)}"
            found = self.connection.request("GET", path)
        elif component is None:
            return [one for one in self.parameters() if one.vhost == vhost]
        else:
            path = f"/parameters/{_quoted(component)}/{_quoted(vhost)}"
            found = self.connection.request("GET", path)
        return [msgspec.convert(body, ParameterInfo) for body in found]

    def set_parameter(self, vhost: str, component: str, name: str, value: Any) -> None:
        """Add or replace a runtime parameter."""
        self.connection.request("PUT", _parameter(component, vhost, name), {"value": value})

    def clear_parameter(self, vhost: str, component: str, name: str) -> None:
        """Remove a runtime parameter; NotFound."""
        self.connection.request("DELETE", _parameter(component, vhost, name))

    def global_parameters(self) -> list[GlobalParameterInfo]:
        """Global runtime parameters, by name."""
        found = self.connection.request("GET", "/global-parameters")
        return [msgspec.convert(body, GlobalParameterInfo) for body in found]

    def set_global_parameter(self, name: str, value: Any) -> None:
        """Add or replace a global runtime parameter."""
        self.connection.request("PUT", f"/global-parameters/{_quoted(name)}", {"value": value})

    def clear_global_parameter(self, name: str) -> None:
        """Remove a global runtime parameter; NotFound."""
        self.connection.request("DELETE", f"/global-parameters/{_quoted(name)}")


def _quoted(name: str) -> str:
    if not name:
        raise UsageError("the names of a vhost, component or parameter must not be empty")
    return quote(name, safe="")


def _definitions(vhost: str | None) -> str:
    return "/definitions" if vhost is None else f"/definitions/{_quoted(vhost)}"


def _parameter(component: str, vhost: str, name: str) -> str:
    return f"/parameters/{_quoted(component)}/{_quoted(vhost)}/{_quoted(name)}"
