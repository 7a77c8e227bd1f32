"""Damaged entries in one member's files are repaired from the others while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.raft.runtime.kit import NODES, Cluster, until
from tests.raft.runtime.shelves import (
    GROUP,
    Shelf,
    begin,
    body,
    check_after_restart,
    check_live,
    compacted,
    damage_entries,
    end_with_everything_live,
    first_index,
    follower_with_a_damaged_entry,
    leader,
    left_behind,
    read_when_healed,
    restart,
    same,
    sealed_live,
    stop,
    store_of,
    write,
    writes_again,
)
from tests.raft.storage.kit import Disk
from warren_raft.core.membership import Demote
from warren_raft.machine import GroupSpec
from warren_raft.runtime.host import Host
from warren_raft.runtime.scrub import Scrub, ScrubJob, look
from warren_raft.storage.errors import EntryDamaged, LogDamaged
from warren_raft.storage.files import Files


@pytest.mark.parametrize("at", [0, 5, 9, 20, 60, 300])
def test_a_damaged_entry_is_brought_back_and_written_again(tmp_path: Path, at: int) -> None:
    cluster = compacted(tmp_path)
    for host in list(cluster.hosts.values()):
        wanted = sealed_live(host)[:6:2]
        others = next(h for h in cluster.hosts.values() if h is not host)
        right = {i: others.read_entry(GROUP, i).data for i in wanted}
        touched = damage_entries(host, wanted, at)
        for index in wanted:
            assert read_when_healed(cluster, host, index) == right[index]
        until(cluster.loop, lambda t=touched: not [path for path in t if path.exists()])
        assert not host._logs.compactor.damaged
    assert check_live(cluster) > 20
    restart(cluster)
    for host in cluster.hosts.values():
        assert host.repair.healed == 0
    end_with_everything_live(cluster)


def test_a_leader_with_damaged_entries_keeps_replicating(tmp_path: Path) -> None:
    cluster = begin(tmp_path)
    write(cluster, 0, 20)
    until(cluster.loop, lambda: same(cluster))
    name = leader(cluster)
    away = next(node for node in NODES if node != name)
    cluster.stop(away)
    host = cluster.hosts[name]
    for _ in range(5):
        end = [host.propose(GROUP, body(at)) for at in range(2)][-1]
        until(
            cluster.loop,
            lambda end=end: {h.applied_index(GROUP) for h in cluster.hosts.values()} == {end},
        )
    # What the follower lacks is in the newest file, where it is rotten at the leader.
    damage_entries(host, list(range(end - 8, end)))
    cluster.start(away).start_group(GroupSpec(GROUP, NODES), Shelf())
    until(cluster.loop, lambda: same(cluster))
    assert leader(cluster) == name
    assert host.repair.healed == 8
    assert check_live(cluster) > 10
    until(cluster.loop, lambda: not host._logs.compactor.damaged)
    restart(cluster)
    stop(cluster)


def test_a_snapshot_and_what_it_refers_to_are_sent_although_they_are_damaged(
    tmp_path: Path,
) -> None:
    cluster, away, end = left_behind(tmp_path)
    host = cluster.hosts[leader(cluster)]
    until(cluster.loop, lambda: not host._logs.compactor.busy)
    damage_entries(host, [index for index in sealed_live(host) if index > end][:3])
    path = host._logs.snapshot_path(store_of(host))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    cluster.start(away).start_group(GroupSpec(GROUP, NODES), Shelf())
    until(cluster.loop, lambda: same(cluster))
    assert check_live(cluster) > 20
    assert first_index(cluster, away) > end
    stop(cluster)


def test_a_member_skips_an_entry_damaged_before_it_was_applied_again(tmp_path: Path) -> None:
    cluster, away = follower_with_a_damaged_entry(tmp_path)
    host = cluster.start(away)
    last = host._logs.groups[GROUP].last_index()
    host.start_group(GroupSpec(GROUP, NODES), Shelf())
    node = host._groups[GROUP].node
    lasts: list[int] = []

    def there() -> bool:
        lasts.append(node.last_index)
        return same(cluster)

    until(cluster.loop, there)
    assert min(lasts) >= last  # what it has vouched for was there all the time
    assert first_index(cluster, away) > 5
    assert host.repair.healed == 0
    progress = cluster.hosts[leader(cluster)]._groups[GROUP].node.leadership.progress[away]
    until(cluster.loop, lambda: not progress.lacks and not host.repair.wanted)
    writes_again(cluster)
    assert check_live(cluster) > 20
    check_after_restart(cluster)


def test_a_leader_that_cannot_apply_lets_another_lead(tmp_path: Path) -> None:
    cluster, away = follower_with_a_damaged_entry(tmp_path)
    host = cluster.start(away)
    lost, host.repair.not_found = host.repair.not_found, lambda group, index: None
    host.start_group(GroupSpec(GROUP, NODES), Shelf())
    node = host._groups[GROUP].node
    until(cluster.loop, lambda: node.commit > 600)
    cluster.hosts[leader(cluster)].transfer(GROUP, away)
    until(cluster.loop, lambda: node.leadership is not None)
    assert not host.is_leader(GROUP)
    host.repair.not_found = lost
    led: set[str] = set()

    def there() -> bool:
        led.update(name for name, one in cluster.hosts.items() if one.is_leader(GROUP))
        return bool(led - {away}) and same(cluster)

    until(cluster.loop, there)  # where it leads again, another has led
    writes_again(cluster)
    end_with_everything_live(cluster)


def test_compaction_finds_damage_that_was_never_read(tmp_path: Path) -> None:
    cluster = compacted(tmp_path)
    host = cluster.hosts[leader(cluster)]
    until(cluster.loop, lambda: not host._logs.compactor.busy)
    wanted = sealed_live(host)[:3]
    damage_entries(host, wanted)
    host._logs.compactor.damaged.add(store_of(host).log.place(wanted[0]).file)
    until(cluster.loop, lambda: host.repair.healed >= 1)
    until(cluster.loop, lambda: not host._logs.compactor.damaged)
    write(cluster, 600, 900)
    until(cluster.loop, lambda: same(cluster))
    end_with_everything_live(cluster)


def test_a_group_of_one_has_no_member_to_ask(tmp_path: Path) -> None:
    cluster = begin(tmp_path, ("a",))
    host = cluster.hosts["a"]
    until(cluster.loop, lambda: host.is_leader(GROUP))
    index = host.propose(GROUP, body(1))
    until(cluster.loop, lambda: host.applied_index(GROUP) >= index)
    path = damage_entries(host, [index]).pop()
    with pytest.raises(LogDamaged) as refused:
        host.read_entry(GROUP, index)
    assert str(path) in str(refused.value)
    assert f"entry {index} of group {GROUP}" in str(refused.value)
    cluster.stop("a")


OTHER = 6


def settled(host: Host) -> bool:
    """The file with the quiet group's end is retired: a start only reads its index."""
    log = store_of(host).log
    return log.place(log.last).file not in host._logs.log_files.use.live


