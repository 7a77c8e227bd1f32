"""Which hosts are this machine, and that a connection begins with one of them."""

from __future__ import annotations

import pytest

from warren import near_hosts
from warren.connection import Connection
from warren.near_hosts import first_host, is_near
from warren.uri import Address

FAR = ("198.51.100.7", 5672)
"""An address for documents (RFC 5737), which no machine has."""


def test_an_address_of_this_machine_is_near() -> None:
    assert is_near(("127.0.0.1", 5672)) and is_near(("localhost", 5671))
    assert not is_near(FAR)
    assert not is_near(("no-such-host.invalid", 5672))
    assert not is_near(("x" * 300, 5672))


def test_a_near_host_is_first_wherever_it_stands() -> None:
    for at in range(3):
        hosts = [FAR] * 3
        hosts[at] = ("127.0.0.1", 5672)
        assert {first_host(hosts, True) for _ in range(20)} == {at}
    assert {first_host([FAR] * 3, True) for _ in range(100)} == {0, 1, 2}


def test_a_connection_looks_for_near_hosts_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def noted(host: tuple[str, int]) -> bool:
        asked.append(host)
        return True

    monkeypatch.setattr(near_hosts, "is_near", noted)
    address = Address(hosts=(FAR, FAR))
    Connection(address)
    assert asked == []
    Connection(address, prefer_near=True)
    assert asked == [FAR, FAR]
