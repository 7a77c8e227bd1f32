"""Handlers of the requests in `management.connections`; a close is logged with its user."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from warren_broker import errors
from warren_broker.amqp10.caller import PERFORMED, Answer, Asker
from warren_broker.cluster.connections import ChosenConnections
from warren_broker.management import connections as m
from warren_broker.management.connection_values import ConnectionInfo
from warren_broker.management.resource import Listed
from warren_raft.quoting import quoted

log = logging.getLogger(__name__)
CONNECTIONS_LISTED_MAX: Final = 2_000
"""Connections and channels in one answer: Proton's values hold 65,535 parts, each has 10 to 25."""


def _list(asker: Asker, request: m.ListConnectionsRequest, answer: Answer) -> None:
    asker.access.must_be("management", "see connections")
    user = request.user
    if not asker.access.has_tag("monitoring"):
        if user not in ("", asker.user):
            asker.access.must_be("monitoring", "see connections of others")
        user = asker.user

    def listed(found: list[ConnectionInfo]) -> None:
        count = len(found) + sum(len(one.open_channels) for one in found)
        if count > CONNECTIONS_LISTED_MAX:
            answer(
                errors.InvalidArgument(
                    f"{count} connections and channels in one answer, {CONNECTIONS_LISTED_MAX} "
                    "fit; ask for one user's or vhost's"
                )
            )
        else:
            answer(Listed(tuple(found)))

    chosen = ChosenConnections(request.vhost, user, request.name, request.channels)
    asker.broker.connections.survey(chosen, asker.guard(listed))


def _close(asker: Asker, request: m.EndConnectionRequest, answer: Answer) -> None:
    asker.access.must_be("management", "close connections")

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
        log.info(
            "user %s: close connection %s of user %s: %s",
            quoted(asker.user),
            quoted(request.name),
            quoted(known[0].user),
            quoted(request.reason),
        )
        closed = asker.guard(lambda: answer(PERFORMED))
        asker.broker.connections.close(request.name, request.reason, closed)

    asker.broker.connections.survey(ChosenConnections(name=request.name), asker.guard(found))


CONNECTION_HANDLERS: dict[type, Callable[[Asker, Any, Answer], None]] = {
    m.ListConnectionsRequest: _list,
    m.EndConnectionRequest: _close,
}
