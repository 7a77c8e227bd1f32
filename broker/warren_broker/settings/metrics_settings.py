"""The table `prometheus` of a node's configuration; names are those of RabbitMQ's plugin."""

from __future__ import annotations

import ipaddress

from pydantic import BaseModel, ConfigDict, Field, field_validator


class _PrometheusTable(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class PrometheusTcp(_PrometheusTable):
    """Where metrics are served."""

    port: int = Field(15_692, ge=0, le=65_535)
    ip: str = "127.0.0.1"

    @field_validator("ip")
    @classmethod
    def _is_ip(cls, value: str) -> str:
        return str(ipaddress.ip_address(value))


class PrometheusSettings(_PrometheusTable):
    """The endpoint for Prometheus; names are those of RabbitMQ's plugin."""

    enabled: bool = False
    tcp: PrometheusTcp = PrometheusTcp()
    path: str = Field("/metrics", pattern="^(/[A-Za-z0-9._~-]+)+$", max_length=255)
    return_per_object_metrics: bool = Field(
        False, description="the path shows each queue, as PATH/per-object always does"
    )
