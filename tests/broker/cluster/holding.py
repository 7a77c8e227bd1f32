"""Proposals of a universe that are held back: what waits for their commands waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.cluster.universe import Universe
from warren_machines.metadata.codec import decode_submission


def hold_back(universe: Universe, kind: type) -> list[Callable[[], Any]]:
    """Hold back the commands of that kind to the definitions; return what proposes them."""
    held: list[Callable[[], Any]] = []
    for one in universe.running.values():
        propose = one.host.propose

        def hold(group: int, data: bytes, _propose: Any = propose) -> int:
            proposed = decode_submission(data).commands if group == 0 else ()
            if any(isinstance(command, kind) for command in proposed):
                held.append(lambda: _propose(group, data))
                return 0
            return int(_propose(group, data))

        one.host.propose = hold  # type: ignore[method-assign]
    return held
