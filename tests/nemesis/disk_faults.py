"""Faults of a node's disk: it hangs, has no space, loses power, loses or mixes up files.

What costs a node its memory waits until the cluster is whole again: no promise covers two disks
lost at a time. A loss of power costs nothing that was synced, so it may strike all nodes at once.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from nemesis.disks import LOG_FLUSHED, LOG_LOST
from nemesis.member_faults import wait_whole
from nemesis.scene import DOWN_S, SUSPECT_AFTER_S, Scene

FULL_S = (3.0, 8.0)
FULL_KILL_S = (0.2, 3.0)
FULL_START_S = 4.0
"""A node that refuses its full disk has ended by then; one that runs may have no `ready.json`."""
HANG_SHORT_S = (0.3, SUSPECT_AFTER_S * 0.8)
HANG_LONG_S = (SUSPECT_AFTER_S * 1.5, SUSPECT_AFTER_S * 6)
AGE_S = (1.0, 6.0)
"""How old an older copy is."""
NOT_DATA = ("lock", "ready.json", "ballast")
SET_ASIDE = "damaged"
"""The folder of what a node does not read any more."""
TWO_FILES_SHARE = 0.3
Harm = Callable[[Path], None]


# ---------------------------------------------------------------------- what costs no memory


def full_disk(scene: Scene) -> None:
    """A disk has no byte left; then it has, and the node continues by itself."""
    node = scene.any()
    scene.say(f"node-{node}'s disk is full")
    scene.hit(node)
    scene.nodes.disk(node).fill()
    scene.wait(FULL_S)
    scene.heal()


def full_kill(scene: Scene) -> None:
    """A leader's disk is full when it dies, and when it starts again; another node may die then.

    What it could not write it must not have vouched for, and recovery has no space to work in.
    """
    node = scene.leader()
    other = scene.other(node) if scene.chance.random() < 0.5 else None
    scene.say(f"node-{node}'s disk is full, kill -9 node-{node}")
    scene.hit(node)
    scene.nodes.disk(node).fill()
    scene.wait(FULL_KILL_S)
    scene.nodes.kill(node)
    scene.wait(FULL_KILL_S)
    if not scene.nodes.starts(node, unready_s=FULL_START_S):
        scene.problem(f"node-{node} does not start on its full disk:\n{scene.nodes.log_tail(node)}")
    if other is not None:
        scene.say(f"kill -9 node-{other} meanwhile")
        scene.hit(other)
        scene.nodes.kill(other)
        scene.nodes.start(other)
    scene.wait(FULL_S)
    scene.heal()


def _hang(scene: Scene, node: int, seconds: tuple[float, float]) -> None:
    scene.say(f"node-{node}'s disk hangs")
    scene.hit(node)
    scene.nodes.disk(node).freeze()
    scene.wait(seconds)
    scene.heal()


def hang_short(scene: Scene) -> None:
    """A disk does not answer for less time than it takes to give up leaderships."""
    _hang(scene, scene.any(), HANG_SHORT_S)


def hang_leader(scene: Scene) -> None:
    """A leader's disk does not answer until others lead."""
    _hang(scene, scene.leader(), HANG_LONG_S)


def hang_follower(scene: Scene) -> None:
    """Another node's disk does not answer for long."""
    _hang(scene, scene.other(scene.leader()), HANG_LONG_S)


def hang_again(scene: Scene) -> None:
    """A disk hangs, answers for a moment, hangs again …"""
    node = scene.leader()
    for _ in range(4):
        _hang(scene, node, (SUSPECT_AFTER_S, SUSPECT_AFTER_S * 1.5))
        scene.wait((0.1, 1.0))


def hang_kill(scene: Scene) -> None:
    """A leader's disk hangs, and a node that could take over dies."""
    node = scene.leader()
    dies = scene.other(node)
    scene.say(f"node-{node}'s disk hangs, kill -9 node-{dies}")
    scene.hit(node, dies)
    scene.nodes.disk(node).freeze()
    scene.wait((0.0, SUSPECT_AFTER_S * 2))
    scene.nodes.kill(dies)
    scene.wait((0.0, SUSPECT_AFTER_S * 2))
    scene.heal()


def _cut_power(scene: Scene, nodes: list[int]) -> None:
    flags = [scene.chance.choice((LOG_FLUSHED, LOG_LOST)) for _ in nodes]
    scene.hit(*nodes)
    for node, flag in zip(nodes, flags, strict=True):
        scene.nodes.cut_power(node, flag)
    scene.wait(DOWN_S)
    for node in nodes:
        if not scene.nodes.starts(node):
            scene.problem(
                f"node-{node} does not start after a loss of power:\n{scene.nodes.log_tail(node)}"
            )
            scene.nodes.wipe(node)
            scene.nodes.start(node)


def power_cut(scene: Scene) -> None:
    """A leader's machine loses power."""
    node = scene.leader()
    scene.say(f"node-{node} loses power")
    _cut_power(scene, [node])


