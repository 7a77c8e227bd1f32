"""The request to a token endpoint, and secrets that no option holds.

The request is the client-credentials grant of RFC 6749, 4.4: one form is posted and one small JSON
object read. Authlib and requests-oauthlib bring five packages and more for that, and follow
redirects, which would take the client's secret to another place.

A secret may be in a file or an environment variable of each process. Spark does not write them into
plans or send them with tasks. The driver and each task read them where they run, when they need
them.
"""

from __future__ import annotations

import base64
import os
import re
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from pyspark_warren.errors import BrokerUnavailableError, OptionError, TokenError, named_conditions
from pyspark_warren.options.connection import POST, OauthOptions
from pyspark_warren.options.specs import secret_names
from warren.client_tls import client_context, tls_failure
from warren.errors import TlsError
from warren.uri import ClientTls

if TYPE_CHECKING:  # most logins need no HTTP
    from warren_wire.sessions.http_exchange import ExchangeFailed

SECRET_FILE_BYTES_MAX: Final = 64 << 10
"""Larger files are another file's path, given by mistake."""


@dataclass(frozen=True, slots=True)
class Secret:
    """One secret and the options that may say it; at most one of the three is given.

    option  its name as an option; see `secret_names`
    noun    what it is, for texts
    """

    option: str
    noun: str
    value: str | None = field(repr=False)
    file: str | None
    variable: str | None

    def read(self) -> str | None:
        """Return the secret; None: no option says it.

        raises  OptionError, which never shows what was read
        """
        if self.file is not None:
            return secret_of_file(self.file, secret_names(self.option)[1], self.noun)
        if self.variable is not None:
            return _of_variable(self.variable, secret_names(self.option)[2])
        return self.value


def secret_of_file(path: str, option: str, noun: str) -> str:
    """Return the one line of a file; raises OptionError, which never shows what was read."""

    def wrong(text: str) -> OptionError:
        return OptionError(
            f"option {option}={path!r}: {text} (on {os.uname().nodename}; the driver and every "
            "executor read the file under the same path)"
        )

    try:
        with open(path, "rb") as stream:
            data = stream.read(SECRET_FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as cause:
        reason = cause.strerror if isinstance(cause, OSError) else "not a path"
        raise wrong(f"cannot be read: {reason}") from None
    if len(data) > SECRET_FILE_BYTES_MAX:
        raise wrong(f"has more than {SECRET_FILE_BYTES_MAX} bytes; give a file with one line")
    try:
        text = data.decode("utf-8-sig").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise wrong("is not UTF-8") from None
    if not text:
        raise wrong(f"is empty; give the {noun} as its one line")
    if "\0" in text:
        raise wrong("has a zero byte, which no login can have")
    if "\n" in text:
        raise wrong(f"has several lines; give the {noun} as its one line")
    return text


def _of_variable(name: str, option: str) -> str:
    found = os.environ.get(name)
    if not found:
        state = "not set" if found is None else "empty"
        raise OptionError(
            f"option {option}={name!r}: this variable is {state} in the Python process on "
            f"{os.uname().nodename}; set it before the driver's session starts, "
            f"and for executors as spark.executorEnv.{name}"
        )
    return found


ANSWER_S_MAX: Final = 10.0
"""The whole request takes no longer: a token that is due is waited for."""
ANSWER_BYTES_MAX: Final = 128 << 10
_LIFE_S_MAX: Final = 10 * 366 * 86_400
_REASON_SIGNS_MAX: Final = 200
_UNUSUAL: Final = re.compile(r"[^\x20-\x7e]")
_LATER: Final = frozenset({408, 429})
"""Statuses, beside 5xx, after which the same request may succeed."""


def shown(client: OauthOptions) -> str:
    """Return the endpoint's host and port, for texts: paths and queries may hold what is secret."""
    return urlsplit(_url(client)).netloc


def _url(client: OauthOptions) -> str:
    assert client.oauth_token_endpoint is not None
    return client.oauth_token_endpoint


def request_token(client: OauthOptions) -> tuple[str, float | None]:
    """Ask for a token; return it and its life in seconds, None where the answer does not say it.

    raises  TokenError: the endpoint refuses, or answers what is no token;
            BrokerUnavailableError: it cannot be reached, or not now; OptionError: of the secret
    """
    named = client.oauth_client_secret_file, client.oauth_client_secret_env
    option = "oauthClientSecret"
    secret = Secret(option, "client's secret", client.oauth_client_secret, *named).read() or ""
    status, kind, data = _post(client, *_form(client, secret))
    where = f"token endpoint {shown(client)}"
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


def _form(client: OauthOptions, secret: str) -> tuple[str, dict[str, str]]:
    """Return body and headers."""
    fields = {"grant_type": "client_credentials"}
    if client.oauth_scope:
        fields["scope"] = client.oauth_scope
    if client.oauth_audience:
        fields["audience"] = client.oauth_audience
    headers = {
        "Accept": "application/json",
        "Content-Type": "application/x-www-form-urlencoded",
        "Connection": "close",
    }
    identity = client.oauth_client_id or ""
    if client.oauth_client_auth == POST:
        fields |= {"client_id": identity, "client_secret": secret}
    else:
        # RFC 6749, 2.3.1: both are encoded as in a form before they are joined by the colon.
        pair = f"{quote(identity, safe='')}:{quote(secret, safe='')}"
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


def _post(client: OauthOptions, body: str, headers: dict[str, str]) -> tuple[int, str, bytes]:
    """Return status, content type and content of the answer."""
    from warren_wire.sessions.http_exchange import ExchangeFailed, HttpExchange

    context = None
    if urlsplit(_url(client)).scheme == "https":
        with named_conditions(f"option oauthCaFile, for token endpoint {shown(client)}"):
            context = client_context(ClientTls(client.oauth_ca_file))
    exchange = HttpExchange(_url(client), context, ANSWER_S_MAX, ANSWER_BYTES_MAX)
    try:
        status, kind, data = exchange.ask("POST", headers, body)
    except ExchangeFailed as failed:
        raise _named(failed, shown(client)) from None
    if data is None:
        raise TokenError(
            f"token endpoint {shown(client)} answers {status} with more than "
            f"{ANSWER_BYTES_MAX} bytes, the limit; check oauthTokenEndpoint"
        )
    return status, kind, data


def _named(failed: ExchangeFailed, shown: str) -> TokenError | BrokerUnavailableError:
    """Return the condition; its text has nothing of what the endpoint sent."""
    from http.client import IncompleteRead

    where, wrong = f"token endpoint {shown}", failed.__cause__
    if failed.late:
        return BrokerUnavailableError(f"{where} did not answer in {ANSWER_S_MAX:g} s")
    if isinstance(wrong, ssl.SSLError):
        failure = tls_failure(wrong, shown)
        if isinstance(failure, TlsError):
            return TokenError(f"token endpoint: {failure}; that of the endpoint is oauthCaFile")
        return BrokerUnavailableError(f"token endpoint: {failure}")
    if isinstance(wrong, IncompleteRead):
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
