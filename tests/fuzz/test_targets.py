"""Each target of `build.py fuzz`, without the fuzzer: its seeds, and seeds with a few changes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from unittest import mock

import pytest

from tests.broker.amqp091 import peer
from tests.broker.kernel import frames as f
from tests.fuzz import run, text_targets
from tests.fuzz.reshape import reshaped
from tests.fuzz.targets import TARGETS
from warren_broker.amqp091.connection import Connection

CHANGED = 1500
CHANGED_CONNECTIONS = 300
"""Inputs per target; those of whole connections take longer."""


def changed(chance: random.Random, data: bytes, other: bytes) -> bytes:
    """A few octets changed, removed, repeated, or taken from another seed."""
    made = bytearray(data or b"\0")
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(made))
        kind = chance.randrange(5)
        if kind == 0:
            made[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            made[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        elif kind == 2 and len(made) > 9:
            del made[at : at + chance.randrange(1, 9)]
        elif kind == 3:
            made[at:at] = made[at : at + 8]
        else:
            start = chance.randrange(len(other) + 1)
            made[at:at] = other[start : start + 16]
    return bytes(made)


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_without_the_fuzzer(name: str) -> None:
    target, chance = TARGETS[name], random.Random(name)
    seeds = list(target.seeds())
    assert seeds and sum(map(len, seeds)) < 200_000
    count = CHANGED_CONNECTIONS if name.startswith("connection") else CHANGED
    for data in seeds:
        target.play(data)
    for _ in range(count):
        data = changed(chance, chance.choice(seeds), chance.choice(seeds))
        try:
            target.play(data)
        except Exception as error:
            raise AssertionError(f"{name}: {data.hex()}") from error


@pytest.mark.parametrize("name", [name for name in TARGETS if TARGETS[name].heads])
def test_messagepack_with_other_values(name: str) -> None:
    target, chance = TARGETS[name], random.Random(name)
    seeds = list(target.seeds())
    made = 0
    for _ in range(CHANGED):
        data = chance.choice(seeds)
        for _ in range(chance.choice((1, 1, 2, 4))):
            found = reshaped(chance, data, chance.choice(target.heads))
            made += found is not None
            data = data if found is None else found
        try:
            target.play(data)
        except Exception as error:
            raise AssertionError(f"{name}: {data.hex()}") from error
    assert made > CHANGED / 4


def test_a_connection_of_the_fuzzer_is_open() -> None:
    """Else all of its inputs would end in the handshake."""
    closed: list[bool] = []

    class Watched(Connection):
        def receive(self, data: bytes | bytearray | memoryview) -> None:
            super().receive(data)
            closed.append(self.state.phase != "running" or 1 not in self.state.channels)

    with mock.patch.object(peer, "Connection", Watched):
        text_targets.connection091(f.publish(1, b"", b"q", b"body"))
    assert closed == [True, True, True, True, False, False]


def test_nothing_is_fuzzed_without_the_tools() -> None:
    """Said aloud, and a failure where every test is to run."""
    program = (
        "from tests.fuzz import instruments, run\n"
        "def missing(): raise instruments.NotInstalled('no clang')\n"
        "instruments.ensure = missing\n"
        "raise SystemExit(run.main(['--runs', '1']))\n"
    )
    for strict, code in (("", 0), ("1", 1)):
        env = {**os.environ, "WARREN_STRICT": strict, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", program], env=env, text=True, capture_output=True, check=False
        )
        assert done.returncode == code, done.stderr
        assert "nothing was fuzzed: no clang" in done.stdout


def test_a_fuzzer_that_was_stopped_has_found_nothing() -> None:
    assert [run.is_finding(code) for code in (0, 72, -15, -2)] == [False] * 4
    assert [run.is_finding(code) for code in (1, 71, 77, -6, -9, -11)] == [True] * 6
