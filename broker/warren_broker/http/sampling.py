"""When samples of the cluster's counters are taken: while rates are asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from warren_broker.http.replies import HttpRefusal
from warren_broker.http.samples import Samples

SAMPLED_S: Final = 60.0
"""Samples are taken for this long after a request that shows rates."""


Fetch: TypeAlias = Callable[[], Awaitable[Any]]
"""Asks the node for its cluster's totals, with the credentials of a request; raises HttpRefusal."""


@dataclass(slots=True)
class Sampling:
    """Takes a sample each `interval_s`, with the credentials of the latest request for rates.

    on     whether there are rates at all (`management.rates_mode`)

    1. Rates are asked for: the first sample is taken at once.  2. The next ones follow, each after
    the interval.  3. No request comes for SAMPLED_S, or the node refuses: the samples are
    forgotten, and with them the credentials.

    Invariant: `_task` runs exactly while `_fetch` is not None.
    """

    interval_s: float
    on: bool = True
    samples: Samples = field(default_factory=Samples)
    _fetch: Fetch | None = None
    _until: float = 0.0
    _task: asyncio.Task[None] | None = None

    async def wanted(self, fetch: Fetch) -> None:
        """Note a request for rates of a user that sees every node's counters."""
        if not self.on:
            return
        self._until = time.monotonic() + SAMPLED_S
        begins, self._fetch = self._fetch is None, fetch
        if begins:
            self._task = asyncio.create_task(self._run())
            await self._take(fetch)

    async def _run(self) -> None:
        try:
            while self._fetch is not None and time.monotonic() < self._until:
                await asyncio.sleep(self.interval_s)
                await self._take(self._fetch)
        except HttpRefusal:
            pass  # the user may not see them any more, or the node is busy
        finally:  # also after an answer that cannot be read: the next request begins again
            self._fetch, self._task = None, None
            self.samples.clear()

    async def _take(self, fetch: Fetch) -> None:
        found: dict[str, Any] = await fetch()
        self.samples.add(round(time.time() * 1000), found["nodes"])
