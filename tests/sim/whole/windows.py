"""Bounds that a cluster meets after hours, made so small that a world meets them.

A bound is a promise: what lies beyond it is refused, asked for again, or known by other means. So a
world with any of these values must be as clean as one with the product's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from random import Random
from unittest.mock import patch

SHRUNK_SHARE = 0.5
SMALL: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("metadata.incarnations", "RETIRED_KEPT_MAX", (1, 2)),
    ("metadata.node_registry", "REMOVED_KEPT_MAX", (1, 2)),
    ("queue.backlog", "CHUNK_RUNS_MAX", (2, 3)),
    ("queue.claim", "CALLS_KEPT_MAX", (1,)),
    ("queue.block_index", "FILLED_PAGES_MAX", (1,)),
    ("queue.block_index", "TOUCHED_PAGES_MAX", (1, 2)),
    ("queue.limits", "EXPIRED_RUNS_MAX", (1, 2)),
    ("queue.limits", "UNLIMITED_WINDOW", (1, 4)),
    ("queue.limits", "WINDOW_BYTES", (1, 40)),
    ("queue.stage", "BATCHES_KEPT", (1, 2)),
    ("cluster.membership.status", "ASKED_MAX", (1, 2)),
    ("cluster.membership.requested_transfers", "MOVES_MAX", (1, 2)),
    ("cluster.membership.maintenance", "HANDED_OVER_MAX", (1, 2)),
    ("cluster.membership.placement", "BALANCED_QUEUES_MAX", (1,)),
    ("cluster.membership.reconciler", "MOVING_MAX", (1,)),
    ("cluster.membership.reconciler", "LOOKED_AT_MAX", (1, 2)),
    ("cluster.client.uplink", "SUBMISSION_BLOCK_BYTES", (1, 100)),
    ("cluster.client.uplink", "COMMANDS_MAX", (1, 2)),
)
"""Module, name, values to choose from."""
ROOMS = {
    "metadata.incarnations": "metadata.node_registry",
    "queue.backlog": "queue.ready.backlog",
    "queue.block_index": "queue.ready.block_index",
    "queue.claim": "queue.claims.claim",
    "queue.limits": "queue.ready.limits",
    "queue.stage": "queue.sinks.stage",
}
"""Where modules are whose names here are older: worlds are drawn by these (`_of_deliveries`)."""
HOMES = {
    "queue": "warren_machines",
    "metadata": "warren_machines",
    "cluster": "warren_broker",
}
DELIVERIES = "cluster.remote_deliveries"
"""Where this module has bounds, consumers have no room now and then, too."""
AHEAD = "cluster.client.read_ahead"
Windows = tuple[tuple[str, str, int], ...]


def draw(rng: Random, lives: bool) -> Windows:
    """Those of one world: (module, name, value); lives: a node has many."""
    if lives:
        return (("metadata.incarnations", "RETIRED_KEPT_MAX", 1),)
    if rng.random() >= SHRUNK_SHARE:
        return ()
    found = [
        (module, name, rng.choice(values)) for module, name, values in SMALL if rng.random() < 0.5
    ]
    if rng.random() < 0.5:
        # A node has no more unanswered than the machines remember the replies of.
        unanswered = rng.choice((1, 2, 5))
        found += [
            ("cluster.client.uplink", "UNANSWERED_MAX", unanswered),
            ("queue.machine", "REPLIES_KEPT", unanswered),
        ]
    if rng.random() < 0.5:
        replies = rng.choice((1, 3, 40))
        found += [
            ("metadata.state", "REPLIES_KEPT_MAX", replies),
            ("cluster.definitions", "REPLIES_KEPT_MAX", replies),
        ]
    return (*found, *_of_deliveries(Random(repr(found))), *_read_ahead(Random(f"ahead {found}")))


def _of_deliveries(rng: Random) -> Windows:
    """Bounds of what is on its way to another node; what else is drawn does not depend on them."""
    if rng.random() < 0.5:
        return ()
    return (
        (DELIVERIES, "NODE_WINDOW_BYTES", rng.choice((1, 400))),
        (DELIVERIES, "PIECE_BYTES", rng.choice((1, 200))),
    )


def _read_ahead(rng: Random) -> Windows:
    """Consumers of every prefetch are given messages ahead; so many at most."""
    if rng.random() < 0.3:
        return ()
    return (
        (AHEAD, "PREFETCH_MIN", 1),
        (AHEAD, "COVERED", rng.choice((2, 50, 50))),
        (AHEAD, "AHEAD_MAX", rng.choice((1, 5, 8_000))),
    )


@contextmanager
def shrunk(windows: Windows) -> Iterator[None]:
    """The bounds are these for as long as the context lasts."""
    with ExitStack() as stack:
        for module, name, value in windows:
            home = HOMES[module.split(".")[0]]
            where = import_module(f"{home}.{ROOMS.get(module, module)}")
            stack.enter_context(patch.object(where, name, value))
        yield
