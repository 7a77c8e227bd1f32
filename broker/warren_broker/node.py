"""The wiring of a node: loop, host, cluster, broker, listeners."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from warren_broker.access.connection_config import LOGIN_FRAME_BYTES_MAX, ConnectionConfig
from warren_broker.broker.broker import Broker
from warren_broker.broker.node_facts import condition_of, settings_of
from warren_broker.clients.login import external_user
from warren_broker.clients091.client091 import Client091
from warren_broker.clients10.client10 import Client10
from warren_broker.cluster.membership.maintenance import MAINTENANCE_REASON
from warren_broker.cluster.secret_keys import secret_bytes
from warren_broker.config import (
    DEFAULT_PASSWORD,
    NO_ADDRESS,
    NodeConfig,
    parse_address,
    reachable_host,
)
from warren_broker.listeners.alarms import Alarms
from warren_broker.listeners.listener import (
    HEADER_091,
    HEADER_10_SASL,
    AmqpListener,
    ClientEviction,
    ServerCertificates,
)
from warren_broker.process.audit_file import AuditFile
from warren_broker.process.certificate_ends import watch as watch_certificate_ends
from warren_broker.process.log_levels import LatestLines, changed, levels_of
from warren_broker.process.logs import LogPublishing, is_told
from warren_broker.tokens.token_check import TOKEN_BYTES_MAX
from warren_broker.tokens.token_logins import token_logins
from warren_raft.config import RaftConfig
from warren_raft.runtime.config import PEER_BACKLOG_BYTES, HostConfig
from warren_raft.runtime.host import Host
from warren_raft.runtime.loop import Loop
from warren_raft.storage.files import is_full
from warren_wire.admin.audit import FoundRecords, ListAuditRequest
from warren_wire.admin.logs import (
    ListLogLevelsRequest,
    ListLogLinesRequest,
    LoggedLine,
    LogLevelInfo,
    SetLogLevelRequest,
)
from warren_wire.admin.node_facts import (
    GetSettingsRequest,
    ListConditionsRequest,
    NodeCondition,
    NodeSetting,
)
from warren_wire.admin.statistics import GetPairsRequest, PairStatistics
from warren_wire.node_files import LISTENING_FILE, READY_FILE
from warren_wire.quoting import quoted
from warren_wire.tls.certificates import WatchedFiles
from warren_wire.tls.contexts import server_context

if TYPE_CHECKING:
    from warren_broker.http.gateway import HttpApi
    from warren_broker.metrics.endpoint import MetricsEndpoint
    from warren_broker.metrics.otlp import OtlpSender

log = logging.getLogger(__name__)
STOP_GRACE_MS = 300
READY_RETRY_MS = 1_000
AUDIT_END_S = 1.0
"""What waits of the audit log is written for no longer, when the process ends."""


class Node:
    """One node: loop, host, cluster, broker, listeners.

    Invariant: READY_FILE exists only while clients are served
    """

    def __init__(
        self, settings: NodeConfig, on_serving: Callable[[Node], None] = lambda node: None
    ) -> None:
        """on_serving: called once, when clients are served."""
        self.settings = settings
        self.loop = Loop()
        self._tokens = token_logins(settings.auth_oauth2, self.loop)
        self.broker = Broker(
            self.loop,
            lambda observer, on_message: Host(
                host_config(settings), self.loop, observer, on_message
            ),
            settings,
            self._tokens,
        )
        self.cluster = self.broker.cluster
        self.host = self.cluster.host
        self.resource_alarms = self.broker.resource_alarms
        self.resource_alarms.start()
        self.resource_alarms.on_own.append(self.broker.events.alarm)
        self.alarms = Alarms(
            self.loop,
            settings.alarms,
            settings.data_dir,
            self.resource_alarms,
            self.host.reclaim_disk,
        )
        self.cluster.on_disk_full.append(self.alarms.disk_full)
        self.listener: AmqpListener | None = None
        self._certificates: ServerCertificates | None = None
        self._admission: ClientEviction | None = None
        self.metrics: MetricsEndpoint | None = None
        self.otlp: OtlpSender | None = None
        self.http_api: HttpApi | None = None
        self._on_serving = on_serving
        self._knows_users = False
        self._log_publishing: LogPublishing | None = None
        self._audit: AuditFile | None = None
        self._latest: LatestLines | None = None
        self._wanted: dict[str, int] = {}  # files; how often the disk had no space for each

    @property
    def amqp_address(self) -> str:
        """The address for clients without TLS; "none": there is none."""
        assert self.listener is not None
        plain = self.settings.plain_address()
        return NO_ADDRESS if plain is None else f"{plain[0]}:{self.listener.port}"

    @property
    def amqps_address(self) -> str:
        """The address for clients with TLS; "none": there is none."""
        assert self.listener is not None
        given = self.settings.tls_address()
        return NO_ADDRESS if given is None else f"{given[0]}:{self.listener.tls_port}"

    @property
    def peer_address(self) -> str:
        """The address for other nodes."""
        return f"{parse_address(self.settings.listen.peers)[0]}:{self.host.port}"

    def start(self) -> None:
        """Recover, listen, join; clients are served later.

        raises  OSError, StorageError, CertificatesUnusable, DefinitionsUnusable
        """
        certificates = self._prepare_logins()
        if self.broker.boot_definitions is not None:
            self.broker.boot_definitions.read()
        self.settings.data_dir.mkdir(parents=True, exist_ok=True)
        self._answer_about_itself(certificates)
        if self.broker.log_exchange.on:
            level = self.settings.log.exchange.level
            self._log_publishing = LogPublishing(self.broker.log_exchange, level)
        self.host.start()
        self._remove(READY_FILE, LISTENING_FILE)
        limits = self.settings.limits
        self.listener = AmqpListener(
            self.loop,
            self.settings.plain_address(),
            limits.handshake_timeout_ms,
            limits.connections_max,
            self.broker.strangers.connections,
            partial(self.broker.cluster.counters.add, "connections_refused", 1),
        )
        tls_address = self.settings.tls_address()
        if tls_address is not None and self._certificates is not None:
            self.listener.add_tls(tls_address, self._certificates)
        broker, config = self.broker, self._connection_config()
        by_certificate = self.settings.certificate_login
        self.listener.protocols[HEADER_091] = lambda stream, peer: Client091(
            broker, config.for_user(external_user(stream, by_certificate)), stream, peer
        )
        self.listener.protocols[HEADER_10_SASL] = lambda stream, peer: Client10(
            broker, config.for_user(external_user(stream, by_certificate)), stream, peer
        )
        self._serve_http()
        self._admission = ClientEviction(self.loop, broker.definitions, self.listener)
        self.broker.maintenance.on_drained.append(self._drained)
        self.broker.start(tuple(port for _, port in self._listeners()))
        self.resource_alarms.listen(self.listener.blocked)
        self.alarms.start()
        self._write(LISTENING_FILE)
        self.broker.definitions.call_at_ready(self._serving)
        log.info(
            "node %s listens on %s for clients, on %s for clients with TLS, on %s for peers",
            self.settings.node,
            self.amqp_address,
            self.amqps_address,
            self.peer_address,
        )

    def _connection_config(self) -> ConnectionConfig:
        limits = self.settings.limits
        return ConnectionConfig(
            frame_max=limits.frame_max,
            login_frame_max=LOGIN_FRAME_BYTES_MAX + (TOKEN_BYTES_MAX if self._tokens else 0),
            channel_max=limits.channel_max,
            heartbeat_s=limits.heartbeat_s,
            message_bytes_max=limits.message_size_max,
            unfinished_bytes_max=max(limits.unfinished_bytes_max, limits.message_size_max),
            transaction_bytes_max=limits.transaction_bytes_max,
            consumers_max=limits.consumers_max,
            undelivered_bytes_max=limits.undelivered_bytes_max,
            received_bytes_max=limits.received_bytes_max,
            unsettled_max=limits.unsettled_max,
            handshake_ms=limits.handshake_timeout_ms,
            cluster_name=self.settings.cluster,
            anonymous=self.settings.anonymous_login,
        )

    def _serve_http(self) -> None:
        prometheus, otlp = self.settings.prometheus, self.settings.otlp
        if prometheus.enabled or otlp.endpoint:
            # Only here: the HTTP server and the library take 0.1 s to load.
            from warren_broker.metrics.endpoint import Metrics, MetricsEndpoint
            from warren_broker.metrics.otlp import OtlpSender

            metrics = Metrics(self.loop, self.broker, self.resource_alarms, self.settings)
            if prometheus.enabled:
                self.metrics = MetricsEndpoint(metrics, prometheus)
            if otlp.endpoint:
                read, tracing = metrics.sums if otlp.metrics else None, self.broker.tracing
                self.otlp = OtlpSender(read, tracing, self.loop, self.settings.node, otlp)
        own = self._own_address()
        if self.settings.management.enabled and own is not None:
            from warren_broker.http.frames import ApiListener
            from warren_broker.http.gateway import HttpApi

            ports = {"amqp": self.amqp_address, "amqp/ssl": self.amqps_address}
            tls = self.settings.tls
            encrypted = {"amqp/ssl"} | ({"clustering"} if tls.between_nodes else set())
            listeners = [
                ApiListener(
                    protocol,
                    *parse_address(address),
                    *(
                        map(str, (tls.certfile, tls.cacertfile or ""))
                        if protocol in encrypted
                        else ()
                    ),
                )
                for protocol, address in {**ports, "clustering": self.peer_address}.items()
                if address != NO_ADDRESS
            ]
            self.http_api = HttpApi(self.loop, self.broker, self.settings, listeners, own)

    def _prepare_logins(self) -> dict[Path, int]:
        files = self.settings.tls.files()
        if files is not None:
            self._certificates = WatchedFiles(files, server_context, "clients")
            self._certificates.start()
        ends = watch_certificate_ends(self.settings)
        if self._tokens is not None:
            self._tokens.start()
        return ends

    def _answer_about_itself(self, certificates: dict[Path, int]) -> None:
        questions, wanted = self.broker.node_questions, self.settings.audit
        if wanted.enabled:
            directory = wanted.directory or self.settings.data_dir / "audit"
            self._audit = audit = AuditFile(directory, wanted, self.loop.post)
            self.broker.audit.keep(audit.write, audit.last)
            questions.answers(ListAuditRequest, FoundRecords, audit.search)

        def condition(_: object, told: Callable[[NodeCondition], None]) -> None:
            lost = 0 if self._audit is None else self._audit.lost
            told(condition_of(self.cluster, certificates, lost))

        questions.answers(ListConditionsRequest, NodeCondition, condition)
        pairs = self.broker.queue_sampler.pairs
        questions.answers(GetPairsRequest, tuple[PairStatistics, ...], pairs.found)
        here = self.settings.node
        self._latest = latest = LatestLines(here)
        logging.getLogger().addHandler(latest)
        levels = tuple[LogLevelInfo, ...]
        questions.answers(ListLogLevelsRequest, levels, lambda _, told: told(levels_of(here)))
        questions.answers(
            SetLogLevelRequest, levels, lambda asked, told: told(changed(here, asked))
        )
        questions.answers(
            ListLogLinesRequest,
            tuple[LoggedLine, ...],
            lambda asked, told: told(latest.found(asked)),
        )
        questions.answers(
            GetSettingsRequest,
            tuple[NodeSetting, ...],
            lambda _, told: told(settings_of(self.settings)),
        )

    def _serving(self) -> None:
        """Serve clients: this node knows the definitions, the first user among them."""
        user, password = self.settings.default_user, DEFAULT_PASSWORD
        if self.broker.definitions.authenticate(user, password):
            where = "this machine" if user in self.settings.loopback_users else "anywhere"
            log.warning(
                "user %s has the default password and may connect from %s: `warren users "
                "change-password %s` changes it",
                quoted(user),
                where,
                quoted(user),
            )
        self._knows_users = True
        if not self.broker.maintenance.drained:
            self._write(READY_FILE)
        log.info("node %s serves clients", self.settings.node)
        self._start_shovels()
        self.broker.queue_sampler.start()
        self._on_serving(self)

    def _start_shovels(self) -> None:
        """Run shovels; in a URI without a host they find this node."""
        address = self._own_address()
        if address is None:
            return
        limits = self.settings.limits
        own = {
            **dict(zip(("scheme", "host", "port"), address, strict=True)),
            "message_bytes_max": limits.message_size_max + limits.frame_max,  # with the properties
            "listeners": self._listeners(),
        }
        for each in (self.broker.shovels, self.broker.federation, self.broker.exchange_links):
            each.start(own)

    def _listeners(self) -> tuple[tuple[str, int], ...]:
        """Return hosts and ports for clients."""
        addresses = (self.amqp_address, self.amqps_address)
        return tuple(parse_address(one) for one in addresses if one != NO_ADDRESS)

    def _own_address(self) -> tuple[str, str, int] | None:
        """Return scheme, host and port where this machine reaches the node; None: nowhere."""
        assert self.listener is not None
        plain, encrypted = self.settings.plain_address(), self.settings.tls_address()
        if plain is not None:
            return "amqp", reachable_host(plain[0]), self.listener.port
        if encrypted is not None:
            return "amqps", reachable_host(encrypted[0]), self.listener.tls_port
        return None

    def _remove(self, *names: str) -> None:
        for name in names:
            self._wanted.pop(name, None)
            (self.settings.data_dir / name).unlink(missing_ok=True)

    def _write(self, name: str) -> None:
        """Write this node's addresses to a file; retry while the disk is full, as the log does."""
        refused = self._wanted.setdefault(name, 0)
        path = self.settings.data_dir / name
        values = {
            "node": self.settings.node,
            "amqp": self.amqp_address,
            "amqps": self.amqps_address,
            "peers": self.peer_address,
            "prometheus": NO_ADDRESS if self.metrics is None else self.metrics.address,
            "management": NO_ADDRESS if self.http_api is None else self.http_api.address,
            "pid": os.getpid(),
        }
        try:
            _write(path, values)
        except OSError as error:
            if not is_full(error):
                raise
            refused += 1
            if is_told(refused):
                log.error("no space for %s (%s): will be retried", path, error.strerror)
            self._wanted[name] = refused
            self.loop.call_later(READY_RETRY_MS, lambda: self._again(name))
            return
        if refused:
            self._wanted[name] = 0
            log.info("there is space again for %s", path)

    def _again(self, name: str) -> None:
        # 1. There is no space for `ready.json`.  2. The node is put into maintenance.
        if name in self._wanted:
            self._write(name)

    def _drained(self, drained: bool) -> None:
        assert self.listener is not None
        self.broker.consuming.parting = drained
        if drained:
            self.listener.suspend(MAINTENANCE_REASON)
            self._remove(READY_FILE)
        else:
            self.listener.resume()
            if self._knows_users:
                self._write(READY_FILE)

    def shut_down(self) -> None:
        """Disconnect clients, hand leaderships over, then stop the loop."""
        log.info("node %s stops", self.settings.node)
        self.broker.shovels.stop()
        self.broker.federation.stop()
        self.broker.exchange_links.stop()
        if self.http_api is not None:
            self.http_api.stop()
        self.broker.consuming.parting = True
        if self.listener is not None:
            self.listener.suspend("broker forced connection closure with reason 'shutdown'")
        self.broker.hand_over(STOP_GRACE_MS // 2)
        self.loop.call_later(STOP_GRACE_MS, self.loop.stop)

    def withdraw(self) -> None:
        """Remove the address files and abandon all sockets; the loop has ended."""
        self._end_logs()
        self._remove(READY_FILE, LISTENING_FILE)
        if self.listener is not None:
            self.listener.abandon()
        self._close_http()
        self.host.abandon()

    def _end_logs(self) -> None:
        if self._log_publishing is not None:
            self._log_publishing.end()
            self._log_publishing = None
        if self._latest is not None:
            logging.getLogger().removeHandler(self._latest)
        if self._audit is not None:
            self._audit.end(AUDIT_END_S)
            self._audit = None

    def stopped(self) -> None:
        """Close the host and remove the address files, after the loop has ended."""
        self._close_http()
        self._end_logs()
        self.host.stop()
        self._remove(READY_FILE, LISTENING_FILE)

    def _close_http(self) -> None:
        if self.otlp is not None:
            self.otlp.close()
        if self.metrics is not None:
            self.metrics.close()
        if self.http_api is not None:
            self.http_api.kill()


def host_config(settings: NodeConfig) -> HostConfig:
    """Return the Raft host's settings."""
    raft = settings.raft
    own = settings.peers.get(settings.node)
    return HostConfig(
        node=settings.node,
        cluster=settings.cluster,
        secret=secret_bytes(settings.secret),
        listen=parse_address(settings.listen.peers),
        peers={
            name: parse_address(address)
            for name, address in sorted(settings.peers.items())
            if name != settings.node
        },
        data_dir=settings.data_dir,
        advertise=parse_address(own) if own is not None else None,
        raft=RaftConfig(
            commit_delay_ms=raft.commit_delay_ms, last_copy_delay_ms=raft.last_copy_delay_ms
        ),
        heartbeat_ms=raft.heartbeat_ms,
        suspect_after_ms=raft.suspect_after_ms,
        strangers_max=raft.unauthenticated_max,
        strangers_per_address_max=raft.unauthenticated_per_address_max,
        wal_file_bytes=raft.wal_max_size_bytes,
        wal_recycle=raft.wal_recycle,
        scrub_bytes_per_second=raft.scrub_bytes_per_second,
        scrub_interval_ms=raft.scrub_interval_ms,
        peer_backlog_bytes=PEER_BACKLOG_BYTES + settings.limits.node_in_flight_bytes_max,
        tls=settings.tls.files() if settings.tls.between_nodes else None,
    )


def _write(path: Path, values: dict[str, object]) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(values), encoding="utf-8")
    temporary.replace(path)
