"""The rounds in which a leader asks its voters whether it still leads.

Reads wait for them (Raft thesis, 6.4), and so does the promotion of a learner (see
membership_change.ask_whether_still).
"""

from __future__ import annotations

from warren_raft.core.ready import ReadState
from warren_raft.core.role_state import Leadership
from warren_raft.core.state import NodeState
from warren_raft.messages import ReadIndexHeartbeat, ReadIndexReply
from warren_raft.types import NodeId


def begin_round(node: NodeState, lead: Leadership) -> None:
    """Ask the voters to confirm that this member still leads."""
    lead.reads.begin(node.log.committed)
    ask_confirm(node, lead)
    answer_reads(node, lead, node.id, 0)  # a group of one has its majority already


def ask_confirm(node: NodeState, lead: Leadership) -> None:
    """Send (again) the newest round, which covers the older ones, to all that owe an answer."""
    asked = node.others(node.membership.voters) if lead.reads.rounds else []
    asked += [member for member, progress in lead.progress.items() if progress.vouching]
    lead.confirm_due_ms = node.now_ms + node.config.retransmit_ms if asked else None
    for member in asked:
        node.messages.append(
            ReadIndexHeartbeat(node.group, node.id, member, node.term, lead.reads.round)
        )


def answer_reads(node: NodeState, lead: Leadership, voter: NodeId, round_: int) -> None:
    """Answer the reads of the rounds that a majority has confirmed."""
    for index, requests in lead.reads.confirmed(voter, round_, node.membership.voters, node.id):
        for asker, context in requests:
            if asker == node.id:
                node.reads.append(ReadState(context, index))
            else:
                lead.commit_due_ms = node.now_ms  # it reads once it has applied that
                node.messages.append(
                    ReadIndexReply(node.group, node.id, asker, node.term, context, index)
                )
    end_rounds(lead)


def end_rounds(lead: Leadership) -> None:
    """Stop repeating the round when no member owes an answer."""
    if not lead.reads.rounds and not any(p.vouching for p in lead.progress.values()):
        lead.confirm_due_ms = None