def retire_a_quiet_group(tmp_path: Path) -> Cluster:
    """One group with a few entries and two CONFIGs; another one fills the files that follow."""
    cluster = begin(tmp_path)
    host = cluster.hosts[leader(cluster)]
    host.propose(GROUP, body(1))
    host.change_members(GROUP, Demote(next(n for n in NODES if n != host.node_id)))
    until(cluster.loop, lambda: len(store_of(host).log.configs) == 2)
    until(cluster.loop, lambda: host.members(GROUP).voters == NODES)
    host.propose(GROUP, body(2))
    until(cluster.loop, lambda: same(cluster))
    for each in cluster.hosts.values():
        each.start_group(GroupSpec(OTHER, NODES, preferred="a"), Shelf())
    until(cluster.loop, lambda: any(each.is_leader(OTHER) for each in cluster.hosts.values()))
    (busy,) = (each for each in cluster.hosts.values() if each.is_leader(OTHER))
    while not all(settled(each) for each in cluster.hosts.values()):
        index = [busy.propose(OTHER, body(at)) for at in range(20)][-1]
        until(cluster.loop, lambda index=index: busy.applied_index(OTHER) >= index)
    return cluster


@pytest.mark.parametrize("away", [False, True])
@pytest.mark.parametrize("which", ["end", "first CONFIG", "CONFIG in effect", "all of them"])
def test_a_group_begins_although_what_it_begins_with_is_damaged(
    tmp_path: Path, which: str, away: bool
) -> None:
    """away: the others begin at the same time, and one of them later: the damaged one is needed."""
    cluster = retire_a_quiet_group(tmp_path)
    name = leader(cluster)
    host = cluster.hosts[name]
    log = store_of(host).log
    wanted = {
        "end": [log.last],
        "first CONFIG": log.configs[:1],
        "CONFIG in effect": log.configs[1:],
        "all of them": [*log.configs, log.last],
    }[which]
    damage_entries(host, wanted)
    others = [node for node in NODES if node != name]
    stopped = NODES if away else (name,)
    for node in stopped:
        cluster.stop(node)
    for node in stopped:
        if node != others[0]:
            cluster.start(node).start_group(GroupSpec(GROUP, NODES), Shelf())
    host = cluster.hosts[name]
    if away:
        leader(cluster)
        cluster.start(others[0]).start_group(GroupSpec(GROUP, NODES), Shelf())
    until(cluster.loop, lambda: same(cluster) and host.state(GROUP)["count"] == 2)
    assert host.repair.healed == len(wanted)
    assert not host._groups[GROUP].node.unread
    assert host.members(GROUP).voters == NODES
    until(cluster.loop, lambda: not host._logs.compactor.damaged)
    check_live(cluster)
    restart(cluster)
    assert all(each.repair.healed == 0 for each in cluster.hosts.values())
    stop(cluster)


