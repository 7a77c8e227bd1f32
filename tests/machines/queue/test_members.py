"""Members of a queue agree, also those restored from a snapshot; see `members`."""

from __future__ import annotations

import pytest

from tests.machines.queue import members
from warren_machines.queue.filters import filters
from warren_machines.queue.letters import letter_queue
from warren_machines.queue.ready import backlog, leaves, returned_runs

SEEDS = 20


def test_members_restored_from_snapshots_apply_as_the_others() -> None:
    for seed in range(SEEDS):
        members.Members(seed).run()


def test_so_do_those_restored_amid_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an entry may still look at is the same on a member that has looked at nothing."""
    monkeypatch.setattr(filters, "SEARCH_STEPS", 1)
    monkeypatch.setattr(backlog, "CHUNK_RUNS_MAX", 2)
    for module in (leaves, letter_queue, returned_runs):
        monkeypatch.setattr(module, "LEAF_ROWS_MAX", 2)
    monkeypatch.setattr(leaves, "LEAVES_UNPACKED_MAX", 1)
    for seed in range(1_000, 1_000 + SEEDS):
        members.Members(seed).run()
