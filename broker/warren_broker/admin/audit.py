"""The handler of the request that reads the audit log, of all nodes."""

from __future__ import annotations

from typing import Any

from warren_broker.admin.caller import Answer, Asker
from warren_wire import errors
from warren_wire.admin import audit as m


def _list(asker: Asker, request: m.ListAuditRequest, answer: Answer) -> None:
    broker = asker.broker
    if not broker.audit.on_record:
        raise errors.PreconditionFailed(f"audit.enabled is false on node '{broker.audit.node}'")
    if request.before and not request.before.isdecimal():
        raise errors.InvalidArgument("before: `next` of an earlier answer is expected")
    here = broker.cluster.host.node_id
    every = [here, *broker.definitions.others()]
    if request.node:
        broker.membership.nodes.check_known(request.node)
        every = [request.node]
    reached = [one for one in every if one == here or one in broker.definitions.within_reach()]

    def told(found: dict[str, m.FoundRecords]) -> None:
        missing = tuple(sorted(one for one in every if one not in found))
        answer(_page(request.count, found, missing))

    broker.node_questions.ask(request, reached, asker.guard(told))


def _page(count: int, found: dict[str, Any], missing: tuple[str, ...]) -> m.AuditPage:
    """Return the newest records of all nodes, none older than what every node has looked at.

    1. Node a looks through its bound and finds nothing; b has a record of last year.  2. If that
    were shown now, a's of yesterday would come on a later page, out of order.
    """
    searched_to = max((one.searched_to for one in found.values()), default=0)
    records = sorted(
        (one for of in found.values() for one in of.records if one.number >= searched_to),
        key=lambda one: (-one.number, one.node),
    )
    if len(records) > count:
        # Records of two nodes with one number are on one page: `next` is a number alone.
        last = records[count - 1].number
        shown = [one for one in records if one.number >= last]
        return m.AuditPage(tuple(shown), str(last), missing)
    return m.AuditPage(tuple(records), str(searched_to) if searched_to else "", missing)
