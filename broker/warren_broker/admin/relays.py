"""Handlers of the requests for relays."""

from __future__ import annotations

from warren_broker.admin.caller import Answer, Asker, counted
from warren_machines.queue.commands import Count
from warren_machines.queue.relays.relay_commands import ReleaseRelay
from warren_wire.admin.relays import ReleaseRelayRequest
from warren_wire.admin.requests import MessagesCounted
from warren_wire.quoting import quoted


def _release(asker: Asker, request: ReleaseRelayRequest, answer: Answer) -> None:
    queue = asker.queue(request.name)

    def released(reply: Count) -> MessagesCounted:
        kept = f"queue {quoted(request.name)} that were kept for relay {quoted(request.relay)}"
        asker.log(f"{reply.messages} messages of {kept} are ready again")
        return counted(reply)

    asker.ask(queue, ReleaseRelay(request.relay), answer, released)
