"""Rates of the lengths of queues: differences between two looks at a queue.

No queue is looked at for the sake of a rate: the API's process notes the lengths that it answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from warren_broker.http_api.samples import LENGTHS

LOOKS_KEPT: Final = 20_000
"""Queues of which the last look is known; those looked at longest ago are forgotten."""
LOOK_S_MAX: Final = 60.0
"""After this time a look says nothing of the rate now."""


@dataclass(frozen=True, slots=True)
class _Look:
    at_s: float
    lengths: tuple[int, ...]
    rates: tuple[float, ...]


@dataclass(slots=True)
class QueueRates:
    """The last look at each queue, at least `interval_s` after the one before.

    Invariant: at most LOOKS_KEPT looks
    """

    interval_s: float
    _looks: dict[tuple[str, str], _Look] = field(default_factory=dict)

    def details(self, at_s: float, queue: Mapping[str, Any]) -> dict[str, dict[str, float]]:
        """Note what a queue has now; return `messages_details` and the others.

        at_s  of a clock that goes evenly
        """
        key = (str(queue["vhost"]), str(queue["name"]))
        now = tuple(int(queue[name]) for name in LENGTHS)
        before = self._looks.get(key)
        rates = (0.0,) * len(LENGTHS)
        if before is not None and at_s - before.at_s < self.interval_s:
            return _shown(before.rates)
        if before is not None:
            elapsed_s = at_s - before.at_s
            if 0 < elapsed_s <= LOOK_S_MAX:
                rates = tuple(
                    (new - old) / elapsed_s for new, old in zip(now, before.lengths, strict=True)
                )
            del self._looks[key]  # the latest ones are last
        while len(self._looks) >= LOOKS_KEPT:
            del self._looks[next(iter(self._looks))]
        self._looks[key] = _Look(at_s, now, rates)
        return _shown(rates)


def _shown(rates: tuple[float, ...]) -> dict[str, dict[str, float]]:
    return {
        f"{name}_details": {"rate": round(rate, 3)}
        for name, rate in zip(LENGTHS, rates, strict=True)
    }
