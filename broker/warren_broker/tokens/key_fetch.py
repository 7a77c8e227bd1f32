"""Fetches of the keys that an issuer publishes: `auth_oauth2.jwks_uri`.

A node fetches them when it starts, every KEYS_REFRESH_MS, and when a token has a key that it does
not know: so a new key of the issuer is good at once, and one that it has withdrawn is good no
longer than that. The event loop never waits for the issuer: the request runs on a thread of its
own, and a login that needs its answer waits like one that waits for another node. While the issuer
is out of reach, the keys that were fetched last are used.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from warren_broker.settings.token_settings import TokenSettings
from warren_broker.tokens.token_keys import KEYS_BYTES_MAX, KeysUnusable, SigningKeys, key_set
from warren_raft.runtime.loop import Loop, LoopTimer
from warren_wire.quoting import quoted
from warren_wire.sessions.http_exchange import ExchangeFailed, HttpExchange
from warren_wire.tls.contexts import CertificatesUnusable, TlsFiles, calling_context

log = logging.getLogger(__name__)
KEYS_ANSWER_S_MAX: Final = 5.0
"""Time for the connection, and again for the request and its answer."""
WAIT_MS_MAX: Final = 10_000
"""A login waits no longer for a fetch: where names are resolved slowly, it takes longer."""
KEYS_REFRESH_MS: Final = 300_000
RETRY_MS: Final = 10_000
"""Between fetches: after a failure, and where tokens have keys that the issuer does not know."""
LOGINS_WAITING_MAX: Final = 1_000
"""Logins that wait for a fetch; further ones are decided by the keys that are known."""


class KeyFetch:
    """Keeps what the issuer published in `keys`; all but `_run` is of the loop's thread.

    ask  returns the content of the key set; it may block, and raises KeysUnusable
    _running  the number of the fetch that a thread makes; 0: none. One at a time: a thread that
              hangs in the resolver is the only one
    """

    def __init__(self, loop: Loop, keys: SigningKeys, ask: Callable[[], dict[str, object]]) -> None:
        self._loop = loop
        self._keys = keys
        self._ask = ask
        self._fetches = 0
        self._running = 0
        self._ended_ms: int | None = None
        self._timer: LoopTimer | None = None
        self._waiting: list[Callable[[], None]] = []

    def start(self) -> None:
        """Fetch now, unless a fetch runs, and again from then on."""
        if self._running:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._fetches += 1
        number = self._running = self._fetches
        threading.Thread(target=self._run, args=(number,), name="keys", daemon=True).start()
        self._loop.call_later(WAIT_MS_MAX, lambda: self._late(number))

    def when_fetched(self, call: Callable[[], None]) -> bool:
        """Call after a fetch; return False, and never call, where that would not help now."""
        if len(self._waiting) >= LOGINS_WAITING_MAX:
            return False
        if not self._running:
            now_ms = self._loop.clock.monotonic_ms()
            if self._ended_ms is not None and now_ms < self._ended_ms + RETRY_MS:
                return False
            self.start()
        self._waiting.append(call)
        return True

    def _run(self, number: int) -> None:
        found: dict[str, Any] | None = None
        try:
            found = self._ask()
        except KeysUnusable as why:
            log.warning("%s; the keys that are known are used", why)
        finally:  # whatever it was: the next fetch takes place
            self._loop.post(lambda: self._fetched(number, found))

    def _fetched(self, number: int, found: dict[str, object] | None) -> None:
        assert number == self._running, (number, self._running)
        self._running = 0
        self._ended_ms = self._loop.clock.monotonic_ms()
        if found is not None:
            if self._keys.fetched(found):
                log.info("keys of the issuer of tokens: %s", quoted(" ".join(sorted(found))))
        delay_ms = RETRY_MS if found is None else KEYS_REFRESH_MS
        self._timer = self._loop.call_later(delay_ms, self.start)
        self._release()

    def _late(self, number: int) -> None:
        if number == self._running:
            self._release()

    def _release(self) -> None:
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()


def key_fetch(settings: TokenSettings, keys: SigningKeys, loop: Loop) -> KeyFetch | None:
    """Return what fetches the keys; None: they are of files alone. Raises KeysUnusable."""
    url = settings.jwks_uri
    if url is None:
        return None
    try:
        context = calling_context(TlsFiles(cacertfile=settings.https.cacertfile))
    except CertificatesUnusable as wrong:
        raise KeysUnusable(f"auth_oauth2.https: {wrong}") from None
    return KeyFetch(loop, keys, lambda: fetched_keys(url, context))


def fetched_keys(url: str, context: ssl.SSLContext) -> dict[str, Any]:
    """Return what the issuer publishes; raises KeysUnusable, in its text nothing of the answer."""
    name = f"auth_oauth2.jwks_uri, {urlsplit(url).netloc}"
    try:
        status, _, data = HttpExchange(url, context, KEYS_ANSWER_S_MAX, KEYS_BYTES_MAX).ask(
            "GET", {"Accept": "application/json", "Connection": "close"}
        )
    except ExchangeFailed as failed:
        raise KeysUnusable(f"{name}: {_why(failed)}") from None
    if 300 <= status < 400:
        raise KeysUnusable(f"{name} answers {status}, a redirect, which is not followed")
    if status != 200:
        raise KeysUnusable(f"{name} answers {status}")
    if data is None:
        raise KeysUnusable(f"{name} answers with more than {KEYS_BYTES_MAX} bytes, the limit")
    return key_set(data, name)


def _why(failed: ExchangeFailed) -> str:
    wrong = failed.__cause__
    if failed.late:
        return f"no answer in {KEYS_ANSWER_S_MAX:g} s"
    if isinstance(wrong, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {wrong.verify_message}"
    if isinstance(wrong, OSError):
        return f"no connection: {wrong.strerror or type(wrong).__name__}"
    return f"its answer is no HTTP ({type(wrong).__name__})"
