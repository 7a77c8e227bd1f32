"""Reads that are current without an entry of their own (Raft thesis, 6.4)."""

from __future__ import annotations

from collections import deque

from warren_raft.core.quorum import held_by_majority
from warren_raft.types import Index, NodeId

Request = tuple[NodeId, int]
"""The member that asked, and its context."""


class PendingReads:
    """A leader's pending reads.

    asked     not part of a round yet; they wait until an entry of this term is committed, because
             only then does the leader know everything that is committed
    rounds   (round, commit index when it began, its requests), oldest first
    heard    the newest round that each voter confirmed

    Invariants: rounds ascend and none is above `round`; no voter confirmed a round above `round`.
    """

    __slots__ = ("asked", "heard", "round", "rounds")

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.round = 0
        self.rounds: deque[tuple[int, Index, list[Request]]] = deque()
        self.heard: dict[NodeId, int] = {}

    @property
    def pending(self) -> int:
        """The number of pending requests."""
        return len(self.asked) + sum(len(requests) for _, _, requests in self.rounds)

    def begin(self, commit: Index) -> int:
        """Put the requests in `asked` into a new round; return its number."""
        assert self.asked
        self.round += 1
        self.rounds.append((self.round, commit, self.asked))
        self.asked = []
        return self.round

    def confirmed(
        self, voter: NodeId, round_: int, voters: tuple[NodeId, ...], leader: NodeId
    ) -> list[tuple[Index, list[Request]]]:
        """Record a voter's confirmation; remove and return the rounds that a majority confirmed.

        leader  counts as having confirmed every round when it is a voter
        """
        assert round_ <= self.round, (round_, self.round)
        self.heard[voter] = max(self.heard.get(voter, 0), round_)
        held = held_by_majority(
            self.round if voter == leader else self.heard.get(voter, 0) for voter in voters
        )
        done = []
        while self.rounds and self.rounds[0][0] <= held:
            _, commit, requests = self.rounds.popleft()
            done.append((commit, requests))
        return done

    def forget(self, voter: NodeId) -> None:
        """Drop that node's confirmations: they came from an earlier member id."""
        self.heard.pop(voter, None)

    def drain(self) -> list[Request]:
        """Remove and return every pending request: leadership is lost."""
        waiting = [request for _, _, requests in self.rounds for request in requests]
        waiting.extend(self.asked)
        self.rounds.clear()
        self.asked = []
        return waiting

    def check(self) -> None:
        """Assert the class's invariants."""
        numbers = [round_ for round_, _, _ in self.rounds]
        assert numbers == sorted(set(numbers)), numbers
        assert not numbers or numbers[-1] <= self.round, (numbers, self.round)
        assert all(round_ <= self.round for round_ in self.heard.values()), self.round
