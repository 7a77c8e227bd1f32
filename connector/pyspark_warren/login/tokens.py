"""The login of a connection: a password, or an OAuth 2 token in its place, renewed in time.

Each process that logs in (driver, receiver, tasks that use the broker) gets tokens itself, and has
one at a time for each client: a token that the driver sent with a task might be over when the task
begins, and nothing could send it the next one. Spark keeps its Python workers, and they keep this.

The `warren` client is driven by the thread that uses it, which must not wait for the token endpoint
as long as the token before is good: the next one is asked for in a thread of its own.
"""

from __future__ import annotations

import base64
import binascii
import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Final, TypeAlias

import msgspec

from pyspark_warren.errors import BrokerUnavailableError, TokenError, WarrenSparkError
from pyspark_warren.login.endpoint import (
    SECRET_FILE_BYTES_MAX,
    Secret,
    request_token,
    secret_of_file,
    shown,
)
from pyspark_warren.options.connection import OAUTH, OauthOptions
from pyspark_warren.options.options import Options
from warren.errors import Unavailable
from warren.uri import Address

log = logging.getLogger("pyspark_warren")

RENEW_SHARE: Final = 0.25
RENEW_S_MAX: Final = 300.0
"""A token is renewed when a quarter of its life is left, or five minutes."""
UNKNOWN_LIFE_S: Final = 300.0
"""Life of a token of which neither the endpoint nor the token itself says how long it is good."""
FILE_POLL_S: Final = 10.0
"""A tokenFile is read again that often, sooner when its token ends sooner."""
RENEW_RETRY_S: Final = 1.0
"""Pause after a failure to get a token, while the one before is still good."""
_SOURCES_MAX: Final = 64
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
"""RFC 6750 and 6749: printable ASCII without spaces. A zero byte would end SASL's password."""


@dataclass(frozen=True, slots=True)
class LoginToken:
    """A token and its times, of time.monotonic; printing it does not show it."""

    text: str
    renew_at: float
    expires_at: float

    def __repr__(self) -> str:
        return f"LoginToken(renew_at={self.renew_at:.1f}, expires_at={self.expires_at:.1f})"

    @property
    def expired(self) -> bool:
        """Whether the broker takes it no longer."""
        return time.monotonic() >= self.expires_at


class TokenSource:
    """The tokens of one client in this process; callable from any thread.

    One thread at a time asks for the next one, and the others wait for its answer. When there is no
    next one, the one before is used until it expires.

    fetch  returns a new token, or raises what `token` does
    """

    def __init__(self, fetch: Callable[[], LoginToken]) -> None:
        self._fetch = fetch
        self._lock = threading.Lock()
        self._current: LoginToken | None = None
        self._retry_at = 0.0

    def at_once(self) -> LoginToken | None:
        """Return a token that is not due to be renewed; None: it would have to be asked for."""
        found, now = self._current, time.monotonic()
        if found is None or found.expired:
            return None
        return found if now < found.renew_at or now < self._retry_at else None

    def token(self) -> LoginToken:
        """Return a token that is not due to be renewed; may take as long as the endpoint takes.

        raises  TokenError, OptionError: there is none; BrokerUnavailableError: not now
        """
        with self._lock:
            found = self.at_once()
            if found is not None:
                return found
            before = self._current
            try:
                self._current = made = self._fetch()
            except WarrenSparkError as wrong:
                if before is None or before.expired:
                    raise
                log.warning("%s; the token before is used until it expires", wrong)
                self._retry_at = time.monotonic() + RENEW_RETRY_S
                return before
            return made

    def forget(self, text: str) -> None:
        """Do not use a token again that a broker has refused; does not wait.

        1. The identity provider's keys are replaced, or the client's rights there mended.  2. Spark
        keeps its Python processes, and they keep this.  3. The tasks of a query that is started
        again would be refused with the token from before, for most of its life.
        """
        # Without the lock, which a thread that asks holds: at worst a newer token is asked for
        # once more.
        found = self._current
        if found is not None and found.text == text:
            self._current = None

    def ask(self, then: Callable[[LoginToken | WarrenSparkError], object]) -> threading.Thread:
        """Ask for a token in a thread of its own, which gives `then` it, or why there is none."""

        def asking() -> None:
            found: LoginToken | WarrenSparkError
            try:
                found = self.token()
            except WarrenSparkError as wrong:
                found = wrong
            except Exception as wrong:  # the thread's end: it is asked for again
                log.exception("asking for a token")
                found = BrokerUnavailableError(f"asking for a token: {type(wrong).__name__}")
            then(found)

        thread = threading.Thread(target=asking, name="warren-token", daemon=True)
        thread.start()
        return thread


# ------------------------------------------------------------------ by options

Login: TypeAlias = OauthOptions | None
"""What identifies a source of tokens: the options that name it, alone; None: no tokens."""
_sources_lock = threading.Lock()