def test_compaction_before_the_group_is_started_does_not_give_up(
    tmp_path: Path,
) -> None:
    cluster = retire_a_quiet_group(tmp_path)
    name = leader(cluster)
    log = store_of(cluster.hosts[name]).log
    end, path = log.last, damage_entries(cluster.hosts[name], [log.last]).pop()
    cluster.stop(name)
    host = cluster.start(name)
    logs = host._logs
    file = logs.groups[GROUP].log.place(end).file
    logs.compactor.damaged.add(file)
    logs.compactor.run([])
    until(cluster.loop, lambda: not logs.compactor.busy)
    assert not logs.compactor.left, "the others have it"
    host.start_group(GroupSpec(GROUP, NODES), Shelf())
    until(cluster.loop, lambda: host.repair.healed and not logs.compactor.damaged)
    assert logs.log_files.path_of(store_of(host).log.place(end).file) != path
    assert host.read_entry(GROUP, end).data == body(2)
    stop(cluster)


def test_the_end_of_a_group_of_one_is_damaged(tmp_path: Path) -> None:
    cluster = begin(tmp_path, ("a",))
    host = cluster.hosts["a"]
    until(cluster.loop, lambda: host.is_leader(GROUP))
    host.propose(GROUP, body(1))
    host.start_group(GroupSpec(OTHER, ("a",)), Shelf())
    until(cluster.loop, lambda: host.is_leader(OTHER))
    while not settled(host):
        index = [host.propose(OTHER, body(at)) for at in range(20)][-1]
        until(cluster.loop, lambda index=index: host.applied_index(OTHER) >= index)
    end = store_of(host).log.last
    path = damage_entries(host, [end]).pop()
    cluster.stop("a")
    host = cluster.start("a")
    with pytest.raises(LogDamaged) as refused:
        host.start_group(GroupSpec(GROUP, ("a",)), Shelf())
    assert str(path) in str(refused.value)
    assert f"entry {end} of group {GROUP}" in str(refused.value)
    cluster.stop("a")


