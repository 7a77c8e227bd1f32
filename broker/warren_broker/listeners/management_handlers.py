"""The handlers of all requests for `/management` resources, whichever way they come in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warren_broker.admin.caller import Answer, Asker
from warren_broker.admin.claim_service import CLAIM_HANDLERS
from warren_broker.admin.connection_service import CONNECTION_HANDLERS
from warren_broker.admin.definition_service import DEFINITION_HANDLERS
from warren_broker.admin.delayed_service import DELAYED_HANDLERS
from warren_broker.admin.health_service import HEALTH_HANDLERS
from warren_broker.admin.limit_service import LIMIT_HANDLERS
from warren_broker.admin.member_service import MEMBER_HANDLERS
from warren_broker.admin.policy_service import POLICY_HANDLERS
from warren_broker.admin.queue_service import QUEUE_HANDLERS
from warren_broker.admin.relay_service import RELAY_HANDLERS
from warren_broker.admin.shovel_service import SHOVEL_HANDLERS
from warren_broker.admin.sink_service import SINK_HANDLERS
from warren_broker.admin.statistic_service import STATISTIC_HANDLERS
from warren_broker.admin.total_service import TOTAL_HANDLERS
from warren_broker.admin.user_service import USER_HANDLERS

Handler = Callable[[Asker, Any, Answer], None]
MANAGEMENT_HANDLERS: dict[type, Handler] = {
    **QUEUE_HANDLERS,
    **CLAIM_HANDLERS,
    **MEMBER_HANDLERS,
    **USER_HANDLERS,
    **POLICY_HANDLERS,
    **DELAYED_HANDLERS,
    **SINK_HANDLERS,
    **RELAY_HANDLERS,
    **LIMIT_HANDLERS,
    **DEFINITION_HANDLERS,
    **SHOVEL_HANDLERS,
    **HEALTH_HANDLERS,
    **CONNECTION_HANDLERS,
    **TOTAL_HANDLERS,
    **STATISTIC_HANDLERS,
}
