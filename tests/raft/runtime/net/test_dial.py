"""What an attempt to connect says of the machine that it was for."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from warren_raft.runtime.loop import Loop
from warren_raft.runtime.net.dial import Connector

ROOT = Path(__file__).resolve().parents[4]


def own_network() -> bool:
    """Whether a program can be run in a network namespace of its own."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    found = subprocess.run(
        ["unshare", "--net", "ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1"],
        capture_output=True,
        check=False,
    )
    return found.returncode == 0


def test_a_firewall_that_refuses_is_no_process_that_has_ended() -> None:
    if not own_network():
        assert "WARREN_STRICT" not in os.environ, "needs root, unshare, and Debian's iproute2"
        pytest.skip("no network namespace can be made here")
    paths = os.pathsep.join([str(ROOT), *(path for path in sys.path if path)])
    found = subprocess.run(
        ["unshare", "--net", sys.executable, "-m", "tests.raft.runtime.net.refusals"],
        env={**os.environ, "PYTHONPATH": paths},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout) == {
        "reset": "ECONNREFUSED",
        "firewall": "EHOSTUNREACH",
        "router": "EHOSTUNREACH",
        "this machine": "ECONNREFUSED",
    }


@pytest.mark.parametrize(
    ("codes", "told"),
    [
        ([errno.ECONNREFUSED, errno.ECONNREFUSED], errno.ECONNREFUSED),
        ([errno.ENETUNREACH, errno.ECONNREFUSED], errno.ECONNREFUSED),
        ([errno.EHOSTUNREACH, errno.ECONNREFUSED], errno.EHOSTUNREACH),
        ([errno.EHOSTUNREACH, errno.ENETUNREACH], errno.ENETUNREACH),
    ],
)
def test_one_address_behind_a_firewall_is_enough_to_know_nothing(
    codes: list[int], told: int
) -> None:
    loop = Loop()
    found: list[Any] = []
    made = Connector(loop, ("127.0.0.1", 1), 1000, found.append)
    made._left = []
    for code in codes:
        made._note(OSError(code, os.strerror(code)))
    made._next()
    assert [error.errno for error in found] == [told]
