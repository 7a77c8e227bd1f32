"""Parsing of the options of `format("warren")`, and the refusal of wrong ones.

An option is a field of the dataclass of its subject (`*_options`), with its specification: name,
kind of value with its bounds, default, meaning, what it requires. What is parsed here, the refusals
and the manual's table derive from that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark_warren.errors import OptionError, UnsupportedError
from pyspark_warren.options.amqp import (
    AmqpSourceOptions,
    FailingOptions,
    check_kind_of_queue,
    refuse_failing,
)
from pyspark_warren.options.amqp10 import Amqp10Options, check_cbs
from pyspark_warren.options.connection import (
    OAUTH,
    PASSWORD_OPTIONS,
    ConnectionOptions,
    OauthOptions,
    check_login,
    check_oauth,
)
from pyspark_warren.options.reading import (
    KEEP,
    SETTLE,
    BrowseOptions,
    ClaimOptions,
    FilterOptions,
    check_queues,
)
from pyspark_warren.options.sink import SinkOptions
from pyspark_warren.options.specs import (
    ANY_BROKER,
    AUTO,
    BOTH,
    READ,
    SASL_ANONYMOUS,
    WARREN,
    WRITE,
    Spec,
    parse_hosts,
    specs_of,
)
from pyspark_warren.rows.columns import hint_of
from warren.errors import UsageError
from warren.uri import PORT_TLS, SASL_PLAIN, Address, ClientTls, parse_uri
from warren_wire.certificate_login import EXTERNAL
from warren_wire.links.uris import AMQP10

_OURS_TO_IGNORE: Final = frozenset({"path", "mergeschema"})
"""Options that Spark itself adds."""
NO_TABLES: Final = (
    "CREATE TABLE … USING warren OPTIONS (…) is not supported: Spark keeps the options in its "
    "catalog and hands none of them to a Python data source that is read or written; use CREATE "
    "TEMPORARY VIEW … USING warren OPTIONS (…) instead, or CREATE TABLE t (columns) USING warren "
    "without options, and give them in each statement: FROM t WITH (hosts = '…', queue = '…')"
)
_CALLS: Final = {
    ("read", "batch"): "spark.read",
    ("read", "stream"): "spark.readStream",
    ("write", "batch"): "df.write",
    ("write", "stream"): "df.writeStream",
}
"""The Spark call for each use, for error texts."""
_GROUPS: Final = (
    ConnectionOptions,
    OauthOptions,
    Amqp10Options,
    ClaimOptions,
    FailingOptions,
    AmqpSourceOptions,
    BrowseOptions,
    FilterOptions,
    SinkOptions,
)
SPECS: Final[tuple[Spec, ...]] = tuple(spec for group in _GROUPS for spec in specs_of(group))
"""Every option, in the order of the manual."""


@dataclass(frozen=True, kw_only=True)
class Options(Amqp10Options, FailingOptions, BrowseOptions, FilterOptions, SinkOptions):
    """Parsed options; printing it shows neither the password nor a uri that may hold one.

    broker                  AUTO until `for_broker` has said what kind it is
    checkpoint, query_name  what Spark gives a sink, and a user may give a source
    """

    checkpoint: str = ""
    query_name: str = ""

    def addresses(self) -> str:
        """Return hosts and user as text, for messages."""
        user = "its certificate's user" if self.sasl_mechanism == EXTERNAL else self.user
        user = "nobody" if self.sasl_mechanism == SASL_ANONYMOUS else user
        if self.token_file is not None or self.oauth_token_endpoint is not None:
            user = "its token's user"
        return ",".join(f"{host}:{port}" for host, port in self.hosts) + f" as {user}"

    def address(self) -> Address:
        """Return the client's Address, without what passwordFile or passwordEnv hold."""
        mechanism = SASL_PLAIN if self.sasl_mechanism == SASL_ANONYMOUS else self.sasl_mechanism
        tls = ClientTls(self.ca_file, self.cert_file, self.key_file, self.verify, mechanism)
        return Address(
            hosts=self.hosts,
            vhost=self.vhost,
            user=self.user,
            password=self.password,
            connect_timeout_s=self.connect_timeout_s,
            heartbeat_s=self.heartbeat_s,
            request_timeout_s=self.request_timeout_ms / 1000,
            tls=tls if self.tls else None,
        )


