"""The queue's rules, message by message, as dumb as can be: what the machine is compared with.

No runs, no intervals, no windows; lists of single messages that are searched from the front.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

Name = tuple[int, int]
"""(index, ordinal)."""


@dataclass(eq=False)
class Message:
    """One message; expiry None: never. ttl 0 is looked at apart."""

    name: Name
    size: int
    priority: int
    expiry: int | None = None
    born: int = 0
    failed: int = 0
    acquired: int = 0
    ready: int = 0

    def stale(self, now: int, final: bool) -> bool:
        if self.expiry is None:
            return False
        if self.expiry == self.born and not final:
            return now > self.expiry
        return now >= self.expiry


@dataclass(eq=False)
class Client:
    """A consumer. limit None: no limit; credit None: not explicit."""

    key: int
    session: int
    limit: int | None
    credit: int | None
    priority: int
    no_ack: bool
    timeout: int | None
    order: int
    filter: bytes = b""
    drain_at: int = 0
    held: dict[int, Message] = field(default_factory=dict)
    since: dict[int, int] = field(default_factory=dict)
    next_id: int = 0
    cancelled: bool = False
    suspended: bool = False
    quiescing: bool = False

    def room(self) -> int:
        if self.credit is not None:
            return self.credit
        return 10**9 if self.limit is None else self.limit - len(self.held)


def matches(text: bytes, name: Name) -> bool:
    """What these filters say: i2 of whole blocks, o2 of every second message, s3 of every third."""
    index, ordinal = name
    said = {b"i2": index % 2, b"o2": ordinal % 2, b"s3": (index + ordinal) % 3}
    return not said[text]


@dataclass(eq=False)
class Judging:
    """How far a filter has judged; goal: what was there when it came; parked: clients in turn."""

    goal: int
    judged: int = 0
    parked: list[Client] = field(default_factory=list)


class Model:
    """One uplink's view is enough: its consumers are numbered through."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.lanes: dict[int, list[Message]] = defaultdict(list)
        self.returned: list[Message] = []
        self.in_place = config.kind == "classic"
        self.back: dict[int, list[Message]] = defaultdict(list)
        self.delayed: list[Message] = []
        self.clients: dict[int, Client] = {}
        self.waiting: dict[int, list[Client]] = defaultdict(list)
        self.filters: dict[bytes, Judging] = {}
        self.active: Client | None = None
        self.claims: dict[int, list[Message]] = {}
        self.parts: list[tuple[int, list[Message]]] = []
        self.origins: dict[int, int] = {}
        self.in_row, self.passed = 0, False
        self.settled = self.opened = 0
        self.ahead = 0
        self.bound: dict[int, int] = {}
        self.decided: tuple[int, int] | None = None
        self.published: dict[int, set[int] | None] = {}
        self.last_published = -1
        self.forgot = False
        self.run_heard = self.run_expires = 0
        self.stages: dict[tuple[int, int, int], list[list[Message]]] = {}
        self.batch = -1
        self.dead: list[tuple[str, int, Name]] = []
        self.letters: list[tuple[int, str, Message]] = []
        self.sent: dict[int, list[tuple[int, int, int, int, int]]] = defaultdict(list)
        self.cancels: list[int] = []
        self.now = 0
        self.orders = 0

    # -------------------------------------------------------- ready messages

    def ready(self) -> list[Message]:
        return [message for place in self.places() for message in place]

    def places(self) -> list[list[Message]]:
        """In the order of service; a message that came back to its lane is ahead of the others."""
        lanes = sorted({*self.lanes, *self.back}, reverse=True)
        return [self.returned, *(part[p] for p in lanes for part in (self.back, self.lanes))]

    def lane(self, message: Message) -> int:
        return min(message.priority, self.config.priority_max, 31)

    def remove(self, message: Message) -> None:
        for place in (*self.places(), self.delayed):
            if message in place:
                place.remove(message)
                return
        raise AssertionError(message)

    def bury(self, reason: str, message: Message) -> None:
        if self.config.keeps_letters:
            self.letters.append((self.now, reason, message))
        elif self.config.dead_letter_exchange is not None:
            self.dead.append((reason, message.failed, message.name))

    def take(self) -> Message | None:
        while ready := self.ready():
            self.remove(ready[0])
            if not ready[0].stale(self.now, ready[0].acquired > 0):
                return ready[0]
            self.bury("expired", ready[0])
        return None

    def find(self, text: bytes) -> Message | None:
        """The first message that a filter matches, if it may be given out yet."""
        known = self.filters[text]
        for place in self.places():
            for message in place:
                if message.name[0] > known.judged:
                    if message.name[0] <= known.goal:
                        return None
                    break
                if matches(text, message.name):
                    return message
        return None

    def take_matching(self, text: bytes) -> Message | None:
        while (found := self.find(text)) is not None:
            self.remove(found)
            if not found.stale(self.now, found.acquired > 0):
                return found
            self.bury("expired", found)
        return None

    def expire_heads(self) -> None:
        for lane in self.places():
            while lane and lane[0].stale(self.now, True):
                self.bury("expired", lane.pop(0))

    def give_back(self, message: Message, failed: bool, wait_ms: int = 0) -> None:
        message.failed += failed
        message.acquired += 1
        if 0 <= self.config.delivery_limit < message.failed:
            self.bury("delivery_limit", message)
            return
        kind, delay = self.config.delayed_retry_type, self.config.delayed_retry_min_ms
        if not self.in_place and wait_ms > 0:
            message.ready = self.now + wait_ms
            self.delayed.append(message)
            self.delayed.sort(key=lambda m: (m.ready, m.name))
        elif not self.in_place and kind in ("all", "failed" if failed else "returned"):
            longest = self.config.delayed_retry_max_ms or delay
            message.ready = self.now + min(delay * max(1, message.failed), longest)
            self.delayed.append(message)
            self.delayed.sort(key=lambda m: (m.ready, m.name))
        elif self.in_place:
            back = self.back[self.lane(message)]
            back.append(message)
            back.sort(key=lambda m: m.name)
        else:
            self.returned.append(message)

    def due(self, everything: bool = False) -> int:
        """Delayed messages that are ready come back; everything: all do."""
        ready = [m for m in self.delayed if everything or m.ready <= self.now]
        self.delayed = self.delayed[len(ready) :]
        self.returned += ready
        return len(ready)

    def counted(self) -> list[Message]:
        """What counts towards the limits, in the order in which drop-head drops it."""
        return self.ready() + self.delayed

    def exceeds(self, messages: list[Message]) -> bool:
        c = self.config
        return (c.max_length is not None and len(messages) > c.max_length) or (
            c.max_length_bytes is not None and sum(m.size for m in messages) > c.max_length_bytes
        )

    def beside(self) -> list[Message]:
        """What counts towards the limits and is not ready."""
        return self.delayed + [message for _, _, message in self.letters]

    def over(self) -> bool:
        return self.exceeds(self.ready() + self.beside())

    def add(self, message: Message) -> None:
        self.begin_life(message)
        self.lanes[self.lane(message)].append(message)

    def add_delayed(self, message: Message, delay: int) -> None:
        self.begin_life(message)
        message.ready = self.now + delay
        self.delayed.append(message)
        self.delayed.sort(key=lambda m: (m.ready, m.name))

    def begin_life(self, message: Message) -> None:
        ttl = self.config.message_ttl_ms
        own = message.expiry
        limit = min((t for t in (ttl, own) if t is not None), default=None)
        message.born = self.now
        message.expiry = None if limit is None else self.now + limit

    def end(self) -> None:
        """What every entry ends with."""
        self.dispatch()
        if self.config.overflow == "drop-head":
            while self.over():
                head = self.counted()[0]
                self.remove(head)
                self.bury("maxlen", head)
        self.expire_heads()

    # ------------------------------------------------------------- consumers

    def review(self, client: Client) -> None:
        may = not (client.cancelled or client.suspended or client.quiescing) and client.room() > 0
        if self.config.single_active_consumer and self.active is not client:
            may = False
        if client.filter and client in self.filters[client.filter].parked:
            self.filters[client.filter].parked.remove(client)
        lane = self.waiting[client.priority]
        if may and client not in lane:
            lane.append(client)
        if not may and client in lane:
            lane.remove(client)

    def dispatch(self) -> None:
        share = 0
        for text, known in self.filters.items() if self.ready() else ():
            if known.parked and self.find(text) is not None:
                for client in known.parked:
                    self.waiting[client.priority].append(client)
                known.parked = []
        while True:
            lanes = [p for p in self.waiting if self.waiting[p]]
            if not lanes or not self.ready():
                return
            lane = self.waiting[max(lanes)]
            client = lane[0]
            if client.filter and self.find(client.filter) is None:
                self.filters[client.filter].parked.append(lane.pop(0))
                share = share if lane else 0
                continue
            turns = client.room()
            if len(lane) > 1:
                share = share or max(1, len(self.ready()) // (4 * len(lane)))
                turns = min(turns, share, 16 if client.filter else share)
            else:
                share = 0
            for _ in range(turns):
                wanted = client.filter
                message = self.take_matching(wanted) if wanted else self.take()
                if message is None:
                    break
                self.hand(client, message)
            lane.remove(client)
            if client.room() > 0:
                lane.append(client)
            elif not lane:
                share = 0

    def hand(self, client: Client, message: Message) -> None:
        number = client.next_id
        client.next_id += 1
        client.held[number] = message
        client.since[number] = self.now
        if client.credit is not None:
            client.credit -= 1
        self.sent[client.key].append((number, *message.name, message.failed, message.acquired))

    def elect(self) -> None:
        if not self.config.single_active_consumer:
            return
        if self.active is not None and self.active.cancelled:
            self.active = None
        others = [
            c
            for c in self.clients.values()
            if c is not self.active and not c.cancelled and not c.suspended
        ]
        best = min(others, key=lambda c: (-c.priority, c.order), default=None)
        active = self.active
        if active is None:
            self.active = best
        elif best is not None and best.priority > active.priority and self.config.kind != "classic":
            active.quiescing = bool(active.held)
            if not active.held:
                self.active = best
            self.review(active)
        else:
            active.quiescing = False
            self.review(active)
        if self.active is not None:
            self.review(self.active)

    def join(self, key: int, session: int, newest: int = 0, **how: Any) -> None:
        if how.get("filter") and how["filter"] not in self.filters:
            self.filters[how["filter"]] = Judging(newest)
        client = Client(key, session, order=self.orders, **how)
        self.orders += 1
        self.clients[key] = client
        self.elect()
        self.review(client)

    def changed(self, client: Client) -> None:
        if client.cancelled:
            if not client.held:
                self.clients.pop(client.key, None)
            return
        if client.quiescing:
            self.elect()
        self.review(client)

    def resolve(self, client: Client, ids: list[int], how: str, wait_ms: int = 0) -> None:
        for number in ids:
            message = client.held.pop(number, None)
            if message is None:
                continue
            if how in ("rejected", "nacked"):
                message.failed += how == "rejected"
                self.bury("rejected", message)
            elif how in ("failed", "returned"):
                self.give_back(message, how == "failed", wait_ms)

    def retire(self, client: Client) -> None:
        if client.cancelled:
            return
        client.cancelled = True
        self.review(client)
        text, client.filter = client.filter, b""
        if text and not any(one.filter == text for one in self.clients.values()):
            del self.filters[text]
        if client.no_ack:
            client.held.clear()
        client.quiescing = False
        self.elect()

    def cancel(self, client: Client) -> None:
        self.retire(client)
        self.changed(client)

    def session_down(self, session: int, failed: bool) -> None:
        for client in [c for c in self.clients.values() if c.session == session]:
            self.retire(client)
            self.resolve(client, sorted(client.held), "failed" if failed else "returned")
            self.clients.pop(client.key, None)

    def overdue(self) -> None:
        for client in list(self.clients.values()):
            if client.timeout is None or client.no_ack:
                continue
            late = [n for n in client.held if client.since[n] + client.timeout <= self.now]
            if late:
                self.resolve(client, late, "returned")
                self.cancels.append(client.key)
                self.retire(client)
                self.changed(client)

    # ---------------------------------------------------------------- claims

    def open_claim(
        self, number: int, count: int, size: int, keep_empty: bool = False, ahead: bool = False
    ) -> list[Message] | None:
        if number in self.claims:
            return self.claims[number]
        following = ahead and number == self.settled + 2 and number - 1 in self.claims
        if not (number == self.settled + 1 or following) or number <= self.opened:
            return None
        if ahead and self.parts:
            return []
        if not ahead and self.part_due():
            self.origins[number], self.claims[number] = self.parts.pop(0)
            self.opened = number
            return self.claims[number]
        self.dispatch()
        if ahead and len(self.ready()) < count and sum(m.size for m in self.ready()) < size:
            return []
        taken: list[Message] = []
        while len(taken) < count:
            message = self.take()
            if message is None:
                break
            if taken and sum(m.size for m in taken) + message.size > size:
                lane = self.lane(message)
                back = self.back[lane] if self.in_place else self.returned
                (back if message.acquired or message.ready else self.lanes[lane]).insert(0, message)
                break
            taken.append(message)
        if taken or keep_empty:
            self.claims[number] = taken
            self.opened = number
            self.ahead = number if ahead else self.ahead
        return taken

    def settle_claims(self, number: int) -> int:
        """Settle claims up to that one; return the number of messages."""
        done = [n for n in sorted(self.claims) if n <= number]
        for n in done:
            if n in self.bound:
                self.decided = (n, self.bound.pop(n))
        self.settled = max(self.settled, number)
        if any(self.claims[n] for n in done):
            self.in_row, self.passed = 0, bool(self.parts)
        return sum(len(self.claims.pop(n)) for n in done)

    def part_due(self) -> bool:
        """Whether the next claim is a part of an earlier one."""
        if not self.parts:
            return False
        return self.parts[0][0] == 1 or self.in_row == 0 or (self.in_row == 1 and self.passed)

    def give_up(self, number: int, way: str, most: int, drop: bool) -> str | int:
        """Empty a claim. returns the number of messages, or the reason of the refusal."""
        held, origin = self.claims.get(number), self.origins.get(number, 0)
        if held is None:
            return 0 if number <= self.settled else "claim_lost"
        if not held or (way == "withdraw" and number != self.ahead):
            return 0
        if way == "divide" and origin == 2:
            return "invalid"
        if way == "reject" and not drop and self.config.dead_letter_exchange is None:
            return "invalid"
        if way != "withdraw" and origin != 2 and (way == "reject" or len(held) == 1):
            if self.in_row >= most:
                return "failed_in_row"
            self.in_row += 1
        self.claims[number] = []
        for message in held if way != "divide" else ():
            if way in ("release", "withdraw"):
                self.give_back(message, way == "release")
            else:
                message.failed += 1
                message.acquired += 1
                self.bury("rejected", message)
        if way == "divide":
            if origin == 0 and not self.parts:
                self.passed = False
            half = len(held) // 2
            if half:
                self.parts[:0] = [(1, held[:half]), (1, held[half:])]
            else:
                self.parts.append((2, held))
        return len(held)

    # ------------------------------------------------------------- decisions

    def bind(self, number: int, batch: int) -> str | int:
        """Return "done", "claim_lost", or the batch that the claim is bound to."""
        if number not in self.claims:
            return "done" if self.decided == (number, batch) else "claim_lost"
        other = self.bound.setdefault(number, batch)
        return "done" if other == batch else other

    def resolve_claim(self, number: int, batch: int, published: bool) -> int:
        if self.bound.get(number) != batch:
            return 0
        if published:
            return self.settle_claims(number)
        del self.bound[number]
        return 0

    def expire_run(self) -> None:
        """Forget what was published when that has said so."""
        if self.run_expires and self.run_heard + self.run_expires <= self.now:
            self.forget()

    def publish_for(self, batch: int, claims: set[int], expires_ms: int = 0) -> str:
        """Publish a batch without rows. returns "done" or the reason of the refusal."""
        if batch not in self.published:
            if batch <= self.last_published:
                return "batch_past"
            self.published[batch] = claims or None
            self.last_published = batch
        elif claims:
            if self.published[batch] is None:
                self.published[batch] = claims
            elif self.published[batch] != claims:
                return "batch_conflict"
        self.run_heard, self.run_expires = self.now, expires_ms
        return "done"

    def forget(self) -> int:
        """Forget what was published; return how many runs were known."""
        known = self.last_published >= 0
        self.published.clear()
        self.last_published = -1
        self.run_expires = 0
        self.forgot = self.forgot or known
        return int(known)

    def ask(self, batch: int, claim: int) -> str:
        if batch not in self.published:
            if self.forgot:
                return "unknown"
            self.last_published = max(self.last_published, batch)
            return "closed"
        if self.published[batch] is None:
            self.published[batch] = set()
        return "published" if claim in (self.published[batch] or ()) else "closed"
