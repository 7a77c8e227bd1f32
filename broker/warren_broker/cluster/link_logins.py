"""Logins of this node's own shovels and federation links, where a URI leads to this cluster.

Such a link acts for the user that has set it, and for no other: RabbitMQ's check of the vhost, at
the time of setting and again whenever the link connects. Its process gets a name and a secret for
each URI, which this process alone knows, and which are forgotten when the link stops.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

import msgspec

from warren_broker.access.access import IMPERSONATOR
from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.definitions import Definitions
from warren_machines.metadata import permissions
from warren_machines.metadata.permissions import HeldPermissions, Permission
from warren_machines.metadata.state import Scope
from warren_machines.metadata.upstreams import federated_exchange
from warren_wire.errors import AccessRefused
from warren_wire.links.definition import ShovelEnd
from warren_wire.links.uris import OWN_CLUSTER, ClusterPlaces, is_loopback

BY_OPERATOR: Final = ""
"""Setter of a link of the configuration, or of the definitions that are loaded at a start."""
LINK_USER: Final = "link"
"""How the name begins under which a link logs in; it is in no definitions."""
LINK_QUEUES: Final = "amq.gen-"
"""A federation link has queues of its own that show where it leads."""
SETTER_NOT_KNOWN: Final = (
    "it is not known which user has set it, and in this cluster permissions are needed: set it "
    "again, or give USER:PASSWORD in the URI"
)


class LinkLogin(msgspec.Struct, frozen=True):
    """One URI of a link that leads to this cluster.

    setter     the user that has set the link; BY_OPERATOR; None: a login by token
    user       in the URI; "": none, it acts as the setter
    federated  the end with the federated objects themselves, which no user names
    """

    setter: str | None
    vhost: str
    user: str = ""
    password: str = ""
    federated: bool = False

    def __repr__(self) -> str:
        return f"LinkLogin(setter={self.setter!r}, vhost={self.vhost!r}, user={self.user!r})"


class _FederatedRights(msgspec.Struct, frozen=True):
    """What links may do: publish to queues by their names, and to federated exchanges.

    Asked for each routing key that a peer sends: one exchange is looked at, not all of the vhost.
    """

    scope: Scope

    def allows(self, permission: Permission, name: str) -> bool:
        """See HeldPermissions."""
        if permission == "configure":
            return name.startswith(LINK_QUEUES)
        to_queue = name == "amq.default"
        return permission == "write" and (
            to_queue or federated_exchange(self.scope, name) is not None
        )


class LinkRights:
    """What a link may do on a connection: see `TokenRights`, which has the same methods.

    Everything is looked up at each check, so that a permission that is taken away counts.
    """

    expires_ms: int | None = None
    of_link: ClassVar[bool] = True

    def __init__(self, logins: LinkLogins, login: LinkLogin, name: str) -> None:
        self._logins = logins
        self._login = login
        self.user = login.user or login.setter or name

    @property
    def tags(self) -> tuple[str, ...]:
        """None that opens the management; whether messages may keep their users."""
        return self._logins.tags(self._login)

    def permissions(self, vhost: str) -> HeldPermissions | None:
        """Return the permissions in a vhost; None: the link may not enter it."""
        return self._logins.permissions(self._login) if vhost == self._login.vhost else None

    def allows_key(self, permission: Permission, vhost: str, exchange: str, key: str) -> bool:
        """Return whether the topic permissions of the user allow a routing key."""
        return self._logins.allows_key(self._login, permission, exchange, key)


class LinkLogins:
    """The logins of this node's links, and what they may do in this cluster.

    ports   on which this node listens for clients
    """

    def __init__(
        self, cluster: Cluster, definitions: Definitions, loopback_users: Iterable[str]
    ) -> None:
        self._cluster = cluster
        self._definitions = definitions
        self._loopback_users = frozenset(loopback_users)
        self._given: dict[str, tuple[str, LinkLogin]] = {}
        self.ports: tuple[int, ...] = ()

    @property
    def places(self) -> ClusterPlaces:
        """Return what leads to this cluster, as its nodes have registered."""
        nodes = self._definitions.state.nodes
        hosts = {
            one.name: one.address.rpartition(":")[0].strip("[]").lower() for one in nodes.values()
        }
        own = hosts.get(self._cluster.host.node_id, "")
        found = [(hosts[one.name], port) for one in nodes.values() for port in one.ports]
        here = [port for host, port in found if host == own or is_loopback(host)]
        return ClusterPlaces((*self.ports, *here), tuple(found))

    def of(self, end: ShovelEnd, setter: str | None) -> list[LinkLogin]:
        """Return the logins of an end's URIs, in their order; setter: see LinkLogin."""
        return [
            LinkLogin(setter, uri.vhost, uri.user, uri.password)
            if uri.names_user
            else LinkLogin(setter, uri.vhost)
            for uri in end.uris
        ]

    def is_own(self, properties: Mapping[str, object]) -> bool:
        """Return whether a client says that it is a link of this cluster, of whatever node."""
        told = properties.get(OWN_CLUSTER)
        return told is not None and told == self._cluster.host.cluster_id

    # ------------------------------------------------------------ rights

    def refusal(self, login: LinkLogin) -> str:
        """Return why the link may not connect, in RabbitMQ's words where it has some; "": it may.

        1. `guest` may log in from this machine only, with a password that is well known.  2. A
        user that is far away sets a link as `guest`.  3. Its process is on this machine, and the
        user is not: `loopback_users` is about the user.
        """
        scope = self._definitions.state.scopes.get(login.vhost)
        if login.federated:
            return "" if scope is not None else f"vhost '{login.vhost}' not found"
        if login.setter is None and not login.user:
            return SETTER_NOT_KNOWN
        for user in (login.setter, login.user):
            held = self._definitions.permissions(login.vhost, user) if user else scope
            if scope is None or held is None:
                return f'user "{user or login.setter}" may not connect to vhost "{login.vhost}"'
        if login.user in self._loopback_users and login.setter not in (BY_OPERATOR, login.user):
            return f'user "{login.user}" can only connect via localhost (loopback_users)'
        return ""

    def permissions(self, login: LinkLogin) -> HeldPermissions | None:
        """Return the permissions in the link's vhost; None: it may not enter it."""
        if self.refusal(login):
            return None
        if login.federated:
            return _FederatedRights(self._definitions.state.scopes[login.vhost])
        user = login.user or login.setter
        return self._definitions.permissions(login.vhost, user) if user else permissions.ALL

    def allows_key(self, login: LinkLogin, permission: Permission, exchange: str, key: str) -> bool:
        """See LinkRights."""
        user = login.user or login.setter
        if not user:
            return True
        held = self._definitions.topic_permissions(login.vhost, user, exchange)
        try:
            permissions.check_topic(held, permission, key, exchange, login.vhost, user)
        except AccessRefused:
            return False
        return True

    def tags(self, login: LinkLogin) -> tuple[str, ...]:
        """See LinkRights. What the operator moves may keep the users that have published it."""
        user = login.user or login.setter
        if user and IMPERSONATOR not in self._definitions.tags(user):
            return ()
        return (IMPERSONATOR,)

    def basis(self, login: LinkLogin) -> Any:
        """Return what the link's rights rest on: when it is another value, it connects again."""
        state = self._definitions.state
        if login.federated:
            return login.vhost in state.scopes
        users = [user for user in (login.setter, login.user) if user]
        return [
            (user in state.users, state.grants.get((login.vhost, user, None))) for user in users
        ]

    # ------------------------------------------------------------ logging in

    def give(self, login: LinkLogin) -> tuple[str, str]:
        """Return a new name and a secret, with which a process of this node logs in."""
        name = f"{LINK_USER}-{secrets.token_hex(8)}"
        secret = secrets.token_hex(32)
        self._given[name] = (secret, login)
        return name, secret

    def take_back(self, names: Iterable[str]) -> None:
        """Forget logins of a link that has stopped."""
        for name in names:
            self._given.pop(name, None)

    def knows(self, name: str) -> bool:
        """Return whether a link of this node has that name."""
        return name in self._given

    def log_in(self, name: str, secret: str) -> LinkRights | None:
        """Return what a link may do; None: it may not log in.

        The password in a URI is checked each time, so one that was changed counts.
        """
        expected, login = self._given[name]
        if not secrets.compare_digest(secret.encode("utf-8", "surrogatepass"), expected.encode()):
            return None
        if login.user and not self._definitions.authenticate(login.user, login.password):
            return None
        return LinkRights(self, login, name)
