"""The parameters of the world of a seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from warren_raft.config import RaftConfig


@dataclass(frozen=True, slots=True)
class Profile:
    """The parameters of a world.

    nodes, learners                    number of nodes; number of them that do not vote
    loss_permille, duplicate_permille  of messages
    latency_ms, sync_ms                (min, max) of a message, of a sync; `slow_permille` of them
                                       take ten times as long
    spares                             number of further nodes, not in the group at first
    change_every_ms                    mean time between changes of members; 0: none
    fault_every_ms                     mean time between faults; 0: none
    kinds                              the faults that happen, with weights
    commands, pause_ms                 number of the clients' commands; the longest wait of a client
                                       between two, while there are faults
    codec                              messages travel as bytes
    snapshot_every                     a member takes one after that many entries; 0: never
    turn_ms                            a member collects events for that long before it acts
    """

    nodes: int
    learners: int
    safety_ms: int
    loss_permille: int
    duplicate_permille: int
    latency_ms: tuple[int, int]
    sync_ms: tuple[int, int]
    slow_permille: int
    fault_every_ms: int
    kinds: tuple[tuple[str, int], ...]
    commands: int
    pause_ms: int
    clients: int
    window: int
    body_bytes_max: int
    codec: bool
    turn_ms: int
    snapshot_every: int
    spares: int
    change_every_ms: int
    config: RaftConfig


KINDS = (
    "crash",
    "crash",
    "crash_all",
    "pause",
    "split",
    "isolate",
    "half_cut",
    "reset",
    "transfer",
    "campaign",
    "slow_disk",
    "crash_leader",
    "crash_leader",
    "doubt",
    "wipe",
    "strand",
)


def with_delays(config: RaftConfig) -> RaftConfig:
    """Return the settings with delays of messages that follow from them: none, or some.

    Of commits, and of the last copies, which may be the longer one. Not drawn: a world's other
    draws stay as they are.
    """
    commit_ms, copies_ms = {300: (10, 3), 200: (40, 60)}.get(config.retransmit_ms, (0, 0))
    return replace(config, commit_delay_ms=commit_ms, last_copy_delay_ms=copies_ms)


def draw(rng: Random) -> Profile:
    """Draw a profile, which depends only on the generator's state."""
    kinds = tuple((kind, rng.choice((0, 1, 2))) for kind in dict.fromkeys(KINDS))
    if not any(weight for _, weight in kinds):
        kinds = (("crash", 1),)
    small = rng.random() < 0.3
    nodes, learners = rng.choice(((3, 0), (3, 0), (3, 0), (5, 0), (3, 1), (5, 2)))
    return Profile(
        nodes=nodes,
        learners=learners,
        safety_ms=rng.choice((4_000, 6_000, 9_000)),
        loss_permille=rng.choice((0, 0, 10, 50, 100)),
        duplicate_permille=rng.choice((0, 0, 10, 100)),
        latency_ms=rng.choice(((1, 3), (1, 10), (5, 40), (1, 80))),
        sync_ms=rng.choice(((1, 3), (2, 20), (5, 60), (1, 150))),
        slow_permille=rng.choice((0, 5, 30)),
        fault_every_ms=rng.choice((0, 150, 400, 400, 900)),
        kinds=kinds,
        commands=rng.choice((20, 60, 120)),
        pause_ms=rng.choice((40, 300, 1_500)),
        clients=rng.choice((1, 2, 4)),
        window=rng.choice((1, 4, 8)),
        body_bytes_max=rng.choice((4, 40)),
        codec=rng.random() < 0.15,
        turn_ms=rng.choice((0, 0, 1, 5)),
        snapshot_every=rng.choice((0, 0, 5, 20)),
        spares=rng.choice((0, 0, 1, 2)),
        change_every_ms=rng.choice((0, 0, 150, 400, 1_000)),
        config=with_delays(
            RaftConfig(
                election_delay_ms=(10, 120),
                election_timeout_ms=(250, 500),
                election_backoff_max=rng.choice((1, 4)),
                retransmit_ms=rng.choice((200, 600, 1_000)),
                append_bytes_max=60 if small else 1 << 20,
                probe_bytes_max=30 if small else 1 << 16,
                inflight_messages_max=rng.choice((1, 2, 8)) if small else 128,
                inflight_bytes_max=120 if small else 16 << 20,
                apply_bytes_max=rng.choice((1, 100)) if small else 8 << 20,
                promote_learners=rng.random() < 0.75,
            )
        ),
    )
