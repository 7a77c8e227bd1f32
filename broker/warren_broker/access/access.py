"""Access checks: what a user may do in a vhost, for every protocol.

Every method returns None when the operation is allowed and raises a Refusal with RabbitMQ's text
otherwise. The rights needed by each operation are RabbitMQ's (its guide on access control); the
table is in compatibility.md, and tests/broker/test_access.py checks it for both protocols.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from warren_broker.access import requests
from warren_broker.access.token_rights import HeldRights
from warren_machines.metadata import permissions
from warren_machines.metadata.permissions import HeldPermissions, Kind, Permission
from warren_wire import errors
from warren_wire.admin.requests import Tag
from warren_wire.amqp091 import properties
from warren_wire.kernel import CC, USER_ID, MessageTable, first_other_user
from warren_wire.sender_selected import further_keys

NO_BROWSE = "no-browse"
"""The tag of users that may not look at messages without taking them."""
IMPERSONATOR = "impersonator"
"""The tag of users that may publish under any user_id."""


class Access(msgspec.Struct, frozen=True):
    """A connection's user in the connection's vhost.

    The rights are looked up at each check, so that a change of permissions holds for the next
    operation.

    rights  of a login with a token, or of a link: they alone count, whatever user has that name;
            None: those that the definitions give the user
    """

    view: requests.BrokerView
    vhost: str
    user: str
    rights: HeldRights | None = None

    # ------------------------------------------------------------ rights

    @property
    def tags(self) -> tuple[str, ...]:
        """Return the user's tags."""
        return self.view.tags(self.user) if self.rights is None else self.rights.tags

    def held_in(self, vhost: str) -> HeldPermissions | None:
        """Return the user's permissions in any vhost; None: it may not enter it."""
        if self.rights is None:
            return self.view.permissions(vhost, self.user)
        return self.rights.permissions(vhost)

    # ------------------------------------------------------------ basic checks

    def may(self, permission: Permission, kind: Kind, name: str) -> None:
        """Raise AccessRefused unless the user has that permission for the resource."""
        held = self.held_in(self.vhost)
        permissions.check(held, permission, kind, name, self.vhost, self.user)

    def must_be(self, tag: Tag, what: str) -> None:
        """Raise AccessRefused unless the user has the tag, which is needed to do `what`."""
        permissions.check_tag(self.tags, tag, self.user, what)

    def has_tag(self, tag: Tag) -> bool:
        """Return whether the user has that tag, or one that includes it."""
        return bool(permissions.INCLUDED_IN[tag].intersection(self.tags))

    def _may_any(self, kind: Kind, name: str) -> None:
        held = self.held_in(self.vhost)
        permissions.check_any(held, kind, name, self.vhost, self.user)

    def _topic(self, permission: Permission, exchange: str, routing_keys: Iterable[str]) -> None:
        """Check topic permissions: for existing topic exchanges, and only where some are set."""
        facts = self.view.exchange(self.vhost, exchange) if exchange else None
        if facts is None or facts.kind != "topic":
            return
        if self.rights is not None:
            for key in routing_keys:
                if not self.rights.allows_key(permission, self.vhost, exchange, key):
                    raise permissions.topic_refused(
                        permission, key, exchange, self.vhost, self.user
                    )
            return
        held = self.view.topic_permissions(self.vhost, self.user, exchange)
        permissions.check_topic(held, permission, routing_keys, exchange, self.vhost, self.user)

    def stay(self) -> None:
        """Raise AccessRefused when the user may no longer be in the vhost.

        The operations of a transaction were permitted one by one; since then the user, the vhost,
        or all of the user's permissions in it may have been deleted.
        """
        if self.held_in(self.vhost) is None:
            raise errors.AccessRefused(
                f"access to vhost '{self.vhost}' refused for user '{self.user}'"
            )

    # ------------------------------------------------------------ definitions

    def declare_exchange(
        self, name: str, arguments: Mapping[str, object], passive: bool = False
    ) -> None:
        """Check a declaration; an alternate exchange gets messages, which needs more rights."""
        _not_default(name)
        self._declare("exchange", name, arguments.get("alternate-exchange"), passive)

    def _declare(self, kind: Kind, name: str, gets: object, passive: bool) -> None:
        """Check a declaration; gets: the exchange named to get the messages, if any."""
        if passive:
            self._may_any(kind, name)
            return
        self.may("configure", kind, name)
        if isinstance(gets, str):
            self.may("read", kind, name)
            self.may("write", "exchange", gets)

    def delete_exchange(self, name: str) -> None:
        """Check a deletion; the broker's own exchanges cannot be deleted."""
        _not_default(name)
        if name.startswith("amq."):
            shown = errors.named("exchange", name, self.vhost)
            raise errors.AccessRefused(f"deletion of system {shown} not allowed")
        self.may("configure", "exchange", name)

    def bind(self, source: str, destination: str, to_queue: bool, routing_key: str) -> None:
        """Check a binding, or its removal."""
        if not to_queue:
            _not_default(destination)
        self.may("write", "queue" if to_queue else "exchange", destination)
        _not_default(source)
        self.may("read", "exchange", source)
        self._topic("read", source, (routing_key,))

    def declare_queue(self, name: str, arguments: Mapping[str, Any], passive: bool = False) -> None:
        """Check a declaration; a dead-letter exchange gets messages, which needs more rights."""
        self._declare("queue", name, arguments.get("x-dead-letter-exchange"), passive)

    def delete_queue(self, name: str) -> None:
        """Check the deletion of a queue with its messages."""
        self.may("configure", "queue", name)

    # ------------------------------------------------------------ messages

    def read_queue(self, name: str) -> None:
        """Check consuming, getting, browsing, claiming, purging, or reading a queue's counts."""
        self.may("read", "queue", name)

    def browse_queue(self, name: str) -> None:
        """Check looking at a queue's messages, which has no trace among its counts."""
        self.read_queue(name)
        if NO_BROWSE in self.tags:
            raise errors.AccessRefused(
                f"user '{self.user}' may not look at messages of queues: it has the tag "
                f"'{NO_BROWSE}'"
            )

    def publish_stages(self, queue: str) -> None:
        """Check publishing or dropping stages in a queue, which involves no routing."""
        self.may("write", "queue", queue)

    def publish(self, exchange: str, routing_keys: Iterable[str]) -> None:
        """Check publishing, or staging, with each of these routing keys."""
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

    def refused_route(
        self, table: MessageTable, routes: Iterable[int], first: int, last: int
    ) -> tuple[int, errors.Refusal | None]:
        """Return the first message of first <= i < last that may not be published, and why not.

        routes   the ids of their routes; looked up once for each
        returns  (last, None) when all are allowed
        """
        refusal = None
        for route in routes:
            entry = table.routes.entries[route]
            try:
                self.publish(
                    entry.exchange.decode("utf-8", "surrogateescape"),
                    (entry.routing_key.decode("utf-8", "surrogateescape"),),
                )
            except errors.Refusal as refused:
                at = next((i for i in range(first, last) if table.route_id(i) == route), last)
                if at < last:
                    last, refusal = at, refused
        return last, refusal

    def refused_message(
        self, table: MessageTable, first: int, last: int, flags: int, exchange: str | None = None
    ) -> tuple[int, errors.Refusal | None]:
        """Return the first message of first <= i < last that is not allowed, with its refusal.

        Checks what a message contains itself: its user_id, its further routing keys (CC, BCC).

        flags     of the messages, or-ed (`kernel.items`)
        exchange  of all of them; None: that of each one's route
        returns   (last, None) when all are allowed
        """
        refusal: errors.Refusal | None = None
        if flags & USER_ID and IMPERSONATOR not in self.tags:
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
        """Return the first message with CC or BCC that topic permissions forbid, with its refusal.

        Headers are decoded message by message, only where topic permissions are set.
        """
        for i in range(first, last):
            if not table.flags(i) & CC:
                continue
            exchange = table.route(i).exchange.decode("utf-8", "surrogateescape")
            exchange = exchange if to is None else to
            held = self.view.topic_permissions(self.vhost, self.user, exchange)
            if self.rights is None and held is None:
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
    return errors.OtherUserId(
        f"user_id property set to '{given}' but authenticated user was '{user}'"
    )
