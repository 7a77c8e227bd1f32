"""Objects that Spark carries from the driver to its executors, which must have the same release."""

from __future__ import annotations

import pickle
import platform
from typing import Any

from pyspark import cloudpickle

from pyspark_warren.errors import VersionsError
from warren_wire import VERSION


class OfOneVersion:
    """An object that only the release which pickled it unpickles; another one refuses it by name.

    Its state travels as bytes: what another release may not know is read after the comparison.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        state: Any = self.__getstate__()
        return restored, (type(self), VERSION, cloudpickle.dumps(state))


def restored(kind: type[Any], version: str, state: bytes) -> Any:
    """Return the object of a pickle; raises VersionsError."""
    if version != VERSION:
        raise VersionsError(
            f"the driver of this query has warrenmq {version}, its executor on {platform.node()} "
            f"has {VERSION}: install the same version where the driver and the executors run"
        )
    made: Any = object.__new__(kind)
    made.__dict__.update(pickle.loads(state))
    return made
