"""Build script of the compiled kernel: `python -m warren_wire.kernel.build_kernel`.

Compiles in place; needs Cython, setuptools and a C compiler. The kernel's sources compile unchanged
under other names, `warren_wire.kernel.compiled.*`, so one process can load both kernels.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

MEMORYVIEWS = "memoryviews"
"""The module with Cython's code for memory views, from which the others have it. Each of ten
modules that use memory views would compile it by itself: more than its own code, half of the time.
"""
MODULES = (
    MEMORYVIEWS,
    "properties",
    "scan",
    "admit",
    "assemble",
    "deliver",
    "delivery_scan",
    "digest",
    "join",
    "even_block",
    "publisher_ids",
    "property_columns",
    "property_lists",
    "column_block",
    "section_values",
    "sections_in",
    "sections_out",
    "section_fields",
    "link_runs",
)
JOBS = 2
"""Processes that generate C, and compilers, at a time."""
_PACKAGE = "warren_wire.kernel.compiled"
_HERE = Path(__file__).resolve().parent
_PARENT = _HERE.parent.parent


def extensions(
    build_dir: str, source_root: Path = _PARENT, optional: bool = True, jobs: int = 0
) -> list[Any]:
    """Return the ext_modules for a setup script.

    build_dir    directory of the generated C files
    source_root  the folder that holds warren_wire
    optional     a failing compiler does not fail the build: the kernel runs interpreted
    jobs         processes that generate C; 0: this one, since a setup script may not be imported
    """
    from Cython.Build import cythonize
    from setuptools import Extension

    sources = source_root / "warren_wire" / "kernel"
    return list(
        cythonize(
            [
                Extension(
                    f"{_PACKAGE}.{name}",
                    [str(sources / (f"{name}.py" if name != MEMORYVIEWS else f"{name}.c"))],
                    # Python's own flags ask for debugging information: a third of the time.
                    extra_compile_args=["-O3", "-g0"],
                    optional=optional,
                )
                for name in MODULES
            ],
            build_dir=build_dir,
            include_path=[str(source_root)],  # for compiled/properties.pxd
            quiet=True,
            nthreads=jobs,
            shared_utility_qualified_name=f"{_PACKAGE}.{MEMORYVIEWS}",
        )
    )


def build(inplace: bool = True, verbose: bool = False) -> None:
    """Compile into kernel/compiled beside the sources; raises what the compiler's driver raises.

    inplace  False: compile and discard, to test whether compiling works
    """
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    with tempfile.TemporaryDirectory(prefix="warren-kernel-") as scratch:
        distribution = Distribution(
            {
                "name": "warren-kernel",
                "ext_modules": extensions(scratch, optional=False, jobs=JOBS),
            }
        )
        command = build_ext(distribution)
        command.build_temp = scratch
        command.build_lib = str(_PARENT) if inplace else scratch
        command.parallel = JOBS
        command.verbose = verbose
        command.ensure_finalized()
        command.run()


if __name__ == "__main__":
    build(verbose="-v" in sys.argv)
