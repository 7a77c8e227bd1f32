"""The public interface in Python, as recorded in `public_api.txt`; a change shows its difference.

Public are the names in `__all__` of `warren`, `warren.local` and `pyspark_warren`, and of their
classes what has no underscore. `WARREN_REWRITE=1` records it again; `build.py release` prints the
difference to the last tag.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from warren.admin import Admin
from warren.calls import AdminCalls

PACKAGES = ("warren", "warren.local", "pyspark_warren")
RECORDED = Path(__file__).with_name("public_api.txt")


def _signature(found: Any) -> str:
    """Return names, kinds and defaults; types are written differently by each Python."""
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return ""
    bare = [one.replace(annotation=one.empty) for one in signature.parameters.values()]
    text = str(signature.replace(parameters=bare, return_annotation=signature.empty))
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _of_class(name: str, found: type) -> Iterator[str]:
    bases = ", ".join(base.__name__ for base in found.__bases__ if base is not object)
    yield f"class {name}({bases}){_signature(found)}"
    for member, value in sorted(inspect.getmembers(found)):
        if member.startswith("_") or member in dir(object):
            continue
        home = next((base for base in found.__mro__ if member in vars(base)), found)
        if not home.__module__.startswith(("warren", "pyspark_warren")) or home is AdminCalls:
            continue
        if inspect.isroutine(value):
            yield f"    {name}.{member}{_signature(value)}"
        else:
            yield f"    {name}.{member}"


def _parts() -> Iterator[tuple[str, type]]:
    """Yield the administration's parts: `Admin(connection).queues` and so on."""
    connection: Any = None
    for part, value in sorted(vars(Admin(connection)).items()):
        if value is not connection and hasattr(value, "ask"):
            yield f"warren.Admin.{part}", type(value)


def _interface() -> Iterator[str]:
    for name, kind in _parts():
        yield from _of_class(name, kind)
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in sorted(module.__all__):
            found = getattr(module, name)
            if inspect.isclass(found):
                yield from _of_class(f"{package}.{name}", found)
            else:
                yield f"{package}.{name}{_signature(found)}"


def test_the_public_interface_is_the_recorded_one() -> None:
    now = "".join(f"{line}\n" for line in _interface())
    if os.environ.get("WARREN_REWRITE"):
        RECORDED.write_text(now, encoding="utf-8")
    before = RECORDED.read_text(encoding="utf-8")
    changed = difflib.unified_diff(before.splitlines(), now.splitlines(), "recorded", "now", n=0)
    assert now == before, "\n".join(
        ("record it with WARREN_REWRITE=1, and say it in changes/:", *changed)
    )
