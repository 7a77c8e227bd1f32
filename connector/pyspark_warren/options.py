"""Parsing of the options of `format("warren")`, and the refusal of wrong ones."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from pyspark_warren.browse_options import PUSH_NOTHING
from pyspark_warren.columns import COLUMNS, CORRUPT_DEFAULT, STATE_COLUMNS
from pyspark_warren.errors import OptionError, UnsupportedError
from pyspark_warren.failing_options import check_failing, refuse_failing
from pyspark_warren.filter_options import check_filter
from pyspark_warren.oauth_options import BASIC, OAUTH, check_oauth
from pyspark_warren.option_spec import AMQP, AUTO, EITHER, WARREN, Spec, secret_names
from pyspark_warren.option_table import SPECS
from pyspark_warren.option_values import (
    END,
    TIME_UNITS_MS,
    parse_duration_ms,
    parse_hosts,
    parse_size,
)
from pyspark_warren.share import FAIR, SELECTED_MAX
from warren.errors import UsageError
from warren.uri import PORT_TLS, SASL_PLAIN, Address, ClientTls, parse_uri
from warren_wire.amqp091.fields import SHORT_STRING_BYTES_MAX
from warren_wire.certificate_login import EXTERNAL

_OURS_TO_IGNORE: Final = frozenset({"path", "mergeschema"})
"""Options that Spark itself adds."""
PASSWORD_OPTIONS: Final = secret_names("password")
"""At most one of them is given, and none beside a uri with a password."""
NO_TABLES: Final = (
    "CREATE TABLE … USING warren OPTIONS (…) is not supported: Spark keeps the options in its "
    "catalog and hands none of them to a Python data source that is read or written; use CREATE "
    "TEMPORARY VIEW … USING warren OPTIONS (…) instead, or CREATE TABLE t (columns) USING warren "
    "without options, and give them in each statement: FROM t WITH (hosts = '…', queue = '…')"
)
_OF_SPOOL: Final = (
    "spoolLocation",
    "ackMode",
    "prefetch",
    "receivers",
    "consumerTimeout",
    "deliveryLimit",
)
SPOOLED_QUEUES_MAX: Final = 64
"""Queues of one query with broker=amqp: each has a process beside the driver."""
_OF_STREAM: Final = ("endingOffset", "failOnDataLoss")
_CALLS: Final = {
    ("read", "batch"): "spark.read",
    ("read", "stream"): "spark.readStream",
    ("write", "batch"): "df.write",
    ("write", "stream"): "df.writeStream",
}
"""The Spark call for each use, for error texts."""


@dataclass(frozen=True)
class Options:
    """Parsed options; printing it shows neither the password nor a uri that may hold one.

    broker  AUTO until `for_broker` has said what kind it is
    given   names of the options that the query gave, in lower case
    """

    hosts: tuple[tuple[str, int], ...]
    vhost: str
    user: str
    password: str = field(repr=False)
    request_timeout_ms: int
    broker: str
    password_file: str | None = None
    password_env: str | None = None
    oauth_token_endpoint: str | None = field(default=None, repr=False)
    oauth_client_id: str | None = None
    oauth_client_secret: str | None = field(default=None, repr=False)
    oauth_client_secret_file: str | None = None
    oauth_client_secret_env: str | None = None
    oauth_scope: str | None = None
    oauth_audience: str | None = None
    oauth_client_auth: str = BASIC
    oauth_ca_file: str | None = None
    token_file: str | None = None
    tls: bool = False
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify: bool = True
    sasl_mechanism: str = SASL_PLAIN
    connect_timeout_s: float = 5.0
    heartbeat_s: float = 20.0
    prefer_local: bool = True
    uri: None = field(default=None, repr=False)
    queue: str = ""
    queues: tuple[str, ...] = ()
    queue_pattern: str = ""
    queue_sharing: str = FAIR
    max_messages: int = 200_000
    max_bytes: int = 256 << 20
    min_messages: int = 0
    min_bytes: int = 0
    max_trigger_delay_ms: int = 900_000
    target_batch_ms: int = 0
    claim_ttl_ms: int = 0
    reader_expires_ms: int = 0
    partitions: int = 0
    on_claim_lost: str = "fail"
    on_batch_failure: str = "fail"
    batch_tries_max: int = 3
    isolate_poison: bool = False
    failures_in_row_max: int = 10
    drop_rejected: bool = False
    settle_with_batch: bool = False
    reader_id: str = ""
    poll_interval_ms: int = 100
    prefetch_claims: int = 1
    browse_max: int = 0
    states: tuple[str, ...] | None = None
    first_index: int = 0
    last_index: int | None = None
    push_filters: str = PUSH_NOTHING
    row_filter: str = ""
    filter_unmatched: str = ""
    mode: str = "failfast"
    corrupt_column: str = CORRUPT_DEFAULT
    header_values: str = "typed"
    exchange: str | None = None
    routing_key: str | None = None
    allow_loop: bool = False
    atomic_batch: bool = True
    confirm_timeout_ms: int = 60_000
    persistent: bool = True
    block_bytes: int = 4 << 20
    sink_id: str = ""
    run_id: str = ""
    batch_id: int | None = None
    on_batch_conflict: str = "fail"
    on_sink_change: str = "fail"
    sink_expires_ms: int = 0
    checkpoint: str = ""
    query_name: str = ""
    spool_location: str = ""
    ack_mode: str = "commit"
    prefetch: int = 50_000
    receivers: int = 1
    consumer_timeout_ms: int = 1_800_000
    delivery_limit: int = 20
    publish_window: int = 1_000
    deduplication_header: bool = False
    starting_offset: str | None = None
    ending_offset: str = END
    fail_on_data_loss: bool = True
    given: tuple[str, ...] = field(default=(), repr=False)

    @property
    def corrupt(self) -> str | None:
        """Return the column for bytes that cannot be decoded; None: see `mode`."""
        return self.corrupt_column if self.mode == "permissive" else None

    @property
    def drops_malformed(self) -> bool:
        """Return whether messages that cannot be decoded are left out."""
        return self.mode == "dropmalformed"

    @property
    def several(self) -> bool:
        """Return whether the source has an offset for several queues."""
        return bool(self.queues or self.queue_pattern)

    def read_text(self) -> str:
        """Return what is read, for messages."""
        if self.queue_pattern:
            return f"queues like {self.queue_pattern!r}"
        if self.queues:
            more = "" if len(self.queues) <= 5 else f" and {len(self.queues) - 5} more"
            return f"queues {', '.join(map(repr, self.queues[:5]))}{more}"
        return f"queue {self.queue!r}"

    def addresses(self) -> str:
        """Return hosts and user as text, for messages."""
        user = "its certificate's user" if self.sasl_mechanism == EXTERNAL else self.user
        if self.token_file is not None or self.oauth_token_endpoint is not None:
            user = "its token's user"
        return ",".join(f"{host}:{port}" for host, port in self.hosts) + f" as {user}"

    def address(self) -> Address:
        """Return the client's Address, without what passwordFile or passwordEnv hold."""
        return Address(
            hosts=self.hosts,
            vhost=self.vhost,
            user=self.user,
            password=self.password,
            connect_timeout_s=self.connect_timeout_s,
            heartbeat_s=self.heartbeat_s,
            request_timeout_s=self.request_timeout_ms / 1000,
            tls=self._tls() if self.tls else None,
        )

    def _tls(self) -> ClientTls:
        return ClientTls(
            self.ca_file, self.cert_file, self.key_file, self.verify, self.sasl_mechanism
        )


