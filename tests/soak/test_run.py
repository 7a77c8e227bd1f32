"""A short soak, so that the long ones work when they are wanted; what their result is."""

from __future__ import annotations

import json
import time
from dataclasses import asdict

import pytest

from soak import memory
from soak.load import KINDS, VISITS, Load
from soak.memory import MIB
from soak.run import SETTINGS, Sample, result, slope
from tests.patience import PATIENCE_S
from warren.local import LocalCluster

SMAPS = """\
00400000-00800000 r-xp 00000000 08:01 1                  /usr/bin/python3.11
Rss:                1024 kB
7f0000000000-7f0000100000 r-xp 00000000 08:01 2          /usr/lib/libc.so.6
Rss:                 512 kB
55d000000000-55d000400000 rw-p 00000000 00:00 0          [heap]
Rss:                4096 kB
7f4000000000-7f4000021000 rw-p 00000000 00:00 0
Rss:                 132 kB
7f5001000000-7f5001100000 rw-p 00000000 00:00 0
Rss:                  64 kB
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0          [stack]
Rss:                  16 kB
7f6000000000-7f6000100000 rw-s 00000000 08:01 3          /var/lib/data/index
Rss:                   8 kB
"""


def test_resident_memory_is_told_apart_by_its_mapping() -> None:
    assert memory.resident(SMAPS.splitlines()) == {
        "code": 1536 << 10,
        "heap": 4096 << 10,
        "arenas": 132 << 10,
        "mapped": 80 << 10,
        "files": 8 << 10,
    }


def samples(*mebibytes: float) -> list[Sample]:
    """One sample a minute."""
    return [Sample(60.0 * i, {"heap": int(size * MIB)}, {}) for i, size in enumerate(mebibytes)]


def test_a_sample_can_be_kept() -> None:
    sample = Sample(1.0, memory.resident(SMAPS.splitlines()), {"used": 1})
    assert json.loads(json.dumps(asdict(sample)))["parts"]["heap"] == 4096 << 10


def test_the_slope_is_of_what_follows_the_first_half() -> None:
    fills_up = result(samples(60, 110, 160, 200, 200, 201, 200, 200), 7 * 60)
    assert fills_up.is_flat and fills_up.seconds == 180
    grows = result(samples(60, 110, 160, 200, 203, 206, 209, 212), 7 * 60)
    assert not grows.is_flat
    assert grows.slope * 60 == pytest.approx(3 * MIB)


def test_the_first_half_hour_of_a_long_one_does_not_count() -> None:
    long = result(samples(*[100.0] * 30, *[200.0] * 90), 119 * 60)
    assert long.is_flat and long.seconds == 89 * 60


def test_too_few_samples_have_no_slope() -> None:
    assert slope([]) == slope([(1.0, 5.0)]) == 0.0
    assert result([], 60).mean == 0.0


@pytest.mark.live
@pytest.mark.slow
def test_the_load_uses_every_kind_of_queue() -> None:
    with LocalCluster(nodes=3, settings=SETTINGS) as cluster:
        load = Load(cluster.addresses, cluster.uri, rate=210, seed=1)
        load.start()
        deadline = time.monotonic() + PATIENCE_S
        taken = {VISITS, *(kind.queue for kind in KINDS if kind.way != "none")}
        while taken - set(load.counts.taken) and not load.counts.problems:
            assert time.monotonic() < deadline, load.counts
            time.sleep(0.1)
        allocated = memory.allocator(cluster.node(0).data_dir)
        load.stop()
    assert not load.counts.problems
    assert set(load.counts.confirmed) == {VISITS, *(kind.queue for kind in KINDS if kind.share)}
    assert allocated["used"] > MIB and set(allocated) == {"used", "free", "large"}
