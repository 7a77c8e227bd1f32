"""Administration of a cluster over one connection: calls are requests of `warren_wire.admin`."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from warren.calls import call, path_and_body, queue_of
from warren.errors import Conflict, UsageError, WarrenError
from warren.membership import MembershipCalls
from warren.shovels import ShovelCalls
from warren_wire.admin import bindings as binding_requests
from warren_wire.admin import claims as claim_requests
from warren_wire.admin import connections as connection_requests
from warren_wire.admin import definitions as definition_requests
from warren_wire.admin import delayed as delayed_requests
from warren_wire.admin import exchanges as exchange_requests
from warren_wire.admin import limits as limit_requests
from warren_wire.admin import overview as overview_requests
from warren_wire.admin import parameters as parameter_requests
from warren_wire.admin import permissions as permission_requests
from warren_wire.admin import policies as policy_requests
from warren_wire.admin import queues as queue_requests
from warren_wire.admin import relays as relay_requests
from warren_wire.admin import sinks as sink_requests
from warren_wire.admin import users as user_requests
from warren_wire.admin import vhosts as vhost_requests

QUEUES_PER_PAGE = 500
IMPORT_S = 120.0
"""How long an import may take: it answers when every queue is there."""
Queue: TypeAlias = queue_requests.QueueInfo
Reader: TypeAlias = queue_requests.ReaderInfo


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


class Admin(MembershipCalls, ShovelCalls):
    """Management calls over one connection.

    A call that is one request has its fields and its text (`warren_wire.admin`); a request
    that is answered with Put or Performed returns None. Each raises NotFound (404), Conflict (409),
    AccessRefused (403), Unavailable; what cannot be set is a PeerError, with the broker's text.
    Changes take effect for the next operation, also of connected clients. Calls for nodes and the
    members of queues are in `MembershipCalls`, those for shovels in `ShovelCalls`.
    """

    overview = call(overview_requests.GetOverviewRequest)

    # -------------------------------------------------------------- queues

    declare_queue = call(queue_requests.DeclareQueueRequest)
    queue = call(queue_requests.GetQueueRequest)
    delete_queue = call(queue_requests.DeleteQueueRequest)
    purge_queue = call(queue_requests.PurgeQueueRequest)
    retry_delayed = call(queue_requests.RetryDelayedRequest)
    delayed_messages = call(delayed_requests.ListDelayedRequest)
    sinks = call(sink_requests.ListSinksRequest)
    forget_sink = call(sink_requests.ForgetSinkRequest)
    release_relay = call(relay_requests.ReleaseRelayRequest)

    def queues_named(self, names: Sequence[str]) -> list[Queue | WarrenError]:
        """Return several queues in one round trip; in the place of one why it is not known."""
        asked = [[path_and_body(queue_requests.GetQueueRequest(name))] for name in names]
        return [
            body if isinstance(body, WarrenError) else queue_of(body)
            for (body,) in self.connection.request_each(asked)
        ]

    def queues(self, pattern: str = "") -> list[Queue]:
        """Return the queues of the vhost, by name; with zeros for counts that no leader gave.

        pattern  only those with names in which this regular expression is found
        """
        found: list[Queue] = []
        while True:  # one page of the answer
            after = found[-1].name if found else ""
            page = self.ask(queue_requests.ListQueuesRequest(after, QUEUES_PER_PAGE, pattern))
            found += page
            if len(page) < QUEUES_PER_PAGE:
                return found

    def drop_delayed(self, name: str, message: str) -> None:
        """Drop the delayed message with that id; NotFound when it is not delayed."""
        self.ask(delayed_requests.EndDelayRequest(name, message, drop=True))

    def retry_delayed_message(self, name: str, message: str) -> None:
        """Make the delayed message with that id ready now; NotFound when it is not delayed."""
        self.ask(delayed_requests.EndDelayRequest(name, message, drop=False))

    # -------------------------------------------------------------- exchanges and bindings

    declare_exchange = call(exchange_requests.DeclareExchangeRequest)
    delete_exchange = call(exchange_requests.DeleteExchangeRequest)
    exchanges = call(exchange_requests.ListExchangesRequest)
    bindings = call(binding_requests.ListBindingsRequest)

    def bind(
        self,
        source: str,
        *,
        queue: str | None = None,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Bind a queue (or an exchange) to the exchange `source`."""
        if (queue is None) == (exchange is None):
            raise UsageError(
                f"bind to queue={queue!r}, exchange={exchange!r}: give exactly one of them"
            )
        ends = (source, queue or "", exchange or "")
        self.ask(binding_requests.BindRequest(*ends, routing_key, dict(arguments or {})))

    def unbind(
        self,
        source: str,
        *,
        queue: str | None = None,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Undo `bind`; harmless when there is no such binding."""
        wanted = dict(arguments or {})
        for body in self.bindings(source, queue, exchange, routing_key):
            if dict(body["arguments"]) == wanted:
                self.connection.request("DELETE", body["location"])

    # -------------------------------------------------------------- users, vhosts, permissions

    whoami = call(user_requests.GetWhoAmIRequest)
    users = call(user_requests.ListUsersRequest)
    user = call(user_requests.GetUserRequest)
    put_user = call(user_requests.PutUserRequest)
    delete_user = call(user_requests.DeleteUserRequest)
    vhosts = call(vhost_requests.ListVhostsRequest)
    vhost = call(vhost_requests.GetVhostRequest)
    put_vhost = call(vhost_requests.PutVhostRequest)
    set_tracing = call(vhost_requests.TraceVhostRequest)
    protect_vhost = call(vhost_requests.ProtectVhostRequest)
    delete_vhost = call(vhost_requests.DeleteVhostRequest)
    permissions = call(permission_requests.ListPermissionsRequest)
    set_permissions = call(permission_requests.PutPermissionsRequest)
    clear_permissions = call(permission_requests.DeletePermissionsRequest)
    topic_permissions = call(permission_requests.ListTopicPermissionsRequest)
    set_topic_permissions = call(permission_requests.PutTopicPermissionsRequest)
    clear_topic_permissions = call(permission_requests.DeleteTopicPermissionsRequest)

    # -------------------------------------------------------------- policies, limits, connections

    policies = call(policy_requests.ListPoliciesRequest)
    policy = call(policy_requests.GetPolicyRequest)
    set_policy = call(policy_requests.PutPolicyRequest)
    clear_policy = call(policy_requests.DeletePolicyRequest)
    connections = call(connection_requests.ListConnectionsRequest)
    consumers = call(connection_requests.ListConsumersRequest)
    close_connection = call(connection_requests.EndConnectionRequest)
    vhost_limits = call(limit_requests.ListVhostLimitsRequest)
    user_limits = call(limit_requests.ListUserLimitsRequest)

    def set_vhost_limit(self, vhost: str, name: str, value: int) -> None:
        """Set one limit of a vhost."""
        self.ask(limit_requests.PutLimitRequest("vhost", vhost, name, value))

    def replace_vhost_limits(self, vhost: str, given: Mapping[str, int]) -> None:
        """Set all limits of a vhost: those that are not given are cleared."""
        self.ask(limit_requests.ReplaceLimitsRequest("vhost", vhost, dict(given)))

    def clear_vhost_limits(self, vhost: str, name: str | None = None) -> None:
        """Clear one limit of a vhost; None: all."""
        self.ask(limit_requests.ClearLimitsRequest("vhost", vhost, name))

    def set_user_limit(self, user: str, name: str, value: int) -> None:
        """Set one limit of a user."""
        self.ask(limit_requests.PutLimitRequest("user", user, name, value))

    def replace_user_limits(self, user: str, given: Mapping[str, int]) -> None:
        """Set all limits of a user: those that are not given are cleared."""
        self.ask(limit_requests.ReplaceLimitsRequest("user", user, dict(given)))

    def clear_user_limits(self, user: str, name: str | None = None) -> None:
        """Clear one limit of a user; None: all."""
        self.ask(limit_requests.ClearLimitsRequest("user", user, name))

    # -------------------------------------------------------------- definitions, parameters

    global_parameters = call(parameter_requests.ListGlobalParametersRequest)
    set_global_parameter = call(parameter_requests.PutGlobalParameterRequest)
    clear_global_parameter = call(parameter_requests.DeleteGlobalParameterRequest)

    def export_definitions(self, vhost: str | None = None) -> ExportedDefinitions:
        """Return all definitions, or those of one vhost; NotFound."""
        found = self.ask(definition_requests.ExportRequest(vhost), timeout_s=IMPORT_S)
        return ExportedDefinitions(zlib.decompress(found.document), found.notes)

    def import_definitions(
        self, data: bytes, vhost: str | None = None, *, dry_run: bool = False
    ) -> definition_requests.ImportReport:
        """Import a file, all of it or, when that is refused, nothing.

        data     JSON in RabbitMQ's format
        vhost    to import everything into; None: the vhosts that the file names
        dry_run  only report what would be done
        """
        request = definition_requests.ImportRequest(zlib.compress(data, 9), vhost, dry_run)
        return self.ask(request, timeout_s=IMPORT_S)

    def parameters(
        self, vhost: str | None = None, component: str | None = None
    ) -> list[parameter_requests.ParameterInfo]:
        """Return the runtime parameters of a vhost and a component; None: of all."""
        # A vhost stands in a path behind a component.
        asked = parameter_requests.ListParametersRequest(component, vhost if component else None)
        return [one for one in self.ask(asked) if vhost in (None, one.vhost)]

    def set_parameter(self, vhost: str, component: str, name: str, value: Any) -> None:
        """Add or replace a runtime parameter."""
        self.ask(parameter_requests.PutParameterRequest(component, vhost, name, value))

    def clear_parameter(self, vhost: str, component: str, name: str) -> None:
        """Remove a runtime parameter; NotFound."""
        self.ask(parameter_requests.DeleteParameterRequest(component, vhost, name))

    # -------------------------------------------------------------- claims, by an operator

    def readers(self, queue: str) -> tuple[Reader, ...]:
        """Return the queue's claim readers."""
        return self.queue(queue).readers

    def settle_claims(self, queue: str, reader: str, number: int) -> int:
        """Settle a reader's claims up to `number`; return the number of messages."""
        epoch = self._current_epoch(queue, reader)
        return self.ask(claim_requests.SettleClaimsRequest(queue, reader, number, epoch))

    def release_claims(
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
        return self.ask(
            claim_requests.ReleaseClaimRequest(queue, reader, number, -1, failed, undecided)
        )

    def _current_epoch(self, queue: str, reader: str) -> int:
        """Return the epoch of the driver on behalf of which an operator acts."""
        for known in self.readers(queue):
            if known.name == reader:
                return known.epoch
        raise Conflict(
            f"queue {queue!r} has no reader {reader!r}; see `warren claims list {queue}`"
        )
