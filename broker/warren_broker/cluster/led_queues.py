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


@dataclass(eq=False, repr=False)
class NodeTotalsReader:
    """Reads what this node counts."""

    cluster: Cluster
    definitions: Definitions
    clients: ClientLimits
    settings: NodeConfig
    _started_ms: int = field(init=False)
    _about: NodeAbout = field(init=False)

    def __post_init__(self) -> None:
        self._started_ms = self.cluster.loop.clock.monotonic_ms()
        self._about = about(self.settings)

    def read(self, answer: Callable[[NodeTotals], None]) -> None:
        """Answer what the node counts, when all of its groups have been read."""
        vhosts: dict[str, list[int]] = {}
        host = self.cluster.host

        def visit(groups: Sequence[int]) -> None:
            # A page left open asks for this again and again: no tuple is made for a queue.
            known = self.definitions.state.groups
            for group in groups:
                queue = known.get(group)
                if queue is None or queue.store_of or not host.is_leader(group):
                    continue
                state: QueueState = host.state(group)
                ready, held = state.order.count, state.unacknowledged
                rest = state.claimed + state.delayed.count + state.letters.count
                sums = vhosts.get(queue.vhost)
                if sums is None:
                    sums = vhosts[queue.vhost] = [0, 0, 0, 0]
                sums[0] += ready + held + rest
                sums[1] += ready
                sums[2] += held
                sums[3] += state.consumer_count

        in_slices(
            self.cluster.loop,
            host.groups(),
            visit,
            lambda: answer(self._totals(vhosts)),
            most=SUMMED_GROUPS,
        )

    def _totals(self, vhosts: dict[str, list[int]]) -> NodeTotals:
        cluster, alarms = self.cluster, self.settings.alarms
        facts = ProcessFacts.of(self.settings.data_dir)
        now_ms = cluster.loop.clock.monotonic_ms()
        connections, channels = self.clients.counts()
        return NodeTotals(
            node=self.settings.node,
            boot=cluster.host.boot_id,
            at_ms=now_ms,
            counters=_summed(cluster.counters.read()),
            vhosts={vhost: LedTotals(*sums) for vhost, sums in vhosts.items()},
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
