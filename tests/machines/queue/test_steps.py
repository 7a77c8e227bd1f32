"""What one entry makes a queue's machine do, counted: a sum, no product of what clients choose.

In lines of Python; and where one line unpacks or packs rows by the hundred, in such calls.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.line_steps import growth, lines
from tests.machines.queue.stages import Stages
from tests.machines.queue.world import Queue, block
from warren_machines.queue import commands as c
from warren_machines.queue.commands import Modify
from warren_machines.queue.deduplication import NumberSet, SeenIds
from warren_machines.queue.delayed.delay_commands import EnqueueDelayed
from warren_machines.queue.delayed.delayed_queue import Delayed
from warren_machines.queue.effects import FiltersBehind
from warren_machines.queue.filters.filter_commands import Judge, Judged
from warren_machines.queue.filters.filters import SEARCH_STEPS, Filter, FilterSearch
from warren_machines.queue.ready import block_index, leaves
from warren_machines.queue.ready.block_index import BlockIndex, Shape
from warren_machines.queue.ready.leaves import LEAF_ROWS_MAX, LEAVES_UNPACKED_MAX
from warren_machines.queue.ready.returned_runs import ReturnedRuns
from warren_machines.queue.relays.relay_state import Origins
from warren_machines.queue.sinks import stage
from warren_raft.index_set import PAGE

SUM = 2.5
"""More than a sum grows when all is doubled, less than a product."""
Prepared = Callable[[], object]
SESSION, PUBLISHER = 5, 9


def queue(**settings: Any) -> Queue:
    """A queue that is not checked after each entry."""
    made = Queue(**settings)
    made.checked = False
    return made


def consuming(consumers: int, **settings: Any) -> Queue:
    """A queue with so many consumers of one session."""
    made = queue(**settings)
    made.submit(*(c.Checkout(at, SESSION, "", prefetch=2) for at in range(consumers)))
    return made


def session_of_single_active_consumers_ends(count: int) -> Prepared:
    """Each of them is the next active one, which was looked for among all."""
    made = consuming(count, single_active_consumer=True)
    return lambda: made.do(c.SessionDown(SESSION))


def single_active_consumers_are_cancelled(count: int) -> Prepared:
    made = consuming(count, single_active_consumer=True)
    return lambda: made.submit(*map(c.Cancel, range(count)))


def annotated_messages_of_a_block_are_settled(count: int) -> Prepared:
    """All annotations of the block were looked through for each of its messages."""
    made = queue()
    made.do(c.Enqueue(), block(count), PUBLISHER)
    made.do(c.Checkout(1, SESSION, "", explicit_credit=True))
    made.do(c.Credit(1, 0, count))
    change = (("x-a", b"\x01"),)
    singly = [((at, at),) for at in range(2 * count)]
    made.submit(*(Modify(1, ids, False, False, change, 0) for ids in singly[:count]))
    made.do(c.Credit(1, count, count))
    return lambda: made.submit(*(c.Settle(1, ids) for ids in singly[count:]))


def sessions_of_relays_end(count: int) -> Prepared:
    """All relays of the queue were looked through for each session."""
    made = queue()
    for at in range(count):
        made.do(c.Checkout(at, at, "", prefetch=1, relay=f"r{at}", origin=1))
    return lambda: made.submit(*map(c.SessionDown, range(count)))


def consumers_come_and_go_beside_getters(count: int) -> Prepared:
    """All getters were looked through for each consumer, in case one is exclusive."""
    made = queue()
    made.do(c.Checkout(9_999, SESSION, "", prefetch=1))
    made.submit(*(c.Get(at, SESSION) for at in range(count)))
    pairs = [(c.Checkout(8_000, SESSION, "", prefetch=1), c.Cancel(8_000))] * count
    return lambda: made.submit(*(command for pair in pairs for command in pair))


def consumers_of_a_relay(count: int) -> Queue:
    """A queue with a relay of which so many consumers were cancelled, and hold a message each."""
    made = queue()
    made.do(c.Enqueue(), block(count + 1), PUBLISHER)
    for at in range(count):
        made.do(c.Checkout(at, SESSION, "", prefetch=1, relay="r", origin=1))
        made.do(c.Cancel(at))
    return made


def consumers_of_a_relay_come_and_go(count: int) -> Prepared:
    """All others were looked through for each that came."""
    made, numbers = consumers_of_a_relay(count), range(count, 2 * count)
    pairs = [(c.Checkout(at, SESSION, "", relay="r", origin=1), c.Cancel(at)) for at in numbers]
    return lambda: made.submit(*(command for pair in pairs for command in pair))


def messages_return_unseen_to_a_relay(count: int) -> Prepared:
    """All consumers of the relay were sorted for each command."""
    made = consumers_of_a_relay(count)
    returns = [c.Return(at, ((0, 0),), False, True) for at in range(count)]
    return lambda: made.submit(*returns)


@pytest.mark.parametrize(
    "prepared",
    [
        consumers_of_a_relay_come_and_go,
        messages_return_unseen_to_a_relay,
        session_of_single_active_consumers_ends,
        single_active_consumers_are_cancelled,
        annotated_messages_of_a_block_are_settled,
        sessions_of_relays_end,
        consumers_come_and_go_beside_getters,
    ],
)
def test_one_entry_is_a_sum_of_steps(prepared: Callable[[int], Prepared]) -> None:
    assert growth(prepared, 200) < SUM


class Counted:
    """Counts the calls of a function that a module has."""

    def __init__(self, patch: pytest.MonkeyPatch, module: Any, name: str) -> None:
        self.calls = 0
        self._function = getattr(module, name)
        patch.setattr(module, name, self)

    def __call__(self, *given: Any) -> Any:
        self.calls += 1
        return self._function(*given)


def test_a_service_of_many_consumers_takes_one_out_without_the_others() -> None:
    """`deque.remove` compares all before it: unseen in lines, seconds for 100,000 consumers."""
    made = consuming(200)
    service, consumers = made.state.service, list(made.state.all_consumers())
    for consumer in consumers:
        service.remove(consumer)
        assert not any(consumer.key in lane for lane in service.lanes.values())
    assert not service.lanes


def test_delays_in_any_order_unpack_each_leaf_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before: one leaf was unpacked, and one packed, for each message: 20,000 took 2 seconds."""
    made, rows = queue(), 2 * LEAVES_UNPACKED_MAX * LEAF_ROWS_MAX // 2
    every = tuple((1, 1_000 + 10 * at) for at in range(rows))
    made.do(EnqueueDelayed(every), block(rows), PUBLISHER)
    drawn = [(1, 1_005 + 10 * at) for at in range(rows)]
    Random(1).shuffle(drawn)
    unpacked = Counted(monkeypatch, leaves, "decode_leaf")
    made.do(EnqueueDelayed(tuple(drawn[:2_000])), block(2_000), PUBLISHER)
    assert unpacked.calls <= 2 * LEAVES_UNPACKED_MAX
    made.checked = True
    made.tick(0)


