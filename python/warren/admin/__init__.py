"""Administration of a cluster over one connection, by resource.

`Admin(connection).queues.get("q")`: the parts and their calls are those of `warren_wire.admin`,
where each request says what it needs, what it is answered and what is refused. What is no single
request is written out: pages, files, epochs, waiting.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from warren.admin.membership import MemberCalls, NodeCalls
from warren.admin.shovels import ShovelCalls
from warren.calls import AdminCalls, call
from warren.connection import Connection
from warren.errors import NotFound
from warren.queues import Queue, QueueCalls, Reader
from warren.waiting import Waiting
from warren_wire.admin import (
    audit,
    browse,
    claims,
    cluster_version,
    connections,
    definitions,
    delayed,
    exchanges,
    jobs,
    letters,
    limits,
    logs,
    node_facts,
    overview,
    parameters,
    permissions,
    policies,
    queue_pages,
    queues,
    shovels,
    users,
    vhosts,
)

__all__ = ["Admin", "ExportedDefinitions", "Queue", "Reader"]
IMPORT_S = 120.0
"""How long an import may take: it answers when every queue is there."""


class BrowsedQueueCalls(QueueCalls):
    """Queues of the connection's vhost, with their messages."""

    browse_page = call(browse.BrowseRequest)
    page = call(queue_pages.PageQueuesRequest)

    def pages(self, name: str, *, limit: int = 0, **asked: Any) -> Iterator[browse.BrowsedPage]:
        """Yield pages of messages, which stay as they are, from `after` on.

        limit  of messages; 0: all
        asked  fields of `BrowseRequest` but its count
        """
        request = browse.BrowseRequest(name, **asked)
        left = limit or 1 << 62
        while True:
            found = self.ask(structs.replace(request, count=min(left, browse.BROWSED_MAX)))
            yield found
            left -= len(found.messages)
            if not found.next or left <= 0:
                return
            request = structs.replace(request, after=found.next)

    def browse(self, name: str, **asked: Any) -> Iterator[browse.BrowsedMessage]:
        """Yield messages, which stay as they are; see `pages` and `BrowseRequest`."""
        for page in self.pages(name, **asked):
            yield from page.messages


class LetterCalls(AdminCalls):
    """What messages of queues have in common, dead letters above all."""

    page = call(letters.GroupLettersRequest)

    def groups(
        self, queue: str, *, by: str = "", looked_max: int = 1_000_000, **asked: Any
    ) -> letters.LetterGroups:
        """Return groups of messages, those with most first; `next` is not empty: there are more.

        Without `by` there is one group, or none: how many messages a job would find.

        looked_max  messages to look at, some thousands more at the most
        asked       other fields of `GroupLettersRequest`
        """
        request = letters.GroupLettersRequest(queue, by=by, **asked)
        found: dict[tuple[str, ...], letters.LetterGroup] = {}
        looked, current = 0, True
        while True:
            page = self.ask(request)
            looked, current = looked + page.looked, current and page.current
            for one in page.groups:
                values = tuple(one.values.values())
                known = found.get(values)
                found[values] = one if known is None else _added(known, one)
            if not page.next or looked >= looked_max:
                break
            request = structs.replace(request, after=page.next)
        ordered = sorted(
            found.values(), key=lambda one: (-one.messages, tuple(one.values.values()))
        )
        return letters.LetterGroups(tuple(ordered), page.next, looked, current)


def _added(one: letters.LetterGroup, other: letters.LetterGroup) -> letters.LetterGroup:
    return structs.replace(
        one,
        messages=one.messages + other.messages,
        body_bytes=one.body_bytes + other.body_bytes,
        first_at=min(one.first_at, other.first_at),
        last_at=max(one.last_at, other.last_at),
    )


class JobCalls(AdminCalls):
    """Jobs over the messages of queues."""

    begin = call(jobs.BeginJobRequest)
    list = call(jobs.ListJobsRequest)
    steer = call(jobs.SteerJobRequest)

    def get(self, queue: str, job: int) -> jobs.JobInfo:
        """Return a job of a queue; raises NotFound."""
        for one in self.list(queue):
            if one.job == job:
                return one
        raise NotFound(f"queue {queue!r} has no job {job}; see `warren jobs list --queue {queue}`")


class DelayedCalls(AdminCalls):
    """Delayed messages of queues."""

    list = call(delayed.ListDelayedRequest)
    end = call(delayed.EndDelayRequest)
    retry = call(queues.RetryDelayedRequest)


