"""Options of the connection: broker, login, TLS; see option_table."""

from __future__ import annotations

from typing import Final

from pyspark_warren.option_spec import AMQP, AUTO, DAY_MS, WARREN, Spec
from pyspark_warren.option_values import (
    parse_bool,
    parse_duration_ms,
    parse_hosts,
    parse_mechanism,
    parse_variable,
    word_of,
)
from warren.uri import PORT, SASL_PLAIN

CONNECTION: Final[tuple[Spec, ...]] = (
    Spec(
        "uri",
        "uri",
        str,
        None,
        "amqp://user:password@host:port/vhost, or amqps:// for TLS; instead of hosts",
        secret=True,
    ),
    Spec(
        "hosts",
        "hosts",
        parse_hosts,
        (("localhost", PORT),),
        "nodes to try, host or host:port, with commas between",
    ),
    Spec("vhost", "vhost", str, "/", "virtual host"),
    Spec("user", "user", str, "guest", "user name"),
    Spec("password", "password", str, "guest", "password; never printed", secret=True),
    Spec(
        "passwordFile",
        "password_file",
        str,
        None,
        "file with the password as its one line; the driver and every task read it",
    ),
    Spec(
        "passwordEnv",
        "password_env",
        parse_variable,
        None,
        "environment variable that holds the password, on the driver and on executors",
        secret=True,
    ),
    Spec("tls", "tls", parse_bool, False, "true: connect with TLS; the port is then 5671"),
    Spec(
        "caFile",
        "ca_file",
        str,
        None,
        "PEM file of the accepted certificate authorities; default: the system's",
    ),
    Spec(
        "certFile",
        "cert_file",
        str,
        None,
        "PEM file of this client's certificate, for brokers that ask for one",
    ),
    Spec("keyFile", "key_file", str, None, "PEM file of its key; default: in certFile"),
    Spec(
        "verify",
        "verify",
        parse_bool,
        True,
        "false: accept any certificate, also that of an attacker between the two",
    ),
    Spec(
        "saslMechanism",
        "sasl_mechanism",
        parse_mechanism,
        SASL_PLAIN,
        "EXTERNAL: log in as the user named in certFile, without a password",
    ),
    Spec(
        "requestTimeout",
        "request_timeout_ms",
        parse_duration_ms,
        60_000,
        "how long a request is tried, over all nodes, before the query fails",
        minimum=100,
        maximum=DAY_MS,
    ),
    Spec(
        "broker",
        "broker",
        word_of(AUTO, WARREN, AMQP),
        AUTO,
        "warren; amqp: any AMQP 0.9.1 broker, such as RabbitMQ; auto: ask the broker what it is",
    ),
    Spec(
        "preferLocal",
        "prefer_local",
        parse_bool,
        True,
        "a driver or task begins with a node on its own machine, if one of hosts is there; false: "
        "with any node",
        broker=WARREN,
    ),
)
