"""Handlers of the requests for relays."""

from __future__ import annotations

import logging

from warren_broker.admin.caller import Answer, Asker
from warren_broker.admin.handlers import handles
from warren_machines.queue.commands import Count
from warren_machines.queue.relays.relay_commands import ReleaseRelay
from warren_wire.admin.relays import ReleaseRelayRequest
from warren_wire.admin.requests import MessagesCounted
from warren_wire.quoting import quoted

log = logging.getLogger(__name__)


@handles(ReleaseRelayRequest)
def _release(asker: Asker, request: ReleaseRelayRequest, answer: Answer) -> None:
    queue = asker.queue(request.name)

    def released(reply: Count) -> MessagesCounted:
        log.info(
            "user %s: %d messages of queue %s that were kept for relay %s are ready again",
            quoted(asker.user),
            reply.messages,
            quoted(request.name),
            quoted(request.relay),
        )
        return MessagesCounted(reply.messages)

    asker.ask(queue, ReleaseRelay(request.relay), answer, released)