class ClaimCalls(AdminCalls):
    """Claims of readers, by an operator."""

    def readers(self, queue: str) -> tuple[Reader, ...]:
        """Return the queue's claim readers."""
        return self.ask(queues.GetQueueRequest(queue)).readers

    def settle(self, queue: str, reader: str, number: int) -> int:
        """Settle a reader's claims up to `number`; return the number of messages."""
        return self.ask(claims.SettleClaimsRequest(queue, reader, number, -1))

    def release(
        self,
        queue: str,
        reader: str,
        number: int = 0,
        *,
        failed: bool = False,
        undecided: bool = False,
    ) -> int:
        """Release a reader's claim (0: all, and forget the reader); return the message count.

        One that a batch settles is settled when the batch was published; see `ClaimReader.release`.
        """
        return self.ask(claims.ReleaseClaimRequest(queue, reader, number, -1, failed, undecided))


class SinkCalls(AdminCalls):
    """What queues remember of sinks."""

    list = call(queues.ListSinksRequest)
    forget = call(queues.ForgetSinkRequest)


class RelayCalls(AdminCalls):
    """What queues keep for shovels and links; they are shown with their queue."""

    release = call(queues.ReleaseRelayRequest)


class ExchangeCalls(AdminCalls):
    """Exchanges of the connection's vhost."""

    declare = call(exchanges.DeclareExchangeRequest)
    list = call(exchanges.ListExchangesRequest)
    delete = call(exchanges.DeleteExchangeRequest)


