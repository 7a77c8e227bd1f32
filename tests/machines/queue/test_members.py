"""Members of a queue agree, also those restored from a snapshot; see `members`."""

from __future__ import annotations

from tests.machines.queue import members

SEEDS = 20


def test_members_restored_from_snapshots_apply_as_the_others() -> None:
    for seed in range(SEEDS):
        members.Members(seed).run()
