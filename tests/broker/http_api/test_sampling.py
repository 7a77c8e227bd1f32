"""Samples for rates: a request for rates begins them, also after a fault."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from warren_broker.http.replies import HttpRefusal, unavailable
from warren_broker.http.sampling import Sampling

TOTALS = {
    "nodes": [{"node": "a", "boot": 1, "at_ms": 0, "counters": {"published": 5}, "vhosts": {}}]
}


@pytest.mark.parametrize("fault", [unavailable("the node is busy"), KeyError("nodes")])
def test_samples_begin_again_after_a_fault(fault: Exception) -> None:
    """After an answer that could not be read the rates stood still for ever."""

    async def run() -> None:
        sampling = Sampling(0.001)
        asked = 0

        async def fetch() -> dict[str, Any]:
            nonlocal asked
            asked += 1
            if asked == 3:
                raise fault
            return TOTALS

        await sampling.wanted(fetch)
        task = sampling._task
        assert task is not None
        _, pending = await asyncio.wait([task], timeout=60)
        assert not pending and asked == 3 and sampling._task is None
        assert isinstance(task.exception(), KeyError) is isinstance(fault, KeyError)
        await sampling.wanted(fetch)
        again = sampling._task
        assert again is not None and asked >= 4
        again.cancel()

    assert isinstance(fault, (HttpRefusal, KeyError))
    asyncio.run(run())
