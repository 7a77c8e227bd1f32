"""The code that runs per message: frames to messages, messages to blocks, blocks to frames.

The modules of `_COMPILED` are written in Cython's pure Python mode. They run compiled when
`kernel/compiled` holds the extensions (`build_kernel.py` makes them) and interpreted otherwise,
with the same results. WARREN_KERNEL=interpreted or compiled selects one; `ACTIVE` is the running
one. `__init__.pyi` has what each name does, at a glance, and the types.
"""

from __future__ import annotations

import importlib
import os
from collections import namedtuple
from typing import Any, Final

_INTERPRETED: Final = {
    "items": "ACK AckRun BAD_EXPIRATION CC ContentRefused DIRECT_REPLY_TO DeliveryMalformed HEADERS"
    " HAS_DEATHS Heartbeat Item Malformed MethodItem NACK_DISCARD NACK_REQUEUE PERSISTENT"
    " PublishRun REJECT_DISCARD REJECT_REQUEUE Route USER_ID Unsendable",
    "table": "MessageTable PRIORITY_DEFAULT PRIORITY_MAX Routes Selection TTL_NONE lanes",
}
_COMPILED: Final = {
    "scan": "FrameScanner",
    "admit": "check_structure load_block set_deaths_apart",
    "assemble": "assemble count_groups count_unselected distinct_routes first_other_user flags_of"
    " partition select",
    "deliver": "fitting format_confirms format_deliveries format_get_ok format_large format_return"
    " readable split_sections with_headers with_sections",
    "delivery_scan": "Deliveries DeliveryScanner",
    "digest": "content_digest",
    "join": "join",
    "even_block": "even_block",
    "publisher_ids": "publisher_ids",
    "property_columns": "header_entries split_properties",
    "property_lists": "Members Values expirations header_tables property_lists",
    "column_block": "block_of_columns",
    "sections_in": "is_body map_entries read_sections whole_entries",
    "sections_out": "is_owned sections_to_keep write_sections",
    "section_fields": "read_fields",
    "link_runs": "EngineCalls Gathered InputFrames Unsettled",
}
"""Module to what is imported from here."""
Kernel = namedtuple("Kernel", ("mode", *_COMPILED))


def load(mode: str) -> Any:
    """Return the kernel in that mode; ImportError when the extensions were not built."""
    parent = "warren_wire.kernel.compiled" if mode == "compiled" else "warren_wire.kernel"
    # 1. The compiled kernel is active: `assemble` here is its function.  2. The interpreted one is
    # loaded for a comparison, and the import binds `assemble` here to the module of that name.
    # 3. A later import of `assemble` gets the module.  So what was bound stays.
    bound = {name: globals()[name] for name in _COMPILED if name in globals()}
    loaded = Kernel(mode, *(importlib.import_module(f"{parent}.{name}") for name in _COMPILED))
    globals().update(bound)
    return loaded


def _choose(wanted: str) -> Any:
    if wanted == "interpreted":
        return load("interpreted")
    if wanted not in ("", "compiled"):
        raise ImportError(
            f"WARREN_KERNEL={wanted!r} is neither 'compiled' nor 'interpreted'; "
            "leave it out for compiled where possible"
        )
    try:
        return load("compiled")
    except ImportError as error:
        if wanted == "compiled":
            raise ImportError(
                f"WARREN_KERNEL=compiled, but the extensions cannot be loaded ({error}); "
                "run python -m warren_wire.kernel.build_kernel, or leave WARREN_KERNEL out"
            ) from error
        return load("interpreted")


def _bind() -> str:
    """Bind every name to what it is in the chosen kernel; return the chosen mode."""
    chosen = _choose(os.environ.get("WARREN_KERNEL", ""))
    found = {}
    for module, names in _INTERPRETED.items():
        owner = importlib.import_module(f"warren_wire.kernel.{module}")
        found |= {name: getattr(owner, name) for name in names.split()}
    for module, names in _COMPILED.items():
        found |= {name: getattr(getattr(chosen, module), name) for name in names.split()}
    globals().update(found)
    return str(chosen.mode)


ACTIVE = _bind()
