"""Tokens on open connections of pika: each is replaced by connection.update-secret in time.

RabbitMQ 4 closes a connection when its token expires. A token is asked for in a thread of its own,
because the connection's loop must continue: it sends heartbeats and receives messages.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pika

from pyspark_warren.errors import BrokerUnavailableError, WarrenSparkError
from pyspark_warren.login.tokens import RENEW_RETRY_S, LoginToken, TokenSource, token_source
from pyspark_warren.options.options import Options

log = logging.getLogger("pyspark_warren")

_REASON: Final = "the token is renewed before it expires"


class TokenCredentials(pika.PlainCredentials):
    """A user with a token as password, and what gives the next one."""

    def __init__(self, user: str, token: LoginToken, source: TokenSource) -> None:
        super().__init__(user, token.text)
        self.token, self.source = token, source

    def __deepcopy__(self, memo: object) -> TokenCredentials:
        """Return a copy with the same source: pika copies the parameters of each connection."""
        return TokenCredentials(self.username or "", self.token, self.source)


def forget_refused(login: object) -> None:
    """Have the next login use another token, where this one had a token."""
    if isinstance(login, TokenCredentials):
        login.source.forget(login.token.text)


def keep_renewed(connection: Any) -> None:
    """Renew the token of a connection as long as it is open; nothing where it has none.

    Called in the thread of the connection's loop, when it is open. A failure to get one is
    followed by another attempt; without a token the broker ends the connection.
    """
    login = connection.params.credentials
    if isinstance(login, TokenCredentials):
        _Renewal(connection, login).begin()


def with_token(
    options: Options,
    post: Callable[[Callable[[], None]], None],
    then: Callable[[WarrenSparkError | None], None],
) -> None:
    """Call `then` when a token is there, or with why there is none; at once where none is needed.

    post    runs a callback in the loop's thread; callable from any
    then    is called in the loop's thread
    """
    source = token_source(options)
    if source is None or source.ready:
        then(None)
        return

    def asking() -> None:
        failure: WarrenSparkError | None = None
        try:
            source.token()
        except WarrenSparkError as wrong:
            failure = wrong
        except Exception as wrong:  # the thread's end: the loop is told, and continues
            log.exception("asking for a token")
            failure = BrokerUnavailableError(f"asking for a token: {type(wrong).__name__}")
        post(partial(then, failure))

    threading.Thread(target=asking, name="warren-token", daemon=True).start()


class _Renewal:
    """The timer of one connection's token; runs in the loop's thread, but for `_ask`."""

    def __init__(self, connection: Any, login: TokenCredentials) -> None:
        self._connection = connection
        self._source, self._token = login.source, login.token

    def begin(self) -> None:
        """Wait until the token is due."""
        self._wait(self._token.renew_at - time.monotonic())

    def _wait(self, delay_s: float) -> None:
        self._connection.ioloop.call_later(max(0.0, delay_s), self._due)

    def _due(self) -> None:
        if self._connection.is_open:
            threading.Thread(target=self._ask, name="warren-token", daemon=True).start()

    def _ask(self) -> None:
        token = self._token
        try:
            token = self._source.token()
        except WarrenSparkError as wrong:
            log.warning("a connection's token is not renewed yet: %s", wrong)
        except Exception:  # the thread's end: the timer continues
            log.exception("renewing a connection's token")
        self._connection.ioloop.add_callback_threadsafe(partial(self._renew, token))

    def _renew(self, token: LoginToken) -> None:
        if not self._connection.is_open:
            return
        changed = token.text != self._token.text
        if changed:
            self._connection.update_secret(token.text, _REASON, callback=_renewed)
        self._token = token
        self._wait(max(0.0 if changed else RENEW_RETRY_S, token.renew_at - time.monotonic()))


def _renewed(_: Any) -> None:
    """The broker has the new token; one that it refuses ends the connection."""
