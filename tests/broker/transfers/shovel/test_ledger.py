"""What is acknowledged to a shovel's source, and which node runs a shovel."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from warren_broker.transfers.shovel.ledger import ShovelLedger
from warren_broker.transfers.shovel.shovels import shovel_owner

EVENTS = st.sampled_from(["deliver", "confirm", "refuse", "again"])
STEPS = st.lists(st.tuples(EVENTS, st.integers(1, 8), st.booleans()), max_size=60)


@given(STEPS)
def test_just_what_is_confirmed_is_acknowledged(steps: list[tuple[str, int, bool]]) -> None:
    """Against a source that takes acknowledgements as AMQP defines them, in any order of events."""
    ledger: ShovelLedger[int] = ShovelLedger()
    unacknowledged: dict[int, None] = {}
    outstanding: dict[int, int] = {}
    confirmed: dict[int, None] = {}
    refused: list[int] = []
    tag = 0

    def take(choice: int, multiple: bool) -> tuple[int, list[int]]:
        number = sorted(outstanding)[choice % len(outstanding)]
        numbers = [one for one in outstanding if one == number or (multiple and one < number)]
        return number, sorted(outstanding.pop(one) for one in numbers)

    for what, choice, multiple in steps:
        if what == "deliver":
            tag += 1
            unacknowledged[tag] = None
            ledger.delivered(tag, tag * 10)
            outstanding[ledger.published(tag)] = tag
        elif what == "again" and refused:
            again = refused.pop()
            assert ledger.held(again) == again * 10
            outstanding[ledger.published(again)] = again
        elif outstanding and what == "refuse":
            number, tags = take(choice, multiple)
            assert ledger.refused(number, multiple) == tags
            refused += tags
        elif outstanding and what == "confirm":
            number, tags = take(choice, multiple)
            found = ledger.confirmed(number, multiple)
            assert found == tags
            confirmed.update(dict.fromkeys(tags))
            acknowledge(unacknowledged, ledger.acknowledgements(found))
        assert sorted(unacknowledged) == [one for one in range(1, tag + 1) if one not in confirmed]
        assert len(ledger) == len(unacknowledged)


@given(STEPS)
def test_in_order_nothing_is_acknowledged_before_what_came_before_it(
    steps: list[tuple[str, int, bool]],
) -> None:
    ledger: ShovelLedger[int] = ShovelLedger(in_order=True)
    waiting: dict[int, None] = {}
    confirmed: set[int] = set()
    outstanding: dict[int, int] = {}
    tag = 0
    for what, choice, multiple in steps:
        if what == "deliver":
            tag += 1
            waiting[tag] = None
            ledger.delivered(tag, tag * 10)
            outstanding[ledger.published(tag)] = tag
        elif what == "confirm" and outstanding:
            number = sorted(outstanding)[choice % len(outstanding)]
            numbers = [one for one in outstanding if one == number or (multiple and one < number)]
            confirmed.update(outstanding.pop(one) for one in numbers)
            tags = ledger.confirmed(number, multiple)
            for one in tags:
                assert next(iter(waiting)) == one and one in confirmed
                del waiting[one]
            assert ledger.acknowledgements(tags) == ([(tags[-1], True)] if tags else [])
        elif what == "refuse" and outstanding:
            number = sorted(outstanding)[choice % len(outstanding)]
            (refused,) = ledger.refused(number, False)
            assert refused == outstanding.pop(number)
            del waiting[refused]
            for one in ledger.returned(refused):
                assert next(iter(waiting)) == one and one in confirmed
                del waiting[one]
        if waiting:
            assert ledger.first() == 10 * next(iter(waiting))
            assert next(iter(waiting)) not in confirmed
        assert len(ledger) == len(waiting)


def acknowledge(unacknowledged: dict[int, None], sent: Iterable[tuple[int, bool]]) -> None:
    """Do as a broker: an unknown tag is an error."""
    for tag, multiple in sent:
        assert tag in unacknowledged
        for one in [one for one in unacknowledged if one == tag or (multiple and one < tag)]:
            del unacknowledged[one]


NODES = ("a", "b", "c", "d")


SETS = st.sets(st.sampled_from(NODES))


@given(SETS.filter(bool), st.lists(SETS, min_size=4, max_size=4), st.text(max_size=3))
def test_some_running_node_has_the_shovel_whatever_each_reaches(
    running: set[str], reached: list[set[str]], name: str
) -> None:
    views = {node: {node, *(reached[NODES.index(node)] & running)} for node in sorted(running)}
    assert any(shovel_owner("/", name, views[node]) == node for node in views)


def test_nodes_that_see_each_other_agree_and_share_the_shovels() -> None:
    owners = [shovel_owner("/", f"shovel {i}", NODES) for i in range(400)]
    assert owners == [shovel_owner("/", f"shovel {i}", reversed(NODES)) for i in range(400)]
    assert all(owners.count(node) > 40 for node in NODES)
    moved = [shovel_owner("/", f"shovel {i}", NODES[1:]) for i in range(400)]
    assert all(now == was for now, was in zip(moved, owners, strict=True) if was != "a")
    assert shovel_owner("/", "s", ()) is None
