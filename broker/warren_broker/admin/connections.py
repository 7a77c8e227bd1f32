"""Handlers of the requests for connections and consumers; a close is logged with its user."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from warren_broker.admin.caller import PERFORMED, Answer, Asker
from warren_wire import errors
from warren_wire.admin import connections as m
from warren_wire.admin.connections import ConnectionInfo, ConsumerInfo
from warren_wire.quoting import quoted

CONNECTIONS_LISTED_MAX: Final = 500
"""Connections, channels or consumers in one answer: Proton's values hold 65,535 parts, each has 33
to 120. An answer to the HTTP API is not one of Proton's.
"""


def _list(asker: Asker, request: m.ListConnectionsRequest, answer: Answer) -> None:
    user = request.user
    if not asker.access.has_tag("monitoring"):
        if user not in ("", asker.user):
            asker.access.must_be("monitoring", "see connections of others")
        user = asker.user

    def listed(found: list[ConnectionInfo]) -> None:
        count = len(found) + sum(len(one.open_channels) for one in found)
        what, less = "connections and channels", "one user's or vhost's"
        answer(asker.listed(found, CONNECTIONS_LISTED_MAX, what, less, True, count))

    asker.broker.connections.survey(replace(request, user=user), asker.guard(listed))


def _consumers(asker: Asker, request: m.ListConsumersRequest, answer: Answer) -> None:
    vhost, user = request.vhost, ""
    if request.queue:
        vhost = asker.vhost
    elif not asker.access.has_tag("monitoring"):
        user = asker.user
    if vhost:
        asker.scope(vhost)

    def listed(found: list[ConsumerInfo]) -> None:
        most, less = CONNECTIONS_LISTED_MAX, "one vhost's or queue's"
        answer(asker.listed(found, most, "consumers", less, parts_only=True))

    asked = vhost, user, request.queue, request.connection
    asker.broker.connections.consumers(*asked, asker.guard(listed))


def _close(asker: Asker, request: m.EndConnectionRequest, answer: Answer) -> None:

    def found(known: list[ConnectionInfo]) -> None:
        if not known:
            answer(errors.NotFound(f"no connection '{request.name}'"))
            return
        if known[0].user != asker.user and not asker.access.has_tag("administrator"):
            answer(
                errors.AccessRefused(
                    f"user '{asker.user}' may not close connections of others: the tag "
                    "'administrator' is needed"
                )
            )
            return
        name, user = quoted(request.name), quoted(known[0].user)
        asker.log(f"close connection {name} of user {user}: {quoted(request.reason)}")
        closed = asker.guard(lambda: answer(PERFORMED))
        asker.broker.connections.close(request.name, request.reason, closed)

    named = m.ListConnectionsRequest(name=request.name)
    asker.broker.connections.survey(named, asker.guard(found))
