"""One HTTP request on its way to the node's resources."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from warren_broker.cluster.turns import Turns, Work
from warren_broker.http.frames import ApiJob, NodeAsk, NodeReply
from warren_broker.http.node_link import NodeLink
from warren_broker.http.replies import (
    HttpRefusal,
    HttpReply,
    bad_request,
    object_not_found,
    refusal_of,
)
from warren_wire.admin.overview import GetOverviewRequest, GetTotalsRequest, ListAlarmsRequest
from warren_wire.admin.queues import ListQueuesRequest
from warren_wire.admin.requests import AdminRoute, AnyAdminRequest, fields_of
from warren_wire.admin.statistics import DEFAULT_EXCHANGE
from warren_wire.admin.vhosts import ListVhostsRequest
from warren_wire.undecodable import NESTING_LEVELS_MAX, UNDECODABLE, nested_deeper

NO_OBJECT: Final = (b"", b"null", b"undefined")
"""Bodies that RabbitMQ takes for an empty object."""
QUEUES_PER_ASK: Final = 500
R = TypeVar("R")
S = TypeVar("S", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Credentials:
    """User and password of a request, and its client's address; the password is never shown."""

    peer: str
    user: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials(peer={self.peer!r}, user={self.user!r})"


@dataclass(frozen=True, slots=True)
class ShownRates:
    """Which rates are shown (`management.rates_mode`), and how often nodes look at counters."""

    mode: str
    interval_s: float

    @property
    def on(self) -> bool:
        """Return whether there are any."""
        return self.mode != "none"

    @property
    def of_pairs(self) -> bool:
        """Return whether there are those of channels with queues and exchanges."""
        return self.mode == "detailed"


