"""Offsets of the spool, and the arithmetic of batches and slices."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_warren.amqp.decided import Decided
from pyspark_warren.amqp.plan import cut_end, slices
from pyspark_warren.amqp.queues_spool_offset import QueuesSpoolOffset
from pyspark_warren.amqp.search import Part, Search
from pyspark_warren.amqp.spool.layout import Stretch
from pyspark_warren.amqp.spool_offset import SpoolOffset
from pyspark_warren.errors import CheckpointError
from pyspark_warren.offset import Offset

OFFSET = SpoolOffset("/", "flights", "spark-1", (("0", 1234),))


def test_the_stored_form_is_canonical() -> None:
    text = (
        '{"kind": "spool", "lanes": {"0": 1234}, "queue": "flights", "reader": "spark-1", '
        '"registered": true, "version": 3, "vhost": "/"}'
    )
    assert OFFSET.to_json() == text
    backwards = dict(reversed(json.loads(text).items()))
    assert SpoolOffset.from_dict(backwards) == OFFSET
    assert OFFSET.at({"1": 5, "0": 2000}).lanes == (("0", 2000), ("1", 5))
    assert (OFFSET.position("0"), OFFSET.position("7")) == (1234, 0)


def test_a_checkpoint_of_the_other_broker_is_refused_both_ways() -> None:
    with pytest.raises(CheckpointError, match="written with broker=amqp.*use another checkpoint"):
        Offset.from_dict(OFFSET.to_dict())
    with pytest.raises(CheckpointError, match="written with broker=warren.*use another checkpoint"):
        SpoolOffset.from_dict(Offset("/", "flights", "spark-1").to_dict())
    with pytest.raises(CheckpointError, match="one checkpoint serves one queue"):
        OFFSET.check_is_of("/", "hotels")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"kind": "topic"}, "not written by this source"),
        ({"version": 5}, "version 5.*up to 4; upgrade"),
        ({"lanes": [1]}, "cannot be read"),
        ({"lanes": {"0": -1}}, "cannot be read"),
        ({"lanes": {"0": "x"}}, "cannot be read"),
    ],
)
def test_what_is_no_offset_is_refused(change: dict[str, object], text: str) -> None:
    with pytest.raises(CheckpointError, match=text):
        SpoolOffset.from_dict({**OFFSET.to_dict(), **change})


# ------------------------------------------------------------------ batches

REPORTS = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 1000)), max_size=8)


@given(REPORTS, st.integers(0, 30), st.integers(1, 200), st.none() | st.integers(1, 2000))
def test_a_batch_is_within_its_limits(
    files: list[tuple[int, int]], start: int, rows_max: int, bytes_max: int | None
) -> None:
    reports, at = [], start
    for rows, size in files:
        at += rows
        reports.append((at, size))
    end = cut_end(start, reports, rows_max, bytes_max)
    assert start <= end <= min(at, start + rows_max)
    assert (end > start) == (at > start), "a batch without rows only when there are none"
    if bytes_max is None:
        assert end == min(at, start + rows_max)
    elif end > start + 1:
        taken, before = 0, start
        for until, size in reports:
            part = max(0, min(end, until) - before)
            taken += size * part // (until - before)
            before = until
        assert taken <= bytes_max


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 90)), max_size=6), st.integers(0, 9))
def test_slices_cover_every_row_once_in_order(
    files: list[tuple[int, int]], partitions: int
) -> None:
    found, at = [], 100
    for number, (rows, skipped) in enumerate(files):
        found.append(Stretch(f"file {number}", skipped, rows, at, rows * 10))
        at += rows
    cut = slices("r", "0", found, partitions)
    wanted = [(each.file, each.first_row + i) for each in found for i in range(each.rows)]
    pieces = [each for part in cut for each in part.stretches]
    assert [(e.file, e.first_row + i) for e in pieces for i in range(e.rows)] == wanted
    positions = [e.position + i for e in pieces for i in range(e.rows)]
    assert positions == list(range(100, at))
    if partitions:
        assert len(cut) == min(partitions, len(wanted))
    assert cut == slices("r", "0", found, partitions)


def test_an_offset_with_a_search_is_another_version() -> None:
    decided = (Decided(3, 4, "reject"),)
    search = Search(7, Part(4, 6, 1), (Part(6, 8, 1), Part(1, 2, 2)), 1, True, decided)
    offset = SpoolOffset("/", "flights", "spark-1", (("0", 8),), search=search)
    assert offset.to_dict()["version"] == 4
    assert SpoolOffset.from_dict(json.loads(offset.to_json())) == offset
    assert offset.read_since(SpoolOffset("/", "flights", "spark-1"), "0") == Part(4, 6, 1)
    damaged = {**offset.to_dict(), "search": {**search.to_dict(), "parts": [[9, 4, 1]]}}
    with pytest.raises(CheckpointError, match="cannot be read"):
        SpoolOffset.from_dict(damaged)
    with pytest.raises(CheckpointError, match="gives up batches of queue 'flights'.*option queue"):
        QueuesSpoolOffset.from_dict(offset.to_dict())
