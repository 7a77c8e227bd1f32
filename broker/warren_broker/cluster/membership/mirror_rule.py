"""The members that a queue is to have by a mirror policy, as a pure function of what is known."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from warren_wire.mirror_keys import MirrorPolicy


def lasting_members(
    policy: MirrorPolicy,
    present: Sequence[str],
    preferred: Sequence[str],
    known: Collection[str],
    fit: Sequence[str],
) -> tuple[str, ...]:
    """Return the members that the queue has when the policy is fulfilled; at least one.

    present    the wanted members now; as many of them stay as the policy allows
    preferred  those that hold everything, the leader first: they stay before others
    known      the nodes of the cluster that are not leaving it
    fit        nodes on which a member may be placed now, in order of preference

    Nodes in a list that the cluster does not have are ignored; if it has none of them, the queue
    stays where it is. There are never more members than nodes.
    """
    here = [node for node in present if node in known]
    if policy.mode == "all":
        return tuple(sorted(known)) or tuple(present)
    if policy.mode == "nodes":
        return tuple(sorted(set(policy.nodes) & set(known))) or tuple(here or present)
    order = {node: at for at, node in enumerate(preferred)}
    here.sort(key=lambda node: (order.get(node, len(order)), node))
    free = [node for node in fit if node in known and node not in here]
    return tuple(sorted([*here, *free][: policy.count])) or tuple(present)


def next_members(
    lasting: Sequence[str], present: Sequence[str], complete: Sequence[str]
) -> tuple[str, ...]:
    """Return the members to want now, on the way to the lasting ones.

    complete  the reachable nodes that hold everything, the leader first

    New members come first. For every lasting member that is not complete yet, a former one that is
    stays, the leader before others: so the queue never has fewer complete copies than it had, or
    is to have. What is not complete is not needed, unless it is to last.
    """
    missing = sum(1 for node in lasting if node not in complete)
    former = [node for node in complete if node in present and node not in lasting]
    return tuple(sorted({*lasting, *former[:missing]}))


def is_fulfilled(policy: MirrorPolicy, members: Sequence[str], known: Collection[str]) -> bool:
    """Return whether these members are what the policy asks for in this cluster."""
    if policy.mode == "exactly":
        return len(members) == min(policy.count, len(known))
    named = set(known) if policy.mode == "all" else set(policy.nodes) & set(known)
    return not named or set(members) == named
