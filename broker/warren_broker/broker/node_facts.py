"""What this node says of itself: its settings, and its condition."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from warren_broker.cluster.cluster import Cluster
from warren_broker.config import ENVIRONMENT_PREFIX, NodeConfig
from warren_raft.measures import Histogram
from warren_wire import VERSION
from warren_wire.admin.node_facts import HIDDEN_SETTING, CertificateFile, NodeCondition, NodeSetting
from warren_wire.links.uris import without_passwords

SLOW_SYNC_S: Final = 0.1


def settings_of(
    settings: NodeConfig, environment: Mapping[str, str] = os.environ
) -> tuple[NodeSetting, ...]:
    """Return all settings by name, as they are in effect; secrets are hidden."""
    return tuple(_settings(settings, "", ENVIRONMENT_PREFIX, environment))


def _settings(
    table: BaseModel, prefix: str, variable: str, environment: Mapping[str, str]
) -> Iterator[NodeSetting]:
    for key, field in type(table).model_fields.items():
        value, name, named = getattr(table, key), f"{prefix}{key}", f"{variable}{key.upper()}"
        if isinstance(value, BaseModel):
            yield from _settings(value, f"{name}.", f"{named}__", environment)
            continue
        if isinstance(value, dict) and any(isinstance(one, BaseModel) for one in value.values()):
            for inner, one in value.items():
                yield from _settings(one, f"{name}.{inner}.", f"{named}__", environment)
            continue
        hidden = field.repr is False and value is not None
        shown = HIDDEN_SETTING if hidden else without_passwords(_plain(value))
        is_set = key in table.model_fields_set
        origin: Any = "environment" if named in environment else "file" if is_set else "default"
        yield NodeSetting(name, shown, origin, field.description or "")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Path) else value


def condition_of(
    cluster: Cluster, certificates: Mapping[Path, int], audit_lost: int
) -> NodeCondition:
    """Return what this node says of itself now.

    certificates  files with the times at which they end, in milliseconds since the epoch
    """
    measured = cluster.host.measures()
    syncs = measured.syncs
    slow = sum(
        count
        for bound, count in zip((*syncs.bounds, float("inf")), syncs.counts, strict=True)
        if bound > SLOW_SYNC_S
    )
    return NodeCondition(
        cluster.host.node_id,
        VERSION,
        cluster.loop.clock.epoch_ms(),
        syncs=sum(syncs.counts),
        slow_syncs=slow,
        certificates=tuple(CertificateFile(str(file), at) for file, at in certificates.items()),
        audit_lost=audit_lost,
        loop_lag_ms=_mean_ms(measured.lags),
        sync_ms=_mean_ms(syncs),
        wal_files=measured.wal_files,
        wal_bytes=measured.wal_bytes,
        segment_bytes=measured.segment_bytes,
    )


def _mean_ms(seconds: Histogram) -> float:
    return round(1000 * seconds.total / max(1, sum(seconds.counts)), 3)
