"""Handlers of the requests for nodes and members of queues.

Every change is logged with the requesting user before it is tried: the log must name the user that
removed a node even when that was its last line.
"""

from __future__ import annotations

from warren_broker.admin.caller import Answer, Asker
from warren_broker.cluster.membership.service import MemberService
from warren_wire import errors
from warren_wire.admin import members as m
from warren_wire.admin.requests import Listed


def _changing(asker: Asker, what: str) -> MemberService:
    """Log that an administrator asks for a change; return the service."""
    asker.log(what)
    return asker.broker.membership


def _queue_changing(asker: Asker, what: str, queue: str) -> MemberService:
    return _changing(asker, f"{what} {errors.named('queue', queue, asker.vhost)}")


def _get_members(asker: Asker, request: m.GetMembersRequest, answer: Answer) -> None:
    if not asker.access.has_tag("monitoring"):
        asker.access.read_queue(request.queue)
    asker.broker.membership.queue_status(asker.vhost, request.queue, asker.guard(answer))


def _add_member(asker: Asker, request: m.AddMemberRequest, answer: Answer) -> None:
    members = _queue_changing(asker, f"add a member on {request.node!r} to", request.queue)
    members.add_member(asker.vhost, request.queue, request.node, asker.guard(answer))


def _delete_member(asker: Asker, request: m.DeleteMemberRequest, answer: Answer) -> None:
    members = _queue_changing(asker, f"delete the member on {request.node!r} of", request.queue)
    members.delete_member(asker.vhost, request.queue, request.node, asker.guard(answer))


def _recover(asker: Asker, request: m.RecoverQueueRequest, answer: Answer) -> None:
    members = _queue_changing(asker, f"have node {request.node!r} alone continue", request.queue)
    members.recovery.recover(asker.vhost, request.queue, request.node, asker.guard(answer))


def _transfer(asker: Asker, request: m.TransferLeadershipRequest, answer: Answer) -> None:
    members = _queue_changing(asker, f"have node {request.node!r} lead", request.queue)
    members.transfer_leadership(asker.vhost, request.queue, request.node, asker.guard(answer))


def _grow(asker: Asker, request: m.GrowNodeRequest, answer: Answer) -> None:
    what = (
        f"grow node {request.node!r}: {request.strategy} queues that match "
        f"{request.queue_pattern!r} in vhosts that match {request.vhost_pattern!r}"
    )
    _changing(asker, what).grow(
        request.node,
        request.strategy,
        request.vhost_pattern,
        request.queue_pattern,
        asker.guard(answer),
    )


def _shrink(asker: Asker, request: m.ShrinkNodeRequest, answer: Answer) -> None:
    members = _changing(asker, f"shrink node {request.node!r}")
    members.shrink(request.node, request.errors_only, asker.guard(answer))


def _rebalance(asker: Asker, request: m.RebalanceQueuesRequest, answer: Answer) -> None:
    members = _changing(asker, "rebalance the leaders of queues")
    members.rebalance(request.vhost_pattern, request.queue_pattern, asker.guard(answer))


def _list_nodes(asker: Asker, request: m.ListNodesRequest, answer: Answer) -> None:

    listed = asker.then(answer, lambda found: Listed(tuple(found)))
    asker.broker.membership.nodes.list_nodes(listed)


def _get_node(asker: Asker, request: m.GetNodeRequest, answer: Answer) -> None:
    asker.broker.membership.nodes.node_status(request.node, asker.guard(answer))


def _drain(asker: Asker, request: m.DrainNodeRequest, answer: Answer) -> None:
    members = _changing(asker, f"drain node {request.node!r}")
    members.nodes.drain(request.node, asker.guard(answer))


def _revive(asker: Asker, request: m.ReviveNodeRequest, answer: Answer) -> None:
    members = _changing(asker, f"revive node {request.node!r}")
    members.nodes.revive(request.node, asker.guard(answer))


def _forget(asker: Asker, request: m.ForgetNodeRequest, answer: Answer) -> None:
    members = _changing(asker, f"forget node {request.node!r}")
    members.nodes.forget(request.node, asker.guard(answer))


def _critical(asker: Asker, request: m.CheckQuorumCriticalRequest, answer: Answer) -> None:
    node = request.node or asker.broker.settings.node
    asker.broker.membership.nodes.quorum_critical(node, asker.then(answer, m.Criticality))
