"""Options of a login with OAuth 2 tokens."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from pyspark_warren.connection_options import PASSWORD_OPTIONS, ConnectionOptions
from pyspark_warren.errors import OptionError
from pyspark_warren.option_spec import options_of, secret_names, specs_of
from pyspark_warren.option_values import parse_variable, word_of
from warren_wire.certificate_login import EXTERNAL

BASIC: Final = "client_secret_basic"
POST: Final = "client_secret_post"
"""How the client shows its secret to the token endpoint, by OpenID Connect's names."""
CLIENT_SECRET_OPTIONS: Final = secret_names("oauthClientSecret")
_GRANT: Final = (
    ("oauthTokenEndpoint", "oauth_token_endpoint"),
    ("oauthClientId", "oauth_client_id"),
)
"""Both are given, and one of CLIENT_SECRET_OPTIONS; what else begins with oauth needs them."""


def parse_endpoint(text: str) -> str:
    """Parse the URL of a token endpoint; ValueError never shows it."""
    try:
        parts = urlsplit(text.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, 0
    if not host or port == 0 or parts.scheme not in ("https", "http"):
        raise ValueError("it is no URL with a host; give such as https://login.example.com/token")
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            "it has credentials; give them as oauthClientId and oauthClientSecret, or in a file "
            "(oauthClientSecretFile)"
        )
    if parts.fragment or not text.isascii() or any(sign <= " " for sign in text.strip()):
        raise ValueError("it has signs that a URL of an endpoint has not; encode them with %")
    if parts.scheme == "http" and not _is_loopback(host):
        raise ValueError(
            "http:// sends the client's secret unprotected; give the endpoint's https:// (http is "
            "for this machine only: localhost, 127.0.0.1)"
        )
    return text.strip()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


_login = options_of()


@dataclass(frozen=True, kw_only=True)
class OauthOptions(ConnectionOptions):
    """See the module."""

    oauth_token_endpoint: str | None = _login(
        "oauthTokenEndpoint",
        parse_endpoint,
        None,
        "URL of the token endpoint; the query logs in with tokens of the client-credentials grant",
        secret=True,
    )
    oauth_client_id: str | None = _login(
        "oauthClientId", str, None, "the client's id at the token endpoint"
    )
    oauth_client_secret: str | None = _login(
        "oauthClientSecret", str, None, "the client's secret; never printed", secret=True
    )
    oauth_client_secret_file: str | None = _login(
        "oauthClientSecretFile",
        str,
        None,
        "file with the client's secret as its one line; read for each token",
    )
    oauth_client_secret_env: str | None = _login(
        "oauthClientSecretEnv",
        parse_variable,
        None,
        "environment variable that holds the client's secret",
        secret=True,
    )
    oauth_scope: str | None = _login(
        "oauthScope",
        str,
        None,
        "scopes to ask for, with spaces between; default: the endpoint's own",
    )
    oauth_audience: str | None = _login(
        "oauthAudience",
        str,
        None,
        "parameter audience of the request, which some endpoints ask for",
    )
    oauth_client_auth: str = _login(
        "oauthClientAuth",
        word_of(BASIC, POST),
        BASIC,
        "client_secret_basic: id and secret are in the request's header; "
        "client_secret_post: in its body",
    )
    oauth_ca_file: str | None = _login(
        "oauthCaFile",
        str,
        None,
        "PEM file of the authorities that the token endpoint's certificate may be "
        "from; default: the system's",
    )
    token_file: str | None = _login(
        "tokenFile",
        str,
        None,
        "file with a token as its one line, which something else renews; it is read "
        "again and again",
    )


OAUTH: Final = specs_of(OauthOptions)


def check_oauth(options: OauthOptions) -> None:
    """Refuse options of tokens that contradict each other, or that lack another one."""
    given = options.given
    said = [spec.name for spec in OAUTH if spec.name.lower() in given]
    if not said:
        return
    clash = [name for name in PASSWORD_OPTIONS if name.lower() in given]
    if clash:
        raise OptionError(f"options {said[0]} and {clash[0]} both say how to log in; leave one out")
    if options.sasl_mechanism == EXTERNAL:
        raise OptionError(
            f"option {said[0]} means nothing with saslMechanism=EXTERNAL, which logs in with the "
            "certificate; leave it out"
        )
    if options.token_file is not None:
        if len(said) > 1:
            other = next(name for name in said if name != "tokenFile")
            raise OptionError(f"options tokenFile and {other} both say the token; leave one out")
        return
    secrets = [name for name in CLIENT_SECRET_OPTIONS if name in said]
    if len(secrets) > 1:
        raise OptionError(f"options {' and '.join(secrets)} both say the secret; leave one out")
    for name, field in _GRANT:
        if not getattr(options, field):
            raise OptionError(f"option {said[0]} needs {name}")
    if not secrets:
        raise OptionError(
            f"option {said[0]} needs the client's secret: {', '.join(CLIENT_SECRET_OPTIONS[:-1])} "
            f"or {CLIENT_SECRET_OPTIONS[-1]}"
        )
