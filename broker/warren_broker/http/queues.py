"""`/api/queues`: queues as RabbitMQ's HTTP API shows and changes them."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final

from warren_broker.http.calls import HttpCall, in_turns
from warren_broker.http.connections import consumers_of
from warren_broker.http.exchanges import bindings_of
from warren_broker.http.frames import NodeReply
from warren_broker.http.listing import columns_of, paged, paging_of, sorts_of
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
    """List queues; of a page that is sorted by what needs no counts, only its queues are counted.

    Otherwise a page of a hundred would have every leader of ten thousand queues asked.
    """
    counts, statistics = _needs_counts(call), wants_statistics(call)
    ranges = ranges_of(call.query)
    few = paging_of(call.query) is not None and BASIC.issuperset(
        one.split(".")[0] for one in sorts_of(call.query)
    )
    alive = await call.nodes_alive()
    counted = counts and not few
    if vhost is None:
        found = await call.of_vhosts(partial(call.queues, counts=counted))
    else:
        found = await call.queues(vhost, counts=counted)
    shown = [shown_queue(one, alive, counted) for one in found]
    if not few and not statistics:
        return shown
    if not few and (paging_of(call.query) is None or not ranges):
        return await _with_statistics(call, shown, ranges)
    if not few:  # sorted by what the statistics give
        listed = await _with_statistics(call, shown)
        page = await in_turns(paged(listed, call.query))
        page["items"] = await _with_statistics(call, page["items"], ranges)
        return page
    page = await in_turns(paged(shown, call.query))
    if counts:
        page["items"] = await asyncio.gather(*(_counted(call, one, alive) for one in page["items"]))
    if statistics:
        page["items"] = await _with_statistics(call, page["items"], ranges)
    return page


async def _counted(call: HttpCall, shown: dict[str, Any], alive: set[str]) -> dict[str, Any]:
    found = await call.get(ListQueuesRequest(name=shown["name"]), vhost=shown["vhost"])
    return shown_queue(found[0], alive, True) if found else shown


@answers("GET /queues/:vhost/:queue")
async def _get(call: HttpCall, vhost: str, name: str) -> dict[str, Any]:
    counts, ranges = _needs_counts(call), ranges_of(call.query)
    found = await call.queue(vhost, name, counts=counts)
    shown = shown_queue(found, await call.nodes_alive(), counts)
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
