"""Build the kernel's extensions where possible; everything else is in pyproject.toml."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from setuptools import setup

ROOT = Path(__file__).resolve().parent
KERNEL = ROOT / "broker" / "warren_wire" / "kernel"
BUILD_KERNEL = KERNEL / "build_kernel.py"
IS_PURE = os.environ.get("WARREN_WHEEL_KERNEL") == "none"
"""`build.py wheels` says so, which adds the extensions by itself."""


def kernel_extensions() -> list[Any]:
    """Return the kernel's modules; none without Cython: they run interpreted.

    The package itself cannot be imported here: its dependencies are not installed yet.
    """
    if IS_PURE:
        return []
    spec = importlib.util.spec_from_file_location("build_kernel", BUILD_KERNEL)
    assert spec is not None and spec.loader is not None, BUILD_KERNEL
    build_kernel = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build_kernel)
    try:
        return list(build_kernel.extensions("build/kernel", Path("broker")))
    except ImportError as error:
        print(f"the kernel will run interpreted: {error}", file=sys.stderr)
        return []


os.chdir(ROOT)
setup(ext_modules=kernel_extensions())
