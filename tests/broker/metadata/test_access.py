"""Vhosts, users, grants."""

from __future__ import annotations

import pytest

from broker.metadata.world import World
from warren_broker.errors import InvalidArgument, NotFound
from warren_broker.metadata import commands, passwords
from warren_broker.metadata.access import check_patterns
from warren_broker.metadata.changes import BootstrapWanted, UserChanged, VhostDeleted
from warren_broker.metadata.records import Grant, User, Vhost
from warren_broker.metadata.view import MetadataView


def test_a_new_cluster_asks_for_its_first_definitions() -> None:
    world = World(bootstrap=False)
    assert world.machine.leader_effects(world.state) == (BootstrapWanted(),)
    hashed = passwords.hash_password("guest", b"salt")
    command = commands.Bootstrap(Vhost("/"), User("guest", hashed, ("administrator",)))
    world.do(command)
    assert world.machine.leader_effects(world.state) == ()
    view = MetadataView(world.state)
    assert view.authenticate("guest", "guest") and not view.authenticate("guest", "Guest")
    assert not view.authenticate("nobody", "guest")
    assert view.grant("/", "guest") == Grant("/", "guest", ".*", ".*", ".*")
    world.do(commands.DeleteUser("guest"))
    world.do(command)  # a second leader's proposal must not bring a deleted user back
    assert view.authenticate("guest", "guest") is None


def test_rabbitmqs_own_example_hash() -> None:
    """From its documentation on passwords: salt 908DC60A, password test12."""
    hashed = passwords.hash_password("test12", bytes.fromhex("908DC60A"))
    assert hashed == "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
    assert passwords.matches("test12", hashed) and not passwords.matches("test13", hashed)
    for damaged in ("", "x", "kI3GCqW5", hashed[:-1], "é"):
        assert not passwords.matches("test12", damaged)


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
    assert world.changes == [UserChanged("ann")]
    view = MetadataView(world.state)
    assert view.grant("v", "ann") == everything
    assert view.topic_grant("v", "ann", "amq.topic") == topics
    world.do(commands.DeleteGrant("v", "ann", exchange=""))
    assert view.topic_grant("v", "ann", "amq.topic") is None and view.grant("v", "ann")
    world.do(commands.DeleteGrant("v", "ann"))
    assert view.grant("v", "ann") is None


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


def test_empty_names_are_refused() -> None:
    world = World()
    for command in (commands.AddVhost(Vhost("")), commands.PutUser(User("", ""))):
        with pytest.raises(InvalidArgument):
            world.do(command)
