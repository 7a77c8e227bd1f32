"""What a user may do in a vhost: one method for each question, whichever protocol asks it.

Every method returns None when the operation is allowed and raises a Refusal with RabbitMQ's text
when it is not. The rights of each operation are RabbitMQ's (its guide on access control); the table
is in docs/compatibility.md, and tests/broker/test_access.py holds both protocols to
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from warren_broker import errors, permissions
from warren_broker.amqp091 import requests
from warren_broker.amqp091.wire import properties
from warren_broker.kernel import CC, USER_ID, MessageTable, first_other_user
from warren_broker.permissions import Kind, Permission, Tag
from warren_broker.routing.sender_selected import further_keys

IMPERSONATOR = "impersonator"
"""The tag of users whose messages may have any user_id."""


@dataclass(frozen=True, slots=True)
class Access:
    """A connection's user in the connection's vhost; looks the rights up at each question, so that
    a change of permissions holds for the next operation."""

    view: requests.BrokerView
    vhost: str
    user: str

    # ------------------------------------------------------------ the bases

    def may(self, permission: Permission, kind: Kind, name: str) -> None:
        """Raise AccessRefused unless the user has that permission for the resource."""
        held = self.view.permissions(self.vhost, self.user)
        permissions.check(held, permission, kind, name, self.vhost, self.user)

    def must_be(self, tag: Tag, what: str) -> None:
        """Raise AccessRefused unless the user has the tag, which is needed to do `what`."""
        permissions.check_tag(self.view.tags(self.user), tag, self.user, what)

    def has_tag(self, tag: Tag) -> bool:
        """Whether the user has that tag, or one that includes it."""
        return bool(permissions.INCLUDED_IN[tag].intersection(self.view.tags(self.user)))

    def _may_any(self, kind: Kind, name: str) -> None:
        held = self.view.permissions(self.vhost, self.user)
        permissions.check_any(held, kind, name, self.vhost, self.user)

    def _topic(self, permission: Permission, exchange: str, routing_keys: Iterable[str]) -> None:
        """Topic permissions count for topic exchanges that exist, and only where some are set."""
        facts = self.view.exchange(self.vhost, exchange) if exchange else None
        if facts is None or facts.kind != "topic":
            return
        held = self.view.topic_permissions(self.vhost, self.user, exchange)
        for key in routing_keys:
            permissions.check_topic(held, permission, key, exchange, self.vhost, self.user)

    def stay(self) -> None:
        """Be in the vhost still. What a transaction holds was permitted one by one; since then the
        user, the vhost, or all of the user's permissions in it may have been deleted."""
        if self.view.permissions(self.vhost, self.user) is None:
            raise errors.AccessRefused(
                f"access to vhost '{self.vhost}' refused for user '{self.user}'"
            )

    # ------------------------------------------------------------ definitions

    def declare_exchange(
        self, name: str, arguments: Mapping[str, Any], passive: bool = False
    ) -> None:
        """An alternate exchange gets the exchange's messages: that needs rights of its own."""
        _not_default(name)
        self._declare("exchange", name, arguments.get("alternate-exchange"), passive)

    def _declare(self, kind: Kind, name: str, gets: Any, passive: bool) -> None:
        """gets: the argument that names an exchange which gets the declared one's messages."""
        if passive:
            self._may_any(kind, name)
            return
        self.may("configure", kind, name)
        if isinstance(gets, str):
            self.may("read", kind, name)
            self.may("write", "exchange", gets)

    def delete_exchange(self, name: str) -> None:
        """The broker's own exchanges stay."""
        _not_default(name)
        if name.startswith("amq."):
            shown = errors.named("exchange", name, self.vhost)
            raise errors.AccessRefused(f"deletion of system {shown} not allowed")
        self.may("configure", "exchange", name)

    def bind(self, source: str, destination: str, to_queue: bool, routing_key: str) -> None:
        """The same for unbinding."""
        if not to_queue:
            _not_default(destination)
        self.may("write", "queue" if to_queue else "exchange", destination)
        _not_default(source)
        self.may("read", "exchange", source)
        self._topic("read", source, (routing_key,))

    def declare_queue(self, name: str, arguments: Mapping[str, Any], passive: bool = False) -> None:
        """A dead-letter exchange gets the queue's messages: that needs rights of its own."""
        self._declare("queue", name, arguments.get("x-dead-letter-exchange"), passive)

    def delete_queue(self, name: str) -> None:
        """Delete it, with what it holds."""
        self.may("configure", "queue", name)

    # ------------------------------------------------------------ messages

    def read_queue(self, name: str) -> None:
        """Consume, get, browse, claim, purge; and look at its counts."""
        self.may("read", "queue", name)

    def publish_stages(self, queue: str) -> None:
        """Publish or drop what was staged in a queue: rows are named, not routed, by then."""
        self.may("write", "queue", queue)

    def publish(self, exchange: str, routing_keys: Iterable[str]) -> None:
        """Publish, or stage, with each of these routing keys."""
        self.may("write", "exchange", exchange)
        if exchange == "":
            return
        facts = self.view.exchange(self.vhost, exchange)
        if facts is None:
            raise errors.no_exchange(exchange, self.vhost)
        if facts.internal:
            shown = errors.named("exchange", exchange, self.vhost)
            raise errors.AccessRefused(f"cannot publish to internal {shown}")
        self._topic("write", exchange, routing_keys)

    def refused_message(
        self, table: MessageTable, first: int, last: int, flags: int, exchange: str | None = None
    ) -> tuple[int, errors.Refusal | None]:
        """The first of messages first <= i < last that may not be published, with its refusal.

        For what a message says itself: its user_id, its further routing keys (CC, BCC).

        flags     of the messages, or-ed (`kernel.items`)
        exchange  where all of them are published; None: each where its route says
        returns   (last, None) when all may
        """
        refusal: errors.Refusal | None = None
        if flags & USER_ID and IMPERSONATOR not in self.view.tags(self.user):
            at = first_other_user(table, first, last, self.user.encode("utf-8", "surrogateescape"))
            if at < last:
                last, refusal = at, _other_user(table, at, self.user)
        if flags & CC:
            at, refused = self._refused_key(table, first, last, exchange)
            last, refusal = at, refused or refusal
        return last, refusal

    def _refused_key(
        self, table: MessageTable, first: int, last: int, to: str | None
    ) -> tuple[int, errors.Refusal | None]:
        """Only where topic permissions are set the headers are read, message by message: those
        with CC or BCC are routed that way, too."""
        for i in range(first, last):
            if not table.flags(i) & CC:
                continue
            exchange = table.route(i).exchange.decode("utf-8", "surrogateescape")
            exchange = exchange if to is None else to
            if self.view.topic_permissions(self.vhost, self.user, exchange) is None:
                continue
            try:
                headers = properties.headers(table.properties_of(i))
                self._topic("write", exchange, further_keys(headers))
            except errors.Refusal as refused:
                return i, refused
        return last, None


def _not_default(name: str) -> None:
    if name == "":
        raise errors.default_exchange()


def _other_user(table: MessageTable, at: int, user: str) -> errors.Refusal:
    given = properties.decode(table.properties_of(at)).user_id
    return errors.PreconditionFailed(
        f"user_id property set to '{given}' but authenticated user was '{user}'"
    )
