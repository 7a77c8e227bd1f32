"""Which worlds have clients that wait for results, see `awaiters`."""

from __future__ import annotations

from random import Random

AWAITERS_SHARE, AWAITERS_AT = 0.1, 321
"""Their share of the worlds in which every node becomes well in the end; the number that decides is
so late that no recorded world became one."""


def awaiters(rng: Random) -> int:
    """Draw how many such clients there are, aside: all other worlds stay as they are."""
    aside = Random()
    aside.setstate(rng.getstate())
    return 2 if [aside.random() for _ in range(AWAITERS_AT)][-1] < AWAITERS_SHARE else 0
