"""`/api/queues`: queues as RabbitMQ's HTTP API shows and changes them."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final

from warren_broker.http.calls import HttpCall, in_turns
from warren_broker.http.connections import consumers_of
from warren_broker.http.exchanges import bindings_of
from warren_broker.http.frames import NodeReply
from warren_broker.http.listing import Paging, columns_of, page_of, paged, paging_of
from warren_broker.http.messages import get_messages
from warren_broker.http.replies import HttpRefusal, bad_request
from warren_broker.http.routing_table import answers
from warren_broker.http.samples import Ranges, ranges_of
from warren_broker.http.statistics import (
    NO_RANGES,
    PUBLISHERS,
    Answered,
    of_pair,
    of_queue,
    pairs_of,
    statistics_of,
    wants,
    wants_statistics,
)
from warren_wire.admin.browse import BrowseRequest
from warren_wire.admin.connections import SINGLE_ACTIVE, ListConsumersRequest
from warren_wire.admin.members import GetMembersRequest
from warren_wire.admin.queue_pages import SORTS, PageQueuesRequest
from warren_wire.admin.queues import (
    NO_DELIVERY_LIMIT,
    DeleteQueueRequest,
    ListQueuesRequest,
    QueueInfo,
)
from warren_wire.admin.requests import said_of
from warren_wire.admin.statistics import GetStatisticsRequest

BASIC: Final = frozenset(
    {
        *("name", "vhost", "type", "durable", "auto_delete", "exclusive", "arguments", "node"),
        *("leader", "members", "online", "state", "policy", "operator_policy"),
        *("internal", "internal_owner"),
        *("delivery_limit", "delayed_retry"),
        "effective_policy_definition",
    }
)
"""Columns that need no counts from the queues' leaders."""
COUNTS: Final = {
    said["http"] or name: name
    for name, said in said_of(QueueInfo).items()
    if said["amqp"] in ("ulong", "uint") and said["http"] != ""
}
"""Keys of counts, and what the node calls them."""
OWN: Final = frozenset({"readers", "relays", "next_delayed_at", "last_delayed_at"})
"""What RabbitMQ does not know of queues: shown of one, and in pages where it is asked for."""
_IN_MEMORY: Final = (
    *("messages_ram", "message_bytes_ram", "messages_ready_ram"),
    "messages_unacknowledged_ram",
)
SAMPLED_QUEUES_MAX: Final = 100
"""Queues of a list or page that are shown with samples: of each a node has up to 17 KB."""


def shown_queue(queue: dict[str, Any], alive: set[str], counts: bool) -> dict[str, Any]:
    """Return a queue with RabbitMQ's keys.

    alive   the nodes that run
    counts  whether the counts are known
    """
    leader, members = queue["leader"], list(queue["replicas"])
    shown = {
        "name": queue["name"],
        "vhost": queue["vhost"],
        "type": queue["type"],
        "durable": queue["durable"],
        "auto_delete": queue["auto_delete"],
        "exclusive": queue["exclusive"],
        "arguments": queue["arguments"],
        "node": leader or (members[0] if members else None),
        "state": "running" if leader in alive else "down",
        "internal": False,
        "internal_owner": False,
        "policy": queue["policy"] or None,
        "operator_policy": queue["operator_policy"] or None,
        "effective_policy_definition": queue["effective_policy_definition"],
    }
    if queue["type"] == "quorum" or len(members) > 1:
        online = [node for node in members if node in alive]
        limit = queue["delivery_limit"]
        shown |= {
            "leader": leader or None,
            "members": members,
            "online": online,
            "delivery_limit": "unlimited" if limit == NO_DELIVERY_LIMIT else limit,
            "delayed_retry": queue["delayed_retry"],
        }
    if counts:
        shown |= {key: queue[name] for key, name in COUNTS.items()}
        # As of RabbitMQ's quorum queues: what is in memory is a copy of what the log has.
        shown |= {f"{key}_persistent": shown[key] for key in ("messages", "message_bytes")}
        shown |= dict.fromkeys(_IN_MEMORY, 0)
        shown["messages_by_priority"] = {str(at): count for at, count in queue["by_priority"]}
        shown["messages_active_priorities"] = len(queue["by_priority"])
    return shown


def _own(queue: dict[str, Any]) -> dict[str, Any]:
    return {key: queue[key] for key in OWN}


def _needs_counts(call: HttpCall) -> bool:
    if call.query.get("disable_stats") == "true":
        return call.query.get("enable_queue_totals") == "true"
    columns = columns_of(call.query)
    return columns is None or not BASIC.issuperset(filter(None, columns))


async def _known(call: HttpCall, vhost: str, asked: GetStatisticsRequest) -> dict[str, Answered]:
    try:
        return await statistics_of(call, asked, vhost)
    except HttpRefusal as refusal:
        if refusal.reply.status != 404:  # deleted meanwhile
            raise
        return {}


