"""Tokens on connections of the client: asked for in time, by a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from pyspark_warren.errors import BrokerUnavailableError, TokenError
from pyspark_warren.login.tokens import LoginToken, TokenSecrets, TokenSource
from tests.patience import PATIENCE_S, PROMPTLY_S
from warren.errors import Unavailable


def token(text: str, renew_s: float = 60.0, life_s: float = 120.0) -> LoginToken:
    now = time.monotonic()
    return LoginToken(text, now + renew_s, now + life_s)


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def test_the_next_token_is_asked_for_when_it_is_due_and_never_waited_for() -> None:
    go = threading.Event()
    given = [token("a", renew_s=0.0), token("b")]
    asked: list[int] = []

    def fetch() -> LoginToken:
        asked.append(1)
        assert len(asked) == 1 or go.wait(PATIENCE_S)
        return given[len(asked) - 1]

    secrets = TokenSecrets(TokenSource(fetch))
    assert secrets.current() == "a"
    begun = time.monotonic()
    for _ in range(100):
        assert secrets.following("a") is None
    assert time.monotonic() - begun < PROMPTLY_S
    until(lambda: len(asked) == 2)
    go.set()
    until(lambda: secrets.following("a") == "b")
    assert secrets.following("b") is None and len(asked) == 2


def test_a_connection_gets_the_token_that_another_one_has_asked_for() -> None:
    source = TokenSource(lambda: token("a"))
    one, other = TokenSecrets(source), TokenSecrets(source)
    assert one.current() == other.current() == "a"
    source._current = token("b")
    assert one.following("a") == other.following("a") == "b"


@pytest.mark.parametrize("failure", [TokenError("refused"), BrokerUnavailableError("not now")])
def test_a_failure_is_followed_by_another_attempt(failure: Exception) -> None:
    given: list[LoginToken | Exception] = [token("a", renew_s=0.0), failure, failure, token("b")]

    def fetch() -> LoginToken:
        found = given.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    secrets = TokenSecrets(TokenSource(fetch))
    assert secrets.current() == "a"
    until(lambda: secrets.following("a") == "b")
    assert not given


def test_what_a_login_raises() -> None:
    """What may be over soon is tried again by the client, until its deadline; a refusal ends it."""

    def later() -> LoginToken:
        raise BrokerUnavailableError("token endpoint a:1 answers 503")

    def refused() -> LoginToken:
        raise TokenError("token endpoint a:1 answers 401")

    with pytest.raises(Unavailable, match="^token endpoint a:1 answers 503$"):
        TokenSecrets(TokenSource(later)).current()
    with pytest.raises(TokenError, match="answers 401"):
        TokenSecrets(TokenSource(refused)).current()


def test_a_refused_login_with_a_token_that_is_over_says_nothing() -> None:
    secrets = TokenSecrets(TokenSource(lambda: token("a", 0.0, 0.05)))
    assert secrets.current() == "a" and not secrets.over("b")
    until(lambda: secrets.over("a"))
