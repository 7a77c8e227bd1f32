"""Which misfortunes a world has: some worlds any, most only a few kinds, and those often.

A world has a handful of them. Were each drawn from everything that can happen, whatever takes two
of a kind, or one at the right place, would hardly ever come about; and some kinds hide others: a
node that was given an empty disk has nothing left that could be damaged. So it is decided for each
world which kinds there are (Groce et al., "Swarm Testing", 2012).
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

FAULTS = (
    "crash",
    "crash",
    "crash_leader",
    "crash_leader",
    "crash_all",
    "pause",
    "pause_leader",
    "cut",
    "half_cut",
    "isolate",
    "half_isolate",
    "stutter",
    "doze",
    "reset",
    "transfer",
    "slow_disk",
    "sync_fails",
    "disk_full",
    "clock_jump",
    "rolling_restart",
    "flapping",
    "power_cut",
    "hung_disk",
    "many_lives",
)
UNLUCKY = (
    "wipe",
    "wipe",
    "rot",
    "rot",
    "misdirect",
    "lose_file",
    "lose_file",
    "empty_file",
    "old_file",
    "old_directory",
    "old_directory",
    "old_newest_file",
)
"""These strike the unlucky only."""
OLDER = ("old_directory", "old_newest_file")
DAMAGE = ("rot", "misdirect")
LIVES = "many_lives"
BEHIND = "disk_behind"
STUTTERS = ("stutter", "doze")
LIVES_SHARE, FEW_SHARE, BEHIND_SHARE, STUTTER_SHARE = 0.25, 0.4, 0.2, 0.07
"""Of the worlds whose disks are all well: about life after life of a node; of a few kinds only;
about a disk that lacks what its node has applied; about links and nodes that stutter."""
OLDER_SHARE, DAMAGE_SHARE, LOSS_SHARE = 0.35, 0.25, 0.2
"""Of the worlds with an unlucky node: what they are about."""


@dataclass(frozen=True, slots=True)
class Swarm:
    """The misfortunes of one world.

    faults  which kinds strike, each as often as it is named
    surely  this one strikes once in any case, if there are any
    """

    faults: tuple[str, ...]
    surely: str = ""

    @property
    def lives(self) -> bool:
        """It is about a node that begins life after life while a queue has no leader."""
        return self.surely == LIVES

    @property
    def older(self) -> bool:
        """It is about an older copy of a directory."""
        return self.surely in OLDER

    @property
    def behind(self) -> bool:
        """It is about a disk that lacks what its node has applied."""
        return self.surely == BEHIND


def draw(rng: Random, nodes: int, unlucky: bool) -> Swarm:
    """Those of one world; unlucky: it has a node whose disk may be lost or damaged."""
    kind = rng.random()
    if not unlucky and nodes >= 3 and kind >= 1 - STUTTER_SHARE:
        return Swarm(STUTTERS, rng.choice(STUTTERS))
    if not unlucky:
        if kind < LIVES_SHARE and nodes >= 3:
            return Swarm((LIVES, *_few(rng, FAULTS, 3)), LIVES)
        few = kind < LIVES_SHARE + FEW_SHARE
        if not few and kind < LIVES_SHARE + FEW_SHARE + BEHIND_SHARE and nodes >= 3:
            return Swarm((BEHIND,), BEHIND)  # whatever else slows publishers down hides it
        return Swarm(_few(rng, FAULTS, 5) if few else _any(rng, FAULTS))
    for share, kinds in ((OLDER_SHARE, OLDER), (DAMAGE_SHARE, DAMAGE), (LOSS_SHARE, UNLUCKY)):
        if kind < share:
            surely = rng.choice(kinds)
            return Swarm((surely, *_few(rng, kinds, 2), *_few(rng, FAULTS, 4)), surely)
        kind -= share
    return Swarm(_any(rng, (*FAULTS, *UNLUCKY)))


def _any(rng: Random, kinds: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(kind for kind in kinds for _ in range(rng.choice((0, 1, 2))))


def _few(rng: Random, kinds: tuple[str, ...], most: int) -> tuple[str, ...]:
    """So many kinds at most, as often as each other."""
    return tuple(rng.sample(list(dict.fromkeys(kinds)), rng.randrange(1, most + 1)))