def parse_options(given: Mapping[str, str], where: str, how: str = BOTH) -> Options:
    """Parse the options of a source (`where` READ) or a sink (WRITE).

    given   names in any case, as Spark passes them
    how     AS_BATCH or AS_STREAM; BOTH: not known yet, options of either are accepted
    raises  OptionError with the option, the value, the limit and the remedy
    """
    assert (where, how) in _CALLS or (where in (READ, WRITE) and how == BOTH), (where, how)
    if any(name.lower().startswith("option.") for name in given):
        raise UnsupportedError(NO_TABLES)
    known = {spec.name.lower(): spec for spec in SPECS if spec.where in (BOTH, where)}
    values: dict[str, Any] = {}
    for name, text in given.items():
        _check_text(name, text)
        lower = name.lower()
        if lower in known:
            values[known[lower].field] = _parsed(known[lower], text)
            if how != BOTH and known[lower].how not in (BOTH, how):
                raise OptionError(_of_the_other(known[lower], where, how))
        elif lower == "checkpointlocation":
            values["checkpoint"] = text
        elif lower == "queryname":  # Spark gives a sink its query's name
            values["query_name"] = text
        elif lower not in _OURS_TO_IGNORE:
            raise OptionError(_unknown(name, where, known))
    names = tuple(sorted(name.lower() for name in given))
    if values.get("tls"):  # a host without a port has that of TLS
        hosts = next((text for name, text in given.items() if name.lower() == "hosts"), "localhost")
        values["hosts"] = parse_hosts(hosts, PORT_TLS)
    _apply_uri(values, names)
    made = Options(**values, given=names)
    _check(made, where, how, "" if given else f" ({NO_TABLES})")
    for spec in known.values():
        if WARREN in spec.brokers:
            _check_rules(spec, made)
    return made if made.broker == AUTO else for_broker(made, made.broker, f"broker={made.broker}")


def _check(options: Options, where: str, how: str, hint: str) -> None:
    """Refuse options that contradict each other in more than one option's rules."""
    check_login(options)
    check_oauth(options)
    check_cbs(options)
    if where == WRITE:
        if options.settle_with_batch and not options.atomic_batch:
            raise OptionError(
                "option settleWithBatch=true needs atomicBatch=true: a batch that appears row by "
                "row is not one decision"
            )
        return
    check_queues(options, hint)
    if how == "stream" and options.drops_malformed and options.starting_offset is None:
        raise OptionError(
            "option mode=DROPMALFORMED with spark.readStream of a queue would lose messages: those "
            "left out are acknowledged with their batch; use mode=PERMISSIVE, and write the rows "
            f"with {options.corrupt_column} elsewhere"
        )
    if how != BOTH:
        _check_filter(options, how)


def _check_filter(options: Options, how: str) -> None:
    """Refuse what would lose messages unsaid, and what cannot be; raises OptionError."""
    unmatched = options.filter_unmatched
    if not options.row_filter:
        return
    leaves = how == "stream" and options.starting_offset is None
    if leaves and unmatched == KEEP:
        raise OptionError(
            "option filterUnmatched=keep with spark.readStream of a queue: a micro-batch takes "
            "messages in the queue's order and acknowledges them together, so those that stay "
            "would be at the queue's head again, before each batch; bind a queue of its own to "
            "what the query wants (a topic or headers exchange), or give filterUnmatched=settle"
        )
    if leaves and unmatched != SETTLE:
        raise OptionError(
            "option filter with spark.readStream of a queue: messages that it is not true of leave "
            "the queue with their batch, unseen; say so with filterUnmatched=settle"
        )
    if not leaves and unmatched == SETTLE:
        raise OptionError(
            "option filterUnmatched=settle is for spark.readStream of a queue; nothing that is "
            "read here leaves: leave it out"
        )


def _check_rules(spec: Spec, options: Options) -> None:
    wrong = spec.broken(options) if spec.name.lower() in options.given else ""
    if wrong:
        raise OptionError(wrong)


