"""Tables to blocks: choice by route, order by priority, and a client's block back to a table."""

from __future__ import annotations

import random
from array import array

import pytest

from tests.wire.block.messages import Message, messages_of
from tests.wire.kernel import frames as f
from warren_wire.block import block as b
from warren_wire.block.block import Block, BlockError
from warren_wire.block.layout import descending
from warren_wire.kernel import (
    CC,
    HEADERS,
    PERSISTENT,
    PRIORITY_MAX,
    TTL_NONE,
    Kernel,
    MessageTable,
    Route,
    Routes,
    Selection,
)


def grown(chance: random.Random, count: int, routes: Routes | None = None) -> MessageTable:
    """A table with that many messages."""
    table = MessageTable(routes)
    several = chance.random() < 0.7
    timed = chance.random() < 0.5
    for i in range(count):
        route = Route(b"x", b"key%d" % chance.randrange(5 if several else 1), chance.random() < 0.3)
        ttl = chance.choice([TTL_NONE, 0, 5000]) if timed else TTL_NONE
        priority = chance.choice([4, 4, 0, 9, 31]) if several else 4
        body = b"body%d" % i * chance.randrange(4)
        table.append(route, f.properties(message_id=b"%d" % i), body, priority, ttl, 2)
    return table


def listed(table: MessageTable, positions: list[int]) -> list[Message]:
    """Those messages of a table as values."""
    return [
        (
            table.route(i)[:2],
            table.properties_of(i),
            table.body(i),
            table.priority(i),
            None if table.ttl_ms(i) == TTL_NONE else table.ttl_ms(i),
        )
        for i in positions
    ]


@pytest.mark.parametrize("seed", range(60))
def test_assembled_as_the_dumb_way_has_it(both: Kernel, seed: int) -> None:
    chance = random.Random(seed)
    shared = Routes()
    selections = []
    expected: list[Message] = []
    for _ in range(chance.randrange(4)):
        table = grown(chance, chance.randrange(12), chance.choice([None, shared]))
        first = chance.randrange(table.count + 1)
        last = chance.randrange(first, table.count + 1)
        wanted = {i for i in range(5) if chance.random() < 0.6}
        if chance.random() < 0.5:
            selection = Selection(table, first, last)
        else:
            known = set(range(len(table.routes.entries)))
            selection = both.assemble.select(table, first, last, wanted & known)
            assert list(selection) == [i for i in range(first, last) if table.route_id(i) in wanted]
        selections.append(selection)
        expected += listed(table, list(selection))
    expected.sort(key=lambda message: -message[3])
    data = both.assemble.assemble(selections)
    block = Block.decode(data)
    head = b"h" * chance.randrange(12)
    assert both.assemble.assemble(selections, before=head) == head + data
    assert messages_of(block) == expected
    assert block.priority_column is None
    assert (block.ttl_column is not None) == any(message[4] is not None for message in expected)
    assert block.size_bytes() == sum(selection.size_bytes() for selection in selections)


@pytest.mark.parametrize("seed", range(30))
def test_a_queue_s_own_priorities_decide_the_order(both: Kernel, seed: int) -> None:
    chance = random.Random(seed)
    highest, default = chance.choice([(0, 0), (10, 0), (4, 0), (31, 4), (5, 9)])
    selections, expected = [], []
    for _ in range(chance.randrange(1, 4)):
        table = MessageTable()
        for i in range(chance.randrange(10)):
            says = chance.choice([None, 0, 3, 4, 5, 12, 31])
            raw = f.properties() if says is None else f.properties(priority=says)
            body = b"%d.%d" % (len(selections), i)
            table.append(Route(b"", b"q", False), raw, body, 4 if says is None else says)
            expected.append((min(default if says is None else says, highest), body))
        selections.append(Selection(table, 0, table.count))
    expected.sort(key=lambda pair: -pair[0])
    block = Block.decode(both.assemble.assemble(selections, 0, highest, default))
    assert [(block.priority(i), bytes(block.body(i))) for i in range(block.count)] == expected


def test_received_messages_that_say_no_priority_have_the_queue_s(both: Kernel) -> None:
    scanner = both.scan.FrameScanner(4096)
    said = [None, 4, 0, None, 200]
    for says in said:
        raw = f.properties() if says is None else f.properties(priority=says)
        scanner.feed(f.publish(1, b"", b"q", b"%r" % says, raw))
    table = scanner.table
    assert [table.priority(i) for i in range(5)] == [4, 4, 0, 4, 31]

    def ordered(*settings: int) -> list[bytes]:
        data = both.assemble.assemble([Selection(table, 0, 5)], 0, *settings)
        block = Block.decode(data)
        again = both.admit.load_block(block)
        assert both.assemble.assemble([Selection(again, 0, 5)], 0, *settings) == data
        return [bytes(block.body(i)) for i in range(5)]

    assert ordered() == [b"200", b"None", b"4", b"None", b"0"]
    assert ordered(10, 0) == [b"200", b"4", b"None", b"0", b"None"]
    assert ordered(0, 0) == [b"None", b"4", b"0", b"None", b"200"]


def test_bodies_of_a_block_from_outside_are_not_copied(both: Kernel) -> None:
    data = b.encode([b"one", b"three"], [b"\0\0"] * 2, (b"", b"q"))
    table = both.admit.load_block(Block.decode(data))
    assert isinstance(table.bodies, memoryview) and table.bodies.obj is data
    assert [table.body(i) for i in range(2)] == [b"one", b"three"]
    with pytest.raises(AssertionError):
        table.append(Route(b"", b"q", False), b"\0\0", b"more")