def parse_options(given: Mapping[str, str], where: str, how: str = "both") -> Options:
    """Parse the options of a source (`where` "read") or a sink ("write").

    given   names in any case, as Spark passes them
    how     "batch" or "stream"; "both": not known yet, options of either are accepted
    raises  OptionError with the option, the value, the limit and the remedy
    """
    assert (where, how) in _CALLS or (where in ("read", "write") and how == "both"), (where, how)
    if any(name.lower().startswith("option.") for name in given):
        raise UnsupportedError(NO_TABLES)
    known = {spec.name.lower(): spec for spec in SPECS if spec.where in ("both", where)}
    values: dict[str, Any] = {spec.field: spec.default for spec in known.values()}
    for name, text in given.items():
        _check_text(name, text)
        lower = name.lower()
        if lower in known:
            values[known[lower].field] = _parsed(known[lower], text)
            if how != "both" and known[lower].how not in ("both", how):
                raise OptionError(_of_the_other(known[lower], where, how))
        elif lower == "checkpointlocation":
            values["checkpoint"] = text
        elif lower == "queryname":  # Spark gives a sink its query's name
            values["query_name"] = text
        elif lower not in _OURS_TO_IGNORE:
            raise OptionError(_unknown(name, where, known))
    lower_names = {name.lower() for name in given}
    _apply_tls(values, lower_names, given)
    _apply_uri(values, lower_names)
    _check_login(values, lower_names)
    check_oauth(values, lower_names, PASSWORD_OPTIONS)
    _check(values, where, given)
    if how == "stream" and values.get("mode") == "dropmalformed":
        _check_dropping(values)
    if where == "read" and how != "both":
        check_filter(values, how)
    names = {each.name for each in fields(Options)}
    made = Options(
        **{key: value for key, value in values.items() if key in names},
        given=tuple(sorted(lower_names)),
    )
    return made if made.broker == AUTO else for_broker(made, made.broker, f"broker={made.broker}")


