"""Blocks of stages while a resource alarm is set: they wait, and what waits too long says why."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path

import pytest

from tests.live.conftest import Mount, eventually
from tests.live.test_full_disk import fill
from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.errors import Unavailable
from warren.local import LocalCluster
from warren.stages import SinkDriver, StagedPart, StageWriter, draw_epoch, publish_batch
from warren_wire.block.block import encode

BODY = bytes(40_000)


def block(number: int) -> bytes:
    """Three messages for the queue `q`."""
    bodies = [b"%d " % (3 * number + i) + BODY for i in range(3)]
    return encode(bodies, [b"\x00\x00"] * 3, (b"", b"q"), [4] * 3)


def test_what_waits_too_long_for_an_alarm_says_so(tmp_path: Path) -> None:
    settings = {"alarms": {"memory_high_watermark_bytes": 1 << 20, "interval_ms": 20}}
    with LocalCluster(1, tmp_path, settings=settings) as cluster, cluster.connect() as connection:
        Admin(connection).queues.declare("q")
        eventually(lambda: "alarms: " in cluster.log(0), "the alarm")
        driver = SinkDriver("sink", uuid.uuid4().hex, draw_epoch(connection))
        writer = StageWriter(connection, driver, batch=0, partition=0, timeout_s=1.0)
        with pytest.raises(Unavailable, match="no credit for 1 blocks.*alarm .memory, disk."):
            writer.write(block(0))
            writer.finish()


def test_a_stage_interrupted_by_a_full_disk_is_completed(tmp_path: Path, mount: Mount) -> None:
    settings = {"alarms": {"disk_free_limit_bytes": 4 << 20, "interval_ms": 20}}
    cluster = LocalCluster(1, tmp_path, settings=settings)
    place = mount(cluster.nodes[0].data_dir)
    with cluster, cluster.connect() as connection:
        Admin(connection).queues.declare("q")
        driver = SinkDriver("sink", uuid.uuid4().hex, draw_epoch(connection))
        writer = StageWriter(connection, driver, batch=0, partition=0, timeout_s=PATIENCE_S)
        for number in range(5):
            writer.write(block(number))
        writer._sender.flush()
        ballast = fill(place)
        eventually(lambda: "alarms: " in cluster.log(0), "the alarm")
        done: list[StagedPart] = []

        def rest() -> None:
            for number in range(5, 10):
                writer.write(block(number))
            done.append(writer.finish())

        sending = threading.Thread(target=rest, daemon=True)
        sending.start()
        eventually(lambda: writer._sender.unanswered > 0, "a block waits")
        assert not done
        ballast.unlink()
        sending.join(PATIENCE_S)
        assert done and done[0].blocks == 10
        assert publish_batch(connection, driver, 0, done) == 30
        assert publish_batch(connection, driver, 0, done) == 30
        assert Admin(connection).queues.get("q").messages_ready == 30
