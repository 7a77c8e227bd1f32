"""The cursors of a log."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sim.disk import Log
from warren_raft.config import RaftConfig
from warren_raft.core.log import LogView
from warren_raft.types import Entry, EntryKind


def entries(first: int, *terms: int, size: int = 1) -> list[Entry]:
    return [
        Entry(first + at, term, EntryKind.COMMAND, 100, b"x" * size)
        for at, term in enumerate(terms)
    ]


def written(log: LogView, store: Log) -> int:
    """Take what is to be written, write it; the write's number."""
    batch = log.take_writes(False)
    if batch:
        store.put(batch)
    return log.sequence


def view(*terms: int) -> tuple[LogView, Log]:
    store = Log(entries(1, *terms))
    return LogView(store), store


def test_a_log_begins_durable() -> None:
    log, _ = view(1, 1, 2)
    assert (log.last, log.last_term, log.durable, log.writing) == (3, 2, 3, 3)
    assert (log.committed, log.applied, log.last_time_ms) == (0, 0, 100)
    log.check()


def test_an_empty_log() -> None:
    log, _ = view()
    assert (log.last, log.last_term, log.term(0)) == (0, 0, 0)
    assert log.has(0, 0)
    assert not log.has(1, 1)
    log.check()


def test_writes_are_numbered_and_taken_once() -> None:
    log, store = view()
    log.append(entries(1, 1, 1))
    assert written(log, store) == 1
    assert not log.take_writes(False)
    assert log.sequence == 1
    log.take_writes(True)
    assert log.sequence == 2, "a hard state alone is a write, too"


def test_durable_follows_the_disk() -> None:
    log, store = view()
    log.append(entries(1, 1, 1))
    first = written(log, store)
    log.append(entries(3, 1))
    second = written(log, store)
    assert log.durable == 0
    log.on_durable(first)
    assert log.durable == 2
    log.on_durable(second)
    assert log.durable == 3


def test_one_sync_may_end_several_writes() -> None:
    log, store = view()
    for index in (1, 2, 3):
        log.append(entries(index, 1))
        written(log, store)
    log.on_durable(3)
    assert log.durable == 3
    assert not log.writes


def test_every_cursor_falls_with_a_truncation() -> None:
    log, store = view(1, 1, 1)
    log.append(entries(4, 1, 1))
    late = written(log, store)
    log.truncate_from(2)
    assert (log.last, log.durable, log.writing) == (1, 1, 1)
    log.append(entries(2, 2))
    log.check()
    log.on_durable(late)
    assert log.durable == 1, "the write that came back held what was cut"
    log.on_durable(written(log, store))
    assert log.durable == 2


def test_what_comes_back_after_a_cut_is_not_vouched_for_by_the_first_write() -> None:
    log, store = view(1)
    log.append(entries(2, 1, 1))
    first = written(log, store)
    log.truncate_from(2)
    log.append(entries(2, 2))
    second = written(log, store)
    log.truncate_from(2)
    log.append(entries(2, 1, 1))
    third = written(log, store)
    log.on_durable(first)
    assert log.durable == 1
    log.on_durable(second)
    assert log.durable == 1
    log.on_durable(third)
    assert log.durable == 3


def test_the_tail_keeps_what_is_not_durable_or_not_handed_out() -> None:
    log, store = view()
    log.append(entries(1, 1, 1, 1))
    number = written(log, store)
    log.commit_to(2)
    assert [entry.index for entry in log.take_committed(RaftConfig())] == [1, 2]
    assert log.tail_first == 1, "not durable here yet"
    log.on_durable(number)
    assert log.tail_first == 3
    log.check()


def test_committed_entries_are_handed_out_in_bounded_pieces() -> None:
    log, store = view()
    log.append(entries(1, 1, 1, 1, 1, size=10))
    written(log, store)
    log.commit_to(4)
    taken = []
    while batch := log.take_committed(RaftConfig(apply_bytes_max=25)):
        taken.append([entry.index for entry in batch])
    assert taken == [[1, 2], [3, 4]]
    log.append(entries(5, 1, 1, 1))
    log.commit_to(7)
    assert len(log.take_committed(RaftConfig(apply_entries_max=2))) == 2


def test_an_entry_larger_than_the_bound_goes_alone() -> None:
    log, _ = view()
    log.append(entries(1, 1, 1, size=100))
    assert len(log.slice(1, 2, 10)) == 1


def test_the_hint_skips_a_term_at_a_time() -> None:
    log, _ = view(1, 1, 2, 2, 2, 5)
    assert log.hint(6, 4) == (5, 2)
    assert log.hint(5, 1) == (2, 1)
    assert log.hint(99, 9) == (6, 5)
    assert log.hint(4, 0) == (0, 0)


def test_time_never_goes_back() -> None:
    log, _ = view(1)
    log.append_new(2, EntryKind.COMMAND, b"", 50)
    assert log.tail[-1].time_ms == 100
    log.append_new(2, EntryKind.COMMAND, b"", 170)
    log.append_new(2, EntryKind.COMMAND, b"", 160)
    assert log.tail[-1].time_ms == 170


def test_a_new_leader_continues_time_from_the_last_stamp() -> None:
    # The one before it was hours ahead: nothing would expire until this clock had caught up.
    log, _ = view(1)  # its entry is of 100
    log.lead_from(40)
    for now, stamp in ((40, 100), (50, 110), (45, 110), (300, 360)):
        log.append_new(2, EntryKind.COMMAND, b"", now)
        assert log.tail[-1].time_ms == stamp
    log.lead_from(1_000)
    log.append_new(3, EntryKind.COMMAND, b"", 1_001)
    assert log.tail[-1].time_ms == 1_001


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3)),
        st.tuples(st.just("cut"), st.integers(1, 6)),
        st.tuples(st.just("write"), st.just(0)),
        st.tuples(st.just("sync"), st.integers(1, 3)),
        st.tuples(st.just("commit"), st.integers(1, 3)),
        st.tuples(st.just("apply"), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_against_a_dumb_disk(steps: list[tuple[str, int]]) -> None:
    """`durable` never exceeds what a disk with ordered writes holds of the log as it is now."""
    store, safe, under_way = Log(), Log(), []
    log = LogView(safe)
    term = 1
    for step, count in steps:
        if step == "append":
            log.append(entries(log.last + 1, *[term] * count))
        elif step == "cut" and log.last > log.committed:
            term += 1
            log.truncate_from(max(log.committed + 1, log.last + 1 - count))
            log.append(entries(log.last + 1, term))
        elif step == "write":
            batch = log.take_writes(False)
            if batch:
                store.put(batch)
                under_way.append((log.sequence, batch))
        elif step == "sync" and under_way:
            for _number, batch in under_way[:count]:
                safe.put(batch)
            done = under_way[:count][-1][0]
            del under_way[:count]
            log.on_durable(done)
        elif step == "commit":
            log.commit_to(min(log.durable, log.committed + count))
        elif step == "apply":
            batch = log.take_committed(RaftConfig(apply_bytes_max=2))
            if batch:
                log.on_applied(batch[-1].index)
        log.check()
        assert log.durable <= len(safe.held)
        for index in range(1, log.durable + 1):
            assert safe.held[index - 1] == log.slice(index, index, 0)[0]
