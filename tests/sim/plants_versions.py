"""Bugs of upgrades to plant in whole nodes; see `plants`."""

from __future__ import annotations

from sim.planting import Replacement, by_name
from warren_machines.queue.machine import QueueMachine
from warren_raft.runtime.host import Host


def a_proposer_uses_its_newest_version() -> list[Replacement]:
    """A node submits what its program has, not what the cluster has."""
    newest = property(lambda self: self.versions.newest, lambda self, version: None)
    return [(Host, "version", newest)]


def a_snapshot_is_of_the_newest_form() -> list[Replacement]:
    """A snapshot is of the form that the program has, not of that of the newest entry."""
    return [(QueueMachine, "form", lambda self, state: self.newest)]


PLANTS = by_name(a_proposer_uses_its_newest_version, a_snapshot_is_of_the_newest_form)