def for_broker(options: Options, broker: str, told: str) -> Options:
    """Return the options for a broker of that kind, WARREN or AMQP.

    told    how that is known, for the error: "broker=amqp", or what the broker says of itself
    raises  OptionError: an option that means nothing there was given
    """
    assert broker in (WARREN, AMQP), broker
    if broker == AMQP:
        refuse_failing(options, told)
    for spec in SPECS:
        if spec.broker not in (EITHER, broker) and spec.name.lower() in options.given:
            raise OptionError(
                f"option {spec.name} is for broker={spec.broker} and means nothing with {told}; "
                "leave it out"
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
    _check_kind_of_queue(options)
    return replace(options, broker=broker, atomic_batch=False)


def _check_kind_of_queue(options: Options) -> None:
    """Refuse options of queues for a stream, and those of streams for a queue."""
    stream = options.starting_offset is not None
    if stream and options.queues:
        raise OptionError(
            "option startingOffset says that the queue is a stream, and a query reads one stream: "
            "give queue instead of queues, and a query for each stream"
        )
    if len(options.queues) > SPOOLED_QUEUES_MAX:
        raise OptionError(
            f"option queues has {len(options.queues)} names, {SPOOLED_QUEUES_MAX} is the limit of "
            "one query with broker=amqp, which has a receiver process for each: divide them among "
            "several queries"
        )
    for name in _OF_SPOOL if stream else _OF_STREAM:
        if name.lower() in options.given:
            raise OptionError(
                f"option {name} is for queues, and startingOffset says that {options.queue!r} is a "
                "stream; leave one of them out"
                if stream
                else f"option {name} is for streams and needs startingOffset, such as first"
            )


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
        value = spec.parse(text)
    except ValueError as wrong:
        raise OptionError(f"option {spec.name}{shown}: {wrong} ({spec.meaning})") from None
    if spec.minimum is not None and value < spec.minimum:
        raise OptionError(
            f"option {spec.name}{shown} is below {_amount(spec, spec.minimum)}; "
            f"give that or more ({spec.meaning})"
        )
    if spec.maximum is not None and value > spec.maximum:
        raise OptionError(
            f"option {spec.name}{shown} is above {_amount(spec, spec.maximum)}; "
            f"give that or less ({spec.meaning})"
        )
    return value


def _amount(spec: Spec, value: int) -> str:
    if spec.parse is parse_duration_ms:
        return f"{value}ms"
    return f"{value} bytes" if spec.parse is parse_size else str(value)


def _unknown(name: str, where: str, known: Mapping[str, Spec]) -> str:
    other = next((s for s in SPECS if s.name.lower() == name.lower()), None)
    if other is not None:
        use = {"read": "reading", "write": "writing"}
        return (
            f"option {other.name} is for {use[other.where]} and means nothing when "
            f"{use[where]}; leave it out"
        )
    near = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.5)
    hint = (
        f"did you mean {known[near[0]].name}?"
        if near
        else "known ones: " + ", ".join(spec.name for spec in known.values())
    )
    return f"unknown option {name!r}; {hint}"


def _of_the_other(spec: Spec, where: str, how: str) -> str:
    return (
        f"option {spec.name} is for {_CALLS[where, spec.how]} and means nothing with "
        f"{_CALLS[where, how]}; leave it out"
    )


def _apply_tls(values: dict[str, Any], names: set[str], given: Mapping[str, str]) -> None:
    """Check the options of TLS; with it a host without a port has that of TLS."""
    if not values["tls"]:
        for spelled in ("caFile", "certFile", "keyFile", "verify", "saslMechanism"):
            if spelled.lower() in names and values["uri"] is None:
                raise OptionError(f"option {spelled} needs tls=true")
        return
    if values["key_file"] is not None and values["cert_file"] is None:
        raise OptionError("option keyFile needs certFile: the certificate of that key")
    if values["sasl_mechanism"] == EXTERNAL and values["cert_file"] is None:
        raise OptionError("option saslMechanism=EXTERNAL needs certFile, which names the user")
    hosts = next((text for name, text in given.items() if name.lower() == "hosts"), "localhost")
    values["hosts"] = parse_hosts(hosts, PORT_TLS)


