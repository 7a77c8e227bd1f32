"""Read-only requests: what a queue remembers of the sinks that publish into it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from warren_broker.cluster import messages
from warren_broker.cluster.client.reads import ReadFailed, RemoteReads
from warren_broker.cluster.cluster import Cluster
from warren_machines.queue.sink_view import SinkRow, sinks_of


@dataclass(frozen=True, slots=True)
class SinksFound:
    """Runs of sinks: how many there are, and the first of them; now_ms: see `messages.SinksAre`."""

    total: int
    rows: tuple[SinkRow, ...]
    now_ms: int


class SinkReads:
    """Questions about the sinks of a queue, and the answers to those of other nodes."""

    def __init__(self, cluster: Cluster, reads: RemoteReads) -> None:
        self._cluster = cluster
        self._reads = reads
        cluster.handlers.update(
            {
                messages.ReadSinks: self._on_read_sinks,
                messages.SinksAre: lambda node, message, rest: reads.finish(
                    message.request, SinksFound(message.total, message.rows, message.now_ms)
                ),
            }
        )

    def of_queue(
        self,
        group: int,
        sink: str,
        run: str,
        count: int,
        done: Callable[[SinksFound | ReadFailed], None],
    ) -> None:
        """Ask the leader for at most `count` runs; see `queue.sink_view.sinks_of`."""
        self._reads.start(
            group, lambda request: messages.ReadSinks(request, group, sink, run, count), done
        )

    def _on_read_sinks(self, node: str, message: messages.ReadSinks, rest: memoryview) -> None:
        host, request = self._cluster.host, message.request
        if not host.is_leader(message.group):
            self._reads.say(node, messages.ReadRefused(request, True, "not the leader"))
            return
        found = sinks_of(host.state(message.group), message.sink, message.run, message.count)
        self._reads.say(node, messages.SinksAre(request, *found, host.time_ms(message.group)))
