"""Build the kernel's extensions where possible; everything else is in pyproject.toml."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
KERNEL = ROOT / "broker" / "warren_wire" / "kernel"
BUILD_KERNEL = KERNEL / "build_kernel.py"
COMPILED = os.environ.get("WARREN_WHEEL_KERNEL") == "in-place"
"""`build.py wheel` says so: it has compiled the kernel beside its sources, from these sources."""


class CopiedExtensions(build_ext):
    """Takes the extensions that lie beside the kernel's sources."""

    def build_extension(self, ext: Any) -> None:
        """Copy one of them."""
        target = Path(self.get_ext_fullpath(ext.name))
        self.mkpath(str(target.parent))
        self.copy_file(str(KERNEL / "compiled" / target.name), str(target))


def kernel_extensions() -> list[Any]:
    """Return the kernel's modules; none without Cython: they run interpreted.

    The package itself cannot be imported here: its dependencies are not installed yet.
    """
    spec = importlib.util.spec_from_file_location("build_kernel", BUILD_KERNEL)
    assert spec is not None and spec.loader is not None, BUILD_KERNEL
    build_kernel = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build_kernel)
    if COMPILED:
        names = [f"warren_wire.kernel.compiled.{name}" for name in build_kernel.MODULES]
        return [Extension(name, []) for name in names]
    try:
        return list(build_kernel.extensions("build/kernel", Path("broker")))
    except ImportError as error:
        print(f"the kernel will run interpreted: {error}", file=sys.stderr)
        return []


os.chdir(ROOT)
commands: dict[str, Any] = {"build_ext": CopiedExtensions} if COMPILED else {}
setup(ext_modules=kernel_extensions(), cmdclass=commands)