def login_of(options: Options) -> Login:
    """Return the source of tokens that the options name; connections of others are not shared."""
    if options.token_file is None and options.oauth_token_endpoint is None:
        return None
    return OauthOptions(**{spec.field: getattr(options, spec.field) for spec in OAUTH})


def token_source(options: Options) -> TokenSource | None:
    """Return this process's source of tokens for these options; None: they name none."""
    login = login_of(options)
    if login is None:
        return None
    with _sources_lock:
        return _source(login)


@lru_cache(maxsize=_SOURCES_MAX)
def _source(login: OauthOptions) -> TokenSource:
    return TokenSource(partial(_of_endpoint if login.token_file is None else _of_file, login))


def _of_endpoint(client: OauthOptions) -> LoginToken:
    asked_at = time.monotonic()
    text, life_s = request_token(client)
    where = f"token endpoint {shown(client)}"
    _check(text, where)
    if life_s is None:
        life_s = _claimed_life_s(text)
    if life_s <= 0:
        raise TokenError(
            f"{where}: the token of its answer has expired, {-life_s:.0f} s ago; compare this "
            "machine's clock with the endpoint's"
        )
    return LoginToken(
        text, asked_at + life_s - min(RENEW_SHARE * life_s, RENEW_S_MAX), asked_at + life_s
    )


def _of_file(login: OauthOptions) -> LoginToken:
    assert login.token_file is not None
    text = secret_of_file(login.token_file, "tokenFile", "token")
    where = f"option tokenFile={login.token_file!r}"
    _check(text, where)
    now, ends = time.monotonic(), _claims(text).exp
    left_s = float("inf") if ends is None else ends - time.time()
    if left_s <= 0:
        raise BrokerUnavailableError(
            f"{where}: its token has expired, {-left_s:.0f} s ago; see what is to "
            "renew it, and this machine's clock"
        )
    return LoginToken(text, now + min(FILE_POLL_S, RENEW_SHARE * left_s), now + left_s)


def _check(text: str, where: str) -> None:
    if len(text) > SECRET_FILE_BYTES_MAX:
        raise TokenError(
            f"{where}: its token has {len(text)} bytes, {SECRET_FILE_BYTES_MAX} are the limit of a "
            "Warren broker; ask for fewer scopes"
        )
    if _TOKEN.fullmatch(text) is None:
        raise TokenError(f"{where}: its token has other signs than printable ASCII, or spaces")


def _claimed_life_s(text: str) -> float:
    """Return how long a token is good that was just issued, by its own claims.

    1. The endpoint says no expires_in, its tokens live five minutes, and this machine's clock is an
    hour behind.  2. By `exp` and this clock a token lives 65 minutes.  3. It would be renewed long
    after the broker has ended the connection with it. By its two claims it lives five.
    """
    claims = _claims(text)
    if claims.exp is None:
        return UNKNOWN_LIFE_S
    left_s = claims.exp - time.time()
    if not isinstance(claims.iat, int | float) or claims.iat >= claims.exp:
        return left_s
    return min(left_s, claims.exp - claims.iat)


class _Claims(msgspec.Struct):
    exp: float | None = None
    iat: object = None


def _claims(text: str) -> _Claims:
    """Return the times of a JWT, in seconds since 1970; of anything else none."""
    parts = text.split(".")
    if len(parts) == 3:
        try:
            data = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
            return msgspec.json.decode(data, type=_Claims)
        except (binascii.Error, ValueError):
            pass
    return _Claims()


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
        self._asking = self._source.ask(renewed)


def renewed(found: LoginToken | WarrenSparkError) -> LoginToken | None:
    """Return the next token of a connection; None: there is none yet, which is logged."""
    if isinstance(found, LoginToken):
        return found
    log.warning("a connection's token is not renewed yet: %s", found)
    return None


_USER_DEFAULT: Final = Address().user


def login_address(options: Options) -> tuple[Address, TokenSource | None]:
    """Return the address to connect to, with its password; or what gives tokens in its place.

    With a token, which itself says the user, one is given for the broker's log, perhaps none.
    raises  OptionError, which never shows what was read
    """
    source = token_source(options)
    if source is None:
        return address_with_password(options), None
    user = (options.oauth_client_id or "") if options.user == _USER_DEFAULT else options.user
    return options.address().with_credentials(user, ""), source


def address_with_password(options: Options) -> Address:
    """Return the address to connect to, with its password."""
    file, variable = options.password_file, options.password_env
    read = Secret("password", "password", None, file, variable).read()  # None: it is in the options
    return options.address().with_credentials(None, read)


def without_secrets(options: Options) -> Options:
    """Return the options for tasks that do not use the broker."""
    return replace(options, password="", oauth_client_secret=None)
