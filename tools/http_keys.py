"""Keys of RabbitMQ's HTTP API that Warren's answers lack, and why."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

RECORDED: Final = Path(__file__).parents[1] / "tests/live/http_keys_recorded.json"
"""RabbitMQ's key paths by GET, which `tests/live/http_keys.py` records."""
_LISTED: Final = re.compile(r"^(items)?\[\]\.")
_DETAILS: Final = re.compile(r"_details(\..*)?$")
REASONS: Final[dict[str, str]] = {
    "(garbage_collection|reductions|run_queue|net_ticktime|proc_total|proc_used|"
    "gc_bytes_reclaimed|binary|metrics_gc_queue_length)": "Of the Erlang machine.",
    "(local_channel|local_connection)": "Of the Erlang machine: a link's own connection inside it.",
    "(mnesia_ram_tx_count|mnesia_disk_tx_count|ra_open_file_metrics)": "Of Mnesia and Ra. "
    "`warren_*` metrics have the log's numbers.",
    "(msg_store_read_count|msg_store_write_count|queue_index_read_count|queue_index_write_count|"
    "message_stats\\.disk_reads|message_stats\\.disk_writes|storage_version)": "Of RabbitMQ's "
    "store of classic queues: here every message is written to one log.",
    "(io_read_avg_time|io_read_bytes|io_read_count|io_reopen_count|io_seek_avg_time|io_seek_count|"
    "io_write_avg_time)": "Not counted: RabbitMQ 4.3 has 0 in all `io_` keys, Warren the log's "
    "writes and syncs.",
    "io_sync_avg_time_details": "A mean has no rate; `io_sync_count_details` has one.",
    "open_files": "All queues of a node have one log.",
    "memory@/queues": "No queue has a process of its own.",
    "(cached_segments|pending_raft_commands)": "What waits for a queue is the node's, not a "
    "channel's (`warren_uplink_in_flight_bytes`).",
    "listeners\\[\\]\\.socket_opts": "Options of Erlang's sockets, but for `nodelay` and the "
    "certificates.",
    "exchange_types\\[\\]\\.internal_purpose": "No type of exchange is internal.",
    "javascript": "Of RabbitMQ's management UI.",
    "(deprecation_phase|desc|doc_url|name|provided_by|state)@/deprecated-features": "RabbitMQ's "
    "deprecated features; nothing is deprecated here.",
    "client_properties\\.copyright": "Said by Erlang's client.",
    "(metadata|vhosts\\[\\]\\.metadata)\\.default_queue_type": "A vhost without one has none here.",
    "reason@/health/checks/node-is-quorum-critical": "Of a cluster of one node only.",
    "user_who_performed_action@/exchanges": "Who has declared an exchange is in the event "
    "exchange, and not kept.",
    "(id|consumer_tag|timestamp)@/(federation-links|shovels)": "Links have no ids here, and when "
    "a link or shovel has changed its state is in the log.",
    ".*@/connections/C10/sessions": "A session of AMQP 1.0 is not shown; its consumers are.",
    "head_message_timestamp@/queues/detailed": "A message would be read of each queue; "
    "`/queues/VHOST/NAME` has it.",
}
"""A key path, and `@` with the beginning of the answer's path → why it is missing."""


def recorded() -> dict[str, list[str]]:
    """Return RabbitMQ's key paths by GET."""
    found: dict[str, list[str]] = json.loads(RECORDED.read_text())["answers"]
    return found


def reason_of(answer: str, path: str) -> str | None:
    """Return the reason by which a key path of an answer is missing; None: it must be there."""
    bare = _LISTED.sub("", path)
    for rule in REASONS:
        key, _, of = rule.partition("@")
        if re.match(rf"{key}(_details)?(?![a-z_])", bare) and re.match(of, answer):
            return rule
    return None


def table() -> list[tuple[str, str]]:
    """Return the keys that are missing, together those of one reason, and the reason."""
    keys: dict[str, dict[str, None]] = {}
    for answer, paths in recorded().items():
        for path in paths:
            rule = reason_of(answer, path)
            if rule is not None:
                bare = _DETAILS.sub("", _LISTED.sub("", path))
                keys.setdefault(rule, {})[bare] = None
    return [(", ".join(f"`{key}`" for key in sorted(keys[rule])), REASONS[rule]) for rule in keys]
