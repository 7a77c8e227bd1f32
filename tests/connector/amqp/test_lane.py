"""A lane of the spool on real file systems: rows that are appended are read, under every owner."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyspark_warren.errors import CheckpointBehindError, FencedError, SpoolError, SpoolLostError
from pyspark_warren.spool.lane import describe
from pyspark_warren.spool.store import SpoolPlace
from tests.connector.amqp.spooling import USE, bodies, place, rows, take_over


@pytest.fixture(params=["path", "uri", "mock"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> SpoolPlace:
    return place(request.param, tmp_path)


def test_rows_have_positions_and_are_read_again(where: SpoolPlace) -> None:
    writer = take_over(where)
    session = writer.begin_session()
    assert list(writer.take(session, rows([b"a", b"b", b"c"]))) == [0, 1, 2]
    assert list(writer.take(session, rows([b"d"]))) == [3]
    assert writer.end == 4
    for _ in range(2):
        assert bodies(where, 1, 4) == [b"b", b"c", b"d"]


def test_a_successor_recognises_what_is_delivered_again(where: SpoolPlace) -> None:
    writer = take_over(where)
    writer.take(writer.begin_session(), rows([b"a", b"b", b"c"]))
    writer = take_over(where)
    taken = writer.take(writer.begin_session(), rows([b"b", b"x", b"c"], True))
    assert list(taken) == [1, 3, 2]
    assert bodies(where, 0, 4) == [b"a", b"b", b"c", b"x"]


def test_an_older_owner_is_refused_before_it_could_acknowledge(where: SpoolPlace) -> None:
    old = take_over(where)
    session = old.begin_session()
    old.take(session, rows([b"a"]))
    new = take_over(where)
    with pytest.raises(FencedError, match="Two drivers use the checkpoint"):
        old.take(session, rows([b"late"]))
    with pytest.raises(SpoolError, match="take its lane over again"):
        old.take(session, rows([b"later"]))
    new.take(new.begin_session(), rows([b"b"]))
    assert bodies(where, 0, 2) == [b"a", b"b"]
    assert bodies(where, 0, take_over(where).end) == [b"a", b"b"]


def test_an_older_owner_whose_begun_file_was_removed_is_refused_as_such(
    where: SpoolPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood still amid a write; before, this was said to be the file system's fault."""
    old = take_over(where)
    session = old.begin_session()
    store, write = type(where.store), type(where.store).write

    def stands_still(self: Any, folder: str, name: str, fill: Any) -> None:
        monkeypatch.setattr(store, "write", write)
        take_over(where)
        raise FileNotFoundError(2, "No such file or directory", name)

    monkeypatch.setattr(store, "write", stands_still)
    with pytest.raises(FencedError, match="Two drivers use the checkpoint"):
        old.take(session, rows([b"late"]))


def test_settled_files_go_and_positions_stay(where: SpoolPlace) -> None:
    writer = take_over(where)
    session = writer.begin_session()
    for body in (b"a", b"b", b"c"):
        writer.take(session, rows([body]))
    writer.settle(3)
    names = where.store.sizes(where.lane_folder("spark-1"))
    assert not [name for name in names if name.endswith(".arrow")]
    with pytest.raises(CheckpointBehindError, match="settled up to row 3, .* read up to row 2"):
        bodies(where, 2, 3)
    writer = take_over(where)
    assert (writer.settled, writer.end) == (3, 3)
    session = writer.begin_session()
    assert list(writer.take(session, rows([b"b", b"new"], True))) == [1, 3]


def test_missing_rows_are_named(where: SpoolPlace) -> None:
    writer = take_over(where)
    session = writer.begin_session()
    for body in (b"a", b"b", b"c"):
        writer.take(session, rows([body]))
    folder = where.lane_folder("spark-1")
    names = sorted(name for name in where.store.sizes(folder) if name.endswith(".arrow"))
    where.store.remove(f"{folder}/{names[1]}")
    for wrong in (lambda: take_over(where), lambda: bodies(where, 0, 3)):
        with pytest.raises(SpoolLostError, match="lacks rows 1 to 1"):
            wrong()


def test_a_spool_that_was_moved_away_is_no_new_beginning(where: SpoolPlace) -> None:
    """Rows that begin at 0 again would lie before the checkpoint's offset, and never be read."""
    with pytest.raises(SpoolLostError, match="lacks rows 0 to 41"):
        take_over(where, USE.__class__("/", "flights", seen=42))


def test_a_spool_that_was_removed_before_the_first_row_was_read(where: SpoolPlace) -> None:
    """The checkpoint is at 0, and with ackMode=spool the rows were acknowledged."""
    known = replace(USE, known=True)
    with pytest.raises(SpoolLostError, match="nothing of reader 'spark-1', which the checkpoint"):
        take_over(where, known)
    where.store.make(where.reader_folder("spark-1"))
    describe(where, "spark-1", "/", "flights", "amqp")
    assert take_over(where, known).end == 0


def test_an_older_copy_of_the_checkpoint_does_not_take_the_lane_over(where: SpoolPlace) -> None:
    writer = take_over(where)
    session = writer.begin_session()
    for body in (b"a", b"b", b"c"):
        writer.take(session, rows([body]))
    writer.settle(2)
    with pytest.raises(CheckpointBehindError, match="settled up to row 2, .* up to row 1"):
        take_over(where, replace(USE, seen=1, known=True))
    assert list(writer.take(session, rows([b"d"]))) == [3]
    assert take_over(where, replace(USE, seen=2, known=True)).end == 4


def test_a_spool_that_is_removed_under_its_receiver_is_no_second_driver(where: SpoolPlace) -> None:
    writer = take_over(where)
    session = writer.begin_session()
    writer.take(session, rows([b"a"]))
    folder = f"{where.lane_folder('spark-1')}/claims"
    for name in where.store.sizes(folder):
        where.store.remove(f"{folder}/{name}")
    with pytest.raises(SpoolLostError, match="was removed under its receiver"):
        writer.take(session, rows([b"b"]))


def test_a_spool_of_another_queue_and_foreign_files_are_refused(where: SpoolPlace) -> None:
    take_over(where)
    with pytest.raises(SpoolError, match=r"spool\.json says .*flights.*hotels"):
        take_over(where, USE.__class__("/", "hotels"))
    folder = where.lane_folder("spark-1")
    where.store.write(folder, "photo.jpg", lambda sink: None)
    with pytest.raises(SpoolError, match=r"photo\.jpg"):
        take_over(where)