def _check_login(values: Mapping[str, Any], given: Set[str]) -> None:
    """Refuse options of the login that contradict each other, or that another one leaves unused."""
    said = [name for name in PASSWORD_OPTIONS if name.lower() in given]
    if len(said) > 1:
        raise OptionError(f"options {' and '.join(said)} both say the password; leave one out")
    unused = ["user", *said] if "user" in given else said
    if unused and values["sasl_mechanism"] == EXTERNAL:
        raise OptionError(
            f"option {unused[0]} means nothing with saslMechanism=EXTERNAL, which logs in with the "
            "certificate; leave it out"
        )
    if values["ca_file"] is not None and not values["verify"]:
        raise OptionError(
            "option caFile means nothing with verify=false, which accepts a certificate of any "
            "authority; leave one of them out"
        )


def _apply_uri(values: dict[str, Any], given: set[str]) -> None:
    uri = values.pop("uri")
    if uri is None:
        return
    said = {"hosts", "vhost", "user", "tls", "cafile", "certfile", "keyfile", "verify"}
    said.add("saslmechanism")
    clash = sorted(given & said)
    if clash:
        raise OptionError(f"option uri says it all; leave out {', '.join(clash)}")
    try:
        address, unsaid = parse_uri(uri), parse_uri(uri, password="")
    except UsageError as wrong:  # its text never shows the password
        raise OptionError(
            f"option uri: {wrong} (amqp://user:password@host:port/vhost, several "
            "hosts with commas, / in the vhost as %2F)"
        ) from None
    values["hosts"], values["vhost"] = address.hosts, address.vhost
    values["user"] = address.user
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
    if "requesttimeout" not in given:
        values["request_timeout_ms"] = int(address.request_timeout_s * 1000)


_EXPIRIES: Final = (
    ("claim_ttl_ms", "claimTtl", 10_000, "10s", "claims that never expire"),
    ("reader_expires_ms", "readerExpires", 60_000, "60s", "the broker's limit"),
    ("sink_expires_ms", "sinkExpires", 3_600_000, "1h", "sinks that never expire"),
)
"""(field, option, least value but 0, as text, what 0 stands for)."""


def _check(values: dict[str, Any], where: str, given: Mapping[str, str]) -> None:
    if where == "read":
        _check_queues(values, given)
        if values["settle_with_batch"] and not values["queue"]:
            raise OptionError(
                "option settleWithBatch=true needs the option queue: the claims of several queues "
                "cannot be settled in one decision"
            )
        check_failing(values, given)
        _check_admission(values, given)
    for name, spelled, least, shown, what in _EXPIRIES:
        if 0 < values.get(name, 0) < least:
            raise OptionError(
                f"option {spelled}={values[name]}ms is below {least}ms; give {shown} or more, "
                f"or 0 for {what}"
            )
    for name, spelled in (("exchange", "exchange"), ("routing_key", "routingKey")):
        size = len((values.get(name) or "").encode())
        if size > SHORT_STRING_BYTES_MAX:
            raise OptionError(
                f"option {spelled} has {size} bytes; AMQP 0.9.1 carries "
                f"{SHORT_STRING_BYTES_MAX}: give a shorter name"
            )
    last = values.get("last_index")
    if last is not None and last < values["first_index"]:
        raise OptionError(
            f"option lastIndex={last} is below firstIndex={values['first_index']}: give that or "
            "more, or leave one out"
        )
    corrupt = values.get("corrupt_column", CORRUPT_DEFAULT)
    if not corrupt or corrupt.lower() in (*COLUMNS, *STATE_COLUMNS):
        raise OptionError(
            f"option columnNameOfCorruptRecord={corrupt!r} is "
            f"{'the name of another column' if corrupt else 'empty'}; give a name "
            f"of its own, such as {CORRUPT_DEFAULT}"
        )
    _check_dependent(values, where, {name.lower() for name in given})
    if where == "write" and values["settle_with_batch"] and not values["atomic_batch"]:
        raise OptionError(
            "option settleWithBatch=true needs atomicBatch=true: a batch that appears row by row "
            "is not one decision"
        )
    if where == "write" and not values["sink_id"]:
        for name, value in (("batchId", values["batch_id"]), ("runId", values["run_id"] or None)):
            if value is not None:
                raise OptionError(f"option {name} needs sinkId: the name of this output")


