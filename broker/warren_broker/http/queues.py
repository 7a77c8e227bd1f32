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
    Answered,
    of_queue,
    statistics_of,
    wants,
    wants_statistics,
)
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


async def _sampled(call: HttpCall, shown: dict[str, Any], ranges: Ranges) -> dict[str, Any]:
    name = shown["name"]
    known = await _known(call, shown["vhost"], GetStatisticsRequest("queues", name, bool(ranges)))
    return shown | of_queue(known.get(name), ranges)


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
    return [one | of_queue(found[one["vhost"]].get(one["name"])) for one in queues]


@answers("GET /queues", "GET /queues/detailed", "GET /queues/:vhost", pages=True)
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
        items = [item | of_queue(one) for item, one in known]
    return page_of(paging, items, found["filtered_count"], found["total_count"])


@answers("GET /queues/:vhost/:queue")
async def _get(call: HttpCall, vhost: str, name: str) -> dict[str, Any]:
    counts, ranges = _needs_counts(call), ranges_of(call.query)
    found = await call.queue(vhost, name, counts=counts)
    shown = shown_queue(found, await call.nodes_alive(), counts) | (_own(found) if counts else {})
    if wants_statistics(call):
        shown = await _sampled(call, shown, ranges)
    if wants(call, "consumer_details"):
        shown["consumer_details"] = await consumers_of(call, vhost, name)
    return shown


@answers("DELETE /queues/:vhost/:queue")
async def _delete(call: HttpCall, vhost: str, name: str) -> NodeReply:
    await call.queue(vhost, name, counts=False)
    unused, empty = (call.query.get(key) == "true" for key in ("if-unused", "if-empty"))
    return await call.ask(DeleteQueueRequest(name, unused, empty), vhost=vhost)


@answers("GET /queues/:vhost/:queue/bindings")
async def _bindings(call: HttpCall, vhost: str, name: str) -> list[dict[str, Any]]:
    await call.queue(vhost, name, counts=False)
    return await bindings_of(call, vhost, queue=name)


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
