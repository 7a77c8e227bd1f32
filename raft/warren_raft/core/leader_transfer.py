"""Transfer of leadership to a voter (Raft thesis, 3.10)."""

from __future__ import annotations

from warren_raft.core.role_state import Leadership
from warren_raft.core.state import NodeState
from warren_raft.core.transitions import become_follower
from warren_raft.errors import UsageError
from warren_raft.messages import TimeoutNow
from warren_raft.types import NodeId


def begin_transfer(node: NodeState, lead: Leadership, to: NodeId) -> None:
    """Begin to transfer leadership to that voter; do nothing if it cannot take it now."""
    if to not in node.membership.voters:
        raise UsageError(
            f"group {node.group}: {to} cannot lead, it is no voter; "
            f"choose one of {', '.join(node.membership.voters)}"
        )
    if to != node.id and node.hears(lead, to, node.membership):
        lead.transfer_to = to
        lead.transfer_by_ms = node.now_ms + node.config.transfer_timeout_ms
        hand_over(node, lead)


def hand_over(node: NodeState, lead: Leadership) -> None:
    """Send TimeoutNow once the successor has the whole log."""
    to = lead.transfer_to
    if to is None or lead.progress[to].match < node.log.last:
        return
    have_stand(node, to)
    if not node.is_voter and not node.change_under_way:
        become_follower(node, node.term)  # and sends pre-votes until another leader is known


def have_stand(node: NodeState, to: NodeId) -> None:
    """Send TimeoutNow: that voter stands at once, in the next term."""
    member = node.membership.id_of(to)
    node.messages.append(TimeoutNow(node.group, node.id, to, node.term, member))
