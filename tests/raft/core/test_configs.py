"""Which membership is in effect, as entries come and are cut, and as the log's beginning moves."""

from __future__ import annotations

import pytest

from warren_raft.core.configs import Configs
from warren_raft.core.membership import encode
from warren_raft.types import Membership

TWO, THREE, FOUR = (Membership(tuple("abcd"[:n])) for n in (2, 3, 4))


def test_what_is_below_the_beginning_is_not_counted() -> None:
    configs = Configs(5, TWO, False, [(5, encode(THREE)), (6, encode(FOUR)), (7, None)])
    assert (configs.latest, configs.latest_index) == (FOUR, 6)
    assert configs.missing == [7]
    assert configs.at(5) == TWO and configs.at(6) == FOUR and configs.at(7) is None


def test_a_hint_is_no_membership_until_one_is_read_or_the_beginning_moves() -> None:
    configs = Configs(0, TWO, True)
    assert (configs.known, configs.latest, configs.at(0)) == (False, TWO, None)
    configs.append(3, THREE)
    assert configs.known and configs.at(2) is None and configs.at(3) == THREE
    configs.forget_below(2)
    assert configs.hinted, "nothing that was read lies at or below 2"
    configs.forget_below(3)
    assert not configs.hinted and (configs.base_index, configs.at(3)) == (3, THREE)
    configs.check()


@pytest.mark.parametrize("begin", [Configs.begin_at, Configs.reset_to])
def test_a_snapshot_ends_a_hint(begin: object) -> None:
    configs = Configs(0, TWO, True, [(4, encode(FOUR)), (9, encode(TWO)), (11, None)])
    begin(configs, 6, THREE)  # type: ignore[operator]
    assert (configs.hinted, configs.base_index, configs.at(6)) == (False, 6, THREE)
    kept = begin is Configs.begin_at
    assert configs.latest == (TWO if kept else THREE)
    assert configs.missing == ([11] if kept else [])
    configs.check()


def test_a_cut_takes_the_memberships_that_lie_in_it() -> None:
    configs = Configs(0, TWO, False, [(3, encode(THREE)), (5, None), (6, encode(FOUR))])
    assert not configs.truncate_from(7), "nothing fell"
    assert configs.truncate_from(6) and configs.latest == THREE and configs.missing == [5]
    assert not configs.truncate_from(5) and configs.missing == []
    assert configs.truncate_from(3) and configs.latest == TWO


def test_what_can_be_read_later_takes_its_place_unless_it_was_cut() -> None:
    configs = Configs(0, TWO, False, [(3, None), (5, encode(FOUR)), (8, None)])
    assert configs.at(2) == TWO and configs.at(3) is None
    configs.truncate_from(8)
    configs.fill([(3, encode(THREE)), (8, encode(TWO)), (9, None)])
    assert [configs.at(index) for index in (2, 3, 4, 5, 8)] == [TWO, THREE, THREE, FOUR, FOUR]
    configs.forget_below(4)
    assert (configs.base_index, configs.base, configs.latest) == (3, THREE, FOUR)
    configs.check()
