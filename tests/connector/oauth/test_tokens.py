"""When a token is renewed: its life, its end, its file; and by whichever thread."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pika
import pytest
from pika.exceptions import ProbableAuthenticationError

import warren.connection
from pyspark_warren.amqp.connection import open_any
from pyspark_warren.amqp.renewing import TokenCredentials
from pyspark_warren.amqp.session import Session
from pyspark_warren.errors import (
    BrokerRefusedError,
    BrokerUnavailableError,
    OptionError,
    TokenError,
)
from pyspark_warren.login import tokens
from pyspark_warren.login.tokens import (
    LoginToken,
    TokenSecrets,
    TokenSource,
    token_source,
    without_secrets,
)
from pyspark_warren.options.connection import OauthOptions
from pyspark_warren.options.options import Options, parse_options
from tests.patience import PATIENCE_S
from tests.signing_key import SigningKey
from warren.connection import Connection
from warren.errors import AccessRefused
from warren.uri import Address


class Clock:
    """A clock that a test moves; it stands for both of the module's clocks."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        """Return seconds."""
        return self.now

    def time(self) -> float:
        """Return seconds."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(tokens, "time", made)
    return made


def of_file(path: Path) -> TokenSource:
    options = parse_options({"queue": "q", "broker": "amqp", "tokenFile": str(path)}, "read")
    found = token_source(options)
    assert found is not None
    return found


def test_a_token_is_used_until_it_is_due_and_then_replaced(clock: Clock) -> None:
    made: list[LoginToken] = []

    def fetch() -> LoginToken:
        made.append(LoginToken(f"t{len(made)}", clock.now + 75, clock.now + 100))
        return made[-1]

    source = TokenSource(fetch)
    assert source.at_once() is None
    assert source.token().text == "t0" and source.at_once()
    clock.now += 74
    assert source.token().text == "t0"
    clock.now += 2
    assert source.at_once() is None
    assert source.token().text == "t1"


def test_a_token_that_cannot_be_replaced_is_used_until_it_expires(clock: Clock) -> None:
    failures: list[Exception | None] = [None]
    asked = 0

    def fetch() -> LoginToken:
        nonlocal asked
        asked += 1
        if failures[0] is not None:
            raise failures[0]
        return LoginToken("t", clock.now + 75, clock.now + 100)

    source = TokenSource(fetch)
    source.token()
    for failure in (BrokerUnavailableError("down"), TokenError("401"), OptionError("file")):
        failures[0] = failure
        clock.now += 76
        asked = 0
        assert source.token().text == source.token().text == "t"
        assert asked == 1, "the next attempt is a second later"
        clock.now += 1.5
        assert source.token().text == "t" and asked == 2
        clock.now += 25
        with pytest.raises(type(failure)):
            source.token()
        failures[0] = None
        assert source.token().text == "t"


def test_threads_ask_once_and_wait_for_the_answer() -> None:
    asked, may_answer = [], threading.Event()

    def fetch() -> LoginToken:
        asked.append(1)
        assert may_answer.wait(PATIENCE_S)
        return LoginToken("t", time.monotonic() + 60, time.monotonic() + 60)

    source = TokenSource(fetch)
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(source.token().text)) for _ in range(8)]
    for each in threads:
        each.start()
    may_answer.set()
    for each in threads:
        each.join(PATIENCE_S)
    assert (found, len(asked)) == (["t"] * 8, 1)


@pytest.mark.parametrize(("life_s", "renewed_s"), [(4, 3), (3600, 3300), (86_400, 86_100)])
def test_when_an_endpoint_s_token_is_due(
    monkeypatch: pytest.MonkeyPatch, life_s: float, renewed_s: float
) -> None:
    monkeypatch.setattr(tokens, "request_token", lambda client: ("t", life_s))
    before = time.monotonic()
    given = {"oauthTokenEndpoint": f"https://a/{life_s}", "oauthClientId": "a"}
    source = token_source(
        parse_options({"queue": "q", "broker": "amqp", "oauthClientSecret": "s", **given}, "read")
    )
    assert source is not None
    token = source.token()
    after = time.monotonic()
    assert before <= token.renew_at - renewed_s <= after
    assert before <= token.expires_at - life_s <= after


def test_a_token_without_a_life_has_that_of_its_claim_or_five_minutes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key, made = SigningKey(tmp_path), time.monotonic()
    for number, (text, life_s) in enumerate(
        [(key.token(900), 900), ("opaque", 300), ("a.b.c", 300)]
    ):
        monkeypatch.setattr(tokens, "request_token", lambda client, text=text: (text, None))
        given = {"oauthTokenEndpoint": f"https://b/{number}", "oauthClientId": "a"}
        given |= {"oauthClientSecret": "s", "queue": "q", "broker": "amqp"}
        source = token_source(parse_options(given, "read"))
        assert source is not None
        ends = source.token().expires_at
        assert made - 1 <= ends - life_s <= time.monotonic() + 1, "whole seconds"


@pytest.mark.parametrize(
    ("ahead_s", "life_s"), [(0, 300), (-3600, 300), (60, 240), (3600, None)], ids=str
)
def test_a_clock_that_is_behind_made_tokens_of_an_endpoint_live_longer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ahead_s: float, life_s: float | None
) -> None:
    """A token was renewed after the broker had ended the connection with it: a refused login."""
    now = time.time()
    text = SigningKey(tmp_path).token(iat=now, exp=now + 300)
    monkeypatch.setattr(tokens, "request_token", lambda client: (text, None))
    given = {"oauthTokenEndpoint": f"https://c/{ahead_s}", "oauthClientId": "a"}
    given |= {"oauthClientSecret": "s", "queue": "q", "broker": "amqp"}
    source = token_source(parse_options(given, "read"))
    assert source is not None
    asked = time.monotonic()
    monkeypatch.setattr(time, "time", lambda: now + ahead_s)
    if life_s is None:
        with pytest.raises(TokenError, match="compare this machine's clock with the endpoint's"):
            source.token()
        return
    ends = source.token().expires_at
    assert asked <= ends - life_s <= time.monotonic()


# ------------------------------------------------------------------ tokenFile


def test_a_token_that_a_broker_refused_was_used_for_the_rest_of_its_life(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """1. Keys or rights at the identity provider change.  2. Spark's processes are kept."""
    path = tmp_path / "token"
    path.write_text("before")
    options = parse_options({"queue": "q", "broker": "amqp", "tokenFile": str(path)}, "read")
    source = of_file(path)
    used: list[str] = []

    def open_one(one: pika.ConnectionParameters) -> None:
        used.append(one.credentials.password)
        raise ProbableAuthenticationError("ConnectionClosedByBroker: (403) 'ACCESS_REFUSED'")

    with pytest.raises(BrokerRefusedError):
        open_any(options, "connecting", open_one)
    path.write_text("after")
    with pytest.raises(BrokerRefusedError):
        open_any(options, "connecting", open_one)
    assert used == ["before", "after"]

    ended: list[object] = []
    session = Session.__new__(Session)
    session._login = TokenCredentials("u", source.token(), source)
    session._doing, session._at, session._over = "reading", "a:5672", False
    session._events = SimpleNamespace(ended=ended.append)  # type: ignore[assignment]
    session._not_opened(
        None, ProbableAuthenticationError("ConnectionClosedByBroker: (403) 'ACCESS_REFUSED'")
    )
    assert isinstance(ended[0], BrokerRefusedError) and source.at_once() is None

    class Refusing:
        def __init__(self, host: object, address: Address, *more: object) -> None:
            used.append(address.password)
            raise AccessRefused("refused", status=401)

    monkeypatch.setattr(warren.connection, "Wire", Refusing)
    connection = Connection("amqp://a", secrets=TokenSecrets(source))
    for text in ("third", "fourth"):
        path.write_text(text)
        with pytest.raises(AccessRefused):
            connection.request("GET", "/queues")
    assert used[2:] == ["third", "fourth"]
    source.token()
    source.forget("another one's")
    assert source.at_once()


