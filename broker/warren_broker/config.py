"""The settings of a node: one TOML file, environment variables on top.

Every key can be overridden by an environment variable named `WARREN_` plus the key in capitals,
tables joined with two underscores: `WARREN_LISTEN__AMQP=0.0.0.0:5672`.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
import ssl
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from warren_broker.settings.audit_settings import AuditSettings
from warren_broker.settings.http_settings import (
    ManagementSettings,
    OtlpSettings,
    PrometheusSettings,
)
from warren_broker.settings.log_settings import LogSettings
from warren_broker.settings.settings_table import SettingsTable
from warren_broker.settings.static_shovels import StaticShovel, check_static
from warren_broker.settings.token_settings import TokenSettings
from warren_raft.runtime.config import HEARTBEAT_MS, SUSPECT_AFTER_MS
from warren_wire.amqp091.codec import FRAME_BYTES_MIN
from warren_wire.block.layout import BLOCK_BYTES_MAX, LARGEST_BODY_BYTES
from warren_wire.certificate_login import CertificateLogin, From, SanType
from warren_wire.tls.contexts import TlsFiles

ENVIRONMENT_PREFIX = "WARREN_"
OTHER_VARIABLES = {
    "WARREN_KERNEL": "which of the two kernels runs: compiled, interpreted (warren_wire.kernel)",
    "WARREN_WHEEL_KERNEL": "none: a wheel without the compiled kernel is built (setup.py)",
    "WARREN_URI": "where the command line connects to (warren.cli)",
    "WARREN_CONTEXTS": "the file of `warren context` (warren.cli)",
    "WARREN_MIGRATE_FROM": "the RabbitMQ that `warren migrate` takes messages from (warren.cli)",
    "WARREN_FUZZ_BLOCKS": "number of blocks for the block fuzzer (tests)",
    "WARREN_FUZZ_TWIN": "`always`: the fuzzer compares both kernels on each input (tests)",
    "WARREN_PYTHON": "the Python that build.py runs with (build.py)",
    "WARREN_STRICT": "tests that cannot run here fail (tests, build.py)",
    "WARREN_REWRITE": "transcripts are written again (tests)",
    "WARREN_TEST_URI": "the broker that the live tests run against (tests)",
    "WARREN_TEST_CTL": "the command that manages that broker's users (tests)",
    "WARREN_TEST_JAVA": "the class path of the Java client (tests)",
    "WARREN_TEST_KILL": "where a node kills itself (tests)",
    "WARREN_MEMBERSHIP_SEEDS": "number of simulated worlds with membership changes (tests)",
    "WARREN_LOADGEN": "the load generator to use (bench)",
}
"""Other variables with that prefix, each with its reader. A node ignores them, and warns of any
unknown one."""
_OF_KUBERNETES = re.compile(
    "WARREN_([A-Z0-9_]+_)?"
    "(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
"""Kubernetes sets these in every container of a namespace with a Service `warren` or `warren-…`."""
DEFAULT_SECRET = "warren"
DEFAULT_PASSWORD = "guest"
LOOPBACK_NAMES = ("localhost", "")
AMQPS_PORT = 5671
NO_ADDRESS = "none"
SAN_INDEX_MAX = 1_000
MIB = 1024 * 1024


class ConfigError(Exception):
    """A setting that cannot be used; the text names it, its value, the limit and what to do."""


def parse_address(value: str) -> tuple[str, int]:
    """Split `host:port` (`[v6]:port` for IPv6); raises ValueError."""
    host, separator, port = value.rpartition(":")
    if not separator or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise ValueError(f"{value!r} is not HOST:PORT with a port from 0 to 65535")
    return host.strip("[]") or "127.0.0.1", int(port)


def reachable_host(listening: str) -> str:
    """Return where this machine reaches what listens at a host; on all addresses: at loopback."""
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(listening, listening)


def is_loopback(address: str) -> bool:
    """Return whether `host:port` can be reached from this machine alone."""
    host = parse_address(address)[0]
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in LOOPBACK_NAMES


class Listen(SettingsTable):
    """Addresses on which this node listens."""

    amqp: str = Field(
        "127.0.0.1:5672", description='clients, AMQP 0.9.1 or 1.0; "none": only with TLS'
    )
    amqps: str | None = Field(
        None, description="clients with TLS; by default port 5671 of amqp's host"
    )
    peers: str = Field("127.0.0.1:25672", description="the other nodes")

    @field_validator("amqp", "amqps", "peers")
    @classmethod
    def _address(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and (value != NO_ADDRESS or info.field_name == "peers"):
            parse_address(value)
        return value


class Tls(SettingsTable):
    """Certificates of this node, and what it asks of the other side's; names are RabbitMQ's.

    Files are in PEM format. They are read again when they change.
    """

    certfile: Path | None = Field(None, description="this node's certificate, then its chain")
    keyfile: Path | None = Field(None, description="its private key, by default in certfile")
    password: str | None = Field(None, repr=False, description="of the key")
    cacertfile: Path | None = Field(None, description="authorities of accepted certificates")
    verify: str = Field(
        "verify_none",
        pattern="^(verify_none|verify_peer)$",
        description="whether a certificate that a client gives is verified",
    )
    fail_if_no_peer_cert: bool = Field(False, description="a client must give one")
    between_nodes: bool = Field(
        False, description="the nodes speak TLS with each other, each with its certificate"
    )

    @model_validator(mode="after")
    def _complete(self) -> Tls:
        if self.certfile is None:
            for name in self.model_fields_set:
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"tls.{name} needs tls.certfile, this node's certificate")
        if self.verify == "verify_peer" and self.cacertfile is None:
            raise ValueError(
                "tls.verify='verify_peer' needs tls.cacertfile, the certificate authorities that "
                "are accepted"
            )
        if self.between_nodes and self.cacertfile is None:
            raise ValueError(
                "tls.between_nodes=true needs tls.cacertfile, the authority of all nodes' "
                "certificates"
            )
        if self.fail_if_no_peer_cert and self.verify != "verify_peer":
            raise ValueError("tls.fail_if_no_peer_cert=true needs tls.verify='verify_peer'")
        return self

    def files(self) -> TlsFiles | None:
        """Return the files and the check of the other side; None: no TLS."""
        if self.certfile is None:
            return None
        checked = ssl.CERT_REQUIRED if self.fail_if_no_peer_cert else ssl.CERT_OPTIONAL
        return TlsFiles(
            self.certfile,
            self.keyfile,
            self.cacertfile,
            self.password,
            checked if self.verify == "verify_peer" else ssl.CERT_NONE,
        )


class Limits(SettingsTable):
    """Bounds on what clients may request; sizes in bytes, times in milliseconds."""

    message_size_max: int = Field(
        16 * MIB, ge=1, description="of one message; with `frame_max` at most 52 MiB"
    )
    unfinished_bytes_max: int = Field(
        128 * MIB, ge=MIB, description="a connection's messages that are not complete"
    )
    transaction_bytes_max: int = Field(
        64 * MIB, ge=MIB, description="a connection's publishes that wait for tx.commit"
    )
    undelivered_bytes_max: int = Field(
        64 * MIB, ge=16 * MIB, description="a connection's deliveries that its client has not read"
    )
    unsettled_max: int = Field(
        100_000, ge=1, description="deliveries that a 1.0 connection has not settled"
    )
    received_bytes_max: int = Field(
        256 * MIB, ge=MIB, description="what a 1.0 connection has received and not read"
    )
    frame_max: int = Field(
        131_072, ge=FRAME_BYTES_MIN, le=16 * MIB, description="bytes, offered to 0.9.1 clients"
    )
    channel_max: int = Field(2047, ge=1, le=65_535, description="offered to 0.9.1 clients")
    connections_max: int = Field(
        10_000, ge=1, description="connections that have logged in; further ones are refused"
    )
    unauthenticated_max: int = Field(
        1_000, ge=1, description="connections that have not logged in, of all addresses"
    )
    unauthenticated_per_address_max: int = Field(
        256, ge=1, description="the same, of one IPv4 address or one /64 network of IPv6"
    )
    logins_per_address_max: int = Field(
        64, ge=1, description="logins of one address at once; a wrong one takes a second"
    )
    consumers_max: int = Field(10_000, ge=1, description="of a 0.9.1 connection; one more ends it")
    heartbeat_s: int = Field(60, ge=0, le=65_535, description="offered to 0.9.1 clients")
    handshake_timeout_ms: int = Field(
        10_000, ge=100, description="of a new connection, from its turn to the open vhost"
    )
    operation_timeout_ms: int = Field(
        30_000, ge=100, description="a declaration, get or claim that waits for a majority"
    )
    queue_in_flight_bytes_max: int = Field(
        32 * MIB, ge=64 * 1024, description="unconfirmed bytes from this node to one queue"
    )
    node_in_flight_bytes_max: int = Field(
        256 * MIB, ge=64 * 1024, description="unconfirmed bytes from this node to all queues"
    )

    @model_validator(mode="after")
    def _fits(self) -> Limits:
        # A message that its block cannot hold would pass the entrance and be lost in the queue.
        most = LARGEST_BODY_BYTES - self.frame_max
        if self.message_size_max > most:
            raise ValueError(
                f"limits.message_size_max={self.message_size_max} is above {most}: a message, its "
                f"properties (limits.frame_max={self.frame_max}) and what is published with it "
                f"are stored as one block of at most {BLOCK_BYTES_MAX} bytes; set it to {most} or "
                "less and let publishers split larger messages"
            )
        return self


class ContinuousMembership(SettingsTable):
    """Automatic growth of queues to a target size; times in milliseconds.

    Checked every `interval`, and once `trigger_interval` after a node has joined or left.
    """

    enabled: bool = Field(False, description="leaders add missing members to their queues")
    target_group_size: int | None = Field(
        None,
        ge=1,
        le=9,
        description="members that a queue should have, if its `x-quorum-target-group-size` is less",
    )
    auto_remove: bool = Field(False, description="remove members on nodes that have left")
    interval: int = Field(3_600_000, ge=100, description="between two checks")
    trigger_interval: int = Field(
        10_000, ge=1, description="to a check after a node joined or left"
    )


class Queues(SettingsTable):
    """Defaults of queues; times in milliseconds."""

    default_type: str = Field(
        "replicated",
        pattern="^(replicated|quorum|classic)$",
        description="of durable queues that name none, in vhosts without a default of their own; "
        "`replicated`: a classic queue's contract, with several members",
    )
    quorum_initial_group_size: int = Field(
        3,
        ge=1,
        le=9,
        description="members of a new quorum queue, and of one without a type; at most the nodes",
    )
    relaxed_checks_on_redeclaration: bool = Field(
        False, description="a declaration of a classic queue may find a quorum queue"
    )
    leader_locator: str = Field(
        "client-local",
        pattern="^(client-local|balanced)$",
        description="where the first leader of a queue is: at its client's, or where fewest are",
    )
    consumer_timeout_ms: int | None = Field(None, ge=1, description="RabbitMQ's `consumer_timeout`")
    consumer_disconnected_timeout_ms: int = Field(
        60_000, ge=0, description="RabbitMQ's `consumer_disconnected_timeout`"
    )
    compress_bytes_min: int | None = Field(
        None, ge=512, description="smallest block that is compressed, where a sample shrinks"
    )
    dead_letter_worker_consumer_prefetch: int = Field(
        32, ge=1, le=65_535, description="dead letters of a queue forwarded at once"
    )
    dead_letter_worker_publisher_confirm_timeout_ms: int = Field(
        180_000,
        ge=100,
        description="until all dead letters that were refused or not routed are tried again; of "
        "each reason one is tried after 1 s, then ever later up to 10 s, and all when it is taken",
    )
    stage_ttl_ms: int = Field(
        86_400_000,
        ge=0,
        description="age at which rows of an unpublished batch are dropped; 0: never",
    )
    reader_idle_ms: int = Field(
        90 * 86_400_000,
        ge=60_000,
        description="silence of a claim reader whose claims hold nothing, until it is forgotten "
        "when another one registers",
    )
    continuous_membership_reconciliation: ContinuousMembership = ContinuousMembership()


class AlarmSettings(SettingsTable):
    """Thresholds at which publishers are blocked; sizes in bytes."""

    memory_high_watermark_bytes: int = Field(
        4096 * MIB, ge=MIB, description="resident memory above which publishers are blocked"
    )
    disk_free_limit_bytes: int = Field(
        50 * MIB, ge=0, description="free space below which publishers are blocked"
    )
    interval_ms: int = Field(1000, ge=10, description="between two checks of memory and disk")


class Raft(SettingsTable):
    """Failure detection between nodes, files of the log; times in milliseconds."""

    heartbeat_ms: int = Field(HEARTBEAT_MS, ge=10, le=60_000, description="between nodes")
    suspect_after_ms: int = Field(
        SUSPECT_AFTER_MS,
        ge=20,
        le=600_000,
        description="silence until a node is suspected; at least twice `heartbeat_ms`",
    )
    unauthenticated_max: int = Field(
        256,
        ge=1,
        le=100_000,
        description="connections to the port for peers that have proven nothing, from addresses "
        "that are no peer's",
    )
    unauthenticated_per_address_max: int = Field(
        32,
        ge=1,
        le=100_000,
        description="the same, of one IPv4 address or one /64 network of IPv6",
    )
    commit_delay_ms: int = Field(
        40,
        ge=0,
        le=500,
        description="followers hear of a commit with the next messages, or that late; 0: at once",
    )
    last_copy_delay_ms: int = Field(
        2,
        ge=0,
        le=500,
        description="small messages go at once to as many members as a majority needs, and to the "
        "others with several more, `commit_delay_ms` later at most, or that late when the "
        "majority does not answer; 0: to all at once",
    )
    wal_max_size_bytes: int = Field(64 * MIB, ge=MIB, le=1024 * MIB, description="of a log's file")
    wal_recycle: bool = Field(
        True,
        description="allocate files of the log ahead and reuse them; nothing is gained where the "
        "file system copies on write (btrfs, ZFS)",
    )
    scrub_bytes_per_second: int = Field(
        4 * MIB,
        ge=0,
        description="rate at which complete files are read, so that damage is repaired; 0: never",
    )
    scrub_interval_ms: int = Field(
        86_400_000, ge=1000, description="one scrub of all complete files"
    )

    @model_validator(mode="after")
    def _order(self) -> Raft:
        if self.suspect_after_ms < 2 * self.heartbeat_ms:
            raise ValueError(
                f"suspect_after_ms={self.suspect_after_ms} is below twice heartbeat_ms="
                f"{self.heartbeat_ms}; a single late heartbeat would start elections"
            )
        return self


class LocalDefinitions(SettingsTable):
    """Where definitions are loaded from."""

    path: Path | None = Field(None, description="means the same as load_definitions")


class DefinitionSettings(SettingsTable):
    """How the files of `load_definitions` are loaded."""

    import_backend: Literal["local_filesystem", "local"] = Field(
        "local_filesystem", description="where they are: on this machine alone"
    )
    local: LocalDefinitions = LocalDefinitions()
    skip_if_unchanged: bool = Field(
        True, description="not again when it is the one that the cluster has loaded last"
    )


class EventExchangeSettings(SettingsTable):
    """Whether the node publishes events, to the exchange `amq.rabbitmq.event`, and where."""

    enabled: bool = Field(False, description="publish them")
    vhost: str | None = Field(
        None, min_length=1, max_length=255, description="of the exchange; by default default_vhost"
    )


class NodeConfig(SettingsTable):
    """The settings of one node."""

    node: str = Field(
        "warren-1", min_length=1, max_length=255, description="its name, unique in the cluster"
    )
    cluster: str = Field("warren", min_length=1, max_length=255, description="the cluster's name")
    secret: str = Field(
        DEFAULT_SECRET,
        min_length=1,
        repr=False,
        description="the same on all nodes; proves a peer's membership, is never sent",
    )
    data_dir: Path = Field(Path("warren-data"), description="the node's log and snapshots")
    default_user: str = Field(
        "guest", min_length=1, max_length=255, description="made when the cluster first starts"
    )
    default_pass: str = Field(
        DEFAULT_PASSWORD, min_length=1, repr=False, description="its password"
    )
    default_vhost: str = Field(
        "/", min_length=1, max_length=255, description="made when the cluster first starts"
    )
    loopback_users: tuple[str, ...] = Field(
        ("guest",), description="may connect from this machine only; `[]`: no user is bound to it"
    )
    anonymous_login_user: str = Field(
        "guest", max_length=255, description="of clients with SASL ANONYMOUS; `none`: not offered"
    )
    anonymous_login_pass: str = Field(DEFAULT_PASSWORD, repr=False, description="its password")
    ssl_cert_login_from: Literal["none", From] = Field(
        "none", description="where in a client's certificate its user is, for SASL EXTERNAL"
    )
    ssl_cert_login_san_type: SanType = Field(
        "dns", description="which of its alternative names, with `subject_alternative_name`"
    )
    ssl_cert_login_san_index: int = Field(
        0, ge=0, le=SAN_INDEX_MAX, description="which one of that type"
    )
    load_definitions: Path | None = Field(
        None,
        description="file or directory of definitions that the cluster gets before it serves "
        "clients",
    )
    finish_upgrade: Literal["automatic", "by-operator"] = Field(
        "automatic",
        description="when the cluster uses what a new release brings: as soon as every node has "
        "it, or when `warren cluster finish-upgrade` says so. Until then nodes can go back",
    )
    definitions: DefinitionSettings = DefinitionSettings()
    listen: Listen = Listen()
    tls: Tls = Tls()
    auth_oauth2: TokenSettings = TokenSettings()
    peers: dict[str, str] = Field(
        default_factory=dict,
        description="name to address of this node and those that it looks for when it starts",
    )
    limits: Limits = Limits()
    queues: Queues = Queues()
    alarms: AlarmSettings = AlarmSettings()
    event_exchange: EventExchangeSettings = EventExchangeSettings()
    prometheus: PrometheusSettings = PrometheusSettings()
    otlp: OtlpSettings = OtlpSettings()
    management: ManagementSettings = ManagementSettings()
    log: LogSettings = LogSettings()
    _file: Path | None = PrivateAttr(None)
    audit: AuditSettings = AuditSettings()
    raft: Raft = Raft()
    shovels: dict[str, StaticShovel] = Field(
        default_factory=dict, description="static shovels by name"
    )

    @field_validator("loopback_users", mode="before")
    @classmethod
    def _names(cls, value: object) -> Any:
        """Split names separated by commas, from the environment; "none" is an empty list."""
        if not isinstance(value, str):
            return value
        names = [name.strip() for name in value.split(",")]
        return tuple(name for name in names if name and name != "none")

    @field_validator("peers")
    @classmethod
    def _addresses(cls, value: dict[str, str]) -> dict[str, str]:
        for address in value.values():
            parse_address(address)
        return value

    @property
    def bootstrap(self) -> tuple[str, str, str]:
        """The vhost, user and password that a new cluster begins with."""
        return self.default_vhost, self.default_user, self.default_pass

    @property
    def anonymous_login(self) -> tuple[str, str] | None:
        """User and password of clients that log in with SASL ANONYMOUS; None: they may not."""
        user = self.anonymous_login_user
        return None if user in ("", "none") else (user, self.anonymous_login_pass)

    @property
    def certificate_login(self) -> CertificateLogin | None:
        """How clients log in with SASL EXTERNAL; None: they may not."""
        source = self.ssl_cert_login_from
        if source == "none":
            return None
        return CertificateLogin(source, self.ssl_cert_login_san_type, self.ssl_cert_login_san_index)

    @model_validator(mode="after")
    def _certificates_are_verified(self) -> NodeConfig:
        if self.ssl_cert_login_from != "none" and self.tls.verify != "verify_peer":
            raise ValueError(
                f"ssl_cert_login_from={self.ssl_cert_login_from!r} needs tls.verify='verify_peer': "
                "otherwise any certificate, of anyone, would log in"
            )
        return self

    @property
    def definitions_path(self) -> Path | None:
        """The file or directory of definitions to be loaded; None: there is none."""
        return self.load_definitions or self.definitions.local.path

    @model_validator(mode="after")
    def _one_place_of_definitions(self) -> NodeConfig:
        path, local = self.load_definitions, self.definitions.local.path
        if path is not None and local is not None and path != local:
            raise ValueError(
                f"load_definitions={str(path)!r} and definitions.local.path={str(local)!r} mean "
                "the same and differ; give one of them, a directory for several files"
            )
        return self

    @model_validator(mode="after")
    def _clients_come_in(self) -> NodeConfig:
        if self.tls.certfile is None and self.listen.amqps not in (None, NO_ADDRESS):
            raise ValueError(
                f"listen.amqps={self.listen.amqps!r} needs tls.certfile, this node's certificate"
            )
        if self.plain_address() is None and self.tls_address() is None:
            raise ValueError(
                "listen.amqp='none', and there is no port with TLS: no client could connect; give "
                "one of the two an address"
            )
        if self.plain_address() is None and self.listen.amqps is None:
            raise ValueError("listen.amqp='none': give listen.amqps an address of its own")
        return self

    def plain_address(self) -> tuple[str, int] | None:
        """Where clients connect without TLS; None: nowhere."""
        return None if self.listen.amqp == NO_ADDRESS else parse_address(self.listen.amqp)

    def tls_address(self) -> tuple[str, int] | None:
        """Where clients connect with TLS; None: nowhere."""
        given = self.listen.amqps
        if self.tls.certfile is None or given == NO_ADDRESS:
            return None
        if given is not None:
            return parse_address(given)
        plain = self.plain_address()
        return (plain[0] if plain is not None else "", AMQPS_PORT)

    def model_post_init(self, context: Any) -> None:
        """Keep which file it was read from."""
        self._file = (context or {}).get("file")

    @property
    def files(self) -> tuple[str, ...]:
        """The file that it was read from, if any."""
        return () if self._file is None else (str(self._file.absolute()),)

    @model_validator(mode="after")
    def _shovels_can_run(self) -> NodeConfig:
        for name, shovel in self.shovels.items():
            check_static(name, shovel)
        return self

    @model_validator(mode="after")
    def _own_secret(self) -> NodeConfig:
        if self.secret == DEFAULT_SECRET and not is_loopback(self.listen.peers):
            raise ValueError(
                "secret is the default one, which is publicly known, and listen.peers="
                f"{self.listen.peers!r} can be reached from other machines: any node with it can "
                "join the cluster. Give all nodes the same long random text, such as "
                "`openssl rand -base64 32` prints, as `secret` or in WARREN_SECRET; or listen on "
                "127.0.0.1"
            )
        return self

    @model_validator(mode="after")
    def _member(self) -> NodeConfig:
        if self.peers and self.node not in self.peers:
            raise ValueError(
                f"node {self.node!r} is not among peers {sorted(self.peers)}; "
                "list every node of the cluster there, this one included"
            )
        return self


def load(path: Path | None, environment: Mapping[str, str] | None = None) -> NodeConfig:
    """Read a file (None: only defaults and environment); raises ConfigError."""
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(
                f"cannot read {path}: {error.strerror}; give --config FILE"
            ) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} is not TOML: {error}") from error
    _override(values, os.environ if environment is None else environment)
    try:
        return NodeConfig.model_validate(values, context={"file": path})
    except ValidationError as error:
        raise ConfigError(_explain(error, path)) from error


def _override(values: dict[str, Any], environment: Mapping[str, str]) -> None:
    for name in sorted(environment):
        if not name.startswith(ENVIRONMENT_PREFIX):
            continue
        *tables, key = _keys(name)
        if (tables[0] if tables else key) not in NodeConfig.model_fields:
            continue
        place = values
        for table in tables:
            place = place.setdefault(table, {})
            if not isinstance(place, dict):
                raise ConfigError(f"{name}: {table!r} is not a table; {_unknown_variable(name)}")
        place[key] = environment[name]


def _keys(variable: str) -> list[str]:
    return variable[len(ENVIRONMENT_PREFIX) :].lower().split("__")


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Return a sentence per variable with the prefix that is not known here."""
    return [
        f"{_unknown_variable(name)}; it is ignored"
        for name in sorted(environment)
        if name.startswith(ENVIRONMENT_PREFIX)
        and name not in OTHER_VARIABLES
        and _keys(name)[0] not in NodeConfig.model_fields
        and not _OF_KUBERNETES.fullmatch(name)
    ]


