"""The counts of the queues that a node leads, read in slices."""

from __future__ import annotations

import platform
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from warren_broker.access.sasl_login import ANONYMOUS, MECHANISMS
from warren_broker.cluster.client_limits import ClientLimits
from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.definitions import Definitions
from warren_broker.cluster.process_facts import ProcessFacts
from warren_broker.config import NodeConfig
from warren_broker.counting.counters import LOGINS, by_protocol
from warren_broker.settings.http_settings import HttpSsl
from warren_machines.queue.state import QueueState
from warren_raft.runtime.host import UnknownGroup
from warren_raft.runtime.loop import Loop
from warren_wire import VERSION
from warren_wire.admin.overview import LedTotals, NodeAbout, NodeTotals
from warren_wire.certificate_login import EXTERNAL

T = TypeVar("T")
ALWAYS_SERVED: Final = tuple(
    f"rabbitmq_{name}"
    for name in (
        *("consistent_hash_exchange", "event_exchange", "federation", "federation_management"),
        *("random_exchange", "recent_history_exchange", "shovel", "shovel_management"),
    )
)
"""RabbitMQ's names of plugins of which every node does the work."""
SLICE_GROUPS: Final = 200
"""Groups read in one turn of the loop: about a millisecond."""
SUMMED_GROUPS: Final = 2_000
"""Those that are only summed: two milliseconds; a turn itself takes half of one."""


class MemberCounts(NamedTuple):
    """The counts of a queue, or of several."""

    ready: int
    unacked: int
    messages: int
    ready_bytes: int
    consumers: int
    delayed: int
    dead_lettering: int
    claimed: int

    @classmethod
    def of(cls, state: QueueState) -> MemberCounts:
        """Return a queue's counts; messages: all but those that are only staged."""
        ready, held = state.order.count, state.unacknowledged
        delayed, letters = state.delayed.count, state.letters.count
        return cls(
            ready,
            held,
            ready + held + state.claimed + delayed + letters,
            state.ready_bytes,
            state.consumer_count,
            delayed,
            letters,
            state.claimed,
        )

    def plus(self, other: MemberCounts) -> MemberCounts:
        """Return the sums."""
        return MemberCounts(*map(int.__add__, self, other))


NO_COUNTS: Final = MemberCounts(*(0 for _ in MemberCounts._fields))


def in_slices(
    loop: Loop,
    items: Sequence[T],
    visit: Callable[[Sequence[T]], None],
    done: Callable[[], None],
    guard: Callable[[Callable[[], None]], Callable[[], None]] = lambda call: call,
    most: int = SLICE_GROUPS,
) -> None:
    """Visit items, at most `most` in one turn of the loop; then call `done`.

    A node with many queues serves its clients in between: what is read is not of one moment.

    guard  handles a fault of a later turn
    """
    visit(items[:most])
    rest = items[most:]
    if rest:
        loop.call_later(0, guard(lambda: in_slices(loop, rest, visit, done, guard, most)))
    else:
        done()


def visit_groups(visit: Callable[[int], None], groups: Sequence[int]) -> None:
    """Visit each group; `visit` may raise UnknownGroup: it was deleted since the visit began."""
    for group in groups:
        with suppress(UnknownGroup):
            visit(group)


class _LedRow(NamedTuple):
    """A queue in the sums of its vhost; queues: 1."""

    vhost: str
    messages: int
    ready: int
    unacked: int
    consumers: int
    queues: int


def _led_row(vhost: str, state: QueueState) -> _LedRow:
    ready, held = state.order.count, state.unacknowledged
    rest = state.claimed + state.delayed.count + state.letters.count
    return _LedRow(vhost, ready + held + rest, ready, held, state.consumer_count, 1)