class BindingCalls(AdminCalls):
    """Bindings of the connection's vhost."""

    list = call(exchanges.ListBindingsRequest)
    page = call(queue_pages.PageBindingsRequest)
    put = call(exchanges.BindRequest)

    def delete(
        self,
        source: str,
        destination_queue: str = "",
        destination_exchange: str = "",
        routing_key: str = "",
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Undo `put`; harmless when there is no such binding."""
        ends = (source, destination_queue, destination_exchange)
        made = exchanges.BindRequest(*ends, routing_key, dict(arguments or {}))
        self.ask(exchanges.UnbindRequest(exchanges.binding_segment(made.binding)))


class UserCalls(AdminCalls):
    """Users."""

    list = call(users.ListUsersRequest)
    get = call(users.GetUserRequest)
    put = call(users.PutUserRequest)
    delete = call(users.DeleteUserRequest)


class VhostCalls(AdminCalls):
    """Virtual hosts."""

    list = call(vhosts.ListVhostsRequest)
    get = call(vhosts.GetVhostRequest)
    put = call(vhosts.PutVhostRequest)
    trace = call(vhosts.TraceVhostRequest)
    protect = call(vhosts.ProtectVhostRequest)
    delete = call(vhosts.DeleteVhostRequest)


class PermissionCalls(AdminCalls):
    """Permissions of users in vhosts."""

    list = call(permissions.ListPermissionsRequest)
    get = call(permissions.GetPermissionsRequest)
    put = call(permissions.PutPermissionsRequest)
    delete = call(permissions.DeletePermissionsRequest)


class TopicPermissionCalls(AdminCalls):
    """Permissions of users for routing keys of topic exchanges."""

    list = call(permissions.ListTopicPermissionsRequest)
    get = call(permissions.GetTopicPermissionsRequest)
    put = call(permissions.PutTopicPermissionsRequest)
    delete = call(permissions.DeleteTopicPermissionsRequest)


class PolicyCalls(AdminCalls):
    """Policies, and with `operator=True` operator policies."""

    list = call(policies.ListPoliciesRequest)
    get = call(policies.GetPolicyRequest)
    put = call(policies.PutPolicyRequest)
    delete = call(policies.DeletePolicyRequest)


class LimitCalls(AdminCalls):
    """Limits of vhosts and users; the calls that change one say first of which kind it is."""

    of_vhosts = call(limits.ListVhostLimitsRequest)
    of_users = call(limits.ListUserLimitsRequest)
    put = call(limits.PutLimitRequest)
    replace = call(limits.ReplaceLimitsRequest)
    clear = call(limits.ClearLimitsRequest)


class ParameterCalls(AdminCalls):
    """Runtime parameters of vhosts."""

    list = call(parameters.ListParametersRequest)
    put = call(parameters.PutParameterRequest)
    delete = call(parameters.DeleteParameterRequest)


class GlobalParameterCalls(AdminCalls):
    """Runtime parameters of the cluster."""

    list = call(parameters.ListGlobalParametersRequest)
    put = call(parameters.PutGlobalParameterRequest)
    delete = call(parameters.DeleteGlobalParameterRequest)


@dataclass(frozen=True, slots=True)
class ExportedDefinitions:
    """Definitions in RabbitMQ's JSON format.

    data   the file
    notes  objects that are not in it, or not as they are
    """

    data: bytes
    notes: tuple[str, ...]

    @property
    def document(self) -> dict[str, Any]:
        """Return the file's content."""
        found: dict[str, Any] = json.loads(self.data)
        return found


class DefinitionCalls(AdminCalls):
    """Files with everything that is declared."""

    def export(self, vhost: str | None = None) -> ExportedDefinitions:
        """Return all definitions, or those of one vhost; NotFound."""
        found = self.ask(definitions.ExportRequest(vhost), timeout_s=IMPORT_S)
        return ExportedDefinitions(zlib.decompress(found.document), found.notes)

    def load(
        self, data: bytes, vhost: str | None = None, *, dry_run: bool = False
    ) -> definitions.ImportReport:
        """Import a file, all of it or, when that is refused, nothing.

        data     JSON in RabbitMQ's format
        vhost    to import everything into; None: the vhosts that the file names
        dry_run  only report what would be done
        """
        request = definitions.ImportRequest(zlib.compress(data, 9), vhost, dry_run)
        return self.ask(request, timeout_s=IMPORT_S)


class FederationCalls(AdminCalls):
    """Federation: its upstreams are parameters, and policies make the links."""

    links = call(shovels.ListLinksRequest)


class ConnectionCalls(AdminCalls):
    """Clients' connections to all nodes."""

    list = call(connections.ListConnectionsRequest)
    close = call(connections.EndConnectionRequest)


class AuditCalls(AdminCalls):
    """The audit log of all nodes."""

    page = call(audit.ListAuditRequest)

    def records(self, *, limit: int = 0, **asked: Any) -> Iterator[audit.AuditRecord]:
        """Yield records, the newest first.

        limit  of records; 0: all
        asked  fields of `ListAuditRequest` but its count
        """
        request = audit.ListAuditRequest(**asked)
        left = limit or 1 << 62
        while True:
            count = min(left, audit.AUDIT_COUNT_MAX)
            found = self.ask(structs.replace(request, count=count))
            yield from found.records[:left]
            left -= len(found.records)
            if not found.next or left <= 0:
                return
            request = structs.replace(request, before=found.next)


class LogCalls(AdminCalls):
    """Logs of the nodes."""

    levels = call(logs.ListLogLevelsRequest)
    set_level = call(logs.SetLogLevelRequest)
    lines = call(logs.ListLogLinesRequest)


class ClusterCalls(AdminCalls):
    """The cluster's version, which an upgrade raises."""

    version = call(cluster_version.GetClusterVersionRequest)
    conditions = call(node_facts.ListConditionsRequest)
    settings = call(node_facts.GetSettingsRequest)
    alarms = call(overview.ListAlarmsRequest)
    totals = call(overview.GetTotalsRequest)
    finish_upgrade = call(cluster_version.FinishUpgradeRequest)


class ConsumerCalls(AdminCalls):
    """Clients' consumers on all nodes."""

    list = call(connections.ListConsumersRequest)


class Admin(AdminCalls):
    """The administration of a cluster: a part for each resource, a call for each request.

    A call has the fields of its request, and returns the value that the request is answered with,
    None for Put and Performed. Each raises NotFound (404), Conflict (409), AccessRefused (403),
    Unavailable; what cannot be set is a PeerError, with the broker's text. Changes take effect for
    the next operation, also of connected clients.
    """

    overview = call(overview.GetOverviewRequest)
    whoami = call(users.GetWhoAmIRequest)

    def __init__(self, connection: Connection, waiting: Waiting | None = None) -> None:
        super().__init__(connection)
        self.queues = BrowsedQueueCalls(connection)
        self.letters = LetterCalls(connection)
        self.jobs = JobCalls(connection)
        self.delayed = DelayedCalls(connection)
        self.claims = ClaimCalls(connection)
        self.sinks = SinkCalls(connection)
        self.relays = RelayCalls(connection)
        self.members = MemberCalls(connection, waiting)
        self.nodes = NodeCalls(connection, waiting)
        self.cluster = ClusterCalls(connection)
        self.audit = AuditCalls(connection)
        self.logs = LogCalls(connection)
        self.exchanges = ExchangeCalls(connection)
        self.bindings = BindingCalls(connection)
        self.users = UserCalls(connection)
        self.vhosts = VhostCalls(connection)
        self.permissions = PermissionCalls(connection)
        self.topic_permissions = TopicPermissionCalls(connection)
        self.policies = PolicyCalls(connection)
        self.limits = LimitCalls(connection)
        self.parameters = ParameterCalls(connection)
        self.global_parameters = GlobalParameterCalls(connection)
        self.definitions = DefinitionCalls(connection)
        self.shovels = ShovelCalls(connection, waiting)
        self.federation = FederationCalls(connection)
        self.connections = ConnectionCalls(connection)
        self.consumers = ConsumerCalls(connection)

    def waiting(self, seconds: float, progress: Callable[[Any], None] | None = None) -> Admin:
        """Return this administration with calls that wait for what they begin; see `Waiting`.

        Those of `members`, `nodes` and `shovels` do. `progress` is called with QueueMembers,
        NodeStatus, Rebalanced or ShovelInfo.
        """
        return Admin(self.connection, Waiting(seconds, progress))
