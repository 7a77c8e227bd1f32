"""Qpid Proton, from one of the two places where it can be.

A wheel of Warren that `build.py wheels` made has a copy of its own, the package `warren_proton`, so
that its installation needs no compiler. Elsewhere it is the package `python-qpid-proton`. Both at
once do not disturb each other: a program may use a Proton of its own beside Warren.

`proton.pyi` has the types.
"""

from __future__ import annotations

from importlib import import_module

_NAMES = (
    "UNDESCRIBED Array Collector Condition Connection Data DataException Delivery Described Event"
    " Link Message MessageException ProtonException Session Terminus Transport TransportException"
    " symbol timestamp uint ulong"
)


def _bind(prefix: str, package: str) -> None:
    found, engine = import_module(package), import_module(f"{prefix}cproton_ffi")
    globals().update({name: getattr(found, name) for name in _NAMES.split()})
    globals().update(
        ffi=engine.ffi,
        lib=engine.lib,
        compiled_engine=engine.__file__,
        pn_transport_push=import_module(f"{prefix}cproton").pn_transport_push,
    )


try:
    _bind("warren_proton.", "warren_proton")
except ModuleNotFoundError as error:
    if error.name != "warren_proton":
        raise  # the copy is there, and something that it needs is not
    _bind("", "proton")