@pytest.mark.parametrize(
    "command", [c.Settle(1, ((0, 1 << 40),)), c.Return(1, ((0, 1 << 40),), False)]
)
def test_runs_held_in_any_order_leave_in_that_of_the_log(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: the page of each was unpacked, and another one packed: 100,000 took 15 seconds."""
    count, stride = 2_000, 100
    made = held_in_any_order("classic", count, stride)
    packed = Counted(monkeypatch, block_index, "encode_page")
    made.do(command)
    assert packed.calls <= 2 * (count * stride >> block_index.PAGE_BITS)
    made.checked = True
    made.tick(0)
    assert made.ready() == sorted(made.ready())


def held_in_any_order(kind: str, count: int = 2_000, stride: int = 100) -> Queue:
    """A queue with a consumer that holds messages of many pages, in any order."""
    made = Queue(stride=stride, kind=kind, delivery_limit=-1)
    made.checked = False
    made.do(c.Checkout(1, SESSION, "", explicit_credit=True))
    for _ in range(count):
        made.put()
    made.do(c.Credit(1, 0, count))
    consumer = made.state.consumer((1, 1))
    places = [held[2:] for held in consumer.held]
    Random(1).shuffle(places)
    consumer.held = [(*held[:2], *place) for held, place in zip(consumer.held, places, strict=True)]
    return made


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize(
    "commands",
    [
        [c.Settle(1, ((at, at),)) for at in range(2_000)],
        [c.Return(1, ((at, at),), True) for at in range(2_000)],
        [c.Return(1, ((0, 1 << 40),), False)],
        [c.SessionDown(SESSION)],
    ],
    ids=["settle", "return", "return-at-once", "session-down"],
)
def test_messages_of_many_pages_have_none_unpacked_for_each(
    kind: str, commands: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: 0.7 ms for each, of 4,096 in one entry."""
    made = held_in_any_order(kind)
    packed = Counted(monkeypatch, block_index, "encode_page")
    made.submit(*commands)
    assert packed.calls <= 2 * (2_000 * 100 >> block_index.PAGE_BITS)
    made.checked = True
    made.tick(0)


def test_runs_of_many_leaves_have_none_unpacked_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = 2 * LEAVES_UNPACKED_MAX * LEAF_ROWS_MAX
    runs = ReturnedRuns()
    for at in range(rows):
        runs.append((2 * at + 1, 0, 0, 0, 1))
    packed = Counted(monkeypatch, leaves, "encode_leaf")
    drawn = Random(1).sample(range(rows), 4_000)
    for at in drawn:
        runs.put_back((2 * at, 0, 0, 0, 1))
    assert packed.calls <= 2 * len(runs.leaves)
    runs.check()
    assert list(runs) == sorted([*runs]) and sum(1 for _ in runs) == rows + len(drawn)
    assert ReturnedRuns(runs.dump()).dump() == runs.dump()


def test_delays_of_many_leaves_unpack_none_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client says of each message that it gives back when it is to be delivered again."""
    rows = 2 * LEAVES_UNPACKED_MAX * LEAF_ROWS_MAX
    delayed = Delayed()
    for at in range(rows):
        delayed.add(2 * at + 1, (1, at, at, 0, 1))
    packed = Counted(monkeypatch, leaves, "encode_leaf")
    for at in Random(1).sample(range(rows), 4_000):
        delayed.add(2 * at + 2, (2, at, at, 0, 1))
    assert packed.calls <= 2 * rows // LEAF_ROWS_MAX
    delayed.check()


class Moved(list[int]):
    """A list that counts the items that its changes move."""

    moved = 0

    def __setitem__(self, place: Any, items: Any) -> None:
        if isinstance(place, slice):
            self.moved += len(self) - place.start
        super().__setitem__(place, items)


def numbers_with_gaps(count: int, seed: int) -> list[int]:
    """Every other number, counted down or in any order."""
    numbers = list(range(2 * count, 0, -2))
    if seed:
        Random(seed).shuffle(numbers)
    return numbers


def moved(numbers: NumberSet, deed: Callable[[], object]) -> int:
    """Return how many boundaries a change moves."""
    numbers._boundaries = bounds = Moved(numbers._boundaries)
    deed()
    return bounds.moved


@pytest.mark.parametrize("seed", [0, 1])
def test_producers_that_count_down_move_no_list_for_each_number(seed: int) -> None:
    """Before: a list was moved for each of 65,536 numbers of a block."""

    def cost(count: int) -> tuple[int, int]:
        seen, names = SeenIds(), numbers_with_gaps(count, seed)
        seen.remember([(b"p", 0, 0)], 1, 1 << 20, 1_000)
        numbers = seen.producers[b"p"]
        runs = [(b"p", number, number) for number in names]
        added = moved(numbers, lambda: seen.remember(runs, 1, 1 << 20, 1_000))
        seen.check()
        return added, moved(numbers, lambda: seen.trim(1))

    once, twice = cost(2_000), cost(4_000)
    assert twice[0] < SUM * max(once[0], 1) and twice[1] < SUM * max(once[1], 1)


@pytest.mark.parametrize("seed", [0, 1])
def test_names_of_relays_move_no_list_for_each_number(seed: int) -> None:
    def cost(count: int) -> int:
        origins = Origins()
        origins.accept(7, 0, [9 * count], 1)
        numbers = origins._known[7].numbers
        some = numbers_with_gaps(count, seed)
        found = moved(numbers, lambda: origins.accept(7, 0, some, 1))
        origins.check()
        return found

    assert cost(4_000) < SUM * max(cost(2_000), 1)


def test_floors_of_relays_rise_without_the_numbers_above() -> None:
    origins = Origins()
    origins.accept(7, 0, numbers_with_gaps(4_000, 0), 1)
    assert lines(lambda: origins.accept(7, 10, [], 1)) < 100
    origins.check()


def judged(matches: Callable[[int], bool], to: int) -> Filter:
    """A filter that has judged blocks of one message."""
    one = Filter(1, b"", 0, 0)
    contents = BlockIndex()
    for index in range(1, to + 1):
        contents.add(index, Shape(1, ((0, 0),), 1, 1))
    one.learn(Judged(1, 0, to, tuple(filter(matches, range(1, to + 1)))), contents)
    return one


def test_a_filter_looks_once_at_what_came_back() -> None:
    """Before: from the first of 512 runs on for each message that it took."""

    def taking(count: int) -> Prepared:
        wanted, runs = judged(lambda index: index > count // 2, count), ReturnedRuns()
        for index in range(1, count + 1):
            runs.append((index, 0, 0, 0, 1))

        def take() -> None:
            while (found := runs.find(wanted, FilterSearch(0, 1 << 30))) is not None:
                assert not isinstance(found, int)
                runs.cut(found[0], *found[1][1:3])

        return take

    assert growth(taking, 200) < SUM


def test_a_filter_skips_the_leaves_that_it_has_passed() -> None:
    """Before: over all of them for each message that it took."""

    def taking(leaves: int) -> int:
        count = leaves * LEAF_ROWS_MAX
        wanted, runs = judged(lambda index: index > count - 4, count), ReturnedRuns()
        for index in range(1, count + 1):
            runs.append((index, 0, 0, 0, 1))
        assert runs.find(wanted, FilterSearch(0, 1 << 30)) == (
            (leaves - 1, LEAF_ROWS_MAX - 4),
            (count - 3, 0, 0, 0, 1),
        )
        return lines(lambda: runs.find(wanted, FilterSearch(0, 1 << 30)))

    assert taking(2) == taking(20)


def test_a_judgement_unpacks_each_page_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before: for each block that matches."""
    contents = BlockIndex()
    blocks = 4 * PAGE
    for index in range(1, blocks):
        contents.add(index, Shape(1, ((0, 0),), 1, 1))
    loaded = BlockIndex()
    loaded.load(contents.dump())
    unpacked = Counted(monkeypatch, block_index, "unpack")
    decoded = Counted(monkeypatch, block_index, "page_blocks")
    one = Filter(1, b"", 0, 0)
    one.learn(Judged(1, 0, blocks, tuple(range(1, blocks, 2))), loaded)
    assert unpacked.calls + decoded.calls <= 2 * 4
    one.check()


def test_a_judgement_does_not_visit_what_was_judged_before() -> None:
    contents = BlockIndex()
    for index in range(1, 8 * PAGE):
        contents.add(index, Shape(1, ((0, 0),), 1, 1))

    def learning(pages: int) -> Prepared:
        one = Filter(1, b"", 0, 0)
        one.learn(Judged(1, 0, pages * PAGE, tuple(range(1, pages * PAGE))), contents)
        one.sweep(contents)
        return lambda: one.learn(Judged(1, pages * PAGE, pages * PAGE + 1), contents)

    assert lines(learning(2)) == lines(learning(7))


def relayed(count: int) -> Queue:
    """A queue that keeps a message for each of so many relays, of which each holds another one."""
    made = queue()
    made.do(c.Enqueue(), block(2 * count), PUBLISHER)
    named = [(at, f"r{at}") for at in range(count)]
    made.submit(*(c.Checkout(at, at, "", prefetch=2, relay=name, origin=1) for at, name in named))
    made.submit(*(c.SessionDown(at) for at, _ in named))
    made.submit(
        *(
            c.Checkout(count + at, count + at, "", prefetch=1, relay=name, origin=2)
            for at, name in named
        )
    )
    made.put()
    assert sum(bool(relay.kept) for relay in made.state.relays.values()) == count
    return made


def test_relays_that_nothing_has_changed_cost_nothing() -> None:
    """For each entry, the consumers of each relay were looked for among all of its node."""
    few, many = relayed(10), relayed(200)
    data = block(1)
    taken = [lines(lambda made=made: made.do(c.Enqueue(), data, PUBLISHER)) for made in (few, many)]
    assert taken[0] == taken[1]
    many.do(c.Settle(200, ((0, 0),)))
    assert len(many.state.relays["r0"].kept) == 0, "what is kept is given when there is room"


def test_a_new_sink_passes_over_few_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before: over each of them, and its runs, for each new one beyond the bound."""
    monkeypatch.setattr(stage, "SINKS_MAX", 10)

    def coming(sinks: int) -> int:
        made = queue()
        for at in range(sinks):
            Stages(sink=f"s{at}").put(made, 0, 0)
        assert len(made.state.runs) == sinks, "all of them are in use"
        taken = lines(lambda: Stages(sink="new").put(made, 0, 0))
        for at in range(sinks):
            made.do(Stages(sink=f"s{at}").publish(0, (0, 0, 1)))
        for at in range(sinks):
            Stages(sink=f"n{at}").put(made, 0, 0)
        assert len(made.state.runs) <= sinks + 10 + 1, "those not in use are forgotten"
        return taken

    assert coming(20) == coming(200)


def judged_messages_elsewhere(filters: int, blocks: int) -> Queue:
    """A queue with consumers of so many filters, which match messages held and none that is ready.

    All is judged, and no consumer has had credit yet.
    """
    made = queue()
    data = block(2, priorities=[9, 0])
    for _ in range(blocks):
        made.do(c.Enqueue(), data, PUBLISHER)
    made.do(c.Checkout(9_999, SESSION, "", explicit_credit=True))
    made.do(c.Credit(9_999, 0, blocks))
    names = [b"%d" % at for at in range(filters)]
    made.submit(
        *(c.Checkout(at, SESSION, "", explicit_credit=True, filter=n) for at, n in enumerate(names))
    )
    parts = tuple((index, b"\1") for index in range(1, blocks + 1))
    judge(made, parts=parts)
    return made


def judge(made: Queue, **matches: Any) -> None:
    """Have all filters judge what they have not, with these matches."""
    to = made.state.filters.newest
    made.do(Judge(tuple(Judged(one.id, one.judged, to, **matches) for one in made.state.filters)))


def test_credit_for_many_filters_looks_at_a_part() -> None:
    """Before: each of 64 filters went through all of it: 86 seconds for a million messages."""
    few, many = judged_messages_elsewhere(4, 4 * PAGE), judged_messages_elsewhere(16, 4 * PAGE)
    once = lines(lambda: few.submit(*(c.Credit(at, 0, 1) for at in range(4))))
    assert lines(lambda: many.submit(*(c.Credit(at, 0, 1) for at in range(16)))) < 1.1 * once
    entries = 0
    while FiltersBehind() in many.effects:
        many.do(Judge(()))
        entries += 1
    assert entries >= 16 * 4 // SEARCH_STEPS - 1, "each entry goes on where the one before ended"
    many.do(c.Enqueue(), block(16), PUBLISHER)
    judge(many, whole=(many.index,))
    assert [len(many.got(at)) for at in range(16)] == [1] * 16


def parked(filters: int) -> Queue:
    """A queue with consumers of so many filters, for which nothing is there."""
    made = queue()
    made.do(c.Enqueue(), block(300), PUBLISHER)
    names = [b"%d" % at for at in range(filters)]
    made.submit(*(c.Checkout(at, SESSION, "", prefetch=1, filter=n) for at, n in enumerate(names)))
    judge(made)
    made.do(c.Checkout(9_999, SESSION, "", prefetch=200))
    return made


def test_gets_of_an_entry_wake_few_times() -> None:
    """Before: each after a return looked for all filters with consumers that wait."""

    def taken(filters: int, count: int) -> int:
        made = parked(filters)
        pairs = [(c.Return(9_999, ((at, at),), False), c.Get(at, SESSION)) for at in range(count)]
        return lines(lambda: made.submit(*(one for pair in pairs for one in pair)))

    many, few = taken(8, 200) - taken(1, 200), taken(8, 100) - taken(1, 100)
    assert many < 1.5 * few, "filters cost nearly the same for more"
