"""Logins by token at this node: the check, which may wait for keys of the issuer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

from warren_broker.access.token_rights import TokenRights
from warren_broker.settings.token_settings import TokenSettings
from warren_broker.tokens.key_fetch import KeyFetch, key_fetch
from warren_broker.tokens.token_check import TokenChecker, TokenRefused, is_token
from warren_broker.tokens.token_keys import keys_of_files
from warren_raft.runtime.loop import Clock, Loop

log = logging.getLogger(__name__)
Found: TypeAlias = Callable[[TokenRights | None], None]


class TokenLogins:
    """Which passwords are good tokens.

    fetch  None: the issuer is not asked for keys
    """

    def __init__(self, checker: TokenChecker, fetch: KeyFetch | None, clock: Clock) -> None:
        self._checker = checker
        self._fetch = fetch
        self._clock = clock

    def start(self) -> None:
        """Ask for the issuer's keys, from now on."""
        if self._fetch is not None:
            self._fetch.start()

    def rights(self, password: str, done: Found) -> None:
        """Call `done` with what a password permits that is a good token; None: it is none.

        At once, or after the issuer was asked for the key.
        """
        if not is_token(password):
            done(None)
            return
        if self._fetch is None or self._checker.knows_key(password):
            done(self._checked(password))
        elif not self._fetch.when_fetched(lambda: done(self._checked(password))):
            done(self._checked(password))

    def _checked(self, password: str) -> TokenRights | None:
        try:
            return self._checker.check(password, self._clock.epoch_ms())
        except TokenRefused as why:
            log.warning("token refused: %s", why)
            return None


def token_logins(settings: TokenSettings, loop: Loop) -> TokenLogins | None:
    """Return what checks tokens by the configuration; None: no token logs in.

    raises  KeysUnusable
    """
    if settings.resource_server_id is None:
        return None
    keys = keys_of_files(settings)
    fetch = key_fetch(settings, keys, loop)
    return TokenLogins(TokenChecker(settings, keys), fetch, loop.clock)
