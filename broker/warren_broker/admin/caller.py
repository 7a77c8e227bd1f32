"""The user of a 1.0 connection, with its permissions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from warren_broker.access.access import Access
from warren_broker.access.token_rights import HeldRights
from warren_broker.broker.broker import Broker
from warren_broker.cluster.client.queues import to_refusal
from warren_broker.cluster.client.reads import ReadFailed
from warren_broker.cluster.turns import T, Work
from warren_machines.metadata import commands as metadata
from warren_machines.metadata.records import QueueRecord
from warren_machines.metadata.state import MetadataState, Scope
from warren_machines.queue.commands import AnyCommand, Refused
from warren_wire import errors
from warren_wire.admin.requests import Listed, MessagesCounted, Performed, Result
from warren_wire.quoting import quoted

log = logging.getLogger(__name__)
StructT = TypeVar("StructT", bound=msgspec.Struct)

Answer: TypeAlias = errors.Answer[Any]
"""Called once with the result that the request's docstring names, or with a Refusal."""
PERFORMED = Performed()
DOOR_HTTP: Final = "HTTP"
"""The HTTP API, in the audit log."""


@dataclass(frozen=True, slots=True)
class Asker:
    """A connection's user in its vhost.

    connection  its number on this node
    guard       makes a callback's fault end only that connection (`clients.connection_faults`)
    rights      see Access
    in_parts    an answer is one of AMQP's values, which have a limit of parts
    door, peer  for the audit log: how the request came, and the client's address and port
    """

    broker: Broker
    vhost: str
    user: str
    connection: int
    guard: Callable[[Callable[..., Any]], Callable[..., None]]
    rights: HeldRights | None = None
    in_parts: bool = True
    door: str = ""
    peer: str = ""

    @property
    def access(self) -> Access:
        """Return the user's access checks."""
        return Access(self.broker, self.vhost, self.user, self.rights)

    def queue(self, name: str, *, store: bool = False) -> QueueRecord:
        """Return a queue that the user may read; raises NotFound, ResourceLocked, AccessRefused.

        store  it may be the store of an exchange
        """
        self.access.read_queue(name)
        return self.broker.queues.find(self.vhost, name, self.connection, store=store)

    @property
    def state(self) -> MetadataState:
        """The definitions as this node knows them."""
        state: MetadataState = self.broker.definitions.state
        return state

    def scope(self, vhost: str) -> Scope:
        """Return what a vhost has; raises NotFound."""
        found = self.state.scopes.get(vhost)
        if found is None:
            raise errors.NotFound(f"no vhost '{vhost}'")
        return found

    def looks_into(self, vhost: str) -> bool:
        """Return whether the user may see numbers of a vhost: it may enter it, or it monitors."""
        return self.access.has_tag("monitoring") or self.access.held_in(vhost) is not None

    def sees_vhost(self, vhost: str) -> bool:
        """Return whether the user may see what a vhost has."""
        return self.access.has_tag("administrator") or self.access.held_in(vhost) is not None

    def check_vhost(self, vhost: str) -> None:
        """Raise AccessRefused unless the user may see what a vhost has, as in RabbitMQ."""
        if not self.sees_vhost(vhost):
            raise errors.AccessRefused(f"access to vhost '{vhost}' refused for user '{self.user}'")

    def listed(
        self,
        values: Iterable[object],
        most: int,
        what: str,
        less: str,
        parts_only: bool = False,
        count: int | None = None,
    ) -> Listed[Any] | errors.InvalidArgument:
        """Return values as an answer, or the refusal of more than fit into one.

        what, less   of the refusal: what they are, and what to ask for instead
        parts_only   any number fits where an answer is not one of AMQP's values
        count        of what they hold; None: of the values
        """
        found = tuple(values)
        held = len(found) if count is None else count
        if held <= most or (parts_only and not self.in_parts):
            return Listed(found)
        return errors.InvalidArgument(f"{held} {what} in one answer, {most} fit; ask for {less}")

    def divide(self, work: Work[T], then: Callable[[T], None], answer: Answer) -> None:
        """Do work in turns, which all requests of the node share; then call `then`.

        answer  called with a refusal that the work raises in a later turn
        """

        def failed(fault: Exception) -> None:
            raise fault

        shares = self.broker.publishing.shares
        shares.divide(work, self.guard(then), self.guard(answer), self.guard(failed))

    def then(self, answer: Answer, result: Callable[[Any], Any]) -> Callable[..., None]:
        """Return a callback that answers a Refusal as it is, and what `result` makes of a reply.

        What could not be read is tried again by the client (`Unavailable`).
        """
        told = errors.converted(answer, result)

        def done(reply: Any) -> None:
            told(errors.Unavailable(reply.detail) if isinstance(reply, ReadFailed) else reply)

        return self.guard(done)

    def log(self, what: str) -> None:
        """Log what the user does."""
        log.info("user %s: %s", quoted(self.user), what)

    def ask(
        self, queue: QueueRecord, command: AnyCommand, answer: Answer, result: Callable[[Any], Any]
    ) -> None:
        """Send a command to a queue; `result` converts its reply to the answer."""
        self.broker.queues.ask(queue, command, self.then(answer, result))

    def change(
        self, what: str, command: metadata.AnyCommand, answer: Answer, result: Result = PERFORMED
    ) -> None:
        """Log and submit a change of the definitions; the caller has checked the user's right."""
        self.log(what)
        self.define(command, answer, result)

    def define(
        self, command: metadata.AnyCommand, answer: Answer, result: Result = PERFORMED
    ) -> None:
        """Submit a change of the definitions, with that result; see `change`."""
        self.broker.definitions.submit(command, self.then(answer, lambda reply: result))


def made_from(kind: type[StructT], source: msgspec.Struct, **more: object) -> StructT:
    """Return a struct with those fields of another one that it has, too, and with these."""
    same = {name: getattr(source, name) for name in _shared(kind, type(source))}
    return kind(**{**same, **more})


@cache
def _shared(kind: type[msgspec.Struct], other: type[msgspec.Struct]) -> list[str]:
    return [name for name in kind.__struct_fields__ if name in other.__struct_fields__]


def counted(reply: Any) -> MessagesCounted:
    """Return the answer to what a queue has counted."""
    return MessagesCounted(reply.messages)


def refusal_of(reply: object, queue: QueueRecord) -> errors.Refusal | None:
    """Return the refusal that a queue's reply stands for, or None."""
    if isinstance(reply, errors.Refusal):
        return reply
    return to_refusal(reply, queue) if isinstance(reply, Refused) else None
