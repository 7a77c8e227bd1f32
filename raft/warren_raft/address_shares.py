"""Shares of addresses in what strangers may take: places before a login, logins under way.

A client without a login is known by its address alone. So what strangers can take has a bound for
one address, besides the one for all, and further items wait. An address stands for one machine, or
for the many behind one proxy: their items wait for each other, not others for them.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Generic, TypeVar

from warren_raft.types import TimeMs

IPV6_PREFIX_BITS: Final = 64
"""Of an IPv6 address, what one customer of a network has at least."""
ADDRESSES_LOOKED_AT_MAX: Final = 16
"""Addresses that one `start` looks at."""
Item = TypeVar("Item", bound=Hashable)


@lru_cache(maxsize=1024)
def shared_address(host: str) -> str:
    """Return the address that has a share: an IPv4 address, or the /64 of an IPv6 one.

    A text that is no address stands for itself: what has no address shares "".
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    network = int(address) >> (128 - IPV6_PREFIX_BITS) << (128 - IPV6_PREFIX_BITS)
    return f"{ipaddress.IPv6Address(network)}/{IPV6_PREFIX_BITS}"


class _ByAddress(Generic[Item]):
    """Items of addresses, each with the time since when it is here, the oldest first.

    Invariants: no address is without items;  every address is in `_ranks` under its number of
    items, and no rank is empty;  `_most` is the largest rank, 0 without items
    """

    def __init__(self) -> None:
        self.address_of: dict[Item, str] = {}
        self._items: dict[str, OrderedDict[Item, TimeMs]] = {}
        self._ranks: dict[int, OrderedDict[str, None]] = {}
        self._most = 0

    def __len__(self) -> int:
        return len(self.address_of)

    def count(self, address: str) -> int:
        """Return how many items the address has."""
        return len(self._items.get(address, ()))

    def fullest(self) -> str:
        """Return an address with the most items: the one that has had so many for longest."""
        return next(iter(self._ranks[self._most]))

    def oldest(self, address: str) -> tuple[Item, TimeMs]:
        """Return the oldest item of an address that has some, and since when it is here."""
        return next(iter(self._items[address].items()))

    def newest(self, address: str) -> Item:
        """Return the newest item of an address that has some."""
        return next(reversed(self._items[address]))

    def addresses(self) -> list[str]:
        """Return all addresses that have items."""
        return list(self._items)

    def add(self, item: Item, address: str, now_ms: TimeMs) -> None:
        """Add an item that is not here."""
        assert item not in self.address_of, item
        self.address_of[item] = address
        items = self._items.setdefault(address, OrderedDict())
        items[item] = now_ms
        self._ranked(address, len(items) - 1, len(items))

    def remove(self, item: Item) -> str:
        """Remove an item that is here; return its address."""
        address = self.address_of.pop(item)
        items = self._items[address]
        del items[item]
        if not items:
            del self._items[address]
        self._ranked(address, len(items) + 1, len(items))
        return address

    def _ranked(self, address: str, before: int, now: int) -> None:
        if now:
            self._ranks.setdefault(now, OrderedDict())[address] = None
        if before:
            rank = self._ranks[before]
            del rank[address]
            if not rank:
                del self._ranks[before]
        # A count changes by one: where the last one with the most has left, one less is the most.
        self._most = max(now, self._most if self._most in self._ranks else self._most - 1)

    def check(self) -> None:
        """Check the invariants."""
        counts = {address: len(items) for address, items in self._items.items()}
        ranked = {address: rank for rank, some in self._ranks.items() for address in some}
        assert counts == ranked and all(counts.values()), (counts, ranked)
        assert all(self._ranks.values()) and self._most == max(self._ranks, default=0), self._most
        assert sum(counts.values()) == len(self.address_of), counts


@dataclass(frozen=True, slots=True)
class Started(Generic[Item]):
    """The next item that has a place now, and the one that had it before, to be ended."""

    item: Item
    evicted: Item | None


