"""The compiled kernel, where it can be compiled; everything else stands in pyproject.toml."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from setuptools import setup

ROOT = Path(__file__).resolve().parent


def kernel_extensions() -> list[Any]:
    """The kernel's modules, each optional: without a compiler they run interpreted."""
    try:
        from Cython.Build import cythonize
        from setuptools import Extension
    except ImportError:
        print("Cython is missing: the kernel will run interpreted", file=sys.stderr)
        return []
    folder = Path("broker/warren_broker/kernel")
    names = (folder / "COMPILED").read_text(encoding="utf-8").split()
    extensions = [
        Extension(f"warren_broker.kernel.{name}", [str(folder / f"{name}.py")],
                  extra_compile_args=["-O3"], optional=True)
        for name in names
    ]
    return list(cythonize(extensions, language_level=3))


setup(ext_modules=kernel_extensions())