def test_damage_that_is_never_read_is_found_and_repaired(tmp_path: Path) -> None:
    cluster = compacted(tmp_path)
    host = cluster.hosts[leader(cluster)]
    until(cluster.loop, lambda: not host._logs.compactor.busy)
    store = store_of(host)
    wanted = sealed_live(host)[:3]
    right = {i: host.read_entry(GROUP, i).data for i in wanted}
    entries = damage_entries(host, wanted)
    others = [
        next(p for p in (tmp_path / host.node_id / "segments").glob("*.idx")),
        tmp_path / host.node_id / "groups.manifest",
        host._logs.snapshot_path(store),
    ]
    for path in others:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    host._scrub = Scrub(host._logs, 50 << 20, 1, 0)
    until(cluster.loop, lambda: host.repair.healed >= 1)

    def whole() -> bool:
        found = [path for path in tmp_path.joinpath(host.node_id).rglob("*") if path.is_file()]
        pieces = [ScrubJob(path) for path in found if path.suffix in (".idx", ".snap", ".manifest")]
        return not any(look(host._logs.files, piece).damage for piece in pieces)

    until(cluster.loop, whole)
    until(cluster.loop, lambda: not [path for path in entries if path.exists()])
    before = host._scrub.rounds
    until(cluster.loop, lambda: host._scrub.rounds > before + 1)
    assert not host._logs.compactor.damaged
    assert {i: host.read_entry(GROUP, i).data for i in wanted} == right
    assert check_live(cluster) > 20
    check_after_restart(cluster)


@pytest.mark.parametrize("size", [1, 3000, 2_500_000])
def test_a_look_at_records_goes_on_where_it_ended(tmp_path: Path, size: int) -> None:
    disk = Disk(tmp_path, file_bytes=8 << 20)
    disk.write(1, 1, [b"x" * size] * (4 + (3 << 20) // (size + 800)))
    disk.store.wal.roll()
    path, salt = disk.store.log_files.wal_path(1), disk.store.log_files.salts[1]
    disk.close()

    def looked() -> tuple[int, str]:
        piece = ScrubJob(path, 1, salt, 40, -1)
        read = 0
        while True:
            seen = look(Files(), piece)
            read += seen.size
            if seen.offset is None or seen.damage:
                return read, seen.damage
            assert seen.offset > piece.offset
            piece.offset = seen.offset

    assert looked() == (path.stat().st_size - 40, "")
    data = bytearray(path.read_bytes())
    data[-30] ^= 1
    path.write_bytes(data)
    assert looked()[1]
    data[-30] ^= 1
    path.write_bytes(data[:-7])
    assert looked()[1]


def test_a_rewriting_leaves_alone_what_nobody_else_has(tmp_path: Path) -> None:
    cluster = begin(tmp_path, ("a",))
    host = cluster.hosts["a"]
    until(cluster.loop, lambda: host.is_leader(GROUP))
    write(cluster, 0, 300)
    until(cluster.loop, lambda: first_index(cluster, "a") > 100)
    until(cluster.loop, lambda: not host._logs.compactor.busy and sealed_live(host))
    index = sealed_live(host)[0]
    path = damage_entries(host, [index]).pop()
    host._scrub = Scrub(host._logs, 50 << 20, 1, 0)
    until(cluster.loop, lambda: host._logs.compactor.left)
    write(cluster, 300, 900)  # and rewriting continues
    rounds = host._scrub.rounds
    until(cluster.loop, lambda: host._scrub.rounds > rounds + 1)
    assert path.exists()
    live = [i for i in host.state(GROUP)["live"] if i != index]
    assert all(host.read_entry(GROUP, i).data.startswith(b"put ") for i in live)
    cluster.stop("a")


def test_what_is_here_already_is_not_asked_for_again(tmp_path: Path) -> None:
    # 1. A rewriting begins.  2. An entry of its file is healed.  3. It meets the damaged bytes.
    cluster = begin(tmp_path)
    write(cluster, 0, 20)
    until(cluster.loop, lambda: same(cluster))
    host = cluster.hosts[leader(cluster)]
    index = host.applied_index(GROUP)
    damage_entries(host, [index])
    with pytest.raises(EntryDamaged) as met:
        host.read_entry(GROUP, index)
    assert host.repair.wanted == 1
    assert read_when_healed(cluster, host, index)
    assert store_of(host).healed(index) is not None, "its file is not complete: it stays as it is"
    host._logs.compactor.damaged.clear()
    host._logs.is_damaged(met.value)
    assert host.repair.wanted == 0 and host.repair.healed == 1
    assert host._logs.compactor.damaged, "and the file is rewritten again"
    stop(cluster)