def _unknown_variable(name: str) -> str:
    near = difflib.get_close_matches(name, (*_variables(), *OTHER_VARIABLES), 1, 0.5)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"environment variable {name} is not a setting of a node{hint}"


def _variables(model: type[BaseModel] | None = None, prefix: str = ENVIRONMENT_PREFIX) -> list[str]:
    """Return the names of all variables that are settings."""
    found = []
    for key, field in (model or NodeConfig).model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found += _variables(kind, f"{prefix}{key.upper()}__")
        else:
            found.append(f"{prefix}{key.upper()}")
    return found


def _known_keys(location: tuple[Any, ...]) -> list[str]:
    model: Any = NodeConfig
    for part in location[:-1]:
        field = model.model_fields.get(part)
        if field is None or not isinstance(field.annotation, type):
            return []
        model = field.annotation
        if not issubclass(model, BaseModel):
            return []
    return list(model.model_fields)


def _explain(error: ValidationError, path: Path | None) -> str:
    lines = []
    for problem in error.errors():
        location = problem["loc"]
        name = ".".join(str(part) for part in location) or "configuration"
        if problem["type"] == "extra_forbidden":
            near = difflib.get_close_matches(str(location[-1]), _known_keys(location), 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            lines.append(f"{name}: no such key{hint}")
        elif isinstance(problem.get("input"), (str, int, float)) and "pass" not in name:
            lines.append(f"{name}={problem['input']!r}: {problem['msg']}")
        else:
            lines.append(f"{name}: {problem['msg']}")
    return f"{path or 'configuration'}: " + "; ".join(lines)
