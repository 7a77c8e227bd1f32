"""`pyarrow.compute`, imported at its first use.

It takes a tenth of the import of this package, on a driver and in tasks that read plain columns for
nothing.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    import pyarrow.compute

    return getattr(pyarrow.compute, name)
