"""Faults that cost a node its memory, or a queue one of its members.

Each of them waits until the cluster is whole again: no promise covers two disks lost at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from nemesis.scene import DOWN_S, Scene
from wal_records import records_end
from warren.admin import Admin
from warren.connection import Connection
from warren.errors import WarrenError

WHOLE_S = 90.0
"""By then a member that lost everything is a voter again."""
ASK_S = 10.0
POLL_S = 0.25
FLIPS = (1, 5)
"""Bits flipped, each in a file of its own choice."""
KEPT_FILES = ("node.json", "lock")
"""What is refused when it is damaged, rather than healed."""


def _ask(
    scene: Scene, what: str, call: Callable[[Admin], object], patience_s: float = WHOLE_S
) -> None:
    """Until it is granted: a request may meet a cluster without a leader."""
    ends = time.monotonic() + patience_s
    while not scene.stop.is_set():
        try:
            with Connection(scene.nodes.address(timeout_s=ASK_S)) as connection:
                call(Admin(connection))
            return
        except WarrenError as error:
            if time.monotonic() > ends:
                scene.problem(f"{what}: {error}")
                return
        scene.stop.wait(POLL_S)


def _not_whole(scene: Scene) -> str:
    """What is missing; "": every queue has the members it is to have, all in step."""
    with Connection(scene.nodes.address(timeout_s=ASK_S)) as connection:
        admin = Admin(connection)
        for queue in scene.queues:
            status = admin.members.get(queue)
            wrong = [
                f"{member.node} {member.state}"
                for member in status.members
                if member.state != "running" or not member.voter
            ]
            if wrong or not status.settled:
                return f"{queue}: {', '.join(wrong) or 'members are not those wanted'}"
        for node in admin.nodes.list():
            if not node.running or node.metadata not in ("leader", "follower"):
                return f"{node.name}: {node.metadata} in the definitions"
    return ""


def wait_whole(scene: Scene) -> None:
    """Until nothing is missing; else it is a problem."""
    ends = time.monotonic() + WHOLE_S
    while not scene.stop.is_set():
        try:
            missing = _not_whole(scene)
        except WarrenError as error:
            missing = str(error)
        if not missing:
            return
        if time.monotonic() > ends:
            scene.problem(f"not whole after {WHOLE_S:g} s: {missing}")
            return
        scene.stop.wait(POLL_S)


def _lose_disk(scene: Scene, node: int) -> None:
    wait_whole(scene)
    scene.hit(node)
    scene.nodes.kill(node)
    scene.nodes.wipe(node)
    scene.wait(DOWN_S)
    scene.nodes.start(node)
    wait_whole(scene)


def wipe_follower(scene: Scene) -> None:
    """A node comes back with an empty disk under its old name."""
    node = scene.other(scene.leader())
    scene.say(f"kill -9 node-{node}, its disk is gone")
    _lose_disk(scene, node)


def wipe_leader(scene: Scene) -> None:
    """The same happens to a queue's leader."""
    node = scene.leader()
    scene.say(f"kill -9 node-{node}, which leads, its disk is gone")
    _lose_disk(scene, node)


def _data_files(scene: Scene, node: int) -> list[Path]:
    data = scene.nodes.nodes[node].data_dir
    return sorted(
        path
        for path in data.rglob("*")
        if path.is_file()
        and path.name not in KEPT_FILES
        and path.suffix != ".new"
        and path.stat().st_size > 0
        and path.parent.name in ("wal", "segments", "snapshots")
    )


def _flip(scene: Scene, node: int) -> None:
    for _ in range(scene.chance.randint(*FLIPS)):
        files = _data_files(scene, node)
        if not files:
            return
        path = scene.chance.choice(files)
        size = records_end(path) if path.suffix == ".wal" else path.stat().st_size
        at, bit = scene.chance.randrange(size), scene.chance.randrange(8)
        with path.open("r+b") as file:
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(bytes([byte[0] ^ 1 << bit]))
        scene.say(f"node-{node}: bit {bit} of byte {at} of {path.name} is another")


