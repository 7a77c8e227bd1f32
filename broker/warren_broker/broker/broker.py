"""The operations of a client connection, independent of its protocol."""

from __future__ import annotations

import random
from collections.abc import Mapping, Set
from functools import partial
from typing import Any

import msgspec

from warren_broker.access import requests
from warren_broker.access.access import Access
from warren_broker.broker.audit_trail import AuditTrail
from warren_broker.broker.boot_definitions import BootDefinitions
from warren_broker.broker.importing import DefinitionImports, ImportingNode
from warren_broker.cluster.backups import Backups
from warren_broker.cluster.client.consumers import Consumers
from warren_broker.cluster.client.dead_letters import DeadLetters
from warren_broker.cluster.client.direct_replies import DirectReplies
from warren_broker.cluster.client.due_messages import DueMessages
from warren_broker.cluster.client.firehose import Firehose
from warren_broker.cluster.client.history import History
from warren_broker.cluster.client.node_messages import EventExchange, LogExchange
from warren_broker.cluster.client.publisher import Publisher
from warren_broker.cluster.client.queues import QueueClients
from warren_broker.cluster.client.reads import ReadFailed, RemoteReads
from warren_broker.cluster.client.traced_consumers import TracedConsumers
from warren_broker.cluster.client.traced_publisher import TracedPublisher
from warren_broker.cluster.client.view_reads import ViewReads
from warren_broker.cluster.client_limits import ClientLimits
from warren_broker.cluster.cluster import Cluster, ClusterCallbacks, MakeHost
from warren_broker.cluster.connections import Connections, DescribedClient
from warren_broker.cluster.definitions import Definitions, Done
from warren_broker.cluster.ids import Ids
from warren_broker.cluster.leader.job_runners import JobRunners
from warren_broker.cluster.leader.leader_effects import LeaderCallbacks
from warren_broker.cluster.leader.letter_forwarder import LetterForwarders, warn_of_fallback
from warren_broker.cluster.leader.policy_follower import PolicyFollower
from warren_broker.cluster.led_queues import NodeTotalsReader
from warren_broker.cluster.link_logins import LinkLogins
from warren_broker.cluster.logins import NodeLogins
from warren_broker.cluster.membership.absences import Absences
from warren_broker.cluster.membership.auto_grow import AutoGrow
from warren_broker.cluster.membership.joining import Joining, own_address
from warren_broker.cluster.membership.maintenance import Maintenance
from warren_broker.cluster.membership.mirror_follower import MirrorFollower, QueueCommands
from warren_broker.cluster.membership.node_service import NodeService
from warren_broker.cluster.membership.placement import Placement
from warren_broker.cluster.membership.reconciler import Reconciler
from warren_broker.cluster.membership.recovering import QueueRecovery
from warren_broker.cluster.membership.requested_transfers import LeaderTransfer
from warren_broker.cluster.membership.service import MemberService
from warren_broker.cluster.membership.status import LeaderQueries
from warren_broker.cluster.membership.version_raiser import VersionRaiser
from warren_broker.cluster.node_questions import NodeQuestions
from warren_broker.cluster.queue_deletions import QueueDeletions
from warren_broker.cluster.queue_sampler import QueueSampler
from warren_broker.cluster.resource_alarms import ResourceAlarms
from warren_broker.cluster.secret_keys import link_key
from warren_broker.cluster.strangers import Strangers
from warren_broker.cluster.traced_cluster import TracedCluster
from warren_broker.config import NodeConfig, Queues
from warren_broker.tokens.token_logins import TokenLogins
from warren_broker.tracing.claims import TracedClaims
from warren_broker.tracing.spans import COUNTER, Outcome, Tracing
from warren_broker.transfers.federation.links import ExchangeLinks, FederationLinks
from warren_broker.transfers.shovel.sealed_uris import UriSeal
from warren_broker.transfers.shovel.shovels import Shovels
from warren_machines.metadata import commands as metadata
from warren_machines.metadata.exchange_types import KEEPING_KINDS, UPSTREAM_KIND
from warren_machines.metadata.records import QueueRecord
from warren_machines.queue import commands
from warren_raft.runtime.loop import Loop
from warren_raft.types import METADATA_GROUP
from warren_wire import errors
from warren_wire.arguments import (
    DefaultType,
    QueueDefaults,
    check_name,
    queue_declaration,
    storable,
)

