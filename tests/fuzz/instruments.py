"""What the fuzzer needs beside the environment: Atheris, clang, and a kernel built with it.

Atheris (libFuzzer for Python) counts the edges of Python's bytecode. The kernel's C code is built
by clang with counters of its own and with AddressSanitizer, which ends the process at an access
outside of an object. Everything is below `.warren/fuzz`; users need none of it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PLACE = ROOT / ".warren" / "fuzz"
SITE, KERNEL, LOGS = PLACE / "site", PLACE / "kernel", PLACE / "logs"
COMPILED = KERNEL / "warren_wire" / "kernel" / "compiled"
ATHERIS = "atheris==3.0.0"
CLANG, PACKAGE = "clang-14", "clang-14"
FLAGS = ("-O1", "-gline-tables-only", "-fno-omit-frame-pointer")
SANITIZERS = "-fsanitize=address,fuzzer-no-link"
RUNTIME = SITE / "asan_with_fuzzer.so"
SANITIZED = "WARREN_FUZZ_SANITIZED"
"""Set in a worker's environment: it loads the kernel with AddressSanitizer."""
ASAN = "detect_leaks=0:allocator_may_return_null=1:handle_abort=1"
ASAN_FAST = f"{ASAN}:malloc_context_size=0:quarantine_size_mb=16"
"""Without the stack of each allocation, which a replay of the finding has."""


class NotInstalled(Exception):
    """A tool that can neither be found nor installed; the text has the remedy."""


def _run(title: str, command: list[str], remedy: str, **env: str) -> None:
    print(f"   … {title}", flush=True)
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / "instruments.log"
    with log.open("ab") as out:
        code = subprocess.run(
            command, stdout=out, stderr=out, env={**os.environ, **env}, cwd=ROOT, check=False
        ).returncode
    if code:
        raise NotInstalled(f"{title} failed, see {log.relative_to(ROOT)}: {remedy}")


def clang() -> str:
    """Return the compiler's name; it is installed where that is possible."""
    found = shutil.which(CLANG) or shutil.which("clang")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        install = ["apt-get", "install", "-y", "--no-install-recommends", PACKAGE]
        remedy = f"apt-get update && apt-get install {PACKAGE}"
        _run(f"installing {PACKAGE}", install, remedy, DEBIAN_FRONTEND="noninteractive")
        found = shutil.which(CLANG)
    if found is None:
        raise NotInstalled(f"no clang on PATH: apt-get install {PACKAGE}")
    return found


def _stamp() -> str:
    sources = ROOT / "broker" / "warren_wire" / "kernel"
    texts = [path.read_text() for path in sorted(sources.rglob("*.p*")) if path.suffix != ".pyc"]
    return hashlib.sha256("\0".join([*FLAGS, SANITIZERS, *texts]).encode()).hexdigest()


def ensure() -> None:
    """Install and build what is missing or outdated; raises NotInstalled."""
    if not RUNTIME.exists():
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps"]
        remedy = f"pip install {ATHERIS} needs a package index and CPython 3.11 to 3.13 on Linux"
        _run(f"installing {ATHERIS}", [*pip, "--target", str(SITE), ATHERIS], remedy)
    stamp = KERNEL / "stamp"
    if stamp.exists() and stamp.read_text() == _stamp():
        return
    compiler = clang()
    command = [sys.executable, "-m", "tests.fuzz.instruments"]
    print("   … compiling the kernel with clang's sanitizers takes some minutes", flush=True)
    _run(
        "compiling the kernel",
        command,
        "the log has the compiler's words",
        CC=compiler,
        LDSHARED=f"{compiler} -shared",
        PYTHONPATH=os.pathsep.join(str(ROOT / name) for name in ("", "broker", "raft")),
    )
    stamp.write_text(_stamp())


def build() -> None:
    """Compile the kernel into KERNEL; CC and LDSHARED name the compiler."""
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    from warren_wire.kernel.build_kernel import extensions

    made = extensions(str(KERNEL / "c"), optional=False)
    for each in made:
        each.extra_compile_args = [*FLAGS, SANITIZERS]
    command = build_ext(Distribution({"name": "warren-kernel-fuzz", "ext_modules": made}))
    command.build_temp, command.build_lib, command.parallel = str(KERNEL / "o"), str(KERNEL), 2
    command.ensure_finalized()
    command.run()


def worker_environment(compiled: bool, twin: str = "", replays: bool = False) -> dict[str, str]:
    """Return the environment of a worker.

    compiled  with the kernel of the fuzzer, and AddressSanitizer; else that of the sources
    twin      `always`, see `target`
    replays   tell where memory was allocated and freed
    """
    paths = [ROOT, SITE, *(ROOT / name for name in ("broker", "raft", "python", "connector"))]
    made = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "WARREN_FUZZ_TWIN": twin,
        "WARREN_KERNEL": "compiled",
    }
    if compiled:
        made |= {
            SANITIZED: "1",
            "PYTHONMALLOC": "malloc",  # objects of their own for AddressSanitizer
            "LD_PRELOAD": str(RUNTIME),
            "ASAN_OPTIONS": ASAN if replays else ASAN_FAST,
        }
    return made


if __name__ == "__main__":
    build()
