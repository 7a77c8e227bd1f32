"""`/metrics/memory-breakdown`: what a node's memory is used for, under RabbitMQ's names.

RabbitMQ divides it by the parts of the Erlang machine. A node here has one heap: the whole is in
`rabbitmq_memory_other_system_bytes` but for what the allocator keeps free, so that a dashboard that
adds them up shows the memory of the process. What else is known has names of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from warren_broker.cluster.allocator import Allocated

PARTS: Final = (
    *("code_module", "client_connection_reader", "client_connection_writer"),
    *("client_connection_channel", "client_connection_other", "classic_queue_erlang_process"),
    *("quorum_queue_erlang_process", "quorum_queue_dlx_erlang_process", "stream_erlang_process"),
    *("stream_replica_reader_erlang_process", "stream_coordinator_erlang_process", "plugin"),
    *("modern_metadata_store", "other_erlang_process", "metrics", "management_stats_db"),
    *("classic_metadata_store", "quorum_queue_ets_table", "modern_metadata_store_ets_table"),
    *("other_ets_table", "binary_heap", "message_index", "atom_table", "other_system"),
    *("runtime_allocated_unused", "runtime_reserved_unallocated"),
)
"""RabbitMQ's parts. source: RabbitMQ 4.3.6's answer."""


def memory_families(
    resident_bytes: int, kinds: dict[str, int], allocated: Allocated | None
) -> Iterator[Metric]:
    """Yield the families.

    kinds  resident bytes by what they are of: anonymous, file, shared
    """
    free = 0 if allocated is None else min(allocated.free, resident_bytes)
    known = {"other_system": resident_bytes - free, "runtime_allocated_unused": free}
    for part in PARTS:
        said = "Memory of this part; what Warren does not divide is in other_system"
        yield GaugeMetricFamily(f"rabbitmq_memory_{part}_bytes", said, value=known.get(part, 0))
    resident = GaugeMetricFamily(
        "warren_memory_resident_bytes", "Resident memory by what it is of", labels=["kind"]
    )
    for kind, size in kinds.items():
        resident.add_metric([kind], size)
    yield resident
