"""Tokens on connections of the `warren` client: each follows the one before in time.

The client is driven by the thread that uses it, which must not wait for the token endpoint as long
as the token before is good: the next one is asked for in a thread of its own.
"""

from __future__ import annotations

import logging
import threading
import time

from pyspark_warren.errors import BrokerUnavailableError, WarrenSparkError
from pyspark_warren.tokens import RENEW_RETRY_S, LoginToken, TokenSource
from warren.errors import Unavailable

log = logging.getLogger("pyspark_warren")


class TokenSecrets:
    """`warren.login_secrets.LoginSecrets` of a source of tokens; of one connection."""

    def __init__(self, source: TokenSource) -> None:
        self._source = source
        self._login: LoginToken | None = None
        self._asking: threading.Thread | None = None
        self._ask_at = 0.0

    def current(self) -> str:
        """Return the token for a login; raises TokenError, OptionError, Unavailable."""
        try:
            self._login = self._source.token()
        except BrokerUnavailableError as wrong:
            raise Unavailable(wrong.text) from None
        return self._login.text

    def following(self, before: str) -> str | None:
        """Return the next token when there is one; else it is asked for when it is due."""
        found = self._source.at_once()
        if found is None:
            self._ask()
            return None
        return found.text if found.text != before else None

    def refused(self, password: str) -> None:
        """Have the next login use another token."""
        self._source.forget(password)

    def over(self, password: str) -> bool:
        """Return whether the token of the login has expired."""
        login = self._login
        return login is not None and login.text == password and login.expired

    def _ask(self) -> None:
        now = time.monotonic()
        if now < self._ask_at or (self._asking is not None and self._asking.is_alive()):
            return
        self._ask_at = now + RENEW_RETRY_S
        self._asking = threading.Thread(target=self._fetch, name="warren-token", daemon=True)
        self._asking.start()

    def _fetch(self) -> None:
        try:
            self._source.token()
        except WarrenSparkError as wrong:
            log.warning("a connection's token is not renewed yet: %s", wrong)
        except Exception:  # the thread's end: it is asked for again
            log.exception("renewing a connection's token")