def rot_at_rest(scene: Scene) -> None:
    """Bits of a node's files are others when it starts again."""
    node = scene.any()
    wait_whole(scene)
    scene.say(f"kill -9 node-{node}, some bits rot")
    scene.hit(node)
    scene.nodes.kill(node)
    _flip(scene, node)
    scene.nodes.start(node)
    wait_whole(scene)


def rot_running(scene: Scene) -> None:
    """Bits of a node's files change under it; then it is restarted."""
    node = scene.any()
    wait_whole(scene)
    scene.say(f"bits rot under node-{node}")
    scene.hit(node)
    _flip(scene, node)
    scene.wait((2.0, 6.0))
    scene.nodes.kill(node)
    scene.nodes.start(node)
    wait_whole(scene)


def change_member(scene: Scene) -> None:
    """A queue gives up a member, and gets one again; meanwhile some node may die."""
    queue = scene.chance.choice(scene.queues)
    wait_whole(scene)
    node = scene.any()
    name = scene.nodes.nodes[node].name
    members: list[str] = []

    def look(admin: Admin) -> None:
        members[:] = [member.node for member in admin.members.get(queue).members]

    _ask(scene, f"members of {queue}", look)
    if name not in members:
        scene.say(f"{queue} gets a member on {name}")
        _ask(scene, f"add {name} to {queue}", lambda admin: admin.members.add(queue, name))
        wait_whole(scene)
        return
    scene.say(f"{queue} gives up its member on {name}, and gets one again")
    _ask(scene, f"delete {name} from {queue}", lambda admin: admin.members.delete(queue, name))
    if scene.chance.random() < 0.5:
        dies = scene.any()
        scene.say(f"kill -9 node-{dies} meanwhile")
        scene.hit(dies)
        scene.nodes.kill(dies)
        scene.nodes.start(dies)
    else:
        scene.wait((0.0, 2.0))
    _ask(scene, f"add {name} to {queue}", lambda admin: admin.members.add(queue, name))
    wait_whole(scene)


def drain_node(scene: Scene) -> None:
    """Put a node into maintenance and take it out again."""
    node = scene.any()
    name = scene.nodes.nodes[node].name
    wait_whole(scene)
    scene.say(f"{name} is drained")
    scene.hit(node)
    _ask(scene, f"drain {name}", lambda admin: admin.nodes.drain(name))
    scene.wait((1.0, 4.0))
    if scene.chance.random() < 0.5:
        scene.nodes.stop(node)
        scene.nodes.start(node)
    _ask(scene, f"revive {name}", lambda admin: admin.nodes.revive(name))
    wait_whole(scene)


def replace_node(scene: Scene) -> None:
    """A node is gone for good, forgotten, and one with its name and an empty disk joins."""
    node = scene.any()
    name = scene.nodes.nodes[node].name
    wait_whole(scene)
    held: list[str] = []

    def look(admin: Admin) -> None:
        held[:] = [
            queue
            for queue in scene.queues
            if any(member.node == name for member in admin.members.get(queue).members)
        ]

    _ask(scene, "members", look)
    scene.say(f"{name} is forgotten, another one joins under its name")
    scene.hit(node)
    scene.nodes.kill(node)
    scene.nodes.wipe(node)
    _ask(scene, f"forget {name}", lambda admin: admin.nodes.forget(name))
    _ask(scene, f"{name} in the cluster still", lambda admin: _gone(admin, name))
    scene.nodes.start(node)
    for queue in held:
        _ask(
            scene,
            f"add {name} to {queue}",
            lambda admin, queue=queue: admin.members.add(queue, name),
        )  # type: ignore[misc]
    wait_whole(scene)


class _StillThere(WarrenError):
    """Asked too early."""


def _gone(admin: Admin, name: str) -> None:
    if any(node.name == name for node in admin.nodes.list()):
        raise _StillThere(name)


MEMBERS: dict[str, Callable[[Scene], None]] = {
    "wipe-follower": wipe_follower,
    "wipe-leader": wipe_leader,
    "rot-at-rest": rot_at_rest,
    "rot-running": rot_running,
    "change-member": change_member,
    "drain": drain_node,
    "replace-node": replace_node,
}
