"""Which connections end when users or vhosts are deleted."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from warren_broker.clients091.client091 import Client091
from warren_broker.listeners.listener import LEAVING_DELAY_MS, ClientEviction


class Client:
    """A connection that remembers its farewells."""

    def __init__(self, user: str = "", vhost: str = "/", by_token: bool = False) -> None:
        self.logged_in = (user, vhost) if user else None
        self.by_token = by_token
        self.farewells: list[str] = []

    def shut_down(self, reason: str) -> None:
        """Told to go."""
        self.farewells.append(reason)


class World:
    """Definitions, connections, a loop whose timers are called by hand."""

    def __init__(self, *clients: Client) -> None:
        self.users = {"ann": 1, "bob": 1}
        self.scopes = {"/": 1, "v": 1}
        self.timers: list[Callable[[], None]] = []
        self.connections = [SimpleNamespace(client=client) for client in clients]
        self.connections.append(SimpleNamespace(client=None))  # its header has not come
        self.definitions: Any = SimpleNamespace(
            state=SimpleNamespace(users=self.users, scopes=self.scopes),
            on_access=[],
        )
        listener: Any = SimpleNamespace(connections=self.connections)
        loop: Any = SimpleNamespace(call_later=self._later)
        ClientEviction(loop, self.definitions, listener)

    def _later(self, delay_ms: int, call: Callable[[], None]) -> None:
        assert delay_ms == LEAVING_DELAY_MS
        self.timers.append(call)

    def deleted(self, users: tuple[str, ...] = (), vhosts: tuple[str, ...] = ()) -> None:
        """As the definitions tell."""
        for call in self.definitions.on_access:
            call(users, vhosts)

    def fire(self) -> None:
        """The time has come."""
        timers, self.timers = self.timers, []
        for call in timers:
            call()


def test_the_clients_of_what_is_deleted_go_after_its_answer_has_left() -> None:
    ann, bob, elsewhere, opening = Client("ann"), Client("bob"), Client("bob", "v"), Client()
    world = World(ann, bob, elsewhere, opening)
    del world.users["ann"]
    world.deleted(users=("ann",))
    del world.scopes["v"]
    world.deleted(vhosts=("v",))
    assert len(world.timers) == 1 and not ann.farewells
    world.fire()
    assert ann.farewells == ["user 'ann' is deleted"]
    assert elsewhere.farewells == ["vhost 'v' is deleted"]
    assert not bob.farewells and not opening.farewells and not world.timers


def test_a_login_by_token_is_of_no_user() -> None:
    """It stays when a user of its name is deleted, and goes with its vhost."""
    ann, nowhere = Client("ann", "v", by_token=True), Client("nowhere", by_token=True)
    world = World(ann, nowhere)
    del world.users["ann"]
    world.deleted(users=("ann",))
    world.fire()
    assert not ann.farewells and not nowhere.farewells
    del world.scopes["v"]
    world.deleted(vhosts=("v",))
    world.fire()
    assert ann.farewells == ["vhost 'v' is deleted"] and not nowhere.farewells


def test_a_user_of_the_same_name_is_another_one() -> None:
    old, new = Client("ann"), Client("ann")
    world = World(old)
    world.deleted(users=("ann",))  # deleted and added again: `ann` is in the state
    world.connections.append(SimpleNamespace(client=new))
    world.fire()
    assert old.farewells == ["user 'ann' is deleted"] and not new.farewells


def test_a_client_that_has_opened_no_vhost_yet_is_of_the_first_user() -> None:
    """It logged in with the first user's password, and worked with the second one's rights."""
    half, other = Client("ann", ""), Client("bob", "")
    world = World(half, other)
    world.deleted(users=("ann",))
    world.deleted(vhosts=("v",))
    world.fire()
    assert half.farewells == ["user 'ann' is deleted"] and not other.farewells


@pytest.mark.parametrize(
    ("phase", "known"),
    [
        ("starting", None),
        ("securing", None),
        ("tuning", ("ann", "")),
        ("opening", ("ann", "")),
        ("asking", ("ann", "")),
        ("running", ("ann", "")),
    ],
)
def test_a_client_has_a_user_from_its_login_on(phase: str, known: object) -> None:
    state = SimpleNamespace(user="ann", vhost="", phase=phase)
    client: Any = SimpleNamespace(_session=SimpleNamespace(state=state))
    assert Client091.logged_in.fget(client) == known  # type: ignore[attr-defined]


def test_after_a_snapshot_all_are_compared() -> None:
    ann, userless, nowhere = Client("ann"), Client("carol"), Client("bob", "w")
    world = World(ann, userless, nowhere)
    world.deleted()
    world.fire()
    assert not ann.farewells
    assert userless.farewells == ["user 'carol' is deleted"]
    assert nowhere.farewells == ["vhost 'w' is deleted"]
    world.deleted()
    world.connections.clear()
    world.fire()
    world.deleted()
    assert not world.timers, "nothing is waited for when no client leaves"


def test_the_nodes_own_links_stay_unless_their_vhost_is_deleted() -> None:
    stays, leaves = Client("link-1", by_token=True), Client("link-2", "w", by_token=True)
    world = World(stays, leaves)
    world.deleted()
    world.fire()
    assert not stays.farewells and leaves.farewells == ["vhost 'w' is deleted"]