def test_both_kernels_make_the_same_bytes(pair: tuple[Kernel, Kernel]) -> None:
    for seed in range(200):
        chance = random.Random(seed)
        tables = [grown(chance, 9), grown(chance, 5), grown(chance, 1)]
        selections = [Selection(table, 0, table.count) for table in tables]
        assert len({k.assemble.assemble(selections, 0, 9, 0) for k in pair}) == 1
        fast, slow = (kernel.assemble.assemble(selections, 1) for kernel in pair)
        assert fast == slow
        block = Block.decode(fast)
        assert block.form == 1
        assert messages_of(Block.decode(b.concat([(block, 0, block.count)]))) == messages_of(block)
        loads = [kernel.admit.load_block(block) for kernel in pair]
        assert loads[0].rows == loads[1].rows and loads[0].bodies == loads[1].bodies


def test_partition(both: Kernel) -> None:
    table = MessageTable()
    for key in (b"a", b"b", b"a", b"c", b"b", b"d"):
        table.append(Route(b"", key, False), b"\0\0", key)
    targets = [(0, 1), (1,), (2, 1), ()]
    found = both.assemble.partition(table, 0, 6, targets, 4)
    assert [list(selection) for selection in found] == [[0, 2], [0, 1, 2, 3, 4], [3], []]
    found = both.assemble.partition(table, 2, 3, targets, 3)
    assert [list(selection) for selection in found] == [[2], [2], []]
    assert [len(s) for s in both.assemble.partition(table, 2, 2, targets, 2)] == [0, 0]
    assert both.assemble.distinct_routes(table, 1, 6) == [1, 0, 2, 3]
    assert both.assemble.distinct_routes(table, 3, 3) == []


def test_messages_are_counted_by_groups_of_routes_and_as_in_no_selection(
    pair: tuple[Kernel, Kernel],
) -> None:
    """Both kernels, and the sums written down plainly, for any selections of any run."""
    chance = random.Random(7)
    for _ in range(200):
        table = MessageTable()
        for _ in range(chance.randrange(1, 40)):
            table.append(Route(b"", b"%d" % chance.randrange(6), False), b"\0\0", b"")
        first = chance.randrange(table.count)
        last = chance.randrange(first, table.count + 1)
        some: list[Selection] = []
        for _ in range(chance.randrange(4)):
            low = chance.randint(first, last)
            high = chance.randint(low, last)
            chosen = [i for i in range(first, last) if chance.random() < 0.5]
            listed = Selection(table, first, last, array("I", chosen))
            some.append(chance.choice((Selection(table, low, high), listed)))
        groups = array("I", [chance.randrange(3) for _ in table.routes.entries])
        wanted = [
            sum(groups[table.route_id(i)] == group for one in some for i in one)
            for group in range(3)
        ]
        missed = set(range(first, last)).difference(*some)
        for one in pair:
            assert one.assemble.count_groups(some, groups, 3) == wanted
            assert one.assemble.count_unselected(some, first, last) == len(missed)
            assert one.assemble.count_groups([], groups, 0) == []


def test_routes_that_differ_in_mandatory_only_are_one(both: Kernel) -> None:
    table = MessageTable()
    table.append(Route(b"x", b"k", False), b"\0\0", b"1")
    table.append(Route(b"x", b"k", True), b"\0\0", b"2")
    block = Block.decode(both.assemble.assemble([Selection(table, 0, 2)]))
    assert block.routes == ((b"x", b"k"),) and block.route_column is None


def test_nothing(both: Kernel) -> None:
    for selections in ([], [Selection(MessageTable(), 0, 0)]):
        block = Block.decode(both.assemble.assemble(selections))
        assert block.count == 0 and block.priority_runs == ()


def test_a_client_s_block_comes_back_as_a_table(both: Kernel) -> None:
    headers = f.properties(headers=f.table((b"CC", b"V")))
    data = b.encode(
        [b"one", b"two", b"three"],
        [f.PLAIN, f.PLAIN, headers],
        [(b"x", b"k"), (b"", b"q"), (b"x", b"k")],
        [1, PRIORITY_MAX, 1],
        [None, 7, 0],
    )
    block = Block.decode(data)
    table = both.admit.load_block(block, mandatory=True)
    assert listed(table, [0, 1, 2]) == messages_of(block)
    assert [table.route(i).mandatory for i in range(3)] == [True] * 3
    assert [table.flags(i) for i in range(3)] == [PERSISTENT, PERSISTENT, HEADERS | CC]
    assert both.assemble.assemble([Selection(table, 0, 3)]) == data
    assert both.assemble.flags_of(table, 0, 3) == PERSISTENT | HEADERS | CC
    assert both.assemble.flags_of(table, 0, 2) == PERSISTENT
    assert both.admit.load_block(Block.decode(b.encode([], [], (b"", b"q")))).count == 0


def test_a_client_s_order_is_kept_within_a_priority(both: Kernel) -> None:
    parts = Block.decode(b.encode([b"1", b"2", b"3"], [b"\0\0"] * 3, (b"", b"q"), [5, 1, 1]))
    mixed = Block.decode(b.concat([(parts, 1, 3), (parts, 0, 1), (parts, 1, 2)]))
    assert not descending(mixed.priority_runs)
    table = both.admit.load_block(mixed)
    block = Block.decode(both.assemble.assemble([Selection(table, 0, 4)]))
    assert [bytes(block.body(i)) for i in range(4)] == [b"1", b"2", b"3", b"2"]


def test_malformed_properties_in_a_client_s_block(both: Kernel) -> None:
    data = b.encode([b"", b""], [f.PLAIN, b"\x80\x00\x09x"], (b"", b"q"))
    with pytest.raises(BlockError, match="message 1"):
        both.admit.load_block(Block.decode(data))
    sections = b.encode([b""], [b"\x80\x00\x09x"], (b"", b"q"), form=1)
    assert both.admit.load_block(Block.decode(sections)).count == 1
