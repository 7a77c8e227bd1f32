"""Shares of addresses in what strangers may take."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from warren_raft.address_shares import AddressShares, shared_address

HERE, THERE = "192.0.2.1", "192.0.2.2"


def _shares(
    share: int = 2, total: int = 8, waiting_max: int = 100, patience_ms: int = 1000
) -> AddressShares[str]:
    return AddressShares(share, total, waiting_max, patience_ms)


def _started(shares: AddressShares[str], now_ms: int = 0) -> list[tuple[str, str | None]]:
    found = []
    while (started := shares.start(now_ms)) is not None:
        shares.check()
        found.append((started.item, started.evicted))
    return found


@pytest.mark.parametrize(
    ("host", "shared"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::9", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", ""),
        ("no address", "no address"),
    ],
)
def test_an_ipv6_address_shares_with_its_network(host: str, shared: str) -> None:
    assert shared_address(host) == shared


def test_an_address_has_its_share_and_others_are_not_delayed() -> None:
    shares = _shares()
    for number in range(5):
        shares.wait(f"here {number}", HERE, 0)
    shares.wait("there", THERE, 0)
    started = _started(shares)
    assert Counter(item.split()[0] for item, _ in started) == {"here": 2, "there": 1}
    assert (shares.held, shares.waiting) == (3, 3)


def test_addresses_take_turns_and_the_newest_of_one_is_first() -> None:
    shares = _shares(share=10, total=100)
    for number in range(3):
        shares.wait(f"here {number}", HERE, number)
    for number in range(2):
        shares.wait(f"there {number}", THERE, number)
    items = [item for item, _ in _started(shares, 5)]
    assert items == ["here 2", "there 1", "here 1", "there 0", "here 0"]


def test_a_place_that_is_given_up_goes_to_the_next_of_the_address() -> None:
    shares = _shares()
    for number in range(3):
        shares.wait(f"{number}", HERE, 0)
    assert [item for item, _ in _started(shares)] == ["2", "1"]
    shares.end("2")
    assert _started(shares) == [("0", None)]
    shares.end("unknown")
    shares.check()


def test_a_place_held_for_too_long_is_lost_to_the_next_of_the_address() -> None:
    shares = _shares()
    for item in ("a", "b"):
        shares.wait(item, HERE, 0)
        assert _started(shares) == [(item, None)]
    shares.wait("c", HERE, 500)
    assert _started(shares, 999) == []
    assert shares.tick(1000, 10_000) == []
    assert _started(shares, 1000) == [("c", "a")]


def test_when_all_places_are_taken_an_address_with_fewer_takes_one_of_the_fullest() -> None:
    shares = _shares(share=4, total=5)
    for number in range(4):
        shares.wait(f"here {number}", HERE, number)
        _started(shares, number)
    shares.wait("there 0", THERE, 5)
    assert _started(shares, 5) == [("there 0", None)]
    for number in range(1, 3):
        shares.wait(f"there {number}", THERE, 5)
    assert _started(shares, 5) == [("there 2", "here 0")], "now 3 and 2: nobody has two more"
    assert _started(shares, 1001) == [("there 1", "here 1")], "overdue"


def test_many_addresses_with_one_place_each_lose_it_only_when_overdue() -> None:
    shares = _shares(total=3)
    for number in range(3):
        shares.wait(f"{number}", f"192.0.2.{number}", number)
        _started(shares, number)
    shares.wait("new", "198.51.100.1", 10)
    assert _started(shares, 10) == []
    assert _started(shares, 1000) == [("new", "0")]


def test_an_address_that_has_all_places_takes_its_own_when_overdue() -> None:
    shares = _shares(share=10, total=2)
    for number in range(3):
        shares.wait(f"{number}", HERE, number)
        _started(shares, number)
    assert _started(shares, 999) == []
    assert _started(shares, 1000) == [("2", "0")]


def test_no_place_while_there_are_none() -> None:
    shares = _shares(total=0)
    shares.wait("a", HERE, 0)
    assert _started(shares, 10_000) == []
    shares.total = 1
    assert _started(shares, 10_000) == [("a", None)]


def test_too_many_waiting_drop_the_oldest_of_the_address_with_the_most() -> None:
    shares = _shares(total=0, waiting_max=4)
    for number in range(3):
        assert shares.wait(f"here {number}", HERE, number) is None
    assert shares.wait("there 0", THERE, 5) is None
    assert shares.wait("there 1", THERE, 6) == "here 0"
    assert shares.waiting == 4


def test_what_has_waited_for_too_long_is_returned_once() -> None:
    shares = _shares(total=0)
    shares.wait("a", HERE, 0)
    shares.wait("b", HERE, 500)
    shares.wait("c", THERE, 100)
    assert shares.tick(10_099, 10_000) == ["a"]
    assert shares.tick(10_100, 10_000) == ["c"]
    assert shares.waiting == 1
    shares.check()


@pytest.mark.parametrize("seed", range(40))
def test_the_invariants_hold_whatever_comes(seed: int) -> None:
    draw = random.Random(seed)
    shares = _shares(draw.randint(1, 4), draw.randint(0, 9), draw.randint(1, 12), 50)
    known: set[str] = set()
    now = 0
    for number in range(400):
        now += draw.randint(0, 20)
        action = draw.random()
        if action < 0.5:
            known.add(f"{number}")
            known.discard(shares.wait(f"{number}", f"192.0.2.{draw.randint(0, 5)}", now) or "")
        elif action < 0.8:
            known -= {evicted or "" for _, evicted in _started(shares, now)}
        elif action < 0.95 and known:
            item = draw.choice(sorted(known))
            shares.end(item)
            known.discard(item)
        else:
            known -= set(shares.tick(now, 200))
            shares.total = draw.randint(0, 9)
        shares.check()
        assert shares.held + shares.waiting == len(known)