def _check_dependent(values: Mapping[str, Any], where: str, given: Set[str]) -> None:
    """Refuse options that another one makes mean nothing."""
    for name in ("user", "password"):
        if "\0" in values[name]:
            raise OptionError(f"option {name} has a zero byte, which no login can have")
    if where == "read":
        if "columnnameofcorruptrecord" in given and values["mode"] != "permissive":
            raise OptionError(
                "option columnNameOfCorruptRecord needs mode=PERMISSIVE: with "
                f"mode={values['mode'].upper()} there is no such column"
            )
    elif not values["atomic_batch"]:
        for name in ("onBatchConflict", "sinkExpires"):
            if name.lower() in given:
                raise OptionError(
                    f"option {name} means nothing with atomicBatch=false: the broker remembers no "
                    "batch of rows that are published at once; leave one of them out"
                )


def _check_queues(values: dict[str, Any], given: Mapping[str, str]) -> None:
    """Check that one option says what is read."""
    names = (("queue", "queue"), ("queues", "queues"), ("queuePattern", "queue_pattern"))
    said = [spelled for spelled, name in names if values[name]]
    if not said:
        hint = "" if given else f" ({NO_TABLES})"
        raise OptionError(
            "option queue is missing: give the name of the queue to read (queues or queuePattern "
            f"for several){hint}"
        )
    if len(said) > 1:
        raise OptionError(f"options {' and '.join(said)}: give one of them")
    if said == ["queue"] and "queuesharing" in {name.lower() for name in given}:
        raise OptionError("option queueSharing needs queues or queuePattern")
    if len(values["queues"]) > SELECTED_MAX:
        raise OptionError(
            f"option queues has {len(values['queues'])} names, {SELECTED_MAX} is the limit of one "
            "query: divide them among several queries"
        )


def _check_dropping(values: dict[str, Any]) -> None:
    """Refuse to leave messages out where what is read leaves the queue with its batch."""
    if values["starting_offset"] is None:
        raise OptionError(
            "option mode=DROPMALFORMED with spark.readStream of a queue would lose messages: those "
            "left out are acknowledged with their batch; use mode=PERMISSIVE, and write the rows "
            f"with {values['corrupt_column']} elsewhere"
        )


def _check_admission(values: dict[str, Any], given: Mapping[str, str]) -> None:
    """Check that minima are below maxima, and that an option has the one that it belongs to."""
    least, least_bytes = values["min_messages"], values["min_bytes"]
    if least > values["max_messages"]:
        raise OptionError(
            f"option minMessagesPerTrigger={least} is above "
            f"maxMessagesPerTrigger={values['max_messages']}; give that or less"
        )
    if least_bytes > values["max_bytes"]:
        raise OptionError(
            f"option minBytesPerTrigger={least_bytes} is above "
            f"maxBytesPerTrigger={values['max_bytes']}; give that or less"
        )
    if "maxtriggerdelay" in {name.lower() for name in given} and not least and not least_bytes:
        raise OptionError(
            "option maxTriggerDelay needs minMessagesPerTrigger or minBytesPerTrigger: without "
            "them no batch waits"
        )


def options_table(where: str) -> list[tuple[str, str, str]]:
    """Return (name, default as text, meaning) of every option of a source or sink, for docs."""
    return [
        (spec.name, _default_text(spec), spec.meaning)
        for spec in SPECS
        if spec.where in ("both", where)
    ]


def _default_text(spec: Spec) -> str:
    if spec.default in (None, ()):
        return ""
    if spec.parse is parse_hosts:
        return ",".join(f"{host}:{port}" for host, port in spec.default)
    if spec.parse is parse_duration_ms:
        for unit in ("d", "h", "m", "s"):
            if spec.default and spec.default % TIME_UNITS_MS[unit] == 0:
                return f"{spec.default // TIME_UNITS_MS[unit]}{unit}"
        return f"{spec.default}ms" if spec.default else "0"
    if spec.parse is parse_size:
        return f"{spec.default >> 20}m" if spec.default else "0"
    return str(spec.default).lower() if isinstance(spec.default, bool) else str(spec.default)