class VhostSums:
    """Sums over the queues led here, by vhost (`LedTotals`): those that have changed are read.

    A page that is left open asks for them again and again: of 10,000 queues most are as they were.
    1. A reading goes through all groups, in slices.  2. Another one, that begins meanwhile, would
    find no change, and answer half of the sums: so it begins after the end of that one.

    Invariant: `_sums` has the sum of each column of `_rows`, by vhost
    """

    def __init__(self, cluster: Cluster, definitions: Definitions) -> None:
        self._cluster = cluster
        self._definitions = definitions
        self._rows: dict[int, _LedRow] = {}
        self._sums: dict[str, list[int]] = {}
        self._waiting: list[Callable[[dict[str, LedTotals]], None]] = []
        self._next: list[Callable[[dict[str, LedTotals]], None]] = []

    def read(self, answer: Callable[[dict[str, LedTotals]], None]) -> None:
        """Answer the sums as they are now, or soon."""
        if self._waiting:
            self._next.append(answer)
            return
        self._waiting = [answer]
        host = self._cluster.host
        changed = host.take_changed("totals")
        if changed is None:
            self._rows, self._sums = {}, {}
        groups = [*host.groups()] if changed is None else [*changed]
        in_slices(self._cluster.loop, groups, self._visit, self._done, most=SUMMED_GROUPS)

    def _done(self) -> None:
        found = {vhost: LedTotals(*sums[:-1]) for vhost, sums in self._sums.items()}
        told, self._waiting = self._waiting, []
        later, self._next = self._next, []
        for answer in told:
            answer(found)
        for answer in later:
            self.read(answer)

    def _visit(self, groups: Sequence[int]) -> None:
        known, host, rows = self._definitions.state.groups, self._cluster.host, self._rows
        for group in groups:
            queue, now = known.get(group), None
            if queue is not None and not queue.store_of:
                with suppress(UnknownGroup):  # it has ended
                    now = (
                        _led_row(queue.vhost, host.state(group)) if host.is_leader(group) else None
                    )
            before = rows.pop(group, None)
            if now is not None:
                rows[group] = now
            if now != before:
                self._add(before, -1)
                self._add(now, 1)

    def _add(self, row: _LedRow | None, sign: int) -> None:
        if row is None:
            return
        sums = self._sums.setdefault(row.vhost, [0] * (len(_LedRow._fields) - 1))
        for at, one in enumerate(row[1:]):
            sums[at] += sign * one
        if not sums[-1]:
            del self._sums[row.vhost]


@dataclass(eq=False, repr=False)
class NodeTotalsReader:
    """Reads what this node counts."""

    cluster: Cluster
    definitions: Definitions
    clients: ClientLimits
    settings: NodeConfig
    _sums: VhostSums = field(init=False)
    _started_ms: int = field(init=False)
    _about: NodeAbout = field(init=False)

    def __post_init__(self) -> None:
        self._sums = VhostSums(self.cluster, self.definitions)
        self._started_ms = self.cluster.loop.clock.monotonic_ms()
        self._about = about(self.settings)

    def read(self, answer: Callable[[NodeTotals], None]) -> None:
        """Answer what the node counts, when its groups that have changed have been read."""
        self._sums.read(lambda vhosts: answer(self._totals(vhosts)))

    def _totals(self, vhosts: dict[str, LedTotals]) -> NodeTotals:
        cluster, alarms = self.cluster, self.settings.alarms
        facts = ProcessFacts.of(self.settings.data_dir)
        now_ms = cluster.loop.clock.monotonic_ms()
        connections, channels = self.clients.counts()
        return NodeTotals(
            node=self.settings.node,
            boot=cluster.host.boot_id,
            at_ms=now_ms,
            counters=_summed(cluster.counters.read()),
            vhosts=vhosts,
            connections=connections,
            channels=channels,
            mem_used=facts.resident,
            mem_limit=alarms.memory_high_watermark_bytes,
            disk_free=facts.disk_free,
            disk_free_limit=alarms.disk_free_limit_bytes,
            fd_total=facts.files_max,
            os_pid=facts.pid,
            processors=facts.processors,
            uptime=now_ms - self._started_ms,
            fd_used=facts.files,
            sockets_used=connections,
            sync_ms=cluster.host.sync_ms,
            about=self._about,
        )


def about(settings: NodeConfig) -> NodeAbout:
    """Return what stays the same while the node runs."""
    serves = {
        "rabbitmq_management": settings.management.enabled,
        "rabbitmq_prometheus": settings.prometheus.enabled,
    }
    return NodeAbout(
        version=VERSION,
        python=f"Python {platform.python_version()}",
        openssl=ssl.OPENSSL_VERSION,
        data_dir=str(settings.data_dir.absolute()),
        config_files=settings.files,
        log_files=("<stderr>",),
        mechanisms=(
            *MECHANISMS,
            *((ANONYMOUS,) if settings.anonymous_login is not None else ()),
            *((EXTERNAL,) if settings.ssl_cert_login_from != "none" else ()),
        ),
        plugins=(*ALWAYS_SERVED, *(name for name, on in serves.items() if on)),
        http=tuple(
            ("https" if isinstance(port, HttpSsl) else "http", port.ip, port.port)
            for port in (settings.management.ports() if settings.management.enabled else ())
        ),
        rates_mode=settings.management.rates_mode,
        sockets_max=settings.limits.connections_max,
    )


def _summed(counters: dict[tuple[str, tuple[str, ...]], int]) -> dict[str, int]:
    """Return each counter's sum over its labels, and of logins each protocol's, too."""
    found: dict[str, int] = {}
    for (name, labels), value in counters.items():
        found[name] = found.get(name, 0) + value
        if name in LOGINS:
            found[by_protocol(name, *labels)] = value
    return found
