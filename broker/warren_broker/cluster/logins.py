"""Logins at this node: passwords, certificates, tokens; and the vhosts that each may enter."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from warren_broker.access import requests
from warren_broker.access.token_rights import HeldRights, TokenRights
from warren_broker.cluster.client_limits import ClientLimits
from warren_broker.cluster.definitions import Definitions
from warren_broker.cluster.link_logins import LinkLogins
from warren_broker.tokens.token_logins import Found, TokenLogins
from warren_machines.metadata.permissions import HeldPermissions
from warren_wire import errors
from warren_wire.certificate_login import EXTERNAL

log = logging.getLogger(__name__)
Entered: TypeAlias = errors.Reply[requests.RequestDone | requests.TokenAccepted]
Answer: TypeAlias = Callable[[Entered], None]
OWN_LINK: Final = (
    "the URI leads to the cluster of the shovel or link itself, where it acts for the user that "
    "has set it: leave the host out, as in amqp:///VHOST"
)


@dataclass(eq=False, repr=False)
class NodeLogins:
    """What decides on logins, and on the vhosts that users enter.

    tokens  None: no token logs in
    links   logins of this node's shovels and federation links
    """

    _definitions: Definitions
    _clients: ClientLimits
    _tokens: TokenLogins | None
    _links: LinkLogins

    def authenticate(self, user: str, password: str, mechanism: str, done: Answer) -> None:
        """Answer RequestDone, TokenAccepted or LoginRefused; Unavailable without definitions.

        What looks like a token and is refused as one may still be the user's password.
        """

        def check() -> None:
            if mechanism != EXTERNAL and self._links.knows(user):
                rights = self._links.log_in(user, password)
                done(requests.TokenAccepted(rights) if rights else errors.login_refused(mechanism))
            elif mechanism == EXTERNAL:  # TLS has verified the certificate that names the user
                decide(user in self._definitions.state.users)
            else:
                self._rights(password, by_token)

        def by_token(rights: TokenRights | None) -> None:
            if rights is None:
                decide(self._definitions.authenticate(user, password))
            else:
                done(requests.TokenAccepted(rights))

        def decide(right: bool) -> None:
            done(requests.RequestDone() if right else errors.login_refused(mechanism))

        def not_ready() -> None:
            why = self._definitions.kept_out()
            text = (
                f"this node is kept out of its cluster: {why}"
                if why
                else "this node has not joined its cluster's metadata yet: "
                f"{self._definitions.lost_majority()}"
            )
            done(errors.Unavailable(text))

        self._definitions.call_when_ready(check, not_ready)

    def renew(self, held: HeldRights, vhost: str, secret: str, done: Answer) -> None:
        """Answer TokenAccepted for the next token of a connection, or a Refusal.

        It must be of the same user, and let that user stay in the vhost: what the connection has
        declared and consumes is that user's.
        """

        def found(rights: TokenRights | None) -> None:
            if rights is not None and rights.user != held.user:
                log.warning("token refused: it is of another user than the connection")
                rights = None
            if rights is None:
                done(errors.NotAllowed("New secret was refused by one of the backends"))
            else:
                accept(rights)

        def accept(rights: TokenRights) -> None:
            accepted = errors.converted(done, lambda _: requests.TokenAccepted(rights))
            self.open_vhost(vhost, rights.user, accepted, rights)

        self._rights(secret, found)

    def open_vhost(
        self, vhost: str, user: str, done: Answer, rights: HeldRights | None = None
    ) -> None:
        """Answer whether the user may enter the vhost: RequestDone or a Refusal.

        rights  of a token, see Access
        """
        if vhost not in self._definitions.state.scopes:
            done(errors.unknown_vhost(vhost))
        elif self._held(vhost, user, rights) is None:
            done(errors.vhost_refused(vhost, user))
        else:
            done(requests.RequestDone())

    def enter_vhost(
        self,
        connection: int,
        vhost: str,
        user: str,
        done: Answer,
        *,
        manages: bool = False,
        rights: HeldRights | None = None,
        properties: Mapping[str, object] | None = None,
    ) -> None:
        """Do as `open_vhost` for a connection, which is counted until it is gone.

        manages  it can change limits, if its user is an administrator: none keeps that one out
        properties  what the client says of itself
        """
        if self._links.is_own(properties or {}):
            done(errors.NotAllowed(OWN_LINK))
            return

        def counted(refusal: errors.Refusal | None) -> None:
            # The user or the vhost may have been deleted while other nodes were asked.
            self.open_vhost(vhost, user, lambda now: opened(refusal or now), rights)

        def opened(result: Entered) -> None:
            if isinstance(result, errors.Refusal):
                self._clients.leave(connection)
            done(result)

        def permitted(_: object) -> None:
            tags = self._definitions.tags(user) if rights is None else rights.tags
            free = manages and "administrator" in tags
            self._clients.enter(connection, vhost, user, counted, free=free)

        self.open_vhost(vhost, user, errors.continued(done, permitted), rights)

    def _held(self, vhost: str, user: str, rights: HeldRights | None) -> HeldPermissions | None:
        if rights is None:
            return self._definitions.permissions(vhost, user)
        return rights.permissions(vhost)

    def _rights(self, password: str, done: Found) -> None:
        if self._tokens is None:
            done(None)
        else:
            self._tokens.rights(password, done)
