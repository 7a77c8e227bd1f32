"""The tables `management`, `otlp` and `prometheus` of a configuration, named as by RabbitMQ."""

from __future__ import annotations

import ipaddress
import ssl
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from warren_broker.settings.settings_table import SettingsTable
from warren_wire.tls.contexts import TlsFiles

LOOPBACK = "127.0.0.1"
ANY_PORT = "0: any free one"
ADDRESS = "an address of this machine, 0.0.0.0 or ::"


def _is_ip(value: str) -> str:
    return str(ipaddress.ip_address(value))


class HttpTcp(SettingsTable):
    """Where the HTTP API is served without TLS."""

    port: int = Field(15_672, ge=0, le=65_535, description=ANY_PORT)
    ip: str = Field(LOOPBACK, description=ADDRESS)

    _ip = field_validator("ip")(_is_ip)


class HttpSsl(SettingsTable):
    """Where the HTTP API is served with TLS, and its certificates, in PEM format."""

    port: int = Field(15_671, ge=0, le=65_535, description=ANY_PORT)
    ip: str = Field(LOOPBACK, description=ADDRESS)
    certfile: Path = Field(description="its certificate; without it there is no such port")
    keyfile: Path | None = Field(None, description="by default in certfile")
    password: str | None = Field(None, repr=False, description="of the key")
    cacertfile: Path | None = Field(None, description="authorities of accepted certificates")
    verify: Literal["verify_none", "verify_peer"] = Field(
        "verify_none", description="whether a certificate that a client gives is verified"
    )
    fail_if_no_peer_cert: bool = Field(
        False, description="a client must give one; it still logs in with user and password"
    )

    _ip = field_validator("ip")(_is_ip)

    @model_validator(mode="after")
    def _can_verify(self) -> HttpSsl:
        if self.verify == "verify_peer" and self.cacertfile is None:
            raise ValueError(
                "management.ssl.verify='verify_peer' needs management.ssl.cacertfile, the "
                "certificate authorities that are accepted"
            )
        if self.fail_if_no_peer_cert and self.verify != "verify_peer":
            raise ValueError(
                "management.ssl.fail_if_no_peer_cert=true needs management.ssl.verify='verify_peer'"
            )
        return self

    def files(self) -> TlsFiles:
        """Return its certificates, and what is asked of clients."""
        if self.verify == "verify_none":
            return TlsFiles(self.certfile, self.keyfile, password=self.password)
        needed = ssl.CERT_REQUIRED if self.fail_if_no_peer_cert else ssl.CERT_OPTIONAL
        return TlsFiles(self.certfile, self.keyfile, self.cacertfile, self.password, needed)


class HttpBounds(SettingsTable):
    """Bounds on requests."""

    max_body_size: int = Field(
        20_000_000,
        ge=1_000,
        le=100_000_000,
        description="bytes of a request's body; of most paths 131,072",
    )
    unauthenticated_per_address_max: int = Field(
        64, ge=1, le=256, description="connections without a login of one address, or IPv6 /64"
    )
    logins_per_address_max: int = Field(
        32, ge=1, description="logins of one address at once; a wrong one takes a second"
    )


class ManagementSettings(SettingsTable):
    """The HTTP API."""

    enabled: bool = Field(False, description="serve it")
    ui: bool = Field(True, description="serve the management UI, too")
    tcp: HttpTcp | None = Field(None, description="by default there, unless ssl is given alone")
    ssl: HttpSsl | None = None
    http: HttpBounds = HttpBounds()
    rates_mode: Literal["basic", "detailed", "none"] = Field(
        "basic",
        description="`detailed`: also by channel and queue, channel and exchange, exchange and "
        "queue; `none`: no rates and counters",
    )
    collect_statistics_interval: int = Field(
        5_000, ge=100, le=60_000, description="milliseconds between two samples of the counters"
    )
    path_prefix: str = Field(
        "",
        pattern="^(/[A-Za-z0-9._~-]+)*$",
        max_length=255,
        description="`/rabbit`: the API is at `/rabbit/api`, the UI at `/rabbit/`",
    )

    def ports(self) -> list[HttpTcp | HttpSsl]:
        """Return where to listen: as in RabbitMQ, with TLS alone where only that is configured."""
        plain = self.tcp if self.tcp is not None or self.ssl is not None else HttpTcp()
        return [port for port in (plain, self.ssl) if port is not None]

    def told(self) -> dict[str, Any]:
        """Return what the process of the API is told of this."""
        return self.model_dump(mode="json")


class TraceSettings(SettingsTable):
    """Spans of sampled messages, sent to the same collector."""

    enabled: bool = Field(False, description="trace messages")
    follow_messages: bool = Field(
        True, description="sample those of which the header `traceparent` says so"
    )
    ratio: float = Field(
        0.0,
        ge=0.0,
        le=1.0,
        description="the part to sample of messages without that header, which they are given",
    )
    spans_per_second_max: int = Field(
        100, ge=1, le=10_000, description="of a node; what would be more is not sampled"
    )


class OtlpSettings(SettingsTable):
    """Metrics and traces sent to a collector of OpenTelemetry: OTLP over HTTP."""

    endpoint: str = Field(
        "",
        pattern="^(https?://[^@]+)?$",
        max_length=1024,
        description="the collector's, such as `http://127.0.0.1:4318`, before `/v1/metrics` and "
        "`/v1/traces`; empty: none",
    )
    metrics: bool = Field(True, description="send the metrics")
    interval_ms: int = Field(60_000, ge=1000, description="between two readings of the metrics")
    headers: dict[str, str] = Field(
        default_factory=dict, repr=False, description="of the requests, such as a token"
    )
    traces: TraceSettings = TraceSettings()

    @model_validator(mode="after")
    def _goes_somewhere(self) -> OtlpSettings:
        if self.traces.enabled and not self.endpoint:
            raise ValueError("otlp.traces.enabled=true needs otlp.endpoint, a collector's address")
        if self.endpoint and find_spec("opentelemetry") is None:
            raise ValueError("otlp.endpoint needs a library: pip install 'warrenmq[otel]'")
        return self


class PrometheusTcp(SettingsTable):
    """Where metrics are served."""

    port: int = Field(15_692, ge=0, le=65_535, description=ANY_PORT)
    ip: str = Field(LOOPBACK, description=ADDRESS)

    _ip = field_validator("ip")(_is_ip)


class PrometheusSettings(SettingsTable):
    """The endpoint for Prometheus; names are those of RabbitMQ's plugin."""

    enabled: bool = Field(False, description="serve metrics")
    tcp: PrometheusTcp = PrometheusTcp()
    path: str = Field(
        "/metrics",
        pattern="^(/[A-Za-z0-9._~-]+)+$",
        max_length=255,
        description="where, of the sums; the others are below it",
    )
    return_per_object_metrics: bool = Field(
        False, description="the path shows each queue, as PATH/per-object always does"
    )
