"""Logins by claims-based security: a token for the connection's node `$cbs`, renewed in time.

Azure Service Bus and Event Hubs take one of two kinds: a SAS token, which is signed here with a key
of a shared access policy (cbs=sas: user is the policy's name, password its key), or a token of
Entra ID (cbs=jwt: the options oauth…, or tokenFile).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Callable
from functools import partial
from typing import Final
from urllib.parse import quote

from pyspark_warren.amqp10.links import Peer
from pyspark_warren.amqp10.requests import Answer, RequestLinks
from pyspark_warren.errors import BrokerRefusedError, BrokerUnavailableError, WarrenSparkError
from pyspark_warren.login.tokens import (
    RENEW_RETRY_S,
    RENEW_SHARE,
    LoginToken,
    TokenSource,
    login_address,
    renewed,
    token_source,
)
from pyspark_warren.options.amqp10 import JWT, SAS
from pyspark_warren.options.options import Options
from warren_wire.amqp10.proton import Condition

CBS_NODE: Final = "$cbs"
SAS_LIFE_S: Final = 3600.0
_TYPES: Final = {SAS: "servicebus.windows.net:sastoken", JWT: "jwt"}


def sas_token(audience: str, policy: str, key: str, expires_s: int) -> str:
    """Sign a SAS token; expires_s: since 1970."""
    resource = quote(audience, safe="")
    signed = hmac.new(key.encode(), f"{resource}\n{expires_s}".encode(), hashlib.sha256).digest()
    signature = quote(base64.b64encode(signed).decode(), safe="")
    return (
        f"SharedAccessSignature sr={resource}&sig={signature}&se={expires_s}"
        f"&skn={quote(policy, safe='')}"
    )


def audience_of(options: Options, host: str) -> str:
    """Return what a token is for: the queue, or what the option says."""
    entity = options.queue or options.exchange or options.routing_key or ""
    return options.cbs_audience or f"sb://{host}/{entity}".rstrip("/")


def cbs_source(options: Options) -> Callable[[str], TokenSource] | None:
    """Return what gives the tokens for a host; None: the login is SASL's alone."""
    if options.cbs == SAS:
        return partial(_signed, options)
    if options.cbs == JWT:
        source = token_source(options)
        assert source is not None, "the options were checked"
        return lambda host: source
    return None


def _signed(options: Options, host: str) -> TokenSource:
    address, _ = login_address(options)

    def fetch() -> LoginToken:
        now, audience = time.monotonic(), audience_of(options, host)
        text = sas_token(audience, address.user, address.password, int(time.time() + SAS_LIFE_S))
        return LoginToken(text, now + (1 - RENEW_SHARE) * SAS_LIFE_S, now + SAS_LIFE_S)

    return TokenSource(fetch)


class CbsLogin:
    """The login of one connection.

    known   called once the broker has taken the first token
    failed  called when it refuses one, or there is none
    """

    def __init__(
        self,
        peer: Peer,
        source: Callable[[str], TokenSource],
        known: Callable[[], None],
        failed: Callable[[WarrenSparkError], None],
    ) -> None:
        self._peer, self._known, self._failed = peer, known, failed
        self._source = source(peer.one.host)
        self._is_known = False
        self._links = RequestLinks(peer, CBS_NODE, self._ended)
        self._ask()

    def _ask(self) -> None:
        if not self._peer.over:
            self._source.ask(lambda found: self._peer.post(partial(self._put, found)))

    def _put(self, found: LoginToken | WarrenSparkError) -> None:
        if self._peer.over:
            return
        if not isinstance(found, LoginToken) and not self._is_known:
            self._failed(found)
            return
        token = renewed(found)
        if token is None:
            self._peer.later(RENEW_RETRY_S, self._ask)
            return
        options = self._peer.options
        properties = {
            "operation": "put-token",
            "type": _TYPES[options.cbs],
            "name": audience_of(options, self._peer.one.host),
        }
        self._links.ask(properties, token.text, partial(self._answered, token))

    def _answered(self, token: LoginToken, answer: Answer) -> None:
        doing, at = self._peer.doing, self._peer.at
        text = f"{doing}: {at} answers a token with {answer.status} {answer.text}"
        if answer.good:
            self._peer.later(max(RENEW_RETRY_S, token.renew_at - time.monotonic()), self._ask)
            if not self._is_known:
                self._is_known = True
                self._known()
        elif answer.status in (401, 403, 404, 400):
            self._source.forget(token.text)
            self._failed(
                BrokerRefusedError(f"{text}; check cbs, cbsAudience, and the rights there")
            )
        else:
            self._failed(BrokerUnavailableError(text))

    def _ended(self, condition: Condition | None) -> None:
        self._peer.ended_by(condition, f"it has no node {CBS_NODE}: leave out the option cbs")
