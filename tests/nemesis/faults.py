"""What is done to the nodes of a run, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from nemesis.disk_faults import DISKS, FILES
from nemesis.member_faults import MEMBERS
from nemesis.scene import DOWN_S, Scene

REST_S = (4.0, 9.0)
"""Between two faults: long enough for most clients to be back."""
CUT_S = (3.0, 10.0)
PAUSE_LONG_S = (3.0, 12.0)
PAUSE_SHORT_S = (0.2, 1.6)
SLOW_S = (4.0, 10.0)
FLAP_ON_S = 0.1
FLAP_OFF_S = (0.1, 0.6)
STUTTERS = 6
SILENT_S = (0.8, 2.6)
"""From just below the time after which a node is suspected to the time after which it is called
again beside the silent connection."""
SPEAKS_S = (0.01, 0.3)
"""Less than a handshake takes on a busy machine, or a little more."""


Act: TypeAlias = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Planned:
    """One fault: how long after the one before, its kind, the seed of everything else in it."""

    rest_s: float
    kind: str
    seed: int


def _away(
    scene: Scene, what: str, node: int, seconds: tuple[float, float], go: Act, return_: Act
) -> None:
    """Take a node away for some time."""
    scene.say(f"{what} node-{node}")
    scene.hit(node)
    go(node)
    scene.wait(seconds)
    return_(node)


def _kill(scene: Scene, node: int) -> None:
    _away(scene, "kill -9", node, DOWN_S, scene.nodes.kill, scene.nodes.start)


def kill_leader(scene: Scene) -> None:
    """A queue's leader dies, comes back some seconds later."""
    _kill(scene, scene.leader())


def kill_follower(scene: Scene) -> None:
    """Another node than that dies."""
    _kill(scene, scene.other(scene.leader()))


def kill_restart(scene: Scene) -> None:
    """A node dies and is back before it could be suspected: a new life, an old one's traffic."""
    node = scene.any()
    scene.say(f"kill -9 node-{node}, started at once")
    scene.hit(node)
    scene.nodes.kill(node)
    scene.nodes.start(node)
    scene.wait(1.0)


def kill_two(scene: Scene) -> None:
    """A leader and another node die together: no majority of three until one is back."""
    first = scene.leader()
    second = scene.other(first)
    scene.say(f"kill -9 node-{first} and node-{second}")
    scene.hit(first, second)
    for node in (first, second):
        scene.nodes.kill(node)
    scene.wait(DOWN_S)
    for node in (first, second):
        scene.nodes.start(node)
        scene.wait((0.0, 1.0))


def kill_all(scene: Scene) -> None:
    """Every node dies at once; they come back one by one."""
    scene.say("kill -9 all nodes")
    scene.hit(*range(len(scene.nodes)))
    for node in range(len(scene.nodes)):
        scene.nodes.kill(node)
    for node in range(len(scene.nodes)):
        scene.nodes.start(node)
        scene.wait((0.0, 1.0))


def rolling_restart(scene: Scene) -> None:
    """Each node is stopped in good order and started again, one after the other."""
    for node in range(len(scene.nodes)):
        scene.say(f"SIGTERM node-{node}")
        scene.hit(node)
        scene.nodes.stop(node)
        scene.wait((0.0, 0.5))
        scene.nodes.start(node)
        scene.wait((2.0, 4.0))


def _pause(scene: Scene, node: int, seconds: tuple[float, float]) -> None:
    _away(scene, "SIGSTOP", node, seconds, scene.nodes.pause, scene.nodes.resume)


def pause_short(scene: Scene) -> None:
    """Shorter than the time after which a node is suspected."""
    _pause(scene, scene.any(), PAUSE_SHORT_S)


def pause_leader(scene: Scene) -> None:
    """A leader sleeps until others lead, wakes up with what it believed then."""
    _pause(scene, scene.leader(), PAUSE_LONG_S)


def pause_follower(scene: Scene) -> None:
    """A node with clients of its own sleeps, and is suspected."""
    _pause(scene, scene.other(scene.leader()), PAUSE_LONG_S)


def stutter(scene: Scene) -> None:
    """A node sleeps until it is suspected and called again, wakes for a moment, sleeps again."""
    node = scene.any()
    scene.say(f"node-{node} stutters")
    scene.hit(node)
    for _ in range(STUTTERS):
        scene.nodes.pause(node)
        scene.wait(SILENT_S)
        scene.nodes.resume(node)
        scene.wait(SPEAKS_S)


def pause_kill(scene: Scene) -> None:
    """A leader suspects a node and dies as that wakes up: no other node ever took it for silent."""
    leader = scene.leader()
    sleeper = scene.other(leader)
    scene.say(f"SIGSTOP node-{sleeper}, kill -9 node-{leader} as it continues")
    scene.hit(leader, sleeper)
    scene.nodes.pause(sleeper)
    scene.wait(PAUSE_LONG_S)
    scene.nodes.kill(leader)
    scene.nodes.resume(sleeper)
    scene.wait(DOWN_S)
    scene.nodes.start(leader)


