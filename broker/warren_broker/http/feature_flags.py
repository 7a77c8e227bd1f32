"""`/api/feature-flags`: those of RabbitMQ 4.3 that programs look up, all of them enabled.

Programs ask for a flag before they use what it stands for. `stream_queue` and its like are enabled
because RabbitMQ 4.3 requires them; a queue of type stream is refused where it is declared.
"""

from __future__ import annotations

from typing import Any, Final

from warren_broker.http.calls import HttpCall
from warren_broker.http.replies import HttpReply, bad_request
from warren_broker.http.routing_table import HttpRoute, http_route

REQUIRED: Final = (
    "classic_mirrored_queue_version",
    "classic_queue_type_delivery_support",
    "detailed_queues_endpoint",
    "direct_exchange_routing_v2",
    "drop_unroutable_metric",
    "empty_basic_get_metric",
    "feature_flags_v2",
    "implicit_default_bindings",
    "khepri_db",
    "listener_records_in_ets",
    "maintenance_mode_status",
    "message_containers",
    "message_containers_deaths_v2",
    "quorum_queue",
    "quorum_queue_non_voters",
    "rabbit_exchange_type_local_random",
    "rabbitmq_4.0.0",
    "rabbitmq_4.1.0",
    "rabbitmq_4.2.0",
    "restart_streams",
    "stream_filtering",
    "stream_queue",
    "stream_sac_coordinator_unblock_group",
    "stream_single_active_consumer",
    "stream_update_config_command",
    "tracking_records_in_ets",
    "user_limits",
    "virtual_host_metadata",
)
STABLE: Final = (
    "rabbitmq_4.3.0",
    "tie_binding_to_dest_with_keep_while_cond",
    "topic_binding_projection_v4",
    "topic_binding_projection_v5",
    "track_qq_members_uids",
)
"""Flags by RabbitMQ's word for their stability. source: RabbitMQ 4.3.6's answer."""


def _shown(name: str) -> dict[str, Any]:
    required = name in REQUIRED
    return {
        "name": name,
        "desc": "",
        "doc_url": "",
        "state": "enabled",
        "stability": "required" if required else "stable",
        "require_level": "hard" if required else "none",
        "experiment_level": "supported",
        "callbacks": [],
        "provided_by": "rabbit",
    }


async def _list(call: HttpCall) -> HttpReply:
    return HttpReply(200, [_shown(name) for name in sorted((*REQUIRED, *STABLE))])


async def _enable(call: HttpCall) -> HttpReply:
    """Answer as for a flag that is enabled already; another one is refused, as in RabbitMQ."""
    call.must_administer()
    if call.names[0] not in (*REQUIRED, *STABLE):
        raise bad_request("unsupported")
    return HttpReply(204)


ROUTES: tuple[HttpRoute, ...] = (
    http_route("/feature-flags", GET=_list),
    http_route("/feature-flags/:name/enable", PUT=_enable),
)
