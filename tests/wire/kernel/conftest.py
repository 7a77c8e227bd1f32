"""Every test of the kernel runs on both kernels."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from warren_wire import kernel
from warren_wire.kernel import Kernel

NAMES_ITS_KERNELS = {"both", "pair", "mode"}
"""Fixtures and parameters by which a test loads the kernels that it is about, whichever is active:
where the tests run again with the interpreted one active, it would be the same test again."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out, in the run with the interpreted kernel, what does not depend on the active one."""
    if kernel.ACTIVE != "interpreted" or os.environ.get("WARREN_KERNEL") != "interpreted":
        return
    again = [item for item in items if not is_the_same(item)]
    config.hook.pytest_deselected(items=[item for item in items if is_the_same(item)])
    items[:] = again


def is_the_same(item: pytest.Item) -> bool:
    """Return whether a test of this folder names its kernels by itself."""
    here = item.path.parent == Path(__file__).parent
    return here and not NAMES_ITS_KERNELS.isdisjoint(getattr(item, "fixturenames", ()))


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
