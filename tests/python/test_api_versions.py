"""A client and a broker of two releases: they agree on a version of requests, or say why not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from python.fake_broker import FakeCluster, FakeNode
from warren import wire
from warren.admin import Admin
from warren.connection import Connection
from warren.errors import PeerError
from warren_broker.clients10 import connection as served
from warren_wire.admin.overview import API_OFFERED, api_spoken


@pytest.mark.parametrize(
    ("offered", "oldest", "newest", "spoken"),
    [
        ("2-2", 2, 2, 2),
        ("2-3", 2, 2, 2),  # a broker of the release after the client's
        ("2-2", 2, 3, 2),  # a client of the release after the broker's
        ("2-3", 2, 3, 3),
        ("3-4", 2, 2, 0),
        ("2-2", 3, 4, 0),
        ("new", 2, 2, 0),
    ],
)
def test_the_newest_common_version_is_spoken(
    offered: str, oldest: int, newest: int, spoken: int
) -> None:
    assert api_spoken(offered, oldest, newest) == spoken


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[FakeNode]:
    monkeypatch.setattr(served, "API_OFFERED", request.param)
    made = FakeNode(FakeCluster(), seed=1)
    yield made
    made.kill()


@pytest.mark.parametrize("node", ["2-3"], indirect=True)
def test_a_broker_of_the_next_release_serves(node: FakeNode) -> None:
    with Connection(f"amqp://guest:guest@{node.host}/?request_timeout=10") as connection:
        assert Admin(connection).overview()["node"] == "fake-1"


@pytest.mark.parametrize("node", ["3-4"], indirect=True)
def test_a_broker_of_a_later_one_is_refused(node: FakeNode) -> None:
    assert wire.API_OFFERED == API_OFFERED
    text = f"speaks versions 3-4 of the client's requests, this client {API_OFFERED}: install"
    with (
        pytest.raises(PeerError, match=text),
        Connection(f"amqp://guest:guest@{node.host}/?request_timeout=10") as connection,
    ):
        Admin(connection).overview()
