"""One log, one state: over snapshots, repeats, and interpreters with other hash seeds."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import pytest

from machines.metadata.world import NODES, World
from warren_machines.metadata import commands
from warren_machines.metadata.commands import AnyCommand
from warren_machines.metadata.exchange_types import CHOOSING_KINDS
from warren_machines.metadata.imports import IMPORTED
from warren_machines.metadata.machine import HANDLERS, MetadataMachine
from warren_machines.metadata.records import Grant, Parameter, Policy, User, Vhost
from warren_machines.metadata.vhosts_and_users import protection
from warren_raft.machine import Meta
from warren_raft.versions import NEWEST
from warren_wire.arguments import QueueDefaults, queue_declaration

SAMPLE = Path(__file__).with_name("format_1.txt")
"""Of format 1: per line an entry of a grown log (`grow`), in hex; the last line is its snapshot."""
VHOSTS = ("/", "v")
PAIRS = tuple(combinations(NODES, 2))
EXCHANGES = ("amq.direct", "amq.topic", "x", "y", "z", "")
QUEUES = ("p", "q", "r", "s")
URIS = {"shovel": ("src-uri", "dest-uri"), "federation-upstream": ("uri",)}
DECLARED_KINDS = ("direct", "topic", "headers", *CHOOSING_KINDS)


def limits_command(draw: random.Random) -> AnyCommand:
    """Any change of limits."""
    of_vhost = draw.random() < 0.5
    name = "max-queues" if of_vhost else "max-channels"
    return commands.ChangeLimits(
        "vhost" if of_vhost else "user",
        draw.choice((*VHOSTS, "u", "w")),
        {name: draw.choice((-1, 0, 2, 3))} if draw.random() < 0.5 else {},
        replace=draw.random() < 0.3,
        cleared=draw.choice(((), (name,))),
    )


def one_command(draw: random.Random) -> AnyCommand:
    """Any command, about few enough names that they meet."""
    vhost = draw.choice(VHOSTS)
    source, other = draw.choice(EXCHANGES), draw.choice(EXCHANGES)
    queue, key = draw.choice(QUEUES), draw.choice(("", "k", "a.*", "2"))
    to_queue, connection = draw.random() < 0.7, draw.choice((0, 1, 2))
    ends = (vhost, source, queue if to_queue else other, to_queue, key, {}, connection)
    declaration = queue_declaration(
        vhost,
        queue,
        durable=draw.random() < 0.5,
        exclusive=draw.random() < 0.4,
        auto_delete=draw.random() < 0.3,
        arguments=draw.choice(({}, {"x-max-length": 5})),
        defaults=QueueDefaults(),
    )
    home, away = draw.choice(NODES), draw.choice(NODES)
    config = declaration.config
    nodes = tuple(sorted(draw.sample(NODES, 2))) if config.kind == "quorum" else (home,)
    declare = commands.DeclareQueue(config, declaration.arguments, nodes, nodes[0], connection)
    group = draw.randint(1, 60)
    choices: list[AnyCommand] = [
        commands.Barrier(),
        commands.Bootstrap(Vhost("/"), User("guest", "h")),
        commands.AddVhost(Vhost(vhost)),
        commands.PutVhost(Vhost(vhost, draw.choice("de"), (), draw.choice(("", "classic")))),
        commands.PutUser(User(draw.choice("uw"), "h", tuple(draw.choice("mt")))),
        commands.PutUser(User(draw.choice("uw"), "h", draw.choice(((), ("administrator",))))),
        limits_command(draw),
        commands.PutGrant(
            Grant(vhost, draw.choice("uw"), "a", "b", "c", draw.choice((None, "amq.topic")))
        ),
        commands.DeleteGrant(vhost, draw.choice("uw"), draw.choice((None, "", "amq.topic"))),
        commands.DeclareExchange(
            vhost,
            source,
            draw.choice(DECLARED_KINDS),
            auto_delete=draw.random() < 0.5,
        ),
        commands.DeleteExchange(vhost, source, draw.random() < 0.5),
        *(commands.Bind(*ends),) * 2,
        commands.Unbind(*ends),
        declare,
        declare,
        commands.ChangeMembers(group, (home,), (away,)),
        commands.ChangeMembers(group, remove=(away,)),
        commands.Left(group, draw.choice((home, away))),
        commands.SetDrained(home, draw.random() < 0.5),
        commands.JoinNode(home, draw.choice((11, 12, 13)), "h:1"),
        commands.DeleteQueue(vhost, queue, 0, connection),
        commands.OwnerGone(draw.choice((71, 72)), connection),
        one_about_policies(draw, vhost),
        one_about_parameters(draw, vhost),
    ]
    rare = draw.random() < 0.08
    return draw.choice(rare_commands(draw, vhost, home, choices) if rare else choices)


def one_about_policies(draw: random.Random, vhost: str) -> AnyCommand:
    """Set or clear a policy or operator policy, with few names."""
    name, operator = draw.choice("lm"), draw.random() < 0.5
    if draw.random() < 0.4:
        return commands.ClearPolicy(vhost, name, operator)
    definition = {"max-length": draw.randint(1, 3)}
    pattern, priority = draw.choice(("^q", ".*")), draw.randint(-1, 1)
    return commands.SetPolicy(Policy(vhost, name, pattern, definition, priority, "all", operator))


def one_about_parameters(draw: random.Random, vhost: str) -> AnyCommand:
    """Set or clear a parameter, or a global one."""
    component, name = draw.choice(tuple(URIS)), draw.choice("st")
    where = draw.choice((vhost, ""))
    if draw.random() < 0.4:
        return commands.DeleteParameter(where, component if where else "", name)
    value = {key: f"amqp://{draw.randint(1, 3)}" for key in URIS[component]}
    return commands.PutParameter(Parameter(where, component if where else "", name, value))


def one_import(draw: random.Random, choices: list[AnyCommand]) -> AnyCommand:
    """Import some of the commands that can be, most of which are often refused."""
    some = [one for one in choices if isinstance(one, tuple(IMPORTED))]
    picked = draw.sample(some, draw.randint(1, 4))
    source = draw.choice(("", "", "d1", "d2"))
    return commands.ImportDefinitions(tuple(picked), source, draw.random() < 0.1)


def rare_commands(
    draw: random.Random, vhost: str, home: str, others: list[AnyCommand]
) -> list[AnyCommand]:
    """Commands that remove much, or add much: one of them in many."""
    if draw.random() < 0.6:
        return [one_import(draw, others)]
    return [
        commands.DeleteVhost(vhost),
        commands.PutParameter(protection(vhost, draw.random() < 0.5)),
        commands.DeleteUser(draw.choice("uw")),
        commands.ForgetNode(home),
        commands.RemoveNode(home, draw.choice((11, 12))),
        commands.RaiseVersion(draw.choice((1, 2))),
        *(commands.RecoverQueue(draw.randint(1, 9), home, pair) for pair in PAIRS),
    ]


def grow(seed: int, entries: int = 150) -> World:
    """A world with a plausible log: several nodes, repeats, gaps, restarts."""
    draw = random.Random(seed)
    world = World()
    world.do(commands.AddVhost(Vhost("v")))
    lives = {"a": 71, "b": 72, "c": 73}
    for _ in range(entries):
        node = draw.choice(NODES)
        if draw.random() < 0.03:
            lives[node] += 10
            life = lives[node]
            started = commands.NodeStarted(node, life, draw.choice((11, 12)), f"{node}:1")
            world.submit(started, uplink=life, node=node)
        some = [one_command(draw) for _ in range(draw.randint(1, 4))]
        uplink = lives[node]
        odd = draw.random()
        if odd < 0.05 and world.seqs.get(uplink):
            world.submit(*some, uplink=uplink, node=node, seq=world.seqs[uplink])
        elif odd < 0.08:
            world.submit(*some, uplink=uplink, node=node, seq=world.seqs.get(uplink, 0) + 2)
        elif odd < 0.1:
            world.submit(*some, uplink=uplink - 10, node=node, seq=1)
        else:
            world.submit(*some, uplink=uplink, node=node)
    return world


def digest(seed: int) -> str:
    """Of everything that a grown log leaves."""
    world = grow(seed)
    return hashlib.sha256(world.machine.snapshot(world.state)).hexdigest()


def replay(log: list[bytes], cut: int) -> tuple[bytes, list[tuple[Any, ...]]]:
    """Apply a log with a snapshot and restore after `cut` entries; the state, the replies."""
    machine = MetadataMachine()
    state, replies = machine.init(), []
    for index, data in enumerate(log, 1):
        applied = machine.apply(Meta(index, 1, 1000), data, state)
        replies.append((applied.reply, applied.effects))
        if index == cut:
            image = machine.snapshot(state)
            state = machine.restore(image)
            assert machine.snapshot(state) == image
    return machine.snapshot(state), replies


@pytest.mark.parametrize("seed", range(8))
def test_a_log_split_anywhere_gives_the_same(seed: int) -> None:
    world = grow(seed)
    whole = replay(world.log, 0)
    assert whole[0] == world.machine.snapshot(world.state)
    for cut in range(1, len(world.log), 13):
        assert replay(world.log, cut) == whole, cut


def test_a_log_and_a_snapshot_of_format_1_are_read() -> None:
    *log, image = [bytes.fromhex(line) for line in SAMPLE.read_text().split()]
    state, _ = replay(log, len(log) // 2)
    assert state == image
    machine = MetadataMachine()
    assert machine.snapshot(machine.restore(image)) == image


def test_a_submission_without_a_version_is_ignored() -> None:
    world = World()
    *fields, version = msgspec.msgpack.decode(world.log[0])
    assert version == NEWEST
    before = world.machine.snapshot(world.state)
    assert world.entry(msgspec.msgpack.encode(fields)) is None
    assert world.machine.snapshot(world.state) == before


def test_grown_logs_meet_every_command_and_make_something() -> None:
    made = {type(one_command(random.Random(seed))) for seed in range(3000)}
    assert made | {commands.NodeStarted} == set(HANDLERS)
    worlds = [grow(seed) for seed in range(6)]
    assert any(world.state.groups for world in worlds)
    assert any(scope.bindings for world in worlds for scope in world.state.scopes.values())


def test_two_hash_seeds_give_one_digest() -> None:
    root = Path(__file__).resolve().parents[3]
    path = os.pathsep.join(str(root / part) for part in ("raft", "broker", "tests"))
    code = (
        "from machines.metadata.test_determinism import digest\n"
        "print([digest(seed) for seed in range(3)])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in (1, 2)
    }
    assert len(outputs) == 1 and "[" in outputs.pop()