def power_cut_all(scene: Scene) -> None:
    """All machines lose power within a moment."""
    scene.say("all nodes lose power")
    _cut_power(scene, list(range(len(scene.nodes))))


# ---------------------------------------------------------------------- what costs memory


def _data_files(place: Path) -> list[Path]:
    return sorted(
        path
        for path in place.rglob("*")
        if path.is_file()
        and path.name not in NOT_DATA
        and SET_ASIDE not in path.relative_to(place).parts
    )


def _chosen(scene: Scene, node: int) -> list[Path]:
    files = _data_files(scene.nodes.nodes[node].data_dir)
    count = min(len(files), 2 if scene.chance.random() < TWO_FILES_SHARE else 1)
    # By the folder first: of segments there may be many, of the log few.
    folders = sorted({path.parent for path in files})
    found: list[Path] = []
    while len(found) < count:
        folder = scene.chance.choice(folders)
        path = scene.chance.choice([path for path in files if path.parent == folder])
        if path not in found:
            found.append(path)
    return found


def _start_again(scene: Scene, node: int) -> None:
    """As an operator does: where the node refuses its directory, it gets an empty one."""
    scene.wait(DOWN_S)
    if not scene.nodes.starts(node):
        scene.say(
            f"node-{node} refuses its directory, and gets an empty one: "
            f"{scene.nodes.log_tail(node).splitlines()[-1:]}"
        )
        scene.nodes.wipe(node)
        scene.nodes.start(node)
    wait_whole(scene)
    _remove_what_was_set_aside(scene.nodes.nodes[node].data_dir)


def _remove_what_was_set_aside(place: Path) -> None:
    """As the node's log asks its operator to: a node removes nothing there, and its disk fills."""
    for reason in (place / SET_ASIDE).glob("*/reason"):
        shutil.rmtree(reason.parent)


def _harm_files(scene: Scene, what: str, harm: Harm) -> None:
    """Some files of a node are not what they were when it starts again."""
    node = scene.any()
    wait_whole(scene)
    scene.say(f"kill -9 node-{node}")
    scene.hit(node)
    scene.nodes.kill(node)
    place = scene.nodes.nodes[node].data_dir
    for path in _chosen(scene, node):
        scene.say(f"node-{node}: {path.relative_to(place)} of {path.stat().st_size} bytes {what}")
        harm(path)
    _start_again(scene, node)


def missing_file(scene: Scene) -> None:
    """One or two files are not there."""
    _harm_files(scene, "is deleted", lambda path: path.unlink())


def emptied_file(scene: Scene) -> None:
    """One or two files have no bytes."""
    _harm_files(scene, "is emptied", lambda path: path.write_bytes(b""))


def older_file(scene: Scene) -> None:
    """One or two files are what they were some seconds before, or are there again."""
    node = scene.any()
    wait_whole(scene)
    place = scene.nodes.nodes[node].data_dir
    older: dict[Path, bytes] = {}
    for path in _chosen(scene, node):
        try:
            older[path] = path.read_bytes()
        except FileNotFoundError:
            continue  # the node has removed it just now
    scene.wait(AGE_S)
    scene.say(f"kill -9 node-{node}")
    scene.hit(node)
    scene.nodes.kill(node)
    for path, data in older.items():
        now = path.stat().st_size if path.exists() else None
        scene.say(
            f"node-{node}: {path.relative_to(place)} of {now} bytes is replaced by an older "
            f"copy of {len(data)} bytes"
        )
        path.write_bytes(data)
    _start_again(scene, node)


def older_directory(scene: Scene) -> None:
    """A node's whole directory is what it was some seconds before, at an earlier kill."""
    node = scene.any()
    wait_whole(scene)
    place, copy = scene.nodes.nodes[node].data_dir, scene.nodes.directory / f"older-{node}"
    scene.say(f"kill -9 node-{node}, its directory is copied")
    scene.hit(node)
    scene.nodes.kill(node)
    shutil.copytree(place, copy)
    scene.nodes.start(node)
    wait_whole(scene)
    scene.wait(AGE_S)
    scene.say(f"kill -9 node-{node}, its directory is replaced by the older copy")
    scene.nodes.kill(node)
    scene.nodes.wipe(node)
    shutil.copytree(copy, place, dirs_exist_ok=True)
    shutil.rmtree(copy)
    _start_again(scene, node)


FILES: dict[str, Callable[[Scene], None]] = {
    "missing-file": missing_file,
    "emptied-file": emptied_file,
    "older-file": older_file,
    "older-directory": older_directory,
}
"""Done to the files of a node that is down: these need no disk of its own."""
DISKS: dict[str, Callable[[Scene], None]] = {
    "full-disk": full_disk,
    "full-kill": full_kill,
    "hang-short": hang_short,
    "hang-leader": hang_leader,
    "hang-follower": hang_follower,
    "hang-again": hang_again,
    "hang-kill": hang_kill,
    "power-cut": power_cut,
    "power-cut-all": power_cut_all,
}
