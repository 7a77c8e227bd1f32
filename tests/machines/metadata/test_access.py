"""Vhosts, users, grants."""

from __future__ import annotations

import pytest

from machines.metadata.world import World
from warren_machines.metadata import commands, passwords
from warren_machines.metadata.changes import VhostDeleted
from warren_machines.metadata.records import Grant, User, Vhost
from warren_machines.metadata.vhosts_and_users import check_patterns, protected, protection
from warren_machines.metadata.view import MetadataView
from warren_wire.errors import InvalidArgument, NotFound, PreconditionFailed


def test_a_new_cluster_asks_for_its_first_definitions() -> None:
    world = World(bootstrap=False)
    assert not world.state.bootstrapped
    hashed = passwords.hash_password("guest", b"salt")
    command = commands.Bootstrap(Vhost("/"), User("guest", hashed, ("administrator",)))
    world.do(command)
    assert world.state.bootstrapped
    assert world.state.users["guest"].password_hash == hashed
    assert world.state.grants["/", "guest", None] == Grant("/", "guest", ".*", ".*", ".*")
    world.do(commands.PutUser(User("ann", hashed, ("administrator",))))
    world.do(commands.DeleteUser("guest"))
    world.do(command)  # a second leader's proposal must not bring a deleted user back
    assert "guest" not in world.state.users


def test_rabbitmqs_own_example_hash() -> None:
    """From its documentation on passwords: salt 908DC60A, password test12."""
    hashed = passwords.hash_password("test12", bytes.fromhex("908DC60A"))
    assert hashed == "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
    assert passwords.matches("test12", hashed) and not passwords.matches("test13", hashed)
    for damaged in ("", "x", "kI3GCqW5", hashed[:-1], "é"):
        assert not passwords.matches("test12", damaged)


@pytest.mark.parametrize("algorithm", sorted(passwords.ALGORITHMS))
def test_every_form_of_hash_that_rabbitmq_exports_is_recognised(algorithm: str) -> None:
    hashed = passwords.hash_password("test12", b"salt", algorithm)
    assert passwords.algorithm_of(hashed) == algorithm
    assert passwords.matches("test12", hashed) and not passwords.matches("test13", hashed)
    assert passwords.checked(hashed, algorithm) == passwords.checked(hashed, "") == hashed
    for other in {*passwords.ALGORITHMS, "bcrypt"} - {algorithm}:
        with pytest.raises(InvalidArgument, match=f"hashing_algorithm='{other}'"):
            passwords.checked(hashed, other)


def test_an_empty_password_is_none() -> None:
    assert not passwords.matches("", passwords.hash_password("", b"salt"))
    assert passwords.checked("", "") == "" and not passwords.matches("", "")
    with pytest.raises(InvalidArgument):
        passwords.checked("plain text", "")


def test_the_last_administrator_stays() -> None:
    world = World()
    admin, other = User("ann", "h", ("monitoring", "administrator")), User("bob", "h")
    world.do(commands.PutUser(admin))
    world.do(commands.PutUser(other))
    world.do(commands.DeleteUser("guest"))
    for refused in (
        commands.DeleteUser("ann"),
        commands.PutUser(User("ann", "h", ("monitoring",))),
    ):
        with pytest.raises(PreconditionFailed, match="user 'ann' is the last one"):
            world.do(refused)
        assert world.state.users["ann"] == admin
    world.do(commands.PutUser(User("ann", "new", admin.tags)))
    world.do(commands.PutUser(User("bob", "h", ("administrator",))))
    world.do(commands.DeleteUser("ann"))
    world.do(commands.DeleteUser("nobody"))
    assert list(world.state.users) == ["bob"]


def test_a_vhost_is_described_anew() -> None:
    world = World()
    world.declare("q")
    world.do(commands.PutVhost(Vhost("v", "first")))
    world.do(commands.PutVhost(Vhost("/", "second", ("t",))))
    assert world.state.scopes["v"].vhost.description == "first"
    assert world.state.scopes["/"].vhost == Vhost("/", "second", ("t",))
    assert list(world.state.scopes["/"].queues) == ["q"]
    with pytest.raises(InvalidArgument):
        world.do(commands.PutVhost(Vhost("")))


def test_a_hash_is_never_shown() -> None:
    assert "secret-hash" not in repr(User("u", "secret-hash"))


def test_grants() -> None:
    world = World()
    with pytest.raises(NotFound, match="no user 'ann'"):
        world.do(commands.PutGrant(Grant("/", "ann", "", "", "")))
    world.do(commands.PutUser(User("ann", "h")))
    with pytest.raises(NotFound, match="no vhost 'v'"):
        world.do(commands.PutGrant(Grant("v", "ann", "", "", "")))
    world.do(commands.AddVhost(Vhost("v")))
    everything = Grant("v", "ann", ".*", ".*", ".*")
    topics = Grant("v", "ann", "", "^a", "^b", exchange="amq.topic")
    world.do(commands.PutGrant(everything))
    world.do(commands.PutGrant(topics))
    assert world.state.grants["v", "ann", None] == everything
    assert world.state.grants["v", "ann", "amq.topic"] == topics
    world.do(commands.DeleteGrant("v", "ann", exchange=""))
    assert {key for key in world.state.grants if key[0] == "v"} == {("v", "ann", None)}
    world.do(commands.DeleteGrant("v", "ann"))
    assert ("v", "ann", None) not in world.state.grants


def test_patterns_are_checked_before_they_are_submitted() -> None:
    check_patterns(Grant("/", "u", ".*", "^$", ""))
    with pytest.raises(InvalidArgument, match="write='\\['"):
        check_patterns(Grant("/", "u", ".*", "[", ".*"))


def test_deleting_a_vhost_takes_everything_in_it() -> None:
    world = World()
    world.declare("q")
    world.exchange("x")
    world.bind("x", "q")
    gone = world.do(commands.DeleteVhost("/")).queues
    assert [queue.name for queue in gone] == ["q"] and not world.state.grants
    assert VhostDeleted("/") in world.changes
    assert world.do(commands.DeleteVhost("/")).queues == ()
    world.do(commands.AddVhost(Vhost("/")))
    view = MetadataView(world.state)
    assert not view.queues("/") and len(view.exchanges("/")) == 7


def test_whether_a_vhost_is_protected_is_decided_by_the_order_in_the_log() -> None:
    """Before, the node that was asked decided: the protection might be on its way to it."""
    world = World()
    world.do(commands.AddVhost(Vhost("v")))
    world.do(commands.PutParameter(protection("v", True)), uplink=72, node="b")
    assert world.do(commands.DeleteVhost("none")).queues == ()
    with pytest.raises(PreconditionFailed, match="'v' because it is protected from deletion"):
        world.do(commands.DeleteVhost("v"))
    assert "v" in world.state.scopes
    world.do(commands.PutParameter(protection("v", False)), uplink=72, node="b")
    world.do(commands.DeleteVhost("v"))
    with pytest.raises(NotFound):
        world.do(commands.PutParameter(protection("v", True)), uplink=72, node="b")
    world.do(commands.AddVhost(Vhost("v")))
    assert not protected(world.state, "v"), "it is another vhost"


def test_empty_names_are_refused() -> None:
    world = World()
    for command in (commands.AddVhost(Vhost("")), commands.PutUser(User("", ""))):
        with pytest.raises(InvalidArgument):
            world.do(command)
