"""Offsets of the spool, and the arithmetic of batches and slices."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_warren.claims.offset import Offset
from pyspark_warren.errors import CheckpointError
from pyspark_warren.spool.layout import Stretch
from pyspark_warren.spool.offset import SpoolOffset, SpoolPosition, cut_end, slices
from pyspark_warren.spool.search import Decided, Part, Search

SEARCH = Search(
    7, Part(4, 6, 1), (Part(6, 8, 1), Part(1, 2, 2)), 1, True, (Decided(3, 4, "reject"),)
)
OFFSET = SpoolOffset(
    "/",
    "spark-1",
    {
        "flights": SpoolPosition("flights", "spark-1", 1234),
        "hotels": SpoolPosition("hotels", "spark-1-4e", 8, SEARCH),
    },
)
FROZEN = (
    '{"kind": "spool", "queues": {"flights": {"reader": "spark-1", "row": 1234}, "hotels": '
    '{"reader": "spark-1-4e", "row": 8, "search": {"decided": [[3, 4, "reject"]], "in_row": 1, '
    '"parts": [[6, 8, 1], [1, 2, 2]], "passed": true, "reading": [4, 6, 1], "turn": 7}}}, '
    '"reader": "spark-1", "registered": true, "version": 1, "vhost": "/"}'
)
"""An offset of form 1, as it is in checkpoints: it must be read for ever."""


def test_the_frozen_offset_of_form_1_is_read_and_written_as_it_was() -> None:
    assert SpoolOffset.from_dict(json.loads(FROZEN)) == OFFSET
    assert json.dumps(OFFSET.to_dict()) == FROZEN


def test_a_checkpoint_of_the_other_broker_is_refused_both_ways() -> None:
    with pytest.raises(CheckpointError, match="written with broker=amqp.*use another checkpoint"):
        Offset.from_dict(OFFSET.to_dict())
    with pytest.raises(CheckpointError, match="written with broker=warren.*use another checkpoint"):
        SpoolOffset.from_dict(Offset("/", "spark-1").to_dict())


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"kind": "topic", "reader": None}, "another release"),
        ({"version": 3}, "of form spool 3, this release knows spool 1"),
        ({"queues": [1]}, "cannot be read"),
        ({"queues": {"q": {"reader": "r", "row": -1}}}, "cannot be read"),
        ({"queues": {"q": {"reader": "r", "row": "x"}}}, "cannot be read"),
        (
            {"queues": {"q": {"reader": "r", "row": 1, "search": {"parts": [[9, 4, 1]]}}}},
            "cannot be read",
        ),
    ],
)
def test_what_is_no_offset_is_refused(change: dict[str, object], text: str) -> None:
    with pytest.raises(CheckpointError, match=text):
        SpoolOffset.from_dict({**OFFSET.to_dict(), **change})


def test_a_batch_that_reads_a_part_again_has_its_rows() -> None:
    end = OFFSET.queues["hotels"]
    assert end.read_since(SpoolPosition("hotels", "spark-1-4e")) == Part(4, 6, 1)
    assert end.batch == "8-7"


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
    cut = slices("q", "r", found, partitions)
    wanted = [(each.file, each.first_row + i) for each in found for i in range(each.rows)]
    pieces = [each for part in cut for each in part.stretches]
    assert [(e.file, e.first_row + i) for e in pieces for i in range(e.rows)] == wanted
    positions = [e.position + i for e in pieces for i in range(e.rows)]
    assert positions == list(range(100, at))
    if partitions:
        assert len(cut) == min(partitions, len(wanted))
    assert cut == slices("q", "r", found, partitions)
