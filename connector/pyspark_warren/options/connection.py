"""Options of the connection: broker, login with a password or OAuth 2 tokens, TLS."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from pyspark_warren.errors import OptionError
from pyspark_warren.options.specs import (
    AMQP,
    AUTO,
    BOTH,
    DAY_MS,
    SASL_ANONYMOUS,
    WARREN,
    Kind,
    Rule,
    duration,
    hosts_text,
    options_of,
    parse_bool,
    parse_hosts,
    parse_mechanism,
    parse_variable,
    secret_names,
    specs_of,
    word_of,
)
from warren.uri import PORT, SASL_PLAIN
from warren_wire.certificate_login import EXTERNAL
from warren_wire.links.uris import AMQP10

PASSWORD_OPTIONS: Final = secret_names("password")
"""At most one of them is given, and none beside a uri with a password."""
_any = options_of()
_warren = options_of(BOTH, BOTH, WARREN)
_TLS: Final = (Rule(lambda o: o.tls or "uri" in o.given, "needs tls=true"),)


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions:
    """Options of the connection: broker, login, TLS.

    connect_timeout_s, heartbeat_s  of the option uri alone
    given                           names of the options that the query gave, in lower case
    """

    uri: None = _any(
        "uri",
        str,
        None,
        "amqp://user:password@host:port/vhost, or amqps:// for TLS; instead of hosts",
        secret=True,
    )
    hosts: tuple[tuple[str, int], ...] = _any(
        "hosts",
        Kind(parse_hosts, shown=hosts_text),
        (("localhost", PORT),),
        "nodes to try, host or host:port, with commas between",
    )
    vhost: str = _any("vhost", str, "/", "virtual host")
    user: str = _any("user", str, "guest", "user name")
    password: str = _any("password", str, "guest", "password; never printed", secret=True)
    password_file: str | None = _any(
        "passwordFile",
        str,
        None,
        "file with the password as its one line; the driver and every task read it",
    )
    password_env: str | None = _any(
        "passwordEnv",
        parse_variable,
        None,
        "environment variable that holds the password, on the driver and on executors",
        secret=True,
    )
    tls: bool = _any("tls", parse_bool, False, "true: connect with TLS; the port is then 5671")
    ca_file: str | None = _any(
        "caFile",
        str,
        None,
        "PEM file of the accepted certificate authorities; default: the system's",
        requires=_TLS,
    )
    cert_file: str | None = _any(
        "certFile",
        str,
        None,
        "PEM file of this client's certificate, for brokers that ask for one",
        requires=_TLS,
    )
    key_file: str | None = _any(
        "keyFile",
        str,
        None,
        "PEM file of its key; default: in certFile",
        requires=(
            *_TLS,
            Rule(
                lambda o: o.cert_file is not None or "uri" in o.given,
                "needs certFile: the certificate of that key",
            ),
        ),
    )
    verify: bool = _any(
        "verify",
        parse_bool,
        True,
        "false: accept any certificate, also that of an attacker between the two",
        requires=_TLS,
    )
    sasl_mechanism: str = _any(
        "saslMechanism",
        parse_mechanism,
        SASL_PLAIN,
        "EXTERNAL: log in as the user named in certFile, without a password; ANONYMOUS "
        "(broker=amqp10): as nobody",
        requires=(
            Rule(
                lambda o: o.sasl_mechanism == SASL_ANONYMOUS or o.tls or "uri" in o.given,
                "needs tls=true",
            ),
            Rule(
                lambda o: (
                    o.sasl_mechanism != EXTERNAL or o.cert_file is not None or "uri" in o.given
                ),
                "=EXTERNAL needs certFile, which names the user",
            ),
        ),
    )
    request_timeout_ms: int = _any(
        "requestTimeout",
        duration(100, DAY_MS),
        60_000,
        "how long a request is tried, over all nodes, before the query fails",
    )
    broker: str = _any(
        "broker",
        word_of(AUTO, WARREN, AMQP, AMQP10),
        AUTO,
        "warren; amqp: any AMQP 0.9.1 broker, such as RabbitMQ; amqp10: any AMQP 1.0 broker, such "
        "as ActiveMQ Artemis; auto: ask the broker what it is",
    )
    prefer_local: bool = _warren(
        "preferLocal",
        parse_bool,
        True,
        "a driver or task begins with a node on its own machine, if one of hosts is there; false: "
        "with any node",
    )
    connect_timeout_s: float = 5.0
    heartbeat_s: float = 20.0
    given: tuple[str, ...] = field(default=(), repr=False)


def check_login(options: ConnectionOptions) -> None:
    """Refuse options of the login that contradict each other, or that another one leaves unused."""
    said = [name for name in PASSWORD_OPTIONS if name.lower() in options.given]
    if len(said) > 1:
        raise OptionError(f"options {' and '.join(said)} both say the password; leave one out")
    unused = ["user", *said] if "user" in options.given else said
    if unused and options.sasl_mechanism != SASL_PLAIN:
        how = "with the certificate" if options.sasl_mechanism == EXTERNAL else "as nobody"
        raise OptionError(
            f"option {unused[0]} means nothing with saslMechanism={options.sasl_mechanism}, which "
            f"logs in {how}; leave it out"
        )
    if options.ca_file is not None and not options.verify:
        raise OptionError(
            "option caFile means nothing with verify=false, which accepts a certificate of any "
            "authority; leave one of them out"
        )
    for name, value in (("user", options.user), ("password", options.password)):
        if "\0" in value:
            raise OptionError(f"option {name} has a zero byte, which no login can have")


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


@dataclass(frozen=True, kw_only=True)
class OauthOptions(ConnectionOptions):
    """Options of a login with OAuth 2 tokens."""

    oauth_token_endpoint: str | None = _any(
        "oauthTokenEndpoint",
        parse_endpoint,
        None,
        "URL of the token endpoint; the query logs in with tokens of the client-credentials grant",
        secret=True,
    )
    oauth_client_id: str | None = _any(
        "oauthClientId", str, None, "the client's id at the token endpoint"
    )
    oauth_client_secret: str | None = _any(
        "oauthClientSecret", str, None, "the client's secret; never printed", secret=True
    )
    oauth_client_secret_file: str | None = _any(
        "oauthClientSecretFile",
        str,
        None,
        "file with the client's secret as its one line; read for each token",
    )
    oauth_client_secret_env: str | None = _any(
        "oauthClientSecretEnv",
        parse_variable,
        None,
        "environment variable that holds the client's secret",
        secret=True,
    )
    oauth_scope: str | None = _any(
        "oauthScope",
        str,
        None,
        "scopes to ask for, with spaces between; default: the endpoint's own",
    )
    oauth_audience: str | None = _any(
        "oauthAudience",
        str,
        None,
        "parameter audience of the request, which some endpoints ask for",
    )
    oauth_client_auth: str = _any(
        "oauthClientAuth",
        word_of(BASIC, POST),
        BASIC,
        "client_secret_basic: id and secret are in the request's header; "
        "client_secret_post: in its body",
    )
    oauth_ca_file: str | None = _any(
        "oauthCaFile",
        str,
        None,
        "PEM file of the authorities that the token endpoint's certificate may be "
        "from; default: the system's",
    )
    token_file: str | None = _any(
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
    for name, value in _GRANT:
        if not getattr(options, value):
            raise OptionError(f"option {said[0]} needs {name}")
    if not secrets:
        raise OptionError(
            f"option {said[0]} needs the client's secret: {', '.join(CLIENT_SECRET_OPTIONS[:-1])} "
            f"or {CLIENT_SECRET_OPTIONS[-1]}"
        )
