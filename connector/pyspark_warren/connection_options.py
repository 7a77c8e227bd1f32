"""Options of the connection: broker, login, TLS."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pyspark_warren.errors import OptionError
from pyspark_warren.option_spec import AMQP, AUTO, WARREN, Rule, options_of, secret_names
from pyspark_warren.option_values import (
    DAY_MS,
    Kind,
    duration,
    hosts_text,
    parse_bool,
    parse_hosts,
    parse_mechanism,
    parse_variable,
    word_of,
)
from warren.uri import PORT, SASL_PLAIN
from warren_wire.certificate_login import EXTERNAL

PASSWORD_OPTIONS: Final = secret_names("password")
"""At most one of them is given, and none beside a uri with a password."""
_any = options_of()
_warren = options_of(broker=WARREN)
_TLS: Final = (Rule(lambda o: o.tls or "uri" in o.given, "needs tls=true"),)


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions:
    """See the module.

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
        "EXTERNAL: log in as the user named in certFile, without a password",
        requires=(
            *_TLS,
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
        word_of(AUTO, WARREN, AMQP),
        AUTO,
        "warren; amqp: any AMQP 0.9.1 broker, such as RabbitMQ; auto: ask the broker what it is",
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
    if unused and options.sasl_mechanism == EXTERNAL:
        raise OptionError(
            f"option {unused[0]} means nothing with saslMechanism=EXTERNAL, which logs in with the "
            "certificate; leave it out"
        )
    if options.ca_file is not None and not options.verify:
        raise OptionError(
            "option caFile means nothing with verify=false, which accepts a certificate of any "
            "authority; leave one of them out"
        )
    for name, value in (("user", options.user), ("password", options.password)):
        if "\0" in value:
            raise OptionError(f"option {name} has a zero byte, which no login can have")