def _statistics(call: HttpCall, one: Answered | None, ranges: Ranges = NO_RANGES) -> dict[str, Any]:
    """Return the keys of a queue that its statistics give; None: it has none."""
    shown = of_queue(one, ranges)
    if call.rates.of_pairs:
        shown["publishers"] = 0 if one is None else one[PUBLISHERS]
    return shown


async def _sampled(call: HttpCall, shown: dict[str, Any], ranges: Ranges) -> dict[str, Any]:
    name = shown["name"]
    known = await _known(call, shown["vhost"], GetStatisticsRequest("queues", name, bool(ranges)))
    return shown | _statistics(call, known.get(name), ranges)


async def _with_statistics(
    call: HttpCall, queues: list[dict[str, Any]], ranges: Ranges = NO_RANGES
) -> list[dict[str, Any]]:
    """Return queues with their rates and `message_stats`; the nodes are asked once per vhost.

    ranges  of few queues, of which the nodes are asked for each; many are shown without samples
    """
    samples = ranges.lengths is not None or ranges.msg_rates is not None
    if samples and len(queues) <= SAMPLED_QUEUES_MAX:
        return await asyncio.gather(*(_sampled(call, one, ranges) for one in queues))
    found = {
        vhost: await _known(call, vhost, GetStatisticsRequest("queues"))
        for vhost in dict.fromkeys(one["vhost"] for one in queues)
    }
    return [one | _statistics(call, found[one["vhost"]].get(one["name"])) for one in queues]


@answers("GET /queues", "GET /queues/:vhost", pages=True)
async def _list(call: HttpCall, vhost: str | None = None) -> Any:
    """List queues; the node finds those of a page in an order that it knows.

    Other lists, and pages in other orders, take every queue's counts from its leader.
    """
    counts, statistics = _needs_counts(call), wants_statistics(call)
    ranges = ranges_of(call.query)
    paging = paging_of(call.query)
    having = call.query.get("having", "")
    if paging is not None and (having or call.query.get("sort", "") in SORTS.union([""])):
        return await _page(call, vhost, paging, counts, statistics, ranges)
    alive = await call.nodes_alive()
    if vhost is None:
        found = await call.of_vhosts(partial(call.queues, counts=counts))
    else:
        found = await call.queues(vhost, counts=counts)
    shown = [shown_queue(one, alive, counts) for one in found]
    if not statistics:
        return shown
    if paging is None or not ranges:
        return await _with_statistics(call, shown, ranges)
    listed = await _with_statistics(call, shown)
    page = await in_turns(paged(listed, call.query))
    page["items"] = await _with_statistics(call, page["items"], ranges)
    return page


async def _page(
    call: HttpCall,
    vhost: str | None,
    paging: Paging,
    counts: bool,
    statistics: bool,
    ranges: Ranges,
) -> dict[str, Any]:
    asked = PageQueuesRequest(
        page=paging.page,
        page_size=paging.page_size,
        name=paging.name,
        use_regex=paging.use_regex,
        having=call.query.get("having", ""),
        sort="" if call.query.get("having") else call.query.get("sort", ""),
        sort_reverse=call.query.get("sort_reverse") == "true",
        counts=counts,
        statistics=statistics and not ranges,
    )
    found = await call.get(asked, vhost=vhost)
    alive = await call.nodes_alive()
    items = [shown_queue(one, alive, counts) for one in found["items"]]
    if (columns_of(call.query) or {}).keys() & OWN:
        items = [item | _own(one) for item, one in zip(items, found["items"], strict=True)]
    if statistics and ranges:
        items = await _with_statistics(call, items, ranges)
    elif statistics:
        known = zip(items, found["statistics"], strict=True)
        items = [item | _statistics(call, one) for item, one in known]
    return page_of(paging, items, found["filtered_count"], found["total_count"])


@answers("GET /queues/:vhost/:queue")
async def _get(call: HttpCall, vhost: str, name: str) -> dict[str, Any]:
    counts, ranges = _needs_counts(call), ranges_of(call.query)
    found = await call.queue(vhost, name, counts=counts)
    shown = shown_queue(found, await call.nodes_alive(), counts) | (_own(found) if counts else {})
    if wants_statistics(call):
        shown = await _sampled(call, shown, ranges)
    if any(wants(call, key) for key in ("incoming", "deliveries")):
        shown |= await _pairs(call, vhost, name, ranges)
    if any(wants(call, key) for key in ("consumer_details", *_TAGS)):
        shown["consumer_details"] = consumers = await consumers_of(call, vhost, name)
        shown |= _tags(consumers)
    if counts and wants(call, "head_message_timestamp"):
        shown["head_message_timestamp"] = await _head_timestamp(call, vhost, shown)
    return shown


