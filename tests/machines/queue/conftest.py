"""Limits of the queue machine, lowered so that short logs reach them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from warren_machines.queue.ready import block_index, limits


@pytest.fixture(scope="module")
def few_pages_unpacked() -> Iterator[None]:
    """Keep one page of the block index unpacked: short logs take every path of packing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_index, "FILLED_PAGES_MAX", 1)
        patch.setattr(block_index, "TOUCHED_PAGES_MAX", 1)
        patch.setattr(block_index, "SEEN_PAGES_MAX", 2)
        patch.setattr(block_index, "LOOKS_MAX", 20)
        yield


@pytest.fixture
def window_of_100_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bound what is delivered to a consumer without a prefetch count to 100 bytes."""
    monkeypatch.setattr(limits, "WINDOW_BYTES", 100)
