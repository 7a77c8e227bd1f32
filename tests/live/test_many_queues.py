"""More queues than one answer can name."""

from __future__ import annotations

import pytest

from warren.admin import Admin
from warren.errors import PeerError, UsageError
from warren.local import LocalCluster
from warren.queues import QUEUES_PER_PAGE

PAGE = QUEUES_PER_PAGE


def test_a_list_of_queues_comes_in_pages(tmp_path) -> None:
    """Proton ends a value after 65,535 parts: a list of 2,000 queues ended the connection."""
    names = [f"q/{number:05}+ü" for number in range(PAGE + 20)]
    with LocalCluster(nodes=1, directory=tmp_path) as cluster, cluster.connect() as connection:
        admin = Admin(connection)
        for name in names:
            admin.queues.declare(name, arguments={"x-queue-type": "classic"})
        assert [queue.name for queue in admin.queues.list()] == names
        with pytest.raises((UsageError, PeerError), match=r"count=500, then with &after="):
            connection.request("GET", "/queues")
        few = connection.request("GET", "/queues?count=3&after=q%2F00007%2B%C3%BC")
        assert [queue["name"] for queue in few] == names[8:11]
        with pytest.raises((UsageError, PeerError), match="a number from 0 to"):
            connection.request("GET", "/queues?count=-1")
