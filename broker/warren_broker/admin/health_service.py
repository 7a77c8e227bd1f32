"""Handlers of the requests in `management.health`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warren_broker.admin import health as m
from warren_broker.admin.caller import Answer, Asker
from warren_broker.admin.resource import Listed
from warren_wire.admin.health_values import AlarmInfo


def _list_alarms(asker: Asker, request: m.ListAlarmsRequest, answer: Answer) -> None:
    asker.access.must_be("management", "see the alarms")
    short = asker.broker.resource_alarms.by_node()
    answer(
        Listed(tuple(AlarmInfo(node, one) for node in sorted(short) for one in sorted(short[node])))
    )


HEALTH_HANDLERS: dict[type, Callable[[Asker, Any, Answer], None]] = {
    m.ListAlarmsRequest: _list_alarms,
}
