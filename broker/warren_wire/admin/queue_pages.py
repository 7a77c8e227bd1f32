"""Pages of the lists of queues and bindings: filtered, sorted and cut where these are known."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Self

import msgspec

from warren_wire.admin.queues import QueueInfo
from warren_wire.admin.requests import (
    AdminRequest,
    Number,
    Result,
    T,
    Text,
    checked_pattern,
    route,
)
from warren_wire.admin.statistics import QueueStatistics
from warren_wire.errors import InvalidArgument

PAGE_QUEUES_MAX: Final = 500
PAGES_MAX: Final = 1 << 31
DEFINED: Final = (
    *("name", "vhost", "type", "durable", "auto_delete", "exclusive", "policy"),
    *("operator_policy", "node", "leader", "state"),
)
COUNTED: Final = (
    *("messages", "messages_ready", "messages_unacknowledged", "messages_delayed"),
    *("messages_claimed", "messages_dlx", "message_bytes_ready", "consumers"),
    *("readers", "sinks", "relays"),
)
_OF_CLIENTS: Final = ("publish", "deliver_get", "deliver", "get", "ack", "redeliver")
RATED: Final = (
    *(f"message_stats.{name}_details.rate" for name in _OF_CLIENTS),
    *(f"{name}_details.rate" for name in COUNTED[:3]),
)
SORTS: Final = frozenset((*DEFINED, *COUNTED, *RATED))
"""Keys of RabbitMQ's HTTP API by which the nodes sort queues: of their definitions, of what their
leaders count, and rates."""


class QueuesPage(Result, frozen=True):
    """A page of queues; beyond the last one it has no items.

    total_count     queues that there are to be seen; filtered_count: of these those that match
    statistics      of each of the items, where they were asked for; None: nothing has used it
    """

    total_count: Number
    filtered_count: Number
    items: tuple[QueueInfo, ...]
    statistics: tuple[QueueStatistics | None, ...] = ()


class PageRequest(AdminRequest[T], frozen=True):
    """Base class of requests for a page of a list; see `PageQueuesRequest`."""

    page: Annotated[int, msgspec.Meta(ge=1, le=PAGES_MAX)] = 1
    page_size: Annotated[int, msgspec.Meta(ge=1, le=PAGE_QUEUES_MAX)] = 100
    name: Text = ""
    use_regex: bool = False

    def check(self, sort: str, sorts: frozenset[str]) -> None:
        """Raise InvalidArgument for an order that is none of `sorts`, or a wrong pattern."""
        if sort and sort not in sorts:
            raise InvalidArgument(f"sort={sort[:60]!r}: one of {', '.join(sorted(sorts))}")
        if self.name and self.use_regex:
            checked_pattern("name", self.name)


class PageQueuesRequest(PageRequest[QueuesPage], frozen=True):
    """Return a page of the queues: of the vhost, or over HTTP of all that the user may enter.

    What this takes of a node's time grows with the page, and with the number of queues only as
    much as filtering and sorting their names does: leaders are asked for the counts of those on the
    page. For an order by counts or rates (`SORTS`) each node tells those that are not 0, which may
    be a few seconds old where there are ten thousands. Answer: QueuesPage.

    name        only queues with this in their names, whatever the case; use_regex: see ListQueues
    having      one of COUNTED: only queues of which that number is not 0, the greatest first
    sort        one of SORTS; then by vhost and name. "": by vhost and name
    counts      False: no leader is asked, and every count is 0
    statistics  with what clients did
    """

    ROUTES: ClassVar = (route("GET /pages/queues", "management"),)
    having: Text = ""
    sort: Text = ""
    sort_reverse: bool = False
    counts: bool = True
    statistics: bool = False

    def checked(self) -> Self:
        """See the base class."""
        if self.having and self.having not in COUNTED:
            raise InvalidArgument(f"having={self.having[:60]!r}: one of {', '.join(COUNTED)}")
        self.check(self.sort, SORTS)
        return self


# ------------------------------------------------------------------ bindings

BINDING_SORTS: Final = frozenset(("vhost", "source", "destination", "routing_key"))
"""What bindings are sorted by."""


class PagedBinding(msgspec.Struct, frozen=True):
    """A binding with its vhost; destination_type: queue or exchange."""

    vhost: str
    source: str
    destination: str
    destination_type: str
    routing_key: str
    arguments: dict[str, Any]


class BindingsPage(Result, frozen=True):
    """A page of bindings; see `QueuesPage`."""

    total_count: Number
    filtered_count: Number
    items: tuple[PagedBinding, ...]


class PageBindingsRequest(PageRequest[BindingsPage], frozen=True):
    """Return a page of the bindings: of the vhost, or over HTTP of all that the user may enter.

    Without a filter or another order this takes time for the bindings of the page alone. Those of
    the default exchange come first. Answer: BindingsPage, by vhost, source, destination and key.

    name  only bindings with this in their source, destination or routing key
    sort  one of BINDING_SORTS; those that are equal in it keep their order
    """

    ROUTES: ClassVar = (route("GET /pages/bindings", "management"),)
    sort: Text = ""
    sort_reverse: bool = False

    def checked(self) -> Self:
        """See the base class."""
        self.check(self.sort, BINDING_SORTS)
        return self
