"""A loop of batches without Spark: its log, and a driver that dies after every step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs
from spark_world.fake import FakeBroker, FakeClient

from pyspark_warren import errors
from pyspark_warren.batches import checkpoint as checkpoints
from pyspark_warren.batches import log
from pyspark_warren.batches.checkpoint import OWNER, Checkpoint
from pyspark_warren.batches.frame import flattened
from pyspark_warren.batches.log import Logged, Standing
from pyspark_warren.batches.run import BatchRun
from pyspark_warren.claims.reading import ClaimReading
from pyspark_warren.options.options import parse_options
from pyspark_warren.rows.decode import ARROW_TYPES
from pyspark_warren.spool.store import ArrowStore, LocalStore, Store

BODY = pa.schema([("body", ARROW_TYPES["body"])])


class Died(BaseException):
    """The driver was killed."""


class World:
    """A queue, a checkpoint, and the folder per batch that the function writes.

    dies_at  so many steps later the driver dies
    """

    def __init__(self, directory: Path, **given: str) -> None:
        self.broker = FakeBroker()
        self.broker.declare("in")
        self.directory = directory
        self.given = {"queue": "in", "maxMessagesPerTrigger": "10", **given}
        self.out: dict[int, list[bytes]] = {}
        self.steps: list[str] = []
        self.dies_at = 1 << 30

    def passed(self, step: str) -> None:
        self.steps.append(step)
        if len(self.steps) >= self.dies_at:
            self.dies_at = 1 << 30
            raise Died(step)

    def run(self) -> BatchRun:
        """A new process."""
        client: Any = FakeClient.local(self.broker)
        options = parse_options(self.given, "read", "stream")
        reading = ClaimReading(options, BODY, lambda _: client)
        world = self

        class Dying(Checkpoint):
            def _create(self, folder: str, number: int, data: bytes) -> bool:
                world.passed(f"before {folder}")
                made = super()._create(folder, number, data)
                world.passed(f"after {folder}")
                return made

        def process(number: int, tasks: list[Any]) -> None:
            rows = [
                row["body"]
                for task in tasks
                for batch in reading.rows(task)
                for row in batch.to_pylist()
            ]
            self.passed("before function")
            self.out[number] = rows
            self.passed("after function")

        return BatchRun(reading, Dying(str(self.directory)), process)

    def all(self) -> None:
        """Run until everything is read."""
        run = self.run()
        run.prepare_available_now()
        while run.step() is not None:
            pass
        run.close()

    def rows(self) -> list[bytes]:
        return sorted(row for rows in self.out.values() for row in rows)


def bodies(count: int, first: int = 0) -> list[bytes]:
    return [b"message %04d" % i for i in range(first, first + count)]


def test_a_driver_dies_after_any_step(tmp_path: Path) -> None:
    steps = World(tmp_path / "whole")
    steps.broker.publish("in", bodies(25))
    steps.all()
    assert len(steps.out) == 3 and steps.rows() == bodies(25)
    seen = set()
    for dies_at in range(1, len(steps.steps) + 1):
        world = World(tmp_path / str(dies_at))
        world.broker.publish("in", bodies(25))
        world.dies_at = dies_at
        with pytest.raises(Died) as died:
            world.all()
        seen.add(str(died.value))
        before = dict(world.out)
        world.broker.publish("in", bodies(5, 25))  # more than the batch had when it began
        world.all()
        assert {number: world.out[number] for number in before} == before, died.value
        assert world.rows() == bodies(30), died.value
        state = world.broker.state("in")
        assert (state["ready"], state["claims"], state["acknowledged"]) == (0, {}, 30)
    places = ("offsets", "function", "commits")
    assert seen == {f"{when} {place}" for when in ("before", "after") for place in places}


@pytest.mark.parametrize("step", ["before offsets", "before function", "after function"])
def test_two_loops_on_one_checkpoint_the_older_one_is_fenced(tmp_path: Path, step: str) -> None:
    """At its step a newer loop does everything, then the older one continues."""
    world = World(tmp_path)
    world.broker.publish("in", bodies(25))
    newer: list[int] = []

    def overtaken(at: str) -> None:
        if at == step and not newer and len(world.steps) > 3:
            newer.append(1)
            world.all()
        world.steps.append(at)

    world.passed = overtaken  # type: ignore[method-assign]
    with pytest.raises(errors.WarrenSparkError) as fenced:
        world.all()
    assert fenced.value.condition == "WARREN_FENCED", fenced.value
    assert newer and world.rows() == bodies(25)
    world.broker.publish("in", bodies(5, 25))
    world.all()
    assert world.rows() == bodies(30)


def test_an_older_loop_s_function_that_fails_is_told_why(tmp_path: Path) -> None:
    """Its rows are settled by the newer one."""
    world = World(tmp_path)
    world.broker.publish("in", bodies(5))

    def overtaken(at: str) -> None:
        if at == "before function":
            world.passed = world.steps.append  # type: ignore[method-assign]
            world.all()
            raise ValueError("its rows are gone")

    world.passed = overtaken  # type: ignore[method-assign]
    with pytest.raises(errors.FencedError, match="a newer loop has taken it over"):
        world.all()
    assert world.rows() == bodies(5)


def test_what_an_older_loop_has_just_logged_holds(tmp_path: Path) -> None:
    older, newer = Checkpoint(str(tmp_path)), Checkpoint(str(tmp_path))
    older.check_owner = lambda: None  # type: ignore[method-assign]  # it has just looked
    assert newer.standing() == Standing()
    older.begin(Standing(), {"of": "older"})
    begun = newer.begin(Standing(), {"of": "newer"})
    assert begun == Standing(0, None, {"of": "older"})
    older.done(begun)
    assert newer.done(begun) == newer.standing() == Standing(1, {"of": "older"})
    assert newer.query == older.query


def test_a_run_that_is_stopped_settles_its_batch(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.broker.publish("in", bodies(5))
    run = world.run()
    while not run.step():
        pass
    assert world.broker.state("in")["claims"]
    run.settle()
    assert not world.broker.state("in")["claims"]
    run.close()


def test_a_batch_with_a_lost_claim_replaces_what_was_written(tmp_path: Path) -> None:
    world = World(tmp_path, onClaimLost="continue")
    world.broker.publish("in", bodies(5))
    world.dies_at = 8
    with pytest.raises(Died, match="after function"):
        world.all()
    assert world.rows() == bodies(5)
    world.broker.release_claims("in")
    world.all()
    assert world.rows() == bodies(5)
    assert len(world.out) == 2


# ------------------------------------------------------------------ the files


def stores(tmp_path: Path) -> list[tuple[Store, str]]:
    return [(LocalStore(), str(tmp_path)), (ArrowStore(fs._MockFileSystem()), "bucket")]


def test_a_file_is_created_once(tmp_path: Path) -> None:
    for store, root in stores(tmp_path):
        store.make(f"{root}/a")
        assert store.read(f"{root}/a/1") is None
        assert store.create(f"{root}/a", "1", b"first")
        assert not store.create(f"{root}/a", "1", b"second")
        assert store.read(f"{root}/a/1") == b"first"
        assert list(store.sizes(f"{root}/a")) == ["1"]


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: str) -> None:
        raise PermissionError("no hard links")

    monkeypatch.setattr("os.link", refused)
    assert LocalStore().create(str(tmp_path), "1", b"first")
    assert not LocalStore().create(str(tmp_path), "1", b"second")
    assert [each.name for each in tmp_path.iterdir()] == ["1"]
    assert (tmp_path / "1").read_bytes() == b"first"


def test_the_log_is_spark_s(tmp_path: Path) -> None:
    """What Spark 4.3 wrote is read; what is written has its lines."""
    made = Checkpoint(str(tmp_path), lambda: 1.5)
    made.done(made.begin(Standing(), {"b": 1, "a": [True, "ü"]}))
    assert json.loads((tmp_path / "metadata").read_text()) == {"id": made.query}
    assert (tmp_path / "offsets" / "0").read_bytes() == (
        b'v1\n{"batchWatermarkMs":0,"conf":{},"batchTimestampMs":1500}\n'
        b'{"b": 1, "a": [true, "\\u00fc"]}'
    )
    assert (tmp_path / "commits" / "0").read_bytes() == b'v1\n{"nextBatchWatermarkMs":0}'
    of_spark = b'v1\n{"batchWatermarkMs":7,"batchTimestampMs":1,"conf":{"x":"y"}}\n{"a":1}'
    assert log.read_begun(3, of_spark) == Logged(
        {"batchWatermarkMs": 7, "batchTimestampMs": 1, "conf": {"x": "y"}}, {"a": 1}
    )


def test_old_batches_are_removed_with_their_checksums(tmp_path: Path) -> None:
    made = Checkpoint(str(tmp_path))
    at = made.standing()
    for number in range(log.LOG_FILES_MAX + 21):
        if number < 3:
            (tmp_path / "offsets" / f".{number}.crc").write_text("")
        at = made.done(made.begin(at, {"n": number}))
    kept = sorted(int(each.name) for each in (tmp_path / "commits").iterdir())
    assert kept == list(range(21, log.LOG_FILES_MAX + 21))
    assert not list((tmp_path / "offsets").glob(".*"))
    assert made.standing() == Checkpoint(str(tmp_path)).standing() == at


def written(directory: Path, batches: int = 2) -> Path:
    """A checkpoint with that many batches, the last one begun."""
    made = Checkpoint(str(directory))
    at = made.standing()
    for number in range(batches):
        at = made.begin(at, {"n": number})
        at = made.done(at) if number < batches - 1 else at
    return directory


@pytest.mark.parametrize(
    ("file", "size", "said"),
    [
        ("offsets/1", 0, "offsets/1 is cut short or damaged; .* delete it"),
        ("offsets/1", 2, "offsets/1 is cut short"),
        ("offsets/1", 40, "offsets/1 is cut short"),
        ("offsets/1", -3, "offsets/1 is cut short"),
        ("offsets/0", 30, "offsets/0 is cut short"),
        ("commits/0", 0, "commits/0 is cut short"),
        ("commits/0", -2, "commits/0 is cut short"),
        ("metadata", 5, "file metadata is cut short"),
    ],
)
def test_a_file_that_is_cut_short(tmp_path: Path, file: str, size: int, said: str) -> None:
    path = written(tmp_path) / file
    data = path.read_bytes()
    path.write_bytes(data[:size] if size >= 0 else data[: len(data) + size])
    with pytest.raises(errors.CheckpointDamagedError, match=f"checkpoint {tmp_path}: .*{said}"):
        Checkpoint(str(tmp_path)).standing()


@pytest.mark.parametrize(
    ("removed", "said"),
    [
        (["metadata"], "no file metadata"),
        (["offsets/0"], "offsets/2 without offsets/1|last file of offsets|without offsets/0"),
        (["commits/0"], "without commits/0"),
        (["offsets/0", "offsets/1"], "no file in offsets"),
    ],
)
def test_a_file_that_is_missing(tmp_path: Path, removed: list[str], said: str) -> None:
    written(tmp_path)
    for name in removed:
        (tmp_path / name).unlink()
    with pytest.raises(errors.CheckpointDamagedError, match=said):
        Checkpoint(str(tmp_path)).standing()


def test_checkpoints_that_no_loop_can_continue(tmp_path: Path) -> None:
    path = written(tmp_path) / "offsets" / "1"
    whole = path.read_text()
    for text, said in (
        (whole.replace("v1", "v2"), "format 'v2', this loop knows v1"),
        (whole + '\n{"other": 1}', "offsets of 2 sources"),
    ):
        path.write_text(text)
        with pytest.raises(errors.CheckpointError, match=said):
            Checkpoint(str(tmp_path)).standing()
    (tmp_path / "state").mkdir()
    with pytest.raises(errors.CheckpointError, match="a streaming query with a state"):
        Checkpoint(str(tmp_path))
    with pytest.raises(errors.CheckpointError, match="neither an absolute path nor a URI"):
        Checkpoint("relative")


def test_a_checkpoint_of_another_query(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.broker.publish("in", bodies(5))
    world.all()
    world.broker.declare("other")
    world.given["queue"] = "other"
    with pytest.raises(errors.CheckpointError, match="'in'"):
        world.all()
    (tmp_path / "offsets" / "1").write_text('v1\n{"batchWatermarkMs":0}\n{"topic": {"0": 7}}')
    with pytest.raises(errors.CheckpointError, match="not written by this source"):
        world.all()


def test_an_owner_file_that_was_removed(tmp_path: Path) -> None:
    made = Checkpoint(str(tmp_path))
    (tmp_path / OWNER).unlink()
    with pytest.raises(errors.CheckpointDamagedError, match="removed or changed"):
        made.begin(Standing(), {})
    assert checkpoints.OWNER not in [each.name for each in (tmp_path / "offsets").iterdir()]


def test_rows_without_nested_structs_hold_the_same() -> None:
    """What PySpark 3.4 gets in the place of them; a slice has a part of its arrays."""
    headers = [[("a", {"type": "string", "string": "x"})], None, [], [("b", None), ("c", {})]]
    places = [{"index": 1, "ordinal": 2}, None, {"index": None, "ordinal": 3}, {}]
    columns = [pa.array(headers, ARROW_TYPES["headers"]), pa.array(places, ARROW_TYPES["position"])]
    whole = pa.RecordBatch.from_arrays(columns, ["headers", "position"])
    for rows in (whole, whole.slice(1), whole.slice(1, 2), whole.slice(3, 0)):
        flat = flattened(rows).to_pydict()
        found = [
            keys if keys is None else list(zip(keys, values, strict=True))
            for keys, values in zip(flat["headers_keys"], flat["headers_values"], strict=True)
        ]
        assert found == rows.column("headers").to_pylist()
        assert [row[0] for row in flat["position"]] == rows.column("position").to_pylist()
