"""Which node runs a shovel of the nodes' configurations."""

from __future__ import annotations

from warren_broker.transfers.shovel.shovels import StaticShovels, shovel_owner

NODES = ("a", "b", "c")
VALUE = {"src-uri": "amqp://", "src-queue": "q"}


def test_it_is_one_in_the_cluster_and_on_a_node_that_has_it() -> None:
    every = {node: StaticShovels({"s": VALUE}) for node in "ab"}
    every["c"] = StaticShovels({})
    for node, here in every.items():
        for other, there in every.items():
            if node != other:
                assert here.told(other, there.digests) == []
    expected = shovel_owner("", "s", ("a", "b"))
    assert {here.owner("s", node, NODES) for node, here in every.items()} == {expected}
    for node, here in every.items():
        assert here.owner("s", node, ("a", "c") if node != "b" else ("b", "c")) == (
            "b" if node == "b" else "a"
        )
    assert every["c"].owner("s", "c", ("c",)) is None


def test_another_definition_is_told_once_and_of_another_shovel_never() -> None:
    here = StaticShovels({"s": VALUE})
    other = StaticShovels({"s": {**VALUE, "src-queue": "r"}, "t": VALUE})
    same = StaticShovels({"s": dict(reversed(VALUE.items()))})
    assert here.told("b", other.digests) == ["s"]
    assert here.told("b", other.digests) == []
    assert here.told("b", same.digests) == [], "the order of the keys says nothing"
    assert here.told("b", other.digests) == ["s"]
    assert here.told("b", {}) == [] and here.owner("s", "a", ("b",)) is None