def _cut_off(scene: Scene, node: int) -> None:
    scene.say(f"node-{node} is cut off")
    scene.hit(node)
    scene.isolate(node)
    scene.wait(CUT_S)
    scene.heal()


def _link(scene: Scene) -> tuple[int, int]:
    """A leader and another node."""
    leader = scene.leader()
    return leader, scene.other(leader)


def cut_leader(scene: Scene) -> None:
    """A leader and its clients on one side, the majority on the other."""
    _cut_off(scene, scene.leader())


def cut_follower(scene: Scene) -> None:
    """Another node is cut off."""
    _cut_off(scene, scene.other(scene.leader()))


def cut_pair(scene: Scene) -> None:
    """A leader and one other cannot talk; both reach the third."""
    node, peer = _link(scene)
    scene.say(f"no link between node-{node} and node-{peer}")
    scene.network.cut(node, peer)
    scene.network.cut(peer, node)
    scene.wait(CUT_S)
    scene.heal()


def half_cut(scene: Scene) -> None:
    """One direction of one link only."""
    node, peer = _link(scene)
    pair = (node, peer) if scene.chance.random() < 0.5 else (peer, node)
    scene.say(f"nothing gets from node-{pair[0]} to node-{pair[1]}")
    scene.network.cut(*pair)
    scene.wait(CUT_S)
    scene.heal()


def half_isolate(scene: Scene) -> None:
    """A leader hears every node, and no node hears it; or the other way round."""
    node, deaf = scene.leader(), scene.chance.random() < 0.5
    scene.say(f"node-{node} hears no node" if deaf else f"no node hears node-{node}")
    scene.hit(node)
    for peer in range(len(scene.nodes)):
        if peer != node:
            scene.network.cut(*((peer, node) if deaf else (node, peer)))
    scene.wait(CUT_S)
    scene.heal()


def stutter_link(scene: Scene) -> None:
    """A link carries nothing, or nothing in one direction, then for a moment, then nothing."""
    node, peer = _link(scene)
    pairs = scene.chance.choice((((node, peer),), ((peer, node),), ((node, peer), (peer, node))))
    scene.say(f"the link between node-{node} and node-{peer} stutters")
    for _ in range(STUTTERS):
        for pair in pairs:
            scene.network.cut(*pair)
        scene.wait(SILENT_S)
        scene.heal()
        scene.wait(SPEAKS_S)


def slow_link(scene: Scene) -> None:
    """What a node sends, to peers and clients, waits and is dropped."""
    node = scene.any()
    scene.say(f"node-{node} sends slowly")
    scene.hit(node)
    scene.network.slow(node)
    scene.wait(SLOW_S)
    scene.heal()


def lossy_link(scene: Scene) -> None:
    """A leader's link to another node works, does not, works …"""
    node, peer = _link(scene)
    scene.say(f"the link between node-{node} and node-{peer} comes and goes")
    for _ in range(12):
        for pair in ((node, peer), (peer, node)):
            scene.network.cut(*pair)
        scene.wait(FLAP_ON_S)
        scene.heal()
        scene.wait(FLAP_OFF_S)


LOCAL: dict[str, Callable[[Scene], None]] = {
    "kill-leader": kill_leader,
    "kill-follower": kill_follower,
    "kill-restart": kill_restart,
    "kill-two": kill_two,
    "kill-all": kill_all,
    "rolling-restart": rolling_restart,
    "pause-short": pause_short,
    "pause-leader": pause_leader,
    "pause-follower": pause_follower,
    "pause-kill": pause_kill,
    "stutter": stutter,
}
PARTITIONS: dict[str, Callable[[Scene], None]] = {
    "cut-leader": cut_leader,
    "cut-follower": cut_follower,
    "cut-pair": cut_pair,
    "half-cut": half_cut,
    "half-isolate": half_isolate,
    "slow-link": slow_link,
    "lossy-link": lossy_link,
    "stutter-link": stutter_link,
}
FAULTS = {**LOCAL, **MEMBERS, **PARTITIONS, **DISKS, **FILES}


def possible(can_cut: bool, has_disks: bool) -> set[str]:
    """The faults for which there is what they need on this machine."""
    return {
        kind
        for kind in FAULTS
        if (can_cut or kind not in PARTITIONS) and (has_disks or kind not in DISKS)
    }


def schedule(seed: int, kinds: list[str], count: int) -> list[Planned]:
    """Every kind once before any comes again, each round in an order of its own."""
    chance = random.Random(seed)
    planned: list[Planned] = []
    while len(planned) < count:
        order = sorted(kinds)
        chance.shuffle(order)
        for kind in order:
            planned.append(Planned(chance.uniform(*REST_S), kind, chance.randrange(1 << 32)))
    return planned[:count]


def inflict(scene: Scene, planned: Planned) -> None:
    """One fault, from its rest to its end."""
    scene.wait(planned.rest_s)
    if scene.stop.is_set():
        return
    scene.chance = random.Random(planned.seed)
    scene.record("fault", kind=planned.kind, phase="begin")
    FAULTS[planned.kind](scene)
    scene.record("fault", kind=planned.kind, phase="end")