def test_a_file_is_read_again(clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "token"
    source = of_file(file)
    with pytest.raises(OptionError, match="tokenFile=.*cannot be read"):
        source.token()
    for text in ("one", "two"):
        file.write_text(f"{text}\n")
        assert source.token().text == text
        clock.now += 10.5


def test_a_file_that_is_wrong_for_a_moment_does_no_harm(clock: Clock, tmp_path: Path) -> None:
    """As when it is written in place rather than renamed."""
    file = tmp_path / "token"
    file.write_text("one")
    source = of_file(file)
    source.token()
    file.write_text("")
    clock.now += 11
    assert source.token().text == "one"
    file.write_text("two")
    clock.now += 2
    assert source.token().text == "two"


def test_a_file_with_an_expired_token(tmp_path: Path) -> None:
    key, file = SigningKey(tmp_path), tmp_path / "token"
    file.write_text(key.token(-30))
    with pytest.raises(BrokerUnavailableError, match=r"its token has expired, \d+ s ago") as told:
        of_file(file).token()
    assert file.read_text() not in str(told.value)
    file.write_text(key.token())
    assert of_file(file).token().text == file.read_text()
    file.write_text("two words")
    with pytest.raises(TokenError, match="tokenFile=.* other signs") as wrong:
        tokens._of_file(OauthOptions(token_file=str(file)))
    assert "two words" not in str(wrong.value)


# ------------------------------------------------------------------ tasks


def test_tasks_that_do_not_use_the_broker_get_no_secret() -> None:
    options: Options = parse_options(
        {"queue": "q", "broker": "amqp", "spoolLocation": "/s", "oauthClientId": "a"}
        | {"oauthTokenEndpoint": "https://a/t", "oauthClientSecret": "geheim"},
        "read",
        "stream",
    )
    assert "geheim" in str(vars(options)) and "geheim" not in str(vars(without_secrets(options)))
