"""What a queue remembers of sinks and their runs: read for management, and not changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from warren_machines.queue.sinks.sink_state import SinkRun
from warren_machines.queue.state import QueueState

SinkRow: TypeAlias = tuple[str, str, int, int, tuple[tuple[int, int], ...], int, int, int]
"""(sink, run, epoch, last batch or -1, ((batch, messages), …) remembered, attempts staged, their
messages, when it is forgotten unless it is heard before, 0: not by itself)."""


def sinks_of(
    state: QueueState, sink: str, run: str, count_max: int
) -> tuple[int, tuple[SinkRow, ...]]:
    """Return how many runs there are, and the first `count_max` of them.

    They come in the order in which they would be forgotten, the last ones first: by sink, the one
    that published (or began) last before all others, then by run.

    sink, run  only those of that name; "": all
    """
    # Sinks are bounded, and so are the runs of one, but not so tightly that all should be visited.
    total = sum(len(runs) if not run else run in runs for _, runs in _sinks(state, sink))
    found: list[SinkRow] = []
    for name, runs in _sinks(state, sink):
        for each in reversed(runs) if not run else (run,):
            if each not in runs:
                continue
            if len(found) >= count_max:
                return total, tuple(found)
            known = runs[each]
            found.append(
                (
                    name,
                    each,
                    known.epoch,
                    known.last_batch,
                    tuple((batch.batch, batch.messages) for batch in known.published),
                    len(known.stages),
                    sum(part.messages for part in known.stages.values()),
                    known.heard_ms + known.expires_ms,
                )
            )
    return total, tuple(found)


def _sinks(state: QueueState, sink: str) -> Iterator[tuple[str, dict[str, SinkRun]]]:
    """Yield sinks with their runs, the one that published last first."""
    for name in reversed(state.runs) if not sink else (sink,):
        if name in state.runs:
            yield name, state.runs[name]
