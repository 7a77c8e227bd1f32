"""What leaders say of their groups, as values for an operator."""

from __future__ import annotations

from collections.abc import Callable

from warren_broker.cluster.messages import GroupFacts, MemberFacts
from warren_broker.management.membership import MemberInfo, MemberState, QueueMembers, Role
from warren_broker.metadata.records import Queue


def members_of(
    queue: Queue, facts: GroupFacts | None, running: Callable[[str], bool]
) -> QueueMembers:
    """A queue's members; facts None: nobody leads it, or can be heard of."""
    if facts is None:
        members = tuple(_unknown(node, running) for node in sorted(queue.carriers))
        return QueueMembers(
            queue.vhost, queue.name, queue.config.kind, None, 0, 0, 0, members, queue.nodes, False
        )
    here = {one.node: one for one in facts.members}
    nodes = sorted({*here, *queue.carriers})
    voters = sorted(one.node for one in facts.members if one.voter)
    return QueueMembers(
        vhost=queue.vhost,
        name=queue.name,
        kind=queue.config.kind,
        leader=next((one.node for one in facts.members if one.leader), None),
        term=facts.term,
        last_index=facts.last,
        commit_index=facts.commit,
        members=tuple(member(node, here.get(node), queue, facts, running) for node in nodes),
        wanted=queue.nodes,
        settled=voters == sorted(queue.nodes)
        and len(here) == len(voters)
        and not any(one.lost or one.probing for one in facts.members),
    )


def member(
    node: str,
    known: MemberFacts | None,
    queue: Queue,
    facts: GroupFacts,
    running: Callable[[str], bool],
) -> MemberInfo:
    """One member of a group that somebody leads; known None: it is none (yet, or any longer)."""
    if known is None:
        state: MemberState = "starting" if node in queue.nodes else "leaving"
        return MemberInfo(node, "none", state if running(node) else "down", lag=facts.last)
    role: Role = "leader" if known.leader else "follower" if known.voter else "learner"
    return MemberInfo(
        node,
        role,
        _state(known, queue),
        known.voter and not known.lost,
        known.match,
        max(0, facts.last - known.match),
        known.sent_bytes,
        known.total_bytes,
    )


def _state(known: MemberFacts, queue: Queue) -> MemberState:
    if known.suspected:
        return "down"
    if known.node not in queue.nodes:
        return "leaving"
    if known.lost:
        return "lost"
    if known.snapshotting:
        return "snapshot"
    # 1. A node comes back with an empty disk.  2. Until it has answered, its group's leader knows
    # what it held before.  Who waits for it must not take that for the end.
    return "running" if known.voter and not known.probing else "catching_up"


def _unknown(node: str, running: Callable[[str], bool]) -> MemberInfo:
    return MemberInfo(node, "none", "unknown" if running(node) else "down")
