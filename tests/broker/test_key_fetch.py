"""The keys that an issuer publishes: when they are asked for, and every answer that is none."""

from __future__ import annotations

import os
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.certificates import Authority
from tests.key_server import KeyServer, published
from tests.live.conftest import STRICT
from tests.patience import PATIENCE_S, PROMPTLY_S
from tests.signing_key import SigningKey
from warren_broker.settings.token_settings import TokenSettings
from warren_broker.tokens import key_fetch
from warren_broker.tokens.key_fetch import (
    KEYS_REFRESH_MS,
    LOGINS_WAITING_MAX,
    RETRY_MS,
    WAIT_MS_MAX,
    KeyFetch,
    fetched_keys,
)
from warren_broker.tokens.token_check import TokenChecker, TokenRefused
from warren_broker.tokens.token_keys import KEYS_BYTES_MAX, KeysUnusable, SigningKeys
from warren_broker.tokens.token_logins import TokenLogins, token_logins
from warren_wire.tls.contexts import TlsFiles, calling_context

if not os.environ.get(STRICT):
    pytest.importorskip("jwt")


class World:
    """An event loop that turns when it is told to; the issuer answers when `answers` says so."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.clock = SimpleNamespace(
            monotonic_ms=lambda: self.now_ms, epoch_ms=lambda: round(time.time() * 1000)
        )
        self.timers: list[tuple[int, Callable[[], None]]] = []
        self.posted: list[Callable[[], None]] = []
        self.asked = 0
        self.answers: dict[str, Any] | Exception = {}
        self.go = threading.Event()
        self.keys = SigningKeys({"file": "of a file", "both": "of a file"}, None)
        self.fetch = KeyFetch(self, self.keys, self._ask)  # type: ignore[arg-type]

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> Any:
        timer = (self.now_ms + delay_ms, call)
        self.timers.append(timer)
        return SimpleNamespace(cancel=lambda: timer in self.timers and self.timers.remove(timer))

    def post(self, call: Callable[[], None]) -> None:
        self.posted.append(call)

    def _ask(self) -> dict[str, Any]:
        self.asked += 1
        assert self.go.wait(PATIENCE_S)
        if isinstance(self.answers, Exception):
            raise self.answers
        return self.answers

    def pass_ms(self, span_ms: int) -> None:
        """Let time pass; the timers that are due fire."""
        self.now_ms += span_ms
        due = [timer for timer in self.timers if timer[0] <= self.now_ms]
        for timer in due:
            self.timers.remove(timer)
            timer[1]()

    def answer(self, answers: dict[str, Any] | Exception) -> None:
        """Let the issuer answer, and the loop take it."""
        self.answers = answers
        self.go.set()
        deadline = time.monotonic() + PATIENCE_S
        while not self.posted:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        self.go.clear()
        self.posted.pop()()


def test_keys_are_fetched_at_the_start_and_again() -> None:
    """What is withdrawn is good no longer; what the operator has in files stays, and counts."""
    world = World()
    world.fetch.start()
    assert world.keys.get("a") is None and world.keys.get("file") == "of a file"
    world.answer({"a": "A", "both": "B"})
    assert world.keys.get("a") == "A" and world.keys.get("both") == "of a file"
    world.pass_ms(KEYS_REFRESH_MS - 1)
    assert world.asked == 1
    world.pass_ms(1)
    world.answer({"c": "C"})
    assert world.asked == 2 and world.keys.get("a") is None and world.keys.get("c") == "C"


@pytest.mark.parametrize("failure", [KeysUnusable("no answer"), RuntimeError("unexpected")])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_after_a_failure_the_keys_stay_and_are_asked_for_soon(failure: Exception) -> None:
    world = World()
    world.fetch.start()
    world.answer({"a": "A"})
    world.pass_ms(KEYS_REFRESH_MS)
    world.answer(failure)
    assert world.keys.get("a") == "A"
    world.pass_ms(RETRY_MS)
    world.answer({"b": "B"})
    assert world.asked == 3 and world.keys.get("b") == "B"


def test_an_unknown_key_is_asked_for_once_in_a_while() -> None:
    """Tokens with made-up key ids do not make the node ask the issuer again and again."""
    world = World()
    world.fetch.start()
    world.answer({})
    told: list[str] = []
    assert not world.fetch.when_fetched(lambda: told.append("early"))
    world.pass_ms(RETRY_MS)
    assert world.fetch.when_fetched(lambda: told.append("1"))
    assert world.fetch.when_fetched(lambda: told.append("2"))
    assert not told
    world.answer({"new": "N"})
    assert told == ["1", "2"] and world.asked == 2 and world.keys.get("new") == "N"
    assert len([at for at, _ in world.timers if at >= world.now_ms + KEYS_REFRESH_MS]) == 1
    assert not world.fetch.when_fetched(lambda: told.append("again"))


def test_a_login_does_not_wait_for_an_issuer_that_hangs() -> None:
    world = World()
    told: list[str] = []
    world.fetch.start()
    for _ in range(LOGINS_WAITING_MAX):
        assert world.fetch.when_fetched(lambda: told.append("late"))
    assert not world.fetch.when_fetched(lambda: told.append("one more"))
    world.pass_ms(WAIT_MS_MAX)
    assert told == ["late"] * LOGINS_WAITING_MAX and world.asked == 1
    assert world.fetch.when_fetched(lambda: told.append("by the answer"))
    world.fetch.start()
    assert world.asked == 1, "one thread, however long it hangs"
    world.answer({"a": "A"})
    assert told[-1] == "by the answer" and world.keys.get("a") == "A"


def test_a_token_of_a_new_key_waits_for_it_and_no_other_does(tmp_path: Path) -> None:
    world = World()
    old, new = SigningKey(tmp_path), SigningKey(_made(tmp_path / "new"))
    settings = TokenSettings(resource_server_id="rabbitmq", jwks_uri="https://a/")
    logins = TokenLogins(TokenChecker(settings, world.keys), world.fetch, world.clock)
    logins.start()
    found: dict[str, Any] = {}

    def ask(name: str, password: str) -> None:
        logins.rights(password, lambda rights: found.update({name: rights}))

    ask("waits", old.token())
    ask("no token", "guest")
    ask("malformed", "eyJh.b.c")
    assert found == {"no token": None, "malformed": None}
    world.answer(_keys(old))
    assert found.pop("waits").user == "spark"
    ask("known", old.token())
    assert found.pop("known").user == "spark"
    world.pass_ms(RETRY_MS)
    ask("rotated", new.token(key_id="k2"))
    ask("foreign", new.token(key_id="k3"))
    assert "rotated" not in found
    world.answer(_keys(old, new))
    assert found.pop("rotated").user == "spark" and found.pop("foreign") is None
    ask("forged", new.token(key_id="k1"))
    assert found.pop("forged") is None, "the id of a key that is known: nothing is asked"
    assert world.asked == 2


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def _keys(*keys: SigningKey) -> dict[str, Any]:
    from warren_broker.tokens.token_keys import key_set

    return key_set(published(*keys), "here")


# ------------------------------------------------------------------ the request


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), plain=True)


@pytest.fixture(scope="module")
def server(authority: Authority) -> Any:
    with KeyServer(authority.issue("login"), lambda: (200, b"", {})) as made:
        yield made


def trusting(authority: Authority) -> ssl.SSLContext:
    return calling_context(TlsFiles(cacertfile=authority.cert))


def test_the_keys_of_an_issuer(authority: Authority, server: KeyServer, tmp_path: Path) -> None:
    key = SigningKey(tmp_path)
    server.answer = lambda: (200, published(key), {})
    assert list(fetched_keys(server.url, trusting(authority))) == ["k1"]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            (302, b"", {"Location": "https://127.0.0.1:1/"}),
            "answers 302, a redirect, .* not follow",
        ),
        ((404, b"secret-page", {}), "answers 404$"),
        ((500, b"secret-page", {}), "answers 500$"),
        ((200, b"secret-page", {}), "is no JSON Web Key Set$"),
        ((200, b'{"keys": []}', {}), "has no public key of a known kind"),
        ((200, b" " * (KEYS_BYTES_MAX + 1), {}), "more than 262144 bytes"),
        ((200, b"{", {"Content-Length": "99"}), "no HTTP \\(IncompleteRead\\)"),
        ((200, b"", {"Content-Length": "999999999999"}), "no HTTP \\(IncompleteRead\\)"),
    ],
)
def test_answers_that_are_no_keys(
    authority: Authority, server: KeyServer, answer: Any, says: str
) -> None:
    server.answer = lambda: answer
    with pytest.raises(KeysUnusable, match=f"jwks_uri, 127.0.0.1:{server.port}.*{says}") as told:
        fetched_keys(server.url, trusting(authority))
    assert "secret" not in str(told.value)


def test_an_issuer_that_hangs(
    authority: Authority, server: KeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_fetch, "KEYS_ANSWER_S_MAX", 0.3)
    over = threading.Event()

    def hang() -> Any:
        over.wait(PATIENCE_S)
        return 200, b"", {}

    server.answer = hang
    begun = time.monotonic()
    with pytest.raises(KeysUnusable, match="no answer in 0.3 s"):
        fetched_keys(server.url, trusting(authority))
    over.set()
    assert time.monotonic() - begun < PROMPTLY_S


def test_an_issuer_that_is_not_trusted_or_not_there(server: KeyServer, tmp_path: Path) -> None:
    other = Authority(_made(tmp_path / "other"))
    asked = server.asked
    for context in (calling_context(TlsFiles()), trusting(other)):
        with pytest.raises(KeysUnusable, match="its certificate is not trusted"):
            fetched_keys(server.url, context)
    assert server.asked == asked, "nothing was asked of it"
    with pytest.raises(KeysUnusable, match="no connection: Connection refused"):
        fetched_keys("https://127.0.0.1:1/", trusting(other))


def test_an_authority_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    for path in (broken, tmp_path / "none"):
        settings = TokenSettings(
            resource_server_id="rabbitmq",
            jwks_uri="https://a/",
            https={"cacertfile": path},  # type: ignore[arg-type]
        )
        with pytest.raises(KeysUnusable, match=r"auth_oauth2.https: .*cacertfile="):
            token_logins(settings, World())  # type: ignore[arg-type]


def test_a_default_key_may_be_the_issuer_s(tmp_path: Path) -> None:
    key = SigningKey(tmp_path)
    settings = TokenSettings(resource_server_id="rabbitmq", jwks_uri="https://a/", default_key="k1")
    keys = SigningKeys({}, "k1")
    check = TokenChecker(settings, keys).check
    with pytest.raises(TokenRefused, match="no key has its id"):
        check(key.token(key_id=""), round(time.time() * 1000))
    keys.fetched(_keys(key))
    assert check(key.token(key_id=""), round(time.time() * 1000)).user == "spark"
