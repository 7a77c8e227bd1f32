"""Every test of the kernel runs on both kernels."""

from __future__ import annotations

import os

import pytest

from warren_broker import kernel
from warren_broker.kernel import Kernel


def loaded(mode: str) -> Kernel:
    """That kernel; skipped where the extensions were not built, unless they must be there."""
    try:
        return kernel.load("compiled" if mode == "compiled" else "interpreted")
    except ImportError:
        if os.environ.get("WARREN_KERNEL") == "compiled" or os.environ.get("WARREN_STRICT"):
            raise
        pytest.skip("the kernel was not compiled here")


@pytest.fixture(params=["compiled", "interpreted"])
def both(request: pytest.FixtureRequest) -> Kernel:
    """The one kernel, then the other."""
    return loaded(request.param)


@pytest.fixture
def pair() -> tuple[Kernel, Kernel]:
    """Both at once, to be compared."""
    return loaded("compiled"), loaded("interpreted")
