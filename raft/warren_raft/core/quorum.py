"""Counting majorities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from warren_raft.types import Index, NodeId


def majority(voters: int) -> int:
    """Return the size of a majority of that many voters (at least 1)."""
    assert voters > 0, voters
    return voters // 2 + 1


def held_by_majority(held: Iterable[Index]) -> Index:
    """Return the highest index that a majority holds on disk.

    held     what each voter is known to hold, one number per voter, not empty
    returns  0 when no majority holds anything
    source   Raft paper, figure 2 (leaders); the caller still compares the entry's term
    """
    descending = sorted(held, reverse=True)
    return descending[len(descending) // 2]


def decided(answers: Mapping[NodeId, bool], voters: tuple[NodeId, ...]) -> bool | None:
    """Return True if a majority has granted, False if it no longer can, None if neither.

    answers  of the nodes that answered; those of nodes that are no voters do not count
    """
    granted = sum(1 for voter in voters if answers.get(voter) is True)
    refused = sum(1 for voter in voters if answers.get(voter) is False)
    need = majority(len(voters))
    if granted >= need:
        return True
    if refused > len(voters) - need:
        return False
    return None
