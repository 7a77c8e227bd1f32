"""The attacks of `build.py bench hostile` do what they say, and its tables hold what was found."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from bench.hostile import _rows
from bench.hostile_attacks import ATTACKS, ELSEWHERE, ONLY_WARREN, Where
from tests.patience import PATIENCE_S


class Victim:
    """A port that accepts and reads; says: what came, from: the addresses it came from."""

    def __init__(self) -> None:
        self.said: list[bytes] = []
        self.hosts: set[str] = set()
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=500)
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                made, address = self.listening.accept()
            except OSError:
                return
            with made:
                made.settimeout(0.05)
                self.hosts.add(address[0])
                with contextlib.suppress(OSError):
                    self.said.append(made.recv(65_536))

    def close(self) -> None:
        """Accept no more."""
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        self._thread.join(PATIENCE_S)


@pytest.fixture
def victim() -> Iterator[Victim]:
    made = Victim()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("attack", "begins"),
    [
        ("sockets before the login", b"AMQP"),
        ("slow HTTP", b"GET /api/whoami"),
        ("wrong passwords", b"AMQP\0\0\x09\x01\x01\0\0"),
    ],
)
def test_an_attack_before_the_login_says_this_from_another_address(
    victim: Victim, monkeypatch: pytest.MonkeyPatch, attack: str, begins: bytes
) -> None:
    monkeypatch.setattr("bench.hostile_attacks.SOCKETS", 20)
    monkeypatch.setattr("bench.hostile_attacks.SLOW_HTTP", 20)
    where = f"127.0.0.1:{victim.listening.getsockname()[1]}"
    did = ATTACKS[attack](Where(where, where, where, 0.5))
    assert did["opened"] > 0
    assert victim.hosts == {ELSEWHERE}
    assert any(each.startswith(begins) for each in victim.said)


def test_a_table_has_each_attack_and_a_dash_for_what_a_cluster_does_not_have() -> None:
    def figures(worst: float) -> dict[str, dict[str, float]]:
        return {"operations": {"worst_ms": worst, "p99_ms": 1.0, "failed": 0}}

    every = ("none", *ATTACKS)
    ours = {name: figures(10.0 * at) for at, name in enumerate(every)}
    theirs = {name: one for name, one in ours.items() if name not in ONLY_WARREN}
    results = [{"peer": "Warren", "attacks": ours}, {"peer": "Rabbit", "attacks": theirs}]
    rows = {row["attack"]: row for row in _rows(results, "operations")}
    assert list(rows) == list(every)
    assert rows["none"]["Warren"] == "0" and rows["none"]["Rabbit, failed"] == "0"
    assert rows[ONLY_WARREN[0]]["Rabbit"] == rows[ONLY_WARREN[0]]["Rabbit, failed"] == "-"