def text_of(value: object) -> str:
    """Return an option's value as text, as Spark's `option` does."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def for_broker(options: Options, broker: str, told: str) -> Options:
    """Return the options for a broker of that kind, WARREN or one of OTHERS.

    told    how that is known, for the error: "broker=amqp", or what the broker says of itself
    raises  OptionError: an option that means nothing there was given
    """
    assert broker in ANY_BROKER, broker
    if options.sasl_mechanism == SASL_ANONYMOUS and broker != AMQP10:
        raise OptionError(
            f"option saslMechanism=ANONYMOUS is for AMQP 1.0 brokers, this is {told}: give user "
            "and password, or broker=amqp10"
        )
    if broker != WARREN:
        refuse_failing(options, told)
    for spec in SPECS:
        if broker not in spec.brokers and spec.name.lower() in options.given:
            raise OptionError(
                f"option {spec.name} is for broker={' or '.join(spec.brokers)} and means nothing "
                f"with {told}; leave it out"
            )
    if broker == WARREN:
        if options.browse_max and options.partitions > 1:
            raise OptionError(
                f"option partitions={options.partitions} means nothing with "
                f"maxMessages={options.browse_max}: the first messages of a queue are read in one "
                "task; leave one of them out"
            )
        return replace(options, broker=broker)
    if options.atomic_batch and "atomicbatch" in options.given:
        raise OptionError(
            f"option atomicBatch=true needs a Warren broker; this is {told}, which cannot publish "
            "a micro-batch as a whole: leave it out, and rows are published at least once"
        )
    check_kind_of_queue(options)
    for spec in SPECS:
        if WARREN not in spec.brokers:
            _check_rules(spec, options)
    return replace(options, broker=broker, atomic_batch=False)


def _check_text(name: str, text: str) -> None:
    """Refuse half of a surrogate pair, which no protocol, file or process could be told."""
    for each in (name, text):
        try:
            each.encode()
        except UnicodeEncodeError as wrong:
            raise OptionError(
                f"option {ascii(name)[1:-1]} has half of a surrogate pair at {wrong.start}, which "
                "UTF-8 has no bytes for; give whole characters"
            ) from None


def _parsed(spec: Spec, text: str) -> Any:
    shown = "" if spec.secret or "@" in text else f"={text!r}"
    try:
        value = spec.kind.parse(text)
    except ValueError as wrong:
        raise OptionError(f"option {spec.name}{shown}: {wrong} ({spec.meaning})") from None
    beyond = spec.kind.wrong(value)
    if beyond:
        raise OptionError(f"option {spec.name}{shown} {beyond} ({spec.meaning})")
    return value


def _unknown(name: str, where: str, known: Mapping[str, Spec]) -> str:
    other = next((s for s in SPECS if s.name.lower() == name.lower()), None)
    if other is not None:
        use = {READ: "reading", WRITE: "writing"}
        return (
            f"option {other.name} is for {use[other.where]} and means nothing when "
            f"{use[where]}; leave it out"
        )
    hint = hint_of(name, [spec.name for spec in known.values()])
    return f"unknown option {name!r}; {hint}"


def _of_the_other(spec: Spec, where: str, how: str) -> str:
    return (
        f"option {spec.name} is for {_CALLS[where, spec.how]} and means nothing with "
        f"{_CALLS[where, how]}; leave it out"
    )


_SAID_BY_URI: Final = (
    *("hosts", "vhost", "user", "tls", "cafile", "certfile", "keyfile", "verify", "saslmechanism"),
)


def _apply_uri(values: dict[str, Any], given: tuple[str, ...]) -> None:
    """Put what the uri says in the place of the options that it stands for."""
    uri = values.pop("uri", None)
    if uri is None:
        return
    clash = sorted(set(given).intersection(_SAID_BY_URI))
    if clash:
        raise OptionError(f"option uri says it all; leave out {', '.join(clash)}")
    try:
        address, unsaid = parse_uri(uri), parse_uri(uri, password="")
    except UsageError as wrong:  # its text never shows the password
        raise OptionError(
            f"option uri: {wrong} (amqp://user:password@host:port/vhost, several "
            "hosts with commas, / in the vhost as %2F)"
        ) from None
    values |= {"hosts": address.hosts, "vhost": address.vhost, "user": address.user}
    if address.password == unsaid.password:  # the text says one: the default is not the empty one
        values["password"] = address.password
        for spelled in (*PASSWORD_OPTIONS, *(spec.name for spec in OAUTH)):
            if spelled.lower() in given:
                raise OptionError(f"option uri has a password; leave out {spelled}, or that one")
        if address.sasl_mechanism == EXTERNAL:
            raise OptionError(
                "option uri has a password, which means nothing with saslMechanism=EXTERNAL: that "
                "logs in with the certificate; leave the password out"
            )
    if address.tls is not None:
        tls = address.tls
        values |= {"tls": True, "ca_file": tls.ca_file, "cert_file": tls.cert_file}
        values |= {"key_file": tls.key_file, "verify": tls.verify}
        values["sasl_mechanism"] = tls.sasl_mechanism
    values["connect_timeout_s"] = address.connect_timeout_s
    values["heartbeat_s"] = address.heartbeat_s
    values.setdefault("request_timeout_ms", int(address.request_timeout_s * 1000))


def options_table(where: str) -> list[tuple[str, str, str]]:
    """Return (name, default as text, meaning) of every option of a source or sink, for docs."""
    return [
        (spec.name, spec.default_text, spec.meaning)
        for spec in SPECS
        if spec.where in (BOTH, where)
    ]
