"""The request to a token endpoint: the client-credentials grant of RFC 6749, 4.4.

One form is posted and one small JSON object read. Authlib and requests-oauthlib bring five packages
and more for that, and follow redirects, which would take the client's secret to another place.
"""

from __future__ import annotations

import base64
import http.client
import os
import re
import ssl
from typing import Final, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from pyspark_warren.conditions import named_conditions
from pyspark_warren.errors import BrokerUnavailableError, TokenError
from pyspark_warren.oauth_options import POST
from pyspark_warren.secret import Secret
from warren.client_tls import client_context, tls_failure
from warren.errors import TlsError
from warren.uri import ClientTls
from warren_wire.sessions.http_exchange import ExchangeFailed, HttpExchange

ANSWER_S_MAX: Final = 10.0
"""The whole request takes no longer: a token that is due is waited for."""
ANSWER_BYTES_MAX: Final = 128 << 10
_LIFE_S_MAX: Final = 10 * 366 * 86_400
_REASON_SIGNS_MAX: Final = 200
_UNUSUAL: Final = re.compile(r"[^\x20-\x7e]")
_LATER: Final = frozenset({408, 429})
"""Statuses, beside 5xx, after which the same request may succeed."""


class TokenClient(NamedTuple):
    """A client of a token endpoint; see the options of these names."""

    endpoint: str
    client_id: str
    secret: Secret
    scope: str | None
    audience: str | None
    auth: str
    ca_file: str | None

    @property
    def shown(self) -> str:
        """Host and port, for texts: paths and queries may hold what is secret."""
        return urlsplit(self.endpoint).netloc


def request_token(client: TokenClient) -> tuple[str, float | None]:
    """Ask for a token; return it and its life in seconds, None where the answer does not say it.

    raises  TokenError: the endpoint refuses, or answers what is no token;
            BrokerUnavailableError: it cannot be reached, or not now; OptionError: of the secret
    """
    secret = client.secret.read() or ""
    status, kind, data = _post(client, *_form(client, secret))
    where = f"token endpoint {client.shown}"
    if 300 <= status < 400:
        raise TokenError(
            f"{where} answers {status}, a redirect, which is not followed: it could take the "
            "client's secret elsewhere; give the URL that it leads to as oauthTokenEndpoint"
        )
    if status != 200:
        text = f"{where} answers {status}{_reason(data, secret)}"
        if status >= 500 or status in _LATER:
            raise BrokerUnavailableError(text)
        raise TokenError(f"{text}; check oauthClientId, its secret, oauthScope and oauthAudience")
    try:
        answer = msgspec.json.decode(data, type=_Answer)
    except ValueError:  # its text could show a part of the answer
        raise TokenError(
            f"{where} answers 200 with {len(data)} bytes of {kind} that are no token: a JSON "
            "object with access_token is expected; check oauthTokenEndpoint"
        ) from None
    return answer.access_token, _life_s(answer.expires_in, where)


class _Answer(msgspec.Struct):
    access_token: str
    expires_in: float | str | None = None


class _Refusal(msgspec.Struct):
    error: str = ""
    error_description: str = ""


def _form(client: TokenClient, secret: str) -> tuple[str, dict[str, str]]:
    """Return body and headers."""
    fields = {"grant_type": "client_credentials"}
    if client.scope:
        fields["scope"] = client.scope
    if client.audience:
        fields["audience"] = client.audience
    headers = {
        "Accept": "application/json",
        "Content-Type": "application/x-www-form-urlencoded",
        "Connection": "close",
    }
    if client.auth == POST:
        fields |= {"client_id": client.client_id, "client_secret": secret}
    else:
        # RFC 6749, 2.3.1: both are encoded as in a form before they are joined by the colon.
        pair = f"{quote(client.client_id, safe='')}:{quote(secret, safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return urlencode(fields), headers


def _life_s(said: float | str | None, where: str) -> float | None:
    if said is None:
        return None
    try:
        life_s = float(said)  # some endpoints put the number into quotes
    except ValueError:
        life_s = -1.0
    if not 0 < life_s <= _LIFE_S_MAX:
        raise TokenError(
            f"{where}: its answer's expires_in is no number of seconds above 0, or above "
            f"{_LIFE_S_MAX}"
        )
    return life_s


def _reason(data: bytes, secret: str) -> str:
    """Return what a refusal says (RFC 6749, 5.2), without the secret; "": it is no such answer."""
    try:
        found = msgspec.json.decode(data, type=_Refusal)
    except ValueError:
        return ""
    text = ": ".join(filter(None, (found.error, found.error_description)))
    for told in {secret, quote(secret, safe=""), urlencode({"": secret})[1:]} - {""}:
        text = text.replace(told, "***")
    shown = _UNUSUAL.sub(" ", text)[:_REASON_SIGNS_MAX]
    return f": {shown}" if shown else ""


def _post(client: TokenClient, body: str, headers: dict[str, str]) -> tuple[int, str, bytes]:
    """Return status, content type and content of the answer."""
    context = None
    if urlsplit(client.endpoint).scheme == "https":
        with named_conditions(f"option oauthCaFile, for token endpoint {client.shown}"):
            context = client_context(ClientTls(client.ca_file))
    exchange = HttpExchange(client.endpoint, context, ANSWER_S_MAX, ANSWER_BYTES_MAX)
    try:
        status, kind, data = exchange.ask("POST", headers, body)
    except ExchangeFailed as failed:
        raise _named(failed, client.shown) from None
    if data is None:
        raise TokenError(
            f"token endpoint {client.shown} answers {status} with more than "
            f"{ANSWER_BYTES_MAX} bytes, the limit; check oauthTokenEndpoint"
        )
    return status, kind, data


def _named(failed: ExchangeFailed, shown: str) -> TokenError | BrokerUnavailableError:
    """Return the condition; its text has nothing of what the endpoint sent."""
    where, wrong = f"token endpoint {shown}", failed.__cause__
    if failed.late:
        return BrokerUnavailableError(f"{where} did not answer in {ANSWER_S_MAX:g} s")
    if isinstance(wrong, ssl.SSLError):
        failure = tls_failure(wrong, shown)
        if isinstance(failure, TlsError):
            return TokenError(f"token endpoint: {failure}; that of the endpoint is oauthCaFile")
        return BrokerUnavailableError(f"token endpoint: {failure}")
    if isinstance(wrong, http.client.IncompleteRead):
        return BrokerUnavailableError(f"{where} ended the connection within its answer")
    if isinstance(wrong, OSError | UnicodeError):
        reason = getattr(wrong, "strerror", None) or type(wrong).__name__
        return BrokerUnavailableError(
            f"{where} cannot be reached: {reason}; check oauthTokenEndpoint, and the network "
            f"from {os.uname().nodename}"
        )
    return TokenError(
        f"{where} answers what is no HTTP ({type(wrong).__name__}); check oauthTokenEndpoint"
    )
