"""Tokens on open connections of pika: each is replaced by connection.update-secret in time.

RabbitMQ 4 closes a connection when its token expires. A token is asked for in a thread of its own,
because the connection's loop must continue: it sends heartbeats and receives messages.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pika

from pyspark_warren.errors import WarrenSparkError
from pyspark_warren.login.tokens import (
    RENEW_RETRY_S,
    LoginToken,
    TokenSource,
    renewed,
    token_source,
)
from pyspark_warren.options.options import Options

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
    if not isinstance(login, TokenCredentials):
        return
    current, source = login.token, login.source

    def wait(least_s: float) -> None:
        connection.ioloop.call_later(max(least_s, current.renew_at - time.monotonic()), due)

    def due() -> None:
        if connection.is_open:
            source.ask(answered)

    def answered(found: LoginToken | WarrenSparkError) -> None:  # in the thread that asked
        connection.ioloop.add_callback_threadsafe(partial(renew, renewed(found)))

    def renew(token: LoginToken | None) -> None:
        nonlocal current
        if not connection.is_open:
            return
        changed = token is not None and token.text != current.text
        current = token or current
        if changed:  # a token that the broker refuses ends the connection
            connection.update_secret(current.text, _REASON, callback=lambda _: None)
        wait(0.0 if changed else RENEW_RETRY_S)

    wait(0.0)


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
    if source is None or source.at_once() is not None:
        then(None)
        return
    source.ask(lambda found: post(partial(then, None if isinstance(found, LoginToken) else found)))
