"""The resource alarms of the cluster as a `/management` resource."""

from __future__ import annotations

from typing import TypeAlias

from warren_broker.admin import resource
from warren_broker.admin.resource import ManagementRequest


class ListAlarmsRequest(ManagementRequest, frozen=True):
    """GET /alarms. Answer: Listed (AlarmInfo), by node and resource; any tag may see them."""


AnyHealthRequest: TypeAlias = ListAlarmsRequest

ROUTES: tuple[resource.ManagementRoute, ...] = (
    resource.route("GET", "/alarms", resource.from_names(ListAlarmsRequest)),
)