class AddressShares(Generic[Item]):
    """Which items have a place, and which wait for one.

    share        places of one address
    total        places of all addresses together; it may be changed at any time
    waiting_max  items that wait; one more drops the oldest of the address with the most waiting
    patience_ms  how long an item has its place at least while others of its address want it

    Addresses take turns. Of one address the newest item is first: when more come than have places,
    those that have just come are served, instead of all being served too late. An item with a place
    for longer than `patience_ms` loses it to the next one of the address. When all places are
    taken, an address with fewer of them takes one of the address with the most: at once if the
    other still has more then, else after `patience_ms`; so does an address that has the most.

    Invariants: an item has a place or waits, not both;  `_ring` and `_blocked` hold the addresses
    with items that wait, each once;  no address has more than `share` places
    """

    def __init__(self, share: int, total: int, waiting_max: int, patience_ms: int) -> None:
        assert share > 0 and waiting_max > 0, (share, waiting_max)
        self.share = share
        self.total = total
        self.patience_ms = patience_ms
        self._waiting_max = waiting_max
        self._held: _ByAddress[Item] = _ByAddress()
        self._waits: _ByAddress[Item] = _ByAddress()
        self._ring: OrderedDict[str, None] = OrderedDict()
        self._blocked: OrderedDict[str, None] = OrderedDict()

    @property
    def held(self) -> int:
        """How many places are taken."""
        return len(self._held)

    @property
    def waiting(self) -> int:
        """How many items wait for a place."""
        return len(self._waits)

    def wait(self, item: Item, host: str, now_ms: TimeMs) -> Item | None:
        """Have a new item wait; return the one that waits no longer instead: too many would."""
        address = shared_address(host)
        self._waits.add(item, address, now_ms)
        if address not in self._blocked:
            self._ring[address] = None
        if len(self._waits) <= self._waiting_max:
            return None
        dropped, _ = self._waits.oldest(self._waits.fullest())
        self._leave_line(dropped)
        return dropped

    def start(self, now_ms: TimeMs) -> Started[Item] | None:
        """Return the next item, which has a place from now on; None: none can have one now."""
        for _ in range(min(len(self._ring), ADDRESSES_LOOKED_AT_MAX)):
            address = next(iter(self._ring))
            self._ring.move_to_end(address)
            evicted: Item | None = None
            if self._held.count(address) >= self.share:
                evicted = self._overdue(address, now_ms)
                if evicted is None:
                    del self._ring[address]
                    self._blocked[address] = None
                    continue
            elif len(self._held) >= self.total:
                evicted = self._of_all(address, now_ms)
                if evicted is None:
                    continue
            if evicted is not None:
                self._give_up(evicted)
            item = self._waits.newest(address)
            self._leave_line(item)
            self._held.add(item, address, now_ms)
            return Started(item, evicted)
        return None

    def _overdue(self, address: str, now_ms: TimeMs) -> Item | None:
        item, since_ms = self._held.oldest(address)
        return item if now_ms - since_ms >= self.patience_ms else None

    def _of_all(self, address: str, now_ms: TimeMs) -> Item | None:
        """Return the item that gives its place to this address while all places are taken."""
        if not self._held:
            return None
        fullest, own = self._held.fullest(), self._held.count(address)
        more = self._held.count(fullest) - own
        if more > 1:
            return self._held.oldest(fullest)[0]
        if more == 1:
            return self._overdue(fullest, now_ms)
        return self._overdue(address, now_ms)

    def end(self, item: Item) -> None:
        """Take an item's place, or its turn to wait; an unknown one is ignored."""
        if item in self._held.address_of:
            self._give_up(item)
        elif item in self._waits.address_of:
            self._leave_line(item)

    def tick(self, now_ms: TimeMs, wait_ms_max: int) -> list[Item]:
        """Return what has waited for longer than that, and waits no more.

        To be called a few times a second while items wait: places that have become overdue since
        are found again.
        """
        for address in self._blocked:
            self._ring[address] = None
        self._blocked.clear()
        expired = []
        for address in self._waits.addresses():
            while self._waits.count(address):
                item, since_ms = self._waits.oldest(address)
                if now_ms - since_ms < wait_ms_max:
                    break
                expired.append(item)
                self._leave_line(item)
        return expired

    def _give_up(self, item: Item) -> None:
        address = self._held.remove(item)
        if address in self._blocked:
            del self._blocked[address]
            self._ring[address] = None

    def _leave_line(self, item: Item) -> None:
        address = self._waits.remove(item)
        if not self._waits.count(address):
            self._ring.pop(address, None)
            self._blocked.pop(address, None)

    def check(self) -> None:
        """Check the invariants."""
        self._held.check()
        self._waits.check()
        assert not self._held.address_of.keys() & self._waits.address_of.keys()
        assert not self._ring.keys() & self._blocked.keys()
        assert self._ring.keys() | self._blocked.keys() == set(self._waits.addresses())
        for address in self._held.addresses():
            assert self._held.count(address) <= self.share, address
