"""Hints about the leader of each group, from messages of other nodes."""

from __future__ import annotations


class LeaderHints:
    """Hints, never truth: a submission to the wrong node is answered with a better hint.

    Invariant: a hint of a lower term never replaces one of a higher term.
    """

    __slots__ = ("_leaders",)

    def __init__(self) -> None:
        self._leaders: dict[int, tuple[str, int]] = {}

    def learn(self, group: int, node: str, term: int) -> bool:
        """Record that `node` leads since `term`; return whether that is news."""
        known = self._leaders.get(group)
        if known is not None and (term < known[1] or known == (node, term)):
            return False
        self._leaders[group] = (node, term)
        return True

    def leader(self, group: int) -> str | None:
        """Return the node to try first."""
        known = self._leaders.get(group)
        return known[0] if known else None

    def term(self, group: int) -> int:
        """Return the term of that leader; 0: unknown."""
        known = self._leaders.get(group)
        return known[1] if known else 0

    def deny(self, group: int, node: str) -> None:
        """Drop the hint that `node` leads, which it denies."""
        known = self._leaders.get(group)
        if known is not None and known[0] == node:
            del self._leaders[group]

    def forget_node(self, node: str) -> list[int]:
        """Drop the hints about an unreachable node; return the groups concerned, ascending."""
        groups = sorted(group for group, known in self._leaders.items() if known[0] == node)
        for group in groups:
            del self._leaders[group]
        return groups

    def forget_group(self, group: int) -> None:
        """Drop the hint about a deleted group."""
        self._leaders.pop(group, None)
