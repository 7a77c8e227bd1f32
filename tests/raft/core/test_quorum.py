"""Counting majorities."""

from __future__ import annotations

from itertools import product

import pytest

from warren_raft.core.quorum import decided, held_by_majority, majority


@pytest.mark.parametrize(("voters", "need"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4)])
def test_majority(voters: int, need: int) -> None:
    assert majority(voters) == need


@pytest.mark.parametrize("voters", [1, 2, 3, 4, 5])
def test_held_by_majority_against_the_definition(voters: int) -> None:
    for held in product(range(4), repeat=voters):
        dumb = max(
            index for index in range(4) if sum(at >= index for at in held) >= majority(voters)
        )
        assert held_by_majority(held) == dumb, held


@pytest.mark.parametrize("voters", [1, 2, 3, 4, 5])
def test_decided_against_the_definition(voters: int) -> None:
    names = tuple("abcde"[:voters])
    for answers in product((True, False, None), repeat=voters):
        given = {
            name: answer for name, answer in zip(names, answers, strict=True) if answer is not None
        }
        yes, open_ = answers.count(True), answers.count(None)
        expected = None
        if yes >= majority(voters):
            expected = True
        elif yes + open_ < majority(voters):
            expected = False
        assert decided(given, names) is expected, answers


def test_answers_of_others_do_not_count() -> None:
    assert decided({"a": True, "x": True, "y": True}, ("a", "b", "c")) is None
