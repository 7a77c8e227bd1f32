"""Each target of `build.py fuzz`, without the fuzzer: its seeds, and seeds with a few changes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from typing import Any

import pytest

from tests.broker.clients091.peer import Peer
from tests.broker.clients10 import stream_fuzz
from tests.broker.clients10.test_connection import new, output
from tests.fuzz import run, text_targets
from tests.fuzz.reshape import reshaped
from tests.fuzz.targets import TARGETS
from tests.wire.kernel import frames as f
from warren_broker.access.requests import AuthenticateRequest, OpenVhostRequest, RequestDone
from warren_wire.amqp091 import codec, methods

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


OPENING = (
    b"AMQP\x00\x00\x09\x01",
    methods.ConnectionStartOk({}, "PLAIN", b"\0guest\0secret"),
    methods.ConnectionTuneOk(2047, 131_072, 60),
    methods.ConnectionOpen("/"),
    methods.ChannelOpen(),
)
"""A client's header and methods until its first channel is open."""


def shown(part: Any, names: tuple[str, ...]) -> dict[str, str]:
    """The fields of an object, but those of these names."""
    return {name: repr(getattr(part, name)) for name in part.__slots__ if name not in names}


def test_a_connection_of_the_fuzzer_is_as_after_the_handshake() -> None:
    handshake = Peer().conn
    for one in OPENING:
        data = one if isinstance(one, bytes) else codec.encode_method(one)
        channel = int(isinstance(one, methods.ChannelOpen))
        handshake.receive(one if isinstance(one, bytes) else f.frame(1, channel, data))
        for request in handshake.take_requests():
            if isinstance(request, AuthenticateRequest | OpenVhostRequest):
                handshake.answer(request.token, RequestDone())
    handshake.take_output()
    made = text_targets.opened091()
    assert made.state.phase == "running" and made.state.channels[1].state == "open"
    objects = (
        "ids",
        "view",
        "scanner",
        "liveness",
        "channels",
        "sessions",
        "publishes",
        "held_back",
        "config",
    )
    assert shown(made.state, objects) == shown(handshake.state, objects)
    assert shown(made.state.liveness, ()) == shown(handshake.state.liveness, ())
    assert made.state.scanner.frame_max == handshake.state.scanner.frame_max
    assert made.state.channels.keys() == handshake.state.channels.keys()
    assert made.state.sessions.keys() == handshake.state.sessions.keys()
    parts = ("connection", "deliveries", "held_back", "publishes")
    one, other = made.state.channels[1], handshake.state.channels[1]
    assert shown(one, parts) == shown(other, parts)
    assert shown(one.held_back, ("counted",)) == shown(other.held_back, ("counted",))


def test_a_connection_of_the_fuzzer_is_as_after_the_login() -> None:
    said = []
    for connection, first in ((new(), 0), (text_targets.logged_in10(), stream_fuzz.LOGIN - 1)):
        for at, frame in enumerate(stream_fuzz.FRAMES[first:], first):
            connection.receive(frame)
            stream_fuzz.carry_out(connection, reads=at < stream_fuzz.LOGIN - 1)
        said.append((connection.user, connection.vhost, output(connection)))
        connection.free()
    assert said[0] == said[1] and len(said[0][2]) > 1_000


def test_a_run_of_a_whole_connection_is_sanitized_for_a_part() -> None:
    plain, other = TARGETS["connection-1.0"], TARGETS["scan"]
    assert run.legs(plain, 60, 0) == [(True, 8, 0), (False, 52, 0)]
    assert run.legs(plain, 0, 1) == [(True, 0, 1)]
    assert run.legs(plain, 0, 800) == [(True, 0, 100), (False, 0, 700)]
    assert run.legs(other, 60, 5) == [(True, 60, 5)]


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
