"""Free ports: none is given twice while it is reserved, in this process or another one."""

from __future__ import annotations

import gc
import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from warren import ports
from warren.errors import UsageError
from warren.local import LocalCluster
from warren.ports import ReservedPorts

OTHER = """
import sys
from warren.ports import ReservedPorts
reserved = ReservedPorts()
first, wanted = map(int, sys.argv[1:])
got = reserved.take(wanted)
print(int(got == wanted), flush=True)
sys.stdin.read()
"""


def few(monkeypatch: pytest.MonkeyPatch, count: int) -> range:
    """Only `count` ports to choose from."""
    while True:
        first = random.randrange(ports.FREE_PORTS.start, ports.FREE_PORTS.stop - count)
        chosen = range(first, first + count)
        reserved = ReservedPorts()
        if all(reserved.take(port) == port for port in chosen):
            break
    monkeypatch.setattr(ports, "FREE_PORTS", chosen)
    monkeypatch.setattr(ports, "PORTS_TRIED_MAX", count)
    return chosen


def test_a_reserved_port_is_not_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens on it yet, or any more: that is when a second user was given it."""
    chosen = few(monkeypatch, 6)
    one, two = ReservedPorts(), ReservedPorts()
    taken = [one.take() for _ in range(3)] + [two.take() for _ in range(3)]
    assert sorted(taken) == list(chosen)
    with pytest.raises(UsageError, match=f"{chosen.start} and {chosen[-1]} are all taken"):
        two.take()
    with socket.create_server(("127.0.0.1", taken[0])):
        pass  # the marks are no obstacle for those that listen
    del one
    gc.collect()
    assert sorted(two.take() for _ in range(3)) == sorted(taken[:3])


def test_a_row_has_no_port_of_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = few(monkeypatch, 4)
    one, two = ReservedPorts(), ReservedPorts()
    assert one.take(chosen[1]) == chosen[1]
    monkeypatch.setattr(ports, "PORTS_TRIED_MAX", 3)
    assert two.take_row(2) == chosen[2]
    monkeypatch.setattr(ports, "PORTS_TRIED_MAX", 4)
    assert one.take_row(1) == chosen[0]


def test_another_process_is_not_given_it_and_the_end_of_a_process_frees_its_own() -> None:
    mine = ReservedPorts()
    port = mine.take()
    free = ReservedPorts().take()
    arguments = [sys.executable, "-c", OTHER]

    def other(wanted: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*arguments, "0", str(wanted)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    with other(port) as refused, other(free) as holder:
        for process, expected in ((refused, "0"), (holder, "1")):
            assert process.stdout is not None
            assert process.stdout.readline().strip() == expected
        assert mine.take(free) != free
        holder.kill()
        holder.wait(PATIENCE_S)
        assert mine.take(free) == free
        refused.kill()


def test_the_ports_of_a_stopped_cluster_are_its_own(tmp_path: Path) -> None:
    cluster = LocalCluster(1, tmp_path)
    port = cluster.nodes[0].amqp_port
    other = ReservedPorts()
    assert other.take(port) != port
    again = LocalCluster(directory=tmp_path)
    assert again.nodes == cluster.nodes
    del cluster
    gc.collect()
    assert other.take(port) == port
    del again
    reopened = LocalCluster(directory=tmp_path)
    assert reopened.nodes[0].amqp_port == port