async def _pairs(call: HttpCall, vhost: str, queue: str, ranges: Ranges) -> dict[str, Any]:
    """Return which exchanges gave a queue messages, and which channels it gave them to."""
    wanted = ranges.msg_rates
    found = await pairs_of(call, vhost, queue=queue, samples=wanted is not None)
    return {
        key: [of_pair(one, vhost, "queue", wanted) for one in found[kind]]
        for key, kind in (("incoming", "routes"), ("deliveries", "deliveries"))
    }


_TAGS: Final = ("single_active_consumer_tag", "exclusive_consumer_tag")


def _tags(consumers: list[dict[str, Any]]) -> dict[str, str | None]:
    """Return the tags of the consumers that a queue prefers; None: it has no such one."""
    active = [one for one in consumers if one["activity_status"] == SINGLE_ACTIVE]
    alone = [one for one in consumers if one["exclusive"]]
    return {
        key: found[0]["consumer_tag"] if found else None
        for key, found in zip(_TAGS, (active, alone), strict=True)
    }


async def _head_timestamp(call: HttpCall, vhost: str, queue: dict[str, Any]) -> int | None:
    """Return the timestamp, in seconds, of the message that is delivered next; None: no such.

    So it is for a user that may not look at the queue's messages.
    """
    if not queue["messages_ready"]:
        return None
    asked = BrowseRequest(queue["name"], states="ready", count=1, body_bytes=0)
    reply = await call.try_ask(asked, vhost=vhost)
    messages = [] if reply.condition else reply.body["messages"]
    return messages[0]["properties"].get("timestamp") if messages else None


@answers("GET /queues/detailed", pages=True)
async def _list_detailed(call: HttpCall) -> Any:
    """List queues with the tags of preferred consumers, which are asked for once."""
    found = await _list(call)
    of: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in await call.get(ListConsumersRequest()):
        of.setdefault((one["vhost"], one["queue"]), []).append(one)
    for queue in found["items"] if isinstance(found, dict) else found:
        queue.update(_tags(of.get((queue["vhost"], queue["name"]), [])))
    return found


@answers("DELETE /queues/:vhost/:queue")
async def _delete(call: HttpCall, vhost: str, name: str) -> NodeReply:
    await call.queue(vhost, name, counts=False)
    unused, empty = (call.query.get(key) == "true" for key in ("if-unused", "if-empty"))
    return await call.ask(DeleteQueueRequest(name, unused, empty), vhost=vhost)


@answers("GET /queues/:vhost/:queue/bindings")
async def _bindings(call: HttpCall, vhost: str, name: str) -> list[dict[str, Any]]:
    await call.queue(vhost, name, counts=False)
    return await bindings_of(call, vhost, queue=name)


_OF_LOGS: Final = {
    "last_index": "Last Log Index",
    "last_written": "Last Written",
    "last_applied": "Last Applied",
    "commit_index": "Commit Index",
    "snapshot_index": "Snapshot Index",
    "term": "Term",
    "machine_version": "Machine Version",
}
"""RabbitMQ's keys for a member's log (`members.MemberLog`)."""


@answers("GET /queues/quorum/:vhost/:queue/status")
async def _quorum_status(call: HttpCall, vhost: str, name: str) -> list[dict[str, Any]]:
    """Return how far the logs of a queue's members are, with RabbitMQ's keys."""
    found = await call.get(GetMembersRequest(name), vhost=vhost)
    return [_shown_log(one, one["log"]) for one in found["members"]]


def _shown_log(one: dict[str, Any], log: dict[str, Any] | None) -> dict[str, Any]:
    shown = {
        "Node Name": one["node"],
        "Raft State": "leader" if one["role"] == "leader" else "follower",
        "Membership": "voter" if one["voter"] else "promotable",
    }
    if log is None:  # its node did not say it
        return {**shown, "Raft State": "noproc", **dict.fromkeys(_OF_LOGS.values(), "")}
    known = {key: log[name] for name, key in _OF_LOGS.items()}
    return {**shown, **known, "Snapshot Index": log["snapshot_index"] or -1}


async def _must_exist(call: HttpCall, vhost: str, name: str) -> None:
    if not await call.get(ListQueuesRequest(name=name, counts=False), vhost=vhost):
        raise HttpRefusal(404, "not_found", "queue_not_found")


@answers("POST /queues/:vhost/:queue/actions", tag="administrator")
async def _act(call: HttpCall, vhost: str, name: str) -> None:
    """Refuse an action as RabbitMQ 4.3 does, which knows none any more."""
    await _must_exist(call, vhost, name)
    action = call.fields().get("action")
    if action is None:
        raise bad_request("[key_missing,action]")
    raise bad_request(f"unknown action {str(action)[:100]!r}")


@answers("POST /queues/:vhost/:queue/get")
async def _messages(call: HttpCall, vhost: str, name: str) -> list[dict[str, Any]]:
    await _must_exist(call, vhost, name)
    return await get_messages(call, vhost, name)