@dataclass(frozen=True, slots=True)
class HttpCall:
    """A request: its credentials have been checked.

    body   the bytes, see `fields`
    tags   of the user
    reason  why it is made, by the header X-Reason; content_type: of the body, with its parameters
    rates   which ones are shown
    """

    link: NodeLink
    job: ApiJob
    credentials: Credentials
    query: Mapping[str, str]
    body: bytes
    tags: tuple[str, ...]
    rates: ShownRates
    reason: str = ""
    content_type: str = ""

    # ------------------------------------------------------------ what the client says

    def fields(self) -> dict[str, Any]:
        """Return the body, an object in JSON; raises HttpRefusal."""
        if self.body.strip() in NO_OBJECT:
            return {}
        found = decoded(self.body)
        if not isinstance(found, dict):
            raise bad_request(f"not_json: an object is expected, not a {type(found).__name__}")
        return found

    def pieces(self, kind: type[S]) -> S:
        """Return those fields of a large body that a struct names, as JSON (msgspec.Raw).

        Raises HttpRefusal. All other fields are passed over, and take no memory.
        """
        try:
            return msgspec.json.decode(
                b"{}" if self.body.strip() in NO_OBJECT else self.body, type=kind
            )
        except UNDECODABLE:
            raise bad_request("not_json: an object is expected") from None

    def chosen(self, *names: str) -> dict[str, Any]:
        """Return these fields of the body, where they are given; others are ignored."""
        given = self.fields()
        return {name: given[name] for name in names if given.get(name) is not None}

    def monitors(self) -> bool:
        """Return whether the user sees what is of others."""
        return bool({"administrator", "monitoring"}.intersection(self.tags))

    # ------------------------------------------------------------ what the node is asked

    async def totals(self) -> Any:
        """Return what the nodes within reach count."""
        return await self.get(GetTotalsRequest())

    async def ask(self, request: AnyAdminRequest, *, vhost: str | None = None) -> NodeReply:
        """Return the node's answer; raises HttpRefusal for its refusal."""
        return await self.send(*fields_of(request), vhost=vhost)

    async def try_ask(self, request: AnyAdminRequest, *, vhost: str | None = None) -> NodeReply:
        """Return the node's answer, also when it is a refusal."""
        return await self.try_send(*fields_of(request), vhost=vhost)

    async def get(self, request: AnyAdminRequest, *, vhost: str | None = None) -> Any:
        """Return what the node answers; raises HttpRefusal."""
        return (await self.ask(request, vhost=vhost)).body

    async def send(
        self, route: AdminRoute, fields: Mapping[str, Any], *, vhost: str | None = None
    ) -> NodeReply:
        """Return the node's answer to a request of which the client gave the fields.

        The node checks them. Raises HttpRefusal for its refusal.
        """
        reply = await self.try_send(route, fields, vhost=vhost)
        if reply.condition:
            raise refusal_of(reply, route.method in ("GET", "DELETE"))
        return reply

    async def try_send(
        self, route: AdminRoute, fields: Mapping[str, Any], *, vhost: str | None = None
    ) -> NodeReply:
        """Return the node's answer to such a request, also when it is a refusal."""
        who = self.credentials
        asked = NodeAsk(0, who.peer, who.user, who.password, route.shown, fields, vhost)
        return await self.link.ask(asked)

    async def nodes_alive(self) -> set[str]:
        """Return the names of the nodes that run, as this node sees them."""
        nodes = (await self.get(GetOverviewRequest()))["nodes"]
        return {str(node["name"]) for node in nodes if node["alive"]}

    async def alarms_by_node(self) -> dict[str, set[str]]:
        """Return the resources of which nodes are low."""
        found: dict[str, set[str]] = {}
        for alarm in await self.get(ListAlarmsRequest()):
            found.setdefault(str(alarm["node"]), set()).add(str(alarm["resource"]))
        return found

    async def queues(self, vhost: str, *, counts: bool, pattern: str = "") -> list[dict[str, Any]]:
        """Return the queues of a vhost, by name; pattern: it is found in their names."""
        found: list[dict[str, Any]] = []
        asked = ListQueuesRequest(count=QUEUES_PER_ASK, counts=counts, pattern=pattern)
        while True:
            page = await self.get(asked, vhost=vhost)
            found += page
            if len(page) < QUEUES_PER_ASK:
                return found
            asked = msgspec.structs.replace(asked, after=found[-1]["name"])

    async def queue(self, vhost: str, name: str, *, counts: bool) -> dict[str, Any]:
        """Return one queue; raises HttpRefusal."""
        if not name:
            raise object_not_found()
        found = await self.get(ListQueuesRequest(name=name, counts=counts), vhost=vhost)
        if not found:
            raise object_not_found()
        return dict(found[0])

    @staticmethod
    def one_of(found: list[dict[str, Any]], **wanted: str) -> dict[str, Any]:
        """Return the first one with these values; raises HttpRefusal."""
        for one in found:
            if all(one[key] == value for key, value in wanted.items()):
                return one
        raise object_not_found()

    async def of_vhosts(self, ask: Any) -> list[Any]:
        """Return what `ask(vhost)` returns of each vhost, joined; of one after the other.

        Those with the tag `monitoring` see every vhost, and not what is in those of others; and a
        vhost may be deleted meanwhile.
        """
        found: list[Any] = []
        for vhost in await self.get(ListVhostsRequest()):
            try:
                found += await ask(str(vhost["name"]))
            except HttpRefusal as refusal:
                if refusal.reply.status != 404:
                    raise
        return found


def decoded(data: bytes) -> Any:
    """Parse JSON of a bounded size; raises HttpRefusal."""
    try:
        found = msgspec.json.decode(data)
    except UNDECODABLE:
        raise bad_request("not_json") from None
    if nested_deeper(found, NESTING_LEVELS_MAX):
        raise bad_request(f"not_json: nested deeper than {NESTING_LEVELS_MAX} levels")
    return found


def whole_number(name: str, value: Any, least: int, most: int) -> int:
    """Return a number, which clients may give as a text; raises HttpRefusal."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise bad_request(f"{name}={str(value)[:40]}: a number from {least} to {most} is expected")
    return value


def text(name: str, value: Any) -> str:
    """Return a text; raises HttpRefusal."""
    if not isinstance(value, str):
        raise bad_request(f"{name} is {str(value)[:40]!r}; a text is expected")
    return value


def exchange_name(segment: str) -> str:
    """Return the name of the exchange in a path."""
    return "" if segment == DEFAULT_EXCHANGE else segment


async def in_turns(work: Work[R]) -> R:
    """Return what some work returns; other requests have their turns meanwhile."""
    turns = Turns(work)
    while not turns.turn():
        await asyncio.sleep(0)
    return turns.result


def done(reply: NodeReply) -> HttpReply:
    """Return the answer to a change: made is 201, whatever else is 204."""
    return HttpReply(201 if reply.status == 201 else 204)
