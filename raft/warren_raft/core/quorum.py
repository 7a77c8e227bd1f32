"""Counting majorities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from warren_raft.types import Index, NodeId


def majority(voters: int) -> int:
    """How many of that many voters decide; at least 1 voter."""
    assert voters > 0, voters
    return voters // 2 + 1


def held_by_majority(held: Iterable[Index]) -> Index:
    """The highest index that a majority holds on disk.

    held     what each voter is known to hold, one number per voter, not empty
    returns  0 when no majority holds anything
    source   Raft paper, figure 2 (leaders); the caller still compares the entry's term
    """
    descending = sorted(held, reverse=True)
    return descending[len(descending) // 2]


def decided(answers: Mapping[NodeId, bool], voters: tuple[NodeId, ...]) -> bool | None:
    """Whether the voters have granted: a majority has (True), can no more (False), neither (None).

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
