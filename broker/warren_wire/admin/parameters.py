"""Runtime parameters, those of vhosts and global ones, and the requests for them."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from warren_wire.admin.requests import AdminRequest, Name, route


class ParameterInfo(msgspec.Struct, frozen=True):
    """A runtime parameter of a vhost."""

    vhost: str
    component: str
    name: str
    value: Any


class GlobalParameterInfo(msgspec.Struct, frozen=True):
    """A global runtime parameter."""

    name: str
    value: Any


class ListParametersRequest(AdminRequest[list[ParameterInfo]], frozen=True):
    """Return parameters by vhost, component and name. Answer: Listed (ParameterInfo).

    component, vhost  None: of all
    """

    ROUTES: ClassVar = (
        route("GET /parameters/:component/:vhost", "policymaker", http=True),
        route("GET /parameters/:component", "policymaker", http=True),
        route("GET /parameters", "policymaker", http=True),
    )
    component: str | None = None
    vhost: str | None = None


class PutParameterRequest(AdminRequest[None], frozen=True):
    """Add or replace a parameter. Answer: Put.

    component  federation-upstream, federation-upstream-set or shovel
    name       the parameter's name
    """

    ROUTES: ClassVar = (route("PUT /parameters/:component/:vhost/:name", "policymaker", http=True),)
    component: str
    vhost: Name
    name: Name
    value: Any


class DeleteParameterRequest(AdminRequest[None], frozen=True):
    """Remove a parameter; 404. Answer: Performed.

    component  federation-upstream, federation-upstream-set or shovel
    name       the parameter's name
    """

    ROUTES: ClassVar = (
        route("DELETE /parameters/:component/:vhost/:name", "policymaker", http=True),
    )
    component: str
    vhost: Name
    name: str


class ListGlobalParametersRequest(AdminRequest[list[GlobalParameterInfo]], frozen=True):
    """Return the global parameters, by name. Answer: Listed (GlobalParameterInfo)."""

    ROUTES: ClassVar = (route("GET /global-parameters", "administrator", http=True),)


class PutGlobalParameterRequest(AdminRequest[None], frozen=True):
    """Add or replace a global parameter. Answer: Put.

    name  the parameter's name
    """

    ROUTES: ClassVar = (route("PUT /global-parameters/:name", "administrator", http=True),)
    name: Name
    value: Any


class DeleteGlobalParameterRequest(AdminRequest[None], frozen=True):
    """Remove a global parameter; 404. Answer: Performed.

    name  the parameter's name
    """

    ROUTES: ClassVar = (route("DELETE /global-parameters/:name", "administrator", http=True),)
    name: str
