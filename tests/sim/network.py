"""A network that delays, loses, repeats, reorders and cuts."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from sim.agenda import Agenda
from sim.profile import Profile

Receiver = Callable[[str, Any], None]


class Network:
    """Directed links between named nodes.

    cut    links (from, to) that drop everything
    calm   no loss, no repeats, nothing slow
    """

    def __init__(self, agenda: Agenda, rng: Random, profile: Profile) -> None:
        self.agenda = agenda
        self.rng = rng
        self.profile = profile
        self.cut: dict[tuple[str, str], bool] = {}
        self.calm = False
        self.receivers: dict[str, Receiver] = {}
        self.epochs: dict[tuple[str, str], int] = {}

    def send(self, sender: str, to: str, packet: Any) -> None:
        """Send a packet, which may arrive later, twice, or never."""
        if (sender, to) in self.cut:
            return
        profile, rng = self.profile, self.rng
        copies = 1
        if not self.calm:
            dice = rng.randrange(1000)
            if dice < profile.loss_permille:
                return
            if dice >= 1000 - profile.duplicate_permille:
                copies = 2
        epoch = self.epochs.get((sender, to), 0)
        for _ in range(copies):
            low, high = profile.latency_ms
            delay = low + int(rng.random() * (high - low + 1))
            slow = profile.slow_permille
            if slow and not self.calm and rng.random() * 1000 < slow:
                delay *= 10
            self.agenda.after(delay, self.arrive, sender, to, epoch, packet)

    def arrive(self, sender: str, to: str, epoch: int, packet: Any) -> None:
        """Deliver a packet unless the link was cut or reset meanwhile."""
        if (sender, to) in self.cut or epoch != self.epochs.get((sender, to), 0):
            return
        self.receivers[to](sender, packet)

    def reset(self, one: str, other: str) -> None:
        """Break the connection: packets in flight are lost."""
        for link in ((one, other), (other, one)):
            self.epochs[link] = self.epochs.get(link, 0) + 1

    def heal(self) -> None:
        """Repair every link."""
        self.cut.clear()
