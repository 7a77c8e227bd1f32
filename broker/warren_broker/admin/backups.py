"""Handlers of the requests of backups."""

from __future__ import annotations

from warren_broker.admin.caller import PERFORMED, Answer, Asker
from warren_broker.cluster import messages
from warren_wire import errors
from warren_wire.admin import backups as requests


def _hold(asker: Asker, request: requests.HoldGroupRequest, answer: Answer) -> None:
    group, backups = request.group, asker.broker.backups
    known = asker.state.groups.get(group)
    if group != requests.DEFINITIONS_GROUP and known is None:
        raise errors.NotFound(f"no queue with group {group}")

    def held(node: str, found: messages.GroupHeld) -> None:
        if found.detail:
            answer(errors.Unavailable(found.detail))
            return
        answer(
            requests.HeldGroup(
                node,
                found.hold,
                found.index,
                found.term,
                found.time_ms,
                found.members,
                asker.broker.settings.cluster,
                asker.broker.cluster.host.cluster_id,
                asker.broker.cluster.host.version,
            )
        )

    if group == requests.DEFINITIONS_GROUP:
        asker.log("begins to copy the cluster")
    backups.hold(group, asker.guard(held))


def _read(asker: Asker, request: requests.ReadHeldRequest, answer: Answer) -> None:
    def read(found: messages.HeldIs) -> None:
        if found.gone:
            answer(errors.NotFound(found.detail))
        elif found.detail:
            answer(errors.Unavailable(found.detail))
        else:
            answer(requests.HeldPiece(found.data, found.position, found.offset, found.more))

    place = (request.node, request.hold, request.part, request.position, request.offset)
    asker.broker.backups.read(*place, asker.guard(read))


def _release(asker: Asker, request: requests.ReleaseHeldRequest, answer: Answer) -> None:
    asker.broker.backups.release(request.node, request.hold)
    answer(PERFORMED)
