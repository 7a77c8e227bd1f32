"""Which kernel runs, and that the interpreted one needs nothing that is not always there."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.patience import PATIENCE_S

WORK = """
import sys
if {without}:
    sys.modules["cython"] = None
import warren_wire.kernel as kernel
from tests.wire.kernel import frames as f
scanner = kernel.FrameScanner(4096)
run, = scanner.feed(f.publish(1, b"", b"q", b"hello", f.properties(priority=9, user_id=b"u")))
data = kernel.assemble([kernel.Selection(scanner.table, run.first, run.last)])
from warren_wire.block.block import Block
out = bytearray()
kernel.format_deliveries(out, Block.decode(data), 0, 1, 1, "t", 1, True, 4096, {{"x": 1}})
print(kernel.ACTIVE, out.hex())
"""

LOADED = """
import warren_wire.kernel as kernel
functions = (kernel.assemble, kernel.join, kernel.publisher_ids)
kernel.load("interpreted")
from warren_wire.kernel import assemble, join, publisher_ids
assert (assemble, join, publisher_ids) == functions, assemble
print("the same")
"""


def run(
    wanted: str | None, without: bool = False, work: str = WORK
) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter with that WARREN_KERNEL; `without`: as if Cython were not installed."""
    env = {name: value for name, value in os.environ.items() if name != "WARREN_KERNEL"}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    if wanted is not None:
        env["WARREN_KERNEL"] = wanted
    return subprocess.run(
        [sys.executable, "-c", work.format(without=without)],
        env=env,
        text=True,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_interpreted_without_cython() -> None:
    found = run("interpreted", without=True)
    assert found.stdout.startswith("interpreted "), found.stderr
    assert found.stdout == run("interpreted").stdout


def test_compiled_is_the_default_and_gives_the_same() -> None:
    found = run("compiled")
    if "cannot be loaded" in found.stderr and not os.environ.get("WARREN_STRICT"):
        pytest.skip("the kernel was not compiled here")
    assert found.stdout.startswith("compiled "), found.stderr
    assert run(None, without=True).stdout == found.stdout
    assert run("interpreted").stdout.split()[1] == found.stdout.split()[1]


def test_a_wrong_wish_is_refused() -> None:
    found = run("fast")
    assert found.returncode != 0
    assert "WARREN_KERNEL='fast' is neither 'compiled' nor 'interpreted'" in found.stderr


def test_the_other_kernel_loaded_beside_it_replaces_no_function() -> None:
    """Three functions have the names of their modules, which an import binds in the package."""
    assert run(None, work=LOADED).stdout == "the same\n", run(None, work=LOADED).stderr
