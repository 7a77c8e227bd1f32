"""What publishers add to the counters of the node and of their vhost, for runs of messages."""

from __future__ import annotations

from typing import Final, NamedTuple

from warren_broker.cluster.cluster import Cluster
from warren_broker.counting.counters import PROTOCOLS, Labels
from warren_broker.counting.message_stats import (
    CONFIRM,
    DROP_UNROUTABLE,
    PUBLISH,
    RETURN_UNROUTABLE,
    Row,
    zero_vhost_row,
)
from warren_wire.kernel import Selection, count_unselected


class _Keys(NamedTuple):
    """The counters of one protocol, of `counters.FAMILIES`."""

    received: tuple[str, Labels]
    expected: tuple[str, Labels]
    routed: tuple[str, Labels]
    confirmed: tuple[str, Labels]
    returned: tuple[str, Labels]
    dropped: tuple[str, Labels]


_KEYS: Final = {
    protocol: _Keys(
        *(
            (f"global_messages_{name}", (protocol,))
            for name in (
                *("received", "received_confirm", "routed", "confirmed"),
                *("unroutable_returned", "unroutable_dropped"),
            )
        )
    )
    for protocol in PROTOCOLS.values()
}


class PublishCounts:
    """The publishers of one protocol in one vhost: connections of 0.9.1, links and blocks of 1.0.

    vhost  its counts, `message_stats.VHOST_COUNTED`
    """

    __slots__ = ("_keys", "_values", "vhost")

    def __init__(self, cluster: Cluster, protocol: str, vhost: str | None) -> None:
        """protocol: the label of the messages; vhost None: none is open yet."""
        self._values = cluster.counters.values
        self._keys = _KEYS[protocol]
        self.vhost: Row = zero_vhost_row() if vhost is None else cluster.queue_counts.vhosts[vhost]

    def received(self, count: int, confirm: bool) -> None:
        """Count messages received; confirm: the publisher expects an answer."""
        self._values[self._keys.received] += count
        if confirm:
            self._values[self._keys.expected] += count
        self.vhost[PUBLISH] += count

    def routed(self, parts: list[Selection], kept: int, first: int, last: int) -> int:
        """Count messages first <= i < last routed; return how many are for no queue.

        parts  one for each queue
        kept   how many of the parts, the last ones, are for exchanges that keep messages
        """
        lost = count_unselected(parts[:-kept] if kept else parts, first, last)
        # In few calls: many messages come one by one.
        whole = len(parts) == 1 and not lost
        self._values[self._keys.routed] += last - first if whole else sum(map(len, parts))
        return lost

    def answered(self, confirmed: int, returned: int) -> None:
        """Count messages of which publishers are told: confirmed, and returned as unroutable."""
        if confirmed:
            self._values[self._keys.confirmed] += confirmed
            self.vhost[CONFIRM] += confirmed
        if returned:
            self._values[self._keys.returned] += returned
            self.vhost[RETURN_UNROUTABLE] += returned

    def dropped(self, count: int) -> None:
        """Count messages that no queue has got, of which the publisher is not told."""
        self._values[self._keys.dropped] += count
        self.vhost[DROP_UNROUTABLE] += count
