"""Rates of connections and channels: differences between two looks at them.

Nothing is looked at for the sake of a rate: the API's process notes the counts that it answers.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

LOOKS_KEPT: Final = 20_000
"""Objects of which the last look is known; those looked at longest ago are forgotten."""
LOOK_S_MAX: Final = 60.0
"""After this time a look says nothing of the rate now."""


@dataclass(frozen=True, slots=True)
class _Look:
    at_s: float
    counts: Mapping[str, int]
    rates: Mapping[str, float]


@dataclass(slots=True)
class Looks:
    """The last look at each object, at least `interval_s` after the one before.

    Invariant: at most LOOKS_KEPT looks
    """

    interval_s: float
    _looks: dict[Hashable, _Look] = field(default_factory=dict)

    def details(
        self, at_s: float, key: Hashable, counts: Mapping[str, int]
    ) -> dict[str, dict[str, float]]:
        """Note what an object has counted; return the `…_details` of each count.

        at_s  of a clock that goes evenly
        key   of another object with the same name is another one: no count goes down
        """
        before = self._looks.get(key)
        rates: Mapping[str, float] = {}
        if before is not None and at_s - before.at_s < self.interval_s:
            return _shown(counts, before.rates)
        if before is not None:
            elapsed_s = at_s - before.at_s
            if 0 < elapsed_s <= LOOK_S_MAX:
                then = before.counts
                rates = {
                    name: max(0, new - then.get(name, 0)) / elapsed_s
                    for name, new in counts.items()
                }
            del self._looks[key]  # the latest ones are last
        while len(self._looks) >= LOOKS_KEPT:
            del self._looks[next(iter(self._looks))]
        self._looks[key] = _Look(at_s, dict(counts), rates)
        return _shown(counts, rates)


def _shown(counts: Mapping[str, int], rates: Mapping[str, float]) -> dict[str, Any]:
    return {f"{name}_details": {"rate": round(rates.get(name, 0.0), 3)} for name in counts}
