"""Pages of the list of queues: filtered, sorted and cut where the queues are known."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Self

import msgspec

from warren_wire.admin.queues import QueueInfo
from warren_wire.admin.requests import AdminRequest, Number, Result, Text, checked_pattern, route
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


class PageQueuesRequest(AdminRequest[QueuesPage], frozen=True):
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
    page: Annotated[int, msgspec.Meta(ge=1, le=PAGES_MAX)] = 1
    page_size: Annotated[int, msgspec.Meta(ge=1, le=PAGE_QUEUES_MAX)] = 100
    name: Text = ""
    use_regex: bool = False
    having: Text = ""
    sort: Text = ""
    sort_reverse: bool = False
    counts: bool = True
    statistics: bool = False

    def checked(self) -> Self:
        """See the base class."""
        if self.sort and self.sort not in SORTS:
            raise InvalidArgument(f"sort={self.sort[:60]!r}: one of {', '.join(sorted(SORTS))}")
        if self.having and self.having not in COUNTED:
            raise InvalidArgument(f"having={self.having[:60]!r}: one of {', '.join(COUNTED)}")
        if self.name and self.use_regex:
            checked_pattern("name", self.name)
        return self
