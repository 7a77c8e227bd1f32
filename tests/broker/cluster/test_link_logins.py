"""What this node's own links may do in their cluster, and that they may do nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, get_args

import pytest

from broker.cluster.universe import Universe
from warren_broker.access.access import Access
from warren_broker.cluster.link_logins import BY_OPERATOR, SETTER_NOT_KNOWN, LinkLogin
from warren_machines.metadata import commands, passwords
from warren_machines.metadata.permissions import Tag
from warren_machines.metadata.records import Grant, User, Vhost
from warren_wire.errors import AccessRefused, LoginRefused, NotAllowed, Refusal
from warren_wire.links.uris import OWN_CLUSTER

LOOPBACK = 'user "guest" can only connect via localhost (loopback_users)'
OWN_QUEUE = "amq.gen-0123456789abcdefghijkl"
REFUSED: tuple[Callable[[Access], None], ...] = (
    lambda access: access.read_queue("q"),
    lambda access: access.read_queue(OWN_QUEUE),
    lambda access: access.declare_queue("q", {}),
    lambda access: access.declare_queue("q", {}, passive=True),
    lambda access: access.declare_queue("my.amq.gen-q", {}),
    lambda access: access.declare_queue(OWN_QUEUE, {"x-dead-letter-exchange": ""}),
    lambda access: access.delete_queue("q"),
    lambda access: access.publish_stages("q"),
    lambda access: access.publish("amq.direct", ("k",)),
    lambda access: access.publish("amq.topic", ("k",)),
    lambda access: access.declare_exchange("e", {}),
    lambda access: access.declare_exchange("amq.direct", {}, passive=True),
    lambda access: access.delete_exchange("e"),
    lambda access: access.bind("amq.direct", "q", True, "k"),
    lambda access: access.bind("amq.direct", OWN_QUEUE, True, "k"),
)


@pytest.fixture
def universe() -> Iterator[Universe]:
    made = Universe()
    made.until(made.ready, "the cluster is formed")
    yield made
    made.close()


def entered(universe: Universe, login: LinkLogin) -> Access:
    """The checks of a connection that a link has opened in its vhost."""
    broker = universe.running["a"].broker
    name, secret = broker.links.give(login)
    answers: list[Any] = []
    broker.logins.authenticate(name, secret, "PLAIN", answers.append)
    (accepted,) = answers
    rights = accepted.rights
    access = Access(broker, login.vhost, rights.user, rights)
    access.stay()
    return access


def do(universe: Universe, command: Any) -> None:
    """Change the definitions, and wait for it."""
    answers: list[Any] = []
    universe.running["a"].broker.definitions.submit(command, answers.append)
    universe.until(lambda: bool(answers), "the definitions are changed")
    assert not isinstance(answers[0], Refusal), answers


def users(universe: Universe) -> None:
    """A user of each of two vhosts, `pm` and `mover`."""
    for vhost, user in (("va", "pm"), ("vb", "mover")):
        do(universe, commands.AddVhost(Vhost(vhost)))
        do(universe, commands.PutUser(User(user, f"{user}-password")))
        do(universe, commands.PutGrant(Grant(vhost, user, "^mine", "^mine", "^mine")))


def test_the_end_of_federated_objects_is_published_to_and_nothing_else(universe: Universe) -> None:
    access = entered(universe, LinkLogin(BY_OPERATOR, "/", federated=True))
    access.publish("", ("q",))
    access.declare_queue(OWN_QUEUE, {})
    access.delete_queue(OWN_QUEUE)
    for call in REFUSED:
        with pytest.raises(AccessRefused):
            call(access)
    for tag in get_args(Tag):
        with pytest.raises(AccessRefused):
            access.must_be(tag, "look")
    with pytest.raises(AccessRefused):
        entered(universe, LinkLogin(BY_OPERATOR, "missing", federated=True))


def test_a_login_is_for_one_process_and_one_vhost(
    universe: Universe,
) -> None:
    users(universe)
    one, other = (universe.running[name].broker for name in "ab")
    name, secret = one.links.give(LinkLogin("pm", "va"))
    answers: list[Any] = []
    for broker, said in ((one, ""), (one, secret + "0"), (other, secret)):
        broker.logins.authenticate(name, said, "PLAIN", answers.append)
    assert all(isinstance(answer, LoginRefused) for answer in answers)
    assert name not in one.definitions.state.users and len(secret) == 64
    one.logins.authenticate(name, secret, "PLAIN", answers.append)
    rights = answers.pop().rights
    assert rights.user == "pm" and rights.permissions("va") is not None
    assert rights.permissions("/") is None and rights.permissions("vb") is None
    one.links.take_back([name])
    one.logins.authenticate(name, secret, "PLAIN", answers.append)
    assert isinstance(answers.pop(), LoginRefused)


def test_a_link_has_the_present_permissions_of_its_user(
    universe: Universe,
) -> None:
    users(universe)
    access = entered(universe, LinkLogin("pm", "va"))
    access.read_queue("mine")
    with pytest.raises(AccessRefused):
        access.read_queue("yours")
    do(universe, commands.DeleteGrant("va", "pm"))
    with pytest.raises(AccessRefused):
        access.read_queue("mine")
    do(universe, commands.PutGrant(Grant("va", "pm", ".*", ".*", ".*")))
    access.read_queue("yours")
    do(universe, commands.DeleteUser("pm"))
    for call in (access.stay, lambda: access.read_queue("mine")):
        with pytest.raises(AccessRefused):
            call()


@pytest.mark.parametrize(
    ("login", "why"),
    [
        (LinkLogin("pm", "va"), ""),
        (LinkLogin("pm", "vb"), 'user "pm" may not connect to vhost "vb"'),
        (LinkLogin("pm", "nowhere"), 'user "pm" may not connect to vhost "nowhere"'),
        (LinkLogin("gone", "va"), 'user "gone" may not connect to vhost "va"'),
        (LinkLogin("pm", "va", "mover", "x"), 'user "mover" may not connect to vhost "va"'),
        (LinkLogin("pm", "vb", "mover", "x"), 'user "pm" may not connect to vhost "vb"'),
        (LinkLogin("mover", "vb", "mover", "x"), ""),
        (LinkLogin(BY_OPERATOR, "vb", "mover", "x"), ""),
        (LinkLogin(BY_OPERATOR, "vb"), ""),
        (LinkLogin(None, "vb"), SETTER_NOT_KNOWN),
        (LinkLogin(None, "vb", "mover", "x"), ""),
        (LinkLogin("guest", "/", "guest", "guest"), ""),
        (LinkLogin(None, "/", "guest", "guest"), LOOPBACK),
        (LinkLogin("pm", "/", "guest", "guest"), 'user "pm" may not connect to vhost "/"'),
    ],
)
def test_who_may_connect_to_what(universe: Universe, login: LinkLogin, why: str) -> None:
    users(universe)
    assert universe.running["a"].broker.links.refusal(login) == why


def test_a_password_in_a_uri_is_checked_each_time(
    universe: Universe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "matches", lambda password, kept: password == kept)
    users(universe)
    links = universe.running["a"].broker.links
    wrong = links.give(LinkLogin(BY_OPERATOR, "vb", "mover", "guess"))
    assert links.log_in(*wrong) is None
    right = links.give(LinkLogin(BY_OPERATOR, "vb", "mover", "mover-password"))
    assert links.log_in(*right) is not None
    changed = User("mover", "another")
    do(universe, commands.PutUser(changed))
    assert links.log_in(*right) is None


def test_a_link_that_comes_to_its_own_cluster_by_another_way_is_refused(universe: Universe) -> None:
    """By the port of another node, a proxy or a name: `guest` would come from loopback."""
    broker = universe.running["a"].broker
    answers: list[Any] = []
    for said in (broker.cluster.host.cluster_id, "another cluster"):
        broker.logins.enter_vhost(7, "/", "guest", answers.append, properties={OWN_CLUSTER: said})
    assert isinstance(answers[0], NotAllowed) and "leave the host out" in answers[0].detail
    assert not isinstance(answers[1], Refusal)
