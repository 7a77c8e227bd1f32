"""A machine's state written as the beginning of a group's log, in steps.

A step is None: the next one follows when everything added so far is on disk; or it is a job that
writes files: the next one follows when it has returned. So a stopped node's directory is written by
the same code, one step after the other, as that of a running node: its loop serves clients in
between.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import TypeAlias, TypeVar

from msgspec.structs import replace

from warren_raft.machine import Machine, Meta
from warren_raft.runtime.group_start import known_members
from warren_raft.storage import rewrite
from warren_raft.storage.group_store import GroupStore
from warren_raft.storage.log_store import LogStore
from warren_raft.storage.snapshot import Snapshot
from warren_raft.types import Entry, EntryKind, HardState
from warren_raft.versions import OWN

State = TypeVar("State")
Result = TypeVar("Result")
Step: TypeAlias = Callable[[], None] | None
Steps: TypeAlias = Generator[Step, None, Result]
CHUNK_BYTES = 1 << 20
"""Entries that are read, or written, in one step."""


def _pause() -> None:
    """Do nothing: only other work is let in between."""


def replayed(logs: LogStore, store: GroupStore, machine: Machine[State]) -> Steps[State]:
    """Return the machine's state after every entry that is here, committed or not."""
    snapshot, index = store.snapshot, store.snapshot_index
    if snapshot is None and index:
        snapshot = logs.read_snapshot(store)
    if snapshot is not None:
        known_members(snapshot, OWN)
    state = machine.init() if snapshot is None else machine.restore(snapshot.state)
    while index < store.last_index():
        for entry in store.entries(index + 1, store.last_index(), CHUNK_BYTES):
            index = entry.index
            if entry.kind is EntryKind.COMMAND:
                machine.apply(Meta(index, entry.term, entry.time_ms), entry.data, state)
        yield _pause
    return state


def install(
    logs: LogStore, store: GroupStore, snapshot: Snapshot, entries: Iterable[Entry]
) -> Steps[None]:
    """Replace a group's log by a snapshot, as a member does that receives one.

    After a crash the log is as it was, or begins with the snapshot.
    entries  those that it refers to, ascending
    raises   ValueError when they are others
    """
    store.begin_incoming()
    size = 0
    for entry in entries:
        store.receive(entry)
        size += len(entry.data)
        if size >= CHUNK_BYTES:
            yield None
            size = 0
    # The term first: a start refuses a log with a later term than its votes.
    if store.hard_state.term < snapshot.term:
        store.append(HardState(snapshot.term), ())
    yield None
    own = replace(snapshot, born=store.born, base=store.voided(snapshot))
    places = store.incoming_places(own, 0)
    if places is None:
        raise ValueError(f"group {own.group}: these are not the entries that {own.index} needs")
    yield lambda: rewrite.write_snapshots(logs.files, logs.directory.snapshots, [own])
    store.install(own, places)
    store.end_incoming()
    store.snapshot = own
    yield None
