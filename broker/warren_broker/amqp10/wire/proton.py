"""Qpid Proton, from one of the two places where it can be.

A wheel of Warren that `build.py wheel` made has a copy of its own, the package `warren_proton`, so
that its installation needs no compiler. Elsewhere it is the package `python-qpid-proton`. Both at
once do not disturb each other: a program may use a Proton of its own beside Warren.
"""

from __future__ import annotations

try:
    from warren_proton import (
        UNDESCRIBED,
        Array,
        Collector,
        Condition,
        Connection,
        Data,
        DataException,
        Delivery,
        Described,
        Event,
        Link,
        Message,
        MessageException,
        ProtonException,
        Session,
        Terminus,
        Transport,
        TransportException,
        symbol,
        timestamp,
        uint,
        ulong,
    )
    from warren_proton.cproton import pn_transport_push
    from warren_proton.cproton_ffi import __file__ as compiled_engine
    from warren_proton.cproton_ffi import ffi, lib
except ModuleNotFoundError as error:
    if error.name != "warren_proton":
        raise  # the copy is there, and something that it needs is not
    from cproton import pn_transport_push
    from cproton_ffi import __file__ as compiled_engine
    from cproton_ffi import ffi, lib
    from proton import (
        UNDESCRIBED,
        Array,
        Collector,
        Condition,
        Connection,
        Data,
        DataException,
        Delivery,
        Described,
        Event,
        Link,
        Message,
        MessageException,
        ProtonException,
        Session,
        Terminus,
        Transport,
        TransportException,
        symbol,
        timestamp,
        uint,
        ulong,
    )

__all__ = [
    "UNDESCRIBED",
    "Array",
    "Collector",
    "Condition",
    "Connection",
    "Data",
    "DataException",
    "Delivery",
    "Described",
    "Event",
    "Link",
    "Message",
    "MessageException",
    "ProtonException",
    "Session",
    "Terminus",
    "Transport",
    "TransportException",
    "compiled_engine",
    "ffi",
    "lib",
    "pn_transport_push",
    "symbol",
    "timestamp",
    "uint",
    "ulong",
]