"""Called once with a result of `amqp091.requests`, or with a Refusal."""


class Broker:
    """The broker behind a connection; also the `BrokerView` in which sessions look things up."""

    def __init__(
        self,
        loop: Loop,
        make_host: MakeHost,
        settings: NodeConfig,
        tokens: TokenLogins | None = None,
    ) -> None:
        self.settings = settings
        self.tracing, self.traced_claims = self._traced(settings)
        self.cluster = cluster = self._cluster(loop, make_host)
        timeout_ms = settings.limits.operation_timeout_ms
        self.definitions = Definitions(cluster, timeout_ms, settings.bootstrap)
        self.clients = ClientLimits(cluster, self.definitions)
        self.seal = UriSeal(partial(link_key, settings.secret, settings.cluster))
        self.links = LinkLogins(cluster, self.definitions, settings.loopback_users)
        self.logins = NodeLogins(self.definitions, self.clients, tokens, self.links)
        self.strangers = Strangers(loop, settings.limits)
        totals = NodeTotalsReader(cluster, self.definitions, self.clients, settings)
        clients: dict[int, DescribedClient] = {}
        sampled = (clients, settings.data_dir, settings.management.collect_statistics_interval)
        self.queue_sampler = sampler = QueueSampler(cluster, self.definitions, *sampled)
        self.connections = Connections(cluster, self.definitions, totals, sampler, clients)
        self.joining = Joining(cluster, self.definitions, settings.peers)
        queues, self.node_questions = settings.queues, NodeQuestions(cluster)
        self.queues = QueueClients(cluster, self.definitions, timeout_ms, queues.compress_bytes_min)
        self.deletions, self.ids = QueueDeletions(self.queues), Ids(settings.node)
        self.reading = RemoteReads(cluster, self.definitions, timeout_ms)
        self.viewing = ViewReads(cluster, self.reading)
        self.backups = Backups(cluster, self.definitions, timeout_ms)
        self.resource_alarms, self.replies = ResourceAlarms(cluster), DirectReplies(cluster)
        self.consuming, self.publishing = self._message_paths()
        self.events, self.log_exchange, self.firehose, self.audit = self._node_messages(settings)
        self.history = History(self.queues, self.reading, self.publishing)
        self.due_messages = DueMessages(self.queues, self.consuming, self.publishing, self.ids)
        frame_max = settings.limits.frame_max
        self.dead_letters = DeadLetters(self.queues, self.publishing, frame_max)
        self.letter_forwarders = LetterForwarders(self.queues, self.publishing, frame_max, queues)
        self.jobs = JobRunners(self.queues, self.publishing, partial(Access, self))
        self.absences = Absences(self.queues, self.reading, queues.consumer_disconnected_timeout_ms)
        self.reconciler = Reconciler(cluster, self.definitions)
        self.leader_transfer = LeaderTransfer(cluster)
        self.maintenance = Maintenance(cluster, self.definitions, self.leader_transfer)
        self.placement = Placement(cluster, self.definitions, random)
        group = (self.placement, self.leader_transfer, queues.quorum_initial_group_size)
        self.mirror_follower = MirrorFollower(cluster, self.definitions, *group)
        self.leader_queries = LeaderQueries(cluster, self._is_replicated, self.reconciler.unsettled)
        self.membership = self._member_service()
        placed = (self.placement, self.mirror_follower, self.maintenance)
        reconciles = queues.continuous_membership_reconciliation
        self.auto_grow = AutoGrow(cluster, self.definitions, *placed, reconciles)
        self.federation, self.exchange_links, self.shovels = self._transfers(settings.cluster)
        self._defaults = _queue_defaults(settings.queues)
        self.policy_follower = PolicyFollower(cluster, self.definitions)
        self._queue_commands = QueueCommands(self.placement, self.mirror_follower, settings.queues)
        self.imports, self.boot_definitions = self._definition_imports(settings)
        view = self.definitions  # lookups, see `BrokerView`
        self.exchange, self.queue_type, self.tags = view.exchange, view.queue_type, view.tags
        self.permissions, self.topic_permissions = view.permissions, view.topic_permissions
        self.channels_max, self.reply_queue_exists = self.clients.channels_max, self.replies.exists
        self.traced_vhosts: Set[str] = self.firehose.vhosts

    def _member_service(self) -> MemberService:
        nodes = NodeService(
            self.cluster,
            self.definitions,
            self.leader_queries,
            self.placement,
            self.maintenance,
            self.resource_alarms,
            VersionRaiser(
                self.cluster, self.definitions, self.settings.finish_upgrade == "automatic"
            ),
        )
        return MemberService(
            self.cluster,
            self.definitions,
            self.queues,
            self.leader_queries,
            self.placement,
            self.leader_transfer,
            self.mirror_follower,
            self.publishing.shares,
            nodes,
            QueueRecovery(
                self.cluster,
                self.definitions,
                self.queues,
                self.leader_queries,
                self.placement,
                nodes,
            ),
        )

    def _transfers(self, name: str) -> tuple[FederationLinks, ExchangeLinks, Shovels]:
        of_node = (self.cluster, self.definitions, name, self.links, self.seal)
        queues, exchanges = FederationLinks(*of_node), ExchangeLinks(*of_node)
        static = {key: one.value() for key, one in self.settings.shovels.items()}
        shovels = Shovels(*of_node, static, queues, exchanges)
        return queues, exchanges, shovels

    def _cluster(self, loop: Loop, make_host: MakeHost) -> Cluster:
        limits = self.settings.limits
        # These parts need the cluster, and so are made later.
        callbacks = ClusterCallbacks(
            metadata_applied=lambda meta, data, applied, leading: self.definitions.applied(
                meta, data, applied, leading
            ),
            metadata_restored=lambda: self.definitions.restored(),
            metadata_led=lambda: self.definitions.leads(),
            judge_peer=lambda hello: self.joining.judge(hello),
            leader=LeaderCallbacks(
                is_over=lambda node, uplink, number: self.definitions.is_over(node, uplink, number),
                expired=lambda group, reason: self.deletions.expired(group, reason),
                dead_letter=lambda group, effect: self.dead_letters.publish(group, effect),
                letters=lambda group, effect: self.letter_forwarders.carry_out(group, effect),
                jobs=lambda group, effect: self.jobs.carry_out(group, effect),
            ),
        )
        bounds = (limits.queue_in_flight_bytes_max, limits.node_in_flight_bytes_max)
        detailed = self.settings.management.rates_mode == "detailed"
        if self.tracing is None:
            return Cluster(loop, make_host, *bounds, callbacks, detailed)
        return TracedCluster(self.tracing, loop, make_host, *bounds, callbacks, detailed)

    def _traced(self, settings: NodeConfig) -> tuple[Tracing | None, TracedClaims | None]:
        traces = settings.otlp.traces
        if not traces.enabled:
            return None, None
        tracing = Tracing(traces, self._count_spans)
        return tracing, TracedClaims(tracing, settings.cluster)

    def _message_paths(self) -> tuple[Consumers, Publisher]:
        """Return others for a node that traces, so that one that does not checks nothing."""
        queues, new_number, replies = self.queues, self.ids.consumer, self.replies
        if self.tracing is None:
            return Consumers(queues, new_number), Publisher(queues, replies)
        return (
            TracedConsumers(self.tracing, queues, new_number),
            TracedPublisher(self.tracing, queues, replies),
        )

    def _count_spans(self, outcome: Outcome, count: int) -> None:
        self.cluster.counters.values[COUNTER, (outcome,)] += count

    def _node_messages(
        self, settings: NodeConfig
    ) -> tuple[EventExchange, LogExchange, Firehose, AuditTrail]:
        of_node = (self.cluster.loop, self.definitions, self.publishing, settings)
        events = EventExchange(*of_node)
        audit = AuditTrail(self.cluster.loop, settings.node, events)
        return events, LogExchange(*of_node), Firehose(*of_node), audit

    def _definition_imports(
        self, settings: NodeConfig
    ) -> tuple[DefinitionImports, BootDefinitions | None]:
        own = (self.events.exchange, self.log_exchange.exchange)
        around = partial(
            ImportingNode,
            self.definitions,
            self.placement,
            self._queue_commands,
            self._defaults,
            tuple((one.vhost, one.name) for one in own if one is not None),
            self.seal,
        )
        imports = DefinitionImports(self.definitions, around)
        path, skip = settings.definitions_path, settings.definitions.skip_if_unchanged
        if path is None:
            return imports, None
        return imports, BootDefinitions(self.definitions, imports, path, skip)

    def start(self, ports: tuple[int, ...] = ()) -> None:
        """Find the cluster and join it; the host has been started.

        ports  on which this node listens for clients
        """
        self.links.ports = ports
        configured = self.settings.peers.get(self.settings.node)
        load = None if self.boot_definitions is None else self.boot_definitions.load
        self.joining.start(own_address(self.cluster.host.address, configured), load, ports)

    # ------------------------------------------------------------ queues

    def default_queue_type(self, vhost: str) -> DefaultType:
        """Return the type of the vhost's durable queues that name none."""
        scope = self.definitions.state.scopes.get(vhost)
        wanted = scope.vhost.default_queue_type if scope is not None else ""
        return self._defaults.of_type(wanted).kind

    def declare_queue(
        self,
        vhost: str,
        name: str,
        *,
        durable: bool,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any],
        connection: int = 0,
        server_named: bool = False,
        done: errors.Answer[metadata.QueueIs],
    ) -> None:
        """Declare a queue: create it, or check that the existing one is equivalent.

        connection  of the client; 0: the broker itself
        """
        try:
            checked = queue_declaration(
                vhost,
                name,
                durable=durable,
                exclusive=exclusive,
                auto_delete=auto_delete,
                arguments=arguments,
                defaults=self._defaults.of_type(self.default_queue_type(vhost)),
            )
            if server_named and checked.config.kind == "quorum":
                raise errors.no_server_name("rabbit_quorum_queue")
        except errors.Refusal as refusal:
            done(refusal)
            return
        policies = self.definitions.policies(vhost)
        command = self._queue_commands.declaration(checked, policies, connection, server_named)

        def declared(reply: errors.Reply[metadata.QueueIs]) -> None:
            if isinstance(reply, metadata.QueueIs) and reply.created:
                warn_of_fallback(command.initial or command.config)
            done(reply)

        self.definitions.submit(command, declared)

    def queue_counts(
        self, queue: QueueRecord, touch: bool, done: errors.Answer[commands.StatReply]
    ) -> None:
        """Answer a StatReply that includes what this node has sent to the queue before."""
        if self.queues.absent(queue):
            done(self.queues.unavailable(queue))
            return
        client = self.cluster.client(queue.group)
        busy = client is not None and (client.uplink.unanswered or client.uplink.waiting)
        if busy or (touch and self.definitions.config(queue).expires_ms is not None):
            self.queues.ask(queue, commands.Stat(touch), done)
            return

        def read(result: commands.StatReply | ReadFailed) -> None:
            if not isinstance(result, ReadFailed):
                done(result)
            elif self.queues.deleted(queue):
                done(errors.no_queue(queue.name, queue.vhost))
            else:
                done(self.queues.unavailable(queue))

        self.reading.counts(queue.group, read)

    def delete_queue(
        self,
        vhost: str,
        name: str,
        if_unused: bool,
        if_empty: bool,
        connection: int,
        done: errors.Answer[requests.MessageCount],
    ) -> None:
        """Delete a queue; answer MessageCount with its messages, 0 when there was no such queue."""
        if self.definitions.state.queue(vhost, name) is None:
            done(requests.MessageCount(0))
            return
        queue = self.queues.find(vhost, name, connection)

        def forget(count: int) -> None:
            counted = errors.converted(done, lambda _: requests.MessageCount(count))
            self.deletions.forget(queue, counted)

        if self.queues.absent(queue):
            # As in RabbitMQ: its contents are unknown; without a condition it is deleted anyway.
            if if_empty:
                done(errors.not_empty(name, vhost))
            else:
                forget(0)
            return

        def deleted(reply: object) -> None:
            if isinstance(reply, errors.Refusal) and not isinstance(reply, errors.NotFound):
                done(reply)
            else:
                forget(reply.messages if isinstance(reply, commands.Count) else 0)

        self.queues.ask(queue, commands.Delete(if_unused, if_empty), deleted)

    def cancel_consumer(self, consumer: int, done: errors.Answer[requests.RequestDone]) -> None:
        """Cancel a consumer; an auto-delete queue without another one is gone before `done`.

        The queue's leader deletes such a queue, too, in case this node fails before it has.
        """
        queue = self.consuming.queue_of(consumer)
        if queue is None or not queue.config.auto_delete:
            self.consuming.cancel(consumer, done)
            return

        answers: list[object] = []

        def answered(result: object) -> None:
            answers.append(result)
            if len(answers) == 2:
                done(requests.RequestDone())

        # Sent together, and applied in this order.
        self.consuming.cancel(consumer, answered)
        self.deletions.delete_unused(queue, lambda: answered(None))

    def purge_queue(
        self,
        vhost: str,
        name: str,
        connection: int,
        done: errors.Answer[requests.MessageCount],
        *,
        store: bool = False,
    ) -> None:
        """Purge a queue; answer MessageCount with the messages dropped.

        store  it may be the store of an exchange
        """
        queue = self.queues.find(vhost, name, connection, store=store)

        purged = errors.converted(done, _messages)
        self.queues.ask(queue, commands.Purge(), purged)

    # ------------------------------------------------------------ exchanges, bindings

    def exchange_declaration(self, asked: metadata.DeclareExchange) -> metadata.DeclareExchange:
        """Return the command with its placement; raises PreconditionFailed for too long a name."""
        check_name("exchange", asked.name)
        nodes: tuple[str, ...] = ()
        leader = ""
        if asked.kind in KEEPING_KINDS:
            nodes = self.placement.members(self._defaults.group_size)
            leader = self.placement.leader(nodes, self._defaults.leader_locator)
        return msgspec.structs.replace(
            asked,
            kind="fanout" if asked.kind == UPSTREAM_KIND else asked.kind,
            arguments=storable(asked.arguments),
            store_nodes=nodes,
            store_leader=leader,
        )

    def bind(self, command: metadata.Bind, done: Done) -> None:
        """Add a binding; a new one of a recent history brings its messages before `done`."""

        def bound(reply: metadata.AnyReply | errors.Refusal) -> None:
            if isinstance(reply, metadata.BindingIs) and reply.created:
                self.history.replay(command, done)
            else:
                done(reply)

        self.definitions.submit(command, bound)

    def connection_gone(self, connection: int, done: errors.Answer[requests.RequestDone]) -> None:
        """Delete the exclusive queues of a connection that has ended, and count it no more."""
        self.clients.leave(connection)
        owner = (self.cluster.host.boot_id, connection)
        if owner in self.definitions.state.owned:
            command = metadata.OwnerGone(*owner)
            self.definitions.submit(
                command, lambda reply: done(requests.RequestDone()), forever=True
            )
        else:
            done(requests.RequestDone())

    def hand_over(self, wait_ms: int) -> None:
        """Transfer this node's leaderships to other nodes before it stops.

        wait_ms  how long the dead letters that are under way may keep one here
        """
        host = self.cluster.host
        for group in host.groups():
            if host.is_leader(group):
                self.maintenance.hand_over(group, wait_ms)

    def _is_replicated(self, group: int) -> bool:
        queue = self.definitions.state.groups.get(group)
        return group == METADATA_GROUP or (queue is not None and queue.replicated)


def _queue_defaults(settings: Queues) -> QueueDefaults:
    """Return the defaults of declarations."""
    return QueueDefaults(
        group_size=settings.quorum_initial_group_size,
        leader_locator=settings.leader_locator,
        consumer_timeout_ms=settings.consumer_timeout_ms,
        consumer_disconnected_timeout_ms=settings.consumer_disconnected_timeout_ms,
    ).of_type(settings.default_type)


def _messages(count: commands.Count) -> requests.MessageCount:
    return requests.MessageCount(count.messages)
