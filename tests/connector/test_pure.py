"""Options, offsets, plans: arithmetic and refusals."""

from __future__ import annotations

import json
import pickle
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_warren.claims.offset import ClaimInfo, Offset, Position
from pyspark_warren.claims.plan import (
    SLICE_BYTES,
    SLICE_MESSAGES,
    SLICES_MAX,
    Slice,
    claims_between,
    cut,
)
from pyspark_warren.errors import (
    BrokerUnavailableError,
    CheckpointError,
    OptionError,
    named_conditions,
)
from pyspark_warren.options.options import SPECS, Options, for_broker, options_table, parse_options
from pyspark_warren.sink.batch_sink import check_sink_schema
from pyspark_warren.surroundings import query_name
from warren.errors import Unavailable
from warren.uri import ClientTls


def read(**given: str) -> Options:
    return parse_options({"queue": "q", **given}, "read")


# ------------------------------------------------------------------ options


def test_defaults() -> None:
    options = read()
    assert options.hosts == (("localhost", 5672),)
    assert (options.vhost, options.queue, options.max_messages) == ("/", "q", 200_000)
    assert (options.max_bytes, options.claim_ttl_ms) == (256 << 20, 0)
    assert parse_options({}, "write").atomic_batch is True


def test_names_ignore_case_as_spark_does() -> None:
    assert read(MAXMESSAGESPERTRIGGER="5").max_messages == 5


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("maxBytesPerTrigger", "64k", "max_bytes", 65536),
        ("maxBytesPerTrigger", "1GiB", "max_bytes", 1 << 30),
        ("claimTtl", "5m", "claim_ttl_ms", 300_000),
        ("claimTtl", "0", "claim_ttl_ms", 0),
        ("readerExpires", "60s", "reader_expires_ms", 60_000),
        ("hosts", "a,b:5673,[::1]:7", "hosts", (("a", 5672), ("b", 5673), ("::1", 7))),
        ("onClaimLost", "Continue", "on_claim_lost", "continue"),
    ],
)
def test_values(name: str, text: str, field: str, value: object) -> None:
    assert getattr(read(**{name: text}), field) == value


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("maxMessagesPerTrigger", "0", "is below 1"),
        ("maxMessagesPerTrigger", "many", "whole number"),
        ("maxBytesPerTrigger", "-1", "such as 256m"),
        ("claimTtl", "30", "with its unit"),
        ("claimTtl", "1s", "is below 10s; give that or more, or 0 for claims that never expire"),
        ("readerExpires", "59999ms", "is below 1m; give that or more, or 0 for the broker's limit"),
        ("sinkExpires", "1h", "is for writing"),
        ("hosts", "a:b", "host:port"),
        ("hosts", "a:70000", "host:port"),
        ("onClaimLost", "retry", "fail or continue"),
        ("broker", "rabbitmq", "auto or warren or amqp"),
        ("maxMessagePerTrigger", "1", "did you mean maxMessagesPerTrigger?"),
        ("exchange", "x", "is for writing"),
        ("mode", "drop", "failfast or permissive or dropmalformed"),
        ("headerValues", "text", "typed or string"),
        ("readerId", "nightly+1", "a + stands between the name and"),
        ("readerId", "é" * 128, "256 bytes; a name has at most 255"),
        ("queue", "q" * 256, "256 bytes; a name has at most 255"),
        ("startingOffset", "-1", "give first, last, next, an offset such as 1200"),
        ("startingOffset", "2026-01-31T12:00:00", "a time with its zone"),
        ("startingOffset", "1" + "0" * 20, "an offset above"),
        ("startingOffset", "0001-01-01T00:00:00+14:00", "of the years 1 to 9999"),
        ("startingOffset", "9999-12-31T23:59:59-14:00", "of the years 1 to 9999"),
        ("user", "a\0", "option user has a zero byte"),
        ("password", "geheim\0", "option password has a zero byte"),
        ("endingOffset", "last", "give end, or the offset"),
        ("columnNameOfCorruptRecord", "body", "the name of another column"),
        ("columnNameOfCorruptRecord", "Body", "the name of another column"),
        ("zzz", "1", "known ones: uri, hosts"),
    ],
)
def test_what_is_wrong_is_said(name: str, text: str, says: str) -> None:
    with pytest.raises(OptionError) as told:
        read(**{name: text})
    assert says in str(told.value) and str(told.value).startswith("[WARREN_OPTION]")


@pytest.mark.parametrize("where", ["read", "write"])
@pytest.mark.parametrize("name", [*(spec.name for spec in SPECS), "checkpointLocation", "x\udc80"])
def test_half_of_a_surrogate_pair_was_an_error_without_a_condition(name: str, where: str) -> None:
    """UnicodeEncodeError, where the text was first sent, measured or written."""
    with pytest.raises(OptionError, match="has half of a surrogate pair") as told:
        parse_options({name: "geheim\ud800"}, where)
    assert ascii(name)[1:-1] in str(told.value) and "geheim" not in str(told.value)
    str(told.value).encode()


@pytest.mark.parametrize(
    ("where", "how", "call", "given"),
    [
        (
            "write",
            "stream",
            "df.write and means nothing with df.writeStream",
            {"sinkId": "mine", "batchId": "4"},
        ),
        ("write", "stream", "df.write and means nothing with df.writeStream", {"batchId": "4"}),
        (
            "read",
            "stream",
            "spark.read and means nothing with spark.readStream",
            {"maxMessages": "7"},
        ),
        ("read", "stream", "spark.read and means nothing with spark.readStream", {"state": "all"}),
        (
            "read",
            "stream",
            "spark.read and means nothing with spark.readStream",
            {"lastIndex": "7"},
        ),
        (
            "read",
            "stream",
            "spark.read and means nothing with spark.readStream",
            {"startingOffset": "first", "endingOffset": "7"},
        ),
        *(
            ("read", "batch", "spark.readStream and means nothing with spark.read", {name: text})
            for name, text in (
                ("maxMessagesPerTrigger", "7"),
                ("maxBytesPerTrigger", "7m"),
                ("claimTtl", "5m"),
                ("readerExpires", "5m"),
                ("onClaimLost", "fail"),
                ("readerId", "mine"),
                ("pollInterval", "1s"),
            )
        ),
    ],
)
def test_an_option_of_the_other_kind_of_call_was_ignored(
    where: str, how: str, call: str, given: dict[str, str]
) -> None:
    if where == "read":
        given = {"queue": "q", **given}
    parse_options({name: text for name, text in given.items() if name != "batchId"}, where)
    *_, last = given
    with pytest.raises(OptionError, match=rf"\] option {last} is for {call}; leave it out"):
        parse_options(given, where, how)


@pytest.mark.parametrize(
    ("where", "broker", "given", "says"),
    [
        ("read", "amqp", {"claimTtl": "1m"}, "claimTtl is for broker=warren"),
        ("read", "amqp", {"onClaimLost": "fail"}, "onClaimLost is for broker=warren"),
        ("read", "amqp", {"readerId": "mine"}, "readerId is for broker=warren"),
        ("read", "warren", {"prefetch": "10"}, "prefetch is for broker=amqp"),
        ("read", "warren", {"ackMode": "spool"}, "ackMode is for broker=amqp"),
        ("read", "warren", {"spoolLocation": "/tmp/x"}, "spoolLocation is for broker=amqp"),
        ("read", "warren", {"startingOffset": "first"}, "startingOffset is for broker=amqp"),
        ("read", "warren", {"failOnDataLoss": "true"}, "failOnDataLoss is for broker=amqp"),
        *(
            ("read", "amqp", {"startingOffset": "7", name: text}, f"{name} is for queues")
            for name, text in (
                ("spoolLocation", "/tmp/x"),
                ("ackMode", "spool"),
                ("prefetch", "10"),
                ("receivers", "2"),
                ("consumerTimeout", "1h"),
                ("deliveryLimit", "5"),
            )
        ),
        ("read", "amqp", {"endingOffset": "7"}, "endingOffset is for streams and needs starting"),
        ("read", "amqp", {"failOnDataLoss": "false"}, "failOnDataLoss is for streams and needs"),
        ("write", "amqp", {"blockBytes": "1m"}, "blockBytes is for broker=warren"),
        ("write", "amqp", {"onBatchConflict": "keep"}, "onBatchConflict is for broker=warren"),
        ("write", "amqp", {"atomicBatch": "true"}, "atomicBatch=true needs a Warren broker"),
        ("write", "warren", {"publishWindow": "5"}, "publishWindow is for broker=amqp"),
        ("write", "warren", {"deduplicationHeader": "true"}, "is for broker=amqp"),
    ],
)
def test_an_option_of_the_other_kind_of_broker_is_refused(
    where: str, broker: str, given: dict[str, str], says: str
) -> None:
    queue = {"queue": "q"} if where == "read" else {}
    with pytest.raises(OptionError, match=says):
        parse_options({**queue, **given, "broker": broker}, where)
    options = parse_options({**queue, **given}, where)
    assert options.broker == "auto", "not known yet"
    with pytest.raises(OptionError, match=says):
        for_broker(options, broker, "RabbitMQ 3.10.8 at a:5672")
    for_broker(parse_options({**queue, "uri": "amqp://a"}, where), broker, "said")


@pytest.mark.parametrize(
    ("where", "given", "says"),
    [
        ("write", {"atomicBatch": "false", "onBatchConflict": "keep"}, "onBatchConflict means"),
        ("write", {"atomicBatch": "false", "sinkExpires": "1h"}, "sinkExpires means nothing with"),
        ("read", {"columnNameOfCorruptRecord": "bad"}, "needs mode=PERMISSIVE: with mode=failfast"),
        ("read", {"maxMessages": "9", "partitions": "2"}, "=2 means nothing with maxMessages=9"),
    ],
)
def test_an_option_that_another_one_makes_mean_nothing_was_ignored(
    where: str, given: dict[str, str], says: str
) -> None:
    more = {"queue": "q"} if where == "read" else {}
    with pytest.raises(OptionError, match=says):
        parse_options({**more, **given, "broker": "warren"}, where, "batch")


def test_the_first_messages_of_a_stream_are_read_in_parts() -> None:
    given = {"queue": "q", "startingOffset": "first", "maxMessages": "9", "partitions": "2"}
    assert parse_options({**given, "broker": "amqp"}, "read", "batch").partitions == 2


@pytest.mark.parametrize(
    ("publishing", "says"), [(False, "or raise requestTimeout"), (True, "or raise confirmTimeout")]
)
def test_what_takes_too_long_names_the_limit_that_it_had(publishing: bool, says: str) -> None:
    with pytest.raises(BrokerUnavailableError, match=says), named_conditions("x", publishing):
        raise Unavailable("no answer")


def test_where_a_stream_begins() -> None:
    for text, stored in (
        (" First ", "first"),
        ("0007", "7"),
        ("2026-01-31T13:00:00+01:00", "2026-01-31T12:00:00+00:00"),
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00+00:00"),
    ):
        assert read(startingOffset=text).starting_offset == stored


def test_a_sink_of_another_broker_publishes_directly() -> None:
    assert not parse_options({"broker": "amqp"}, "write").atomic_batch
    assert not parse_options({"broker": "amqp", "atomicBatch": "false"}, "write").atomic_batch
    assert parse_options({"broker": "warren"}, "write").atomic_batch


def test_the_queue_is_needed() -> None:
    with pytest.raises(OptionError, match="queue is missing"):
        parse_options({}, "read")


def test_what_spark_adds_is_let_through() -> None:
    given = parse_options({"checkpointLocation": "/tmp/x", "queryName": "n"}, "write")
    assert (given.exchange, given.checkpoint) == (None, "/tmp/x")


def test_a_uri_says_it_all() -> None:
    options = read(uri="amqp://u%40x:p%2Fw@a:1,b/%2Fv")
    assert options.hosts == (("a", 1), ("b", 5672))
    assert (options.user, options.password, options.vhost) == ("u@x", "p/w", "/v")
    with pytest.raises(OptionError, match="leave out hosts, user"):
        read(uri="amqp://a", hosts="b", user="u")


def test_a_password_is_never_printed() -> None:
    assert "geheim" not in repr(read(password="geheim"))
    assert "geheim" not in repr(read(uri="amqp://u:geheim@a"))
    for bad in ("http://u:geheim@a", "amqp://u:geheim@a:port", "geheim"):
        with pytest.raises(OptionError) as told:
            read(uri=bad)
        assert "geheim" not in str(told.value)
    with pytest.raises(OptionError, match="option hosts: a host with credentials") as told:
        read(hosts="u:geheim@a:1")
    assert "geheim" not in str(told.value)


def test_a_uri_may_say_how_long_to_wait() -> None:
    options = read(uri="amqp://a/?request_timeout=5&heartbeat=3")
    assert (options.request_timeout_ms, options.heartbeat_s) == (5000, 3.0)
    assert read(uri="amqp://a/?request_timeout=5", requestTimeout="9s").request_timeout_ms == 9000
    assert options.address().uri().startswith("amqp://guest:guest@a:5672/%2F?")


def test_options_of_tls() -> None:
    options = read(tls="true", hosts="a,b:7", caFile="/ca", certFile="/c", keyFile="/k")
    assert options.hosts == (("a", 5671), ("b", 7))
    assert options.address().tls == ClientTls("/ca", "/c", "/k", verify=True)
    assert read(tls="true").hosts == (("localhost", 5671),)
    assert (
        read(hosts="a").address().tls is None and read(tls="false", hosts="a").hosts[0][1] == 5672
    )
    same = read(uri="amqps://a,b:7?caFile=/ca&certFile=/c&keyFile=/k")
    assert same.address().tls == options.address().tls and same.hosts == options.hosts
    assert not read(uri="amqps://a?verify=false").verify
    for wrong, text in (
        ({"caFile": "/ca"}, "option caFile needs tls=true"),
        ({"verify": "false", "tls": "false"}, "option verify needs tls=true"),
        ({"tls": "true", "keyFile": "/k"}, "option keyFile needs certFile"),
        ({"tls": "true", "verify": "maybe"}, "option verify='maybe'"),
        ({"tls": "true", "verify": "false", "caFile": "/ca"}, "caFile means nothing with verify=f"),
        ({"uri": "amqps://a?verify=false&caFile=/ca"}, "caFile means nothing with verify=false"),
        ({"uri": "amqps://a", "tls": "true"}, "option uri says it all; leave out tls"),
        ({"uri": "amqps://a", "caFile": "/ca"}, "option uri says it all; leave out cafile"),
        ({"uri": "amqp://a?caFile=/ca"}, "need an address with amqps://"),
    ):
        with pytest.raises(OptionError) as caught:
            read(**wrong)
        assert text in str(caught.value)


def test_dropping_is_refused_where_messages_leave_the_queue_with_their_batch() -> None:
    given = {"queue": "q", "mode": "DROPMALFORMED"}
    assert parse_options(given, "read", "batch").drops_malformed
    assert parse_options({**given, "startingOffset": "first"}, "read", "stream").drops_malformed
    for more in ({}, {"broker": "amqp", "spoolLocation": "/s"}):
        with pytest.raises(OptionError, match=r"DROPMALFORMED.*use mode=PERMISSIVE.*_corrupt_rec"):
            parse_options({**given, **more}, "read", "stream")


def test_every_option_is_in_the_table_for_the_manual() -> None:
    listed = {name for where in ("read", "write") for name, _, _ in options_table(where)}
    assert listed == {spec.name for spec in SPECS}


# ------------------------------------------------------------------ offsets


OFFSET = Offset(
    "/",
    "r",
    {
        "p": Position("p", "r", 7, (ClaimInfo(6, 10, 100), ClaimInfo(7, 5, 50)), 4),
        "q": Position("q", "r+2", 1, (ClaimInfo(1, 0, 0),)),
    },
    leaving={"o": Position("o", "r", 2)},
)
FROZEN = (
    '{"kind": "claims", "leaving": {"o": {"claims": [], "number": 2, "reader": "r"}}, '
    '"queues": {"p": {"claims": [[6, 10, 100], [7, 5, 50]], "number": 7, "reader": "r", '
    '"starts": 4}, "q": {"claims": [[1, 0, 0]], "number": 1, "reader": "r+2"}}, '
    '"reader": "r", "registered": true, "version": 1, "vhost": "/"}'
)
"""An offset of form 1, as it is in checkpoints: it must be read for ever."""


def test_the_frozen_offset_of_form_1_is_read_and_written_as_it_was() -> None:
    assert Offset.from_dict(json.loads(FROZEN)) == OFFSET
    # Spark compares offsets as text, and writes the keys in their order.
    assert json.dumps(OFFSET.to_dict()) == FROZEN


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 2}, "another release of the connector: its offset is of form claims 2, this"),
        ({"version": None}, "not written by this source"),
        ({"kind": "other", "reader": None}, "another release"),
        ({"queues": "x"}, "cannot be read"),
        ({"queues": {"q": {"claims": [[3, 1, 1]], "number": 1, "reader": "r"}}}, "cannot be read"),
        ({"queues": {"q": {"claims": [], "number": "x", "reader": "r"}}}, "cannot be read"),
        ({"leaving": 7}, "cannot be read"),
        ({"reader": "r", "vhost": ...}, "cannot be read"),
    ],
)
def test_strange_offsets_are_refused(change: dict[str, object], says: str) -> None:
    stored = {**OFFSET.to_dict(), **change}
    with pytest.raises(CheckpointError, match=says):
        Offset.from_dict({name: value for name, value in stored.items() if value is not ...})


@pytest.mark.parametrize(
    ("older", "form"),
    [
        (
            '{"claims": [[1, 3, 42]], "number": 1, "queue": "a", "reader": "r1", '
            '"registered": true, "version": 1, "vhost": "/"}',
            "queue 1",
        ),
        (
            '{"kind": "queues", "queues": {}, "reader": "r1", "registered": true, "version": 3, '
            '"vhost": "/"}',
            "queues 3",
        ),
    ],
)
def test_an_offset_of_before_the_first_release_is_refused(older: str, form: str) -> None:
    with pytest.raises(CheckpointError, match=f"of form {form}, this release knows claims 1; cont"):
        Offset.from_dict(json.loads(older))


def test_errors_travel_between_processes() -> None:
    wrong = CheckpointError("why")
    assert str(pickle.loads(pickle.dumps(wrong))) == str(wrong) == "[WARREN_CHECKPOINT] why"


# ------------------------------------------------------------------ plans


def at(number: int, *sizes: int, reader: str = "r") -> Position:
    claims = tuple(
        ClaimInfo(number - len(sizes) + 1 + i, size, size * 10) for i, size in enumerate(sizes)
    )
    return Position("q", reader, number, claims)


@given(st.integers(1, 1_000_000), st.integers(0, 5_000_000_000), st.integers(0, 50))
def test_slices_cover_a_claim_once_and_in_order(messages: int, size: int, wanted: int) -> None:
    slices = cut((ClaimInfo(3, messages, size),), "q", "r", wanted)
    assert [i for part in slices for i in (part.first, part.last)] == sorted(
        [0, messages] + 2 * [part.last for part in slices[:-1]]
    )
    lengths = [part.last - part.first for part in slices]
    assert min(lengths) >= 1 and max(lengths) - min(lengths) <= 1
    most = max(1, -(-messages // SLICE_MESSAGES), -(-size // SLICE_BYTES))
    assert len(slices) == min(messages, wanted or min(SLICES_MAX, most))


@pytest.mark.parametrize(
    ("messages", "size", "slices"),
    [
        (200_000, 20_000_000, 8),
        (25_000, 100, 1),
        (25_001, 100, 2),
        (10, 256 << 20, 8),
        (1, 0, 1),
        (3, 1 << 40, 3),
        (100_000_000, 1 << 40, 128),
    ],
)
def test_one_task_per_batch_however_many_messages(messages: int, size: int, slices: int) -> None:
    assert len(cut((ClaimInfo(3, messages, size),), "q", "r", 0)) == slices


def test_a_batch_of_several_claims_is_cut_claim_by_claim() -> None:
    claims = claims_between(at(4, 1), at(6, 10, 3))
    assert cut(claims, "q", "r", 2) == (
        Slice("q", "r", 5, 0, 5),
        Slice("q", "r", 5, 5, 10),
        Slice("q", "r", 6, 0, 1),
        Slice("q", "r", 6, 1, 3),
    )


def test_nothing_between_equal_offsets() -> None:
    assert claims_between(at(4, 1), at(4, 1)) == ()


def test_the_first_batch_after_a_crash_has_a_start_of_another_reader() -> None:
    assert claims_between(None, at(1, 10)) == (ClaimInfo(1, 10, 100),)
    assert claims_between(at(0, reader="minted again"), at(1, 10)) == (ClaimInfo(1, 10, 100),)


def test_offsets_that_do_not_say_their_claims_are_refused() -> None:
    with pytest.raises(CheckpointError, match="asynchronous progress"):
        claims_between(at(4, 1), at(7, 1))


# ------------------------------------------------------------------ sink schema


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"value": "binary"}, "no column body"),
        ({"body": "int"}, "cast it to binary or string"),
        ({"body": "binary", "prioritee": "int"}, "did you mean priority?"),
        ({"body": "binary", "PRIORITY": "int"}, "did you mean priority?"),
        ({"body": "binary", "headers": "string"}, "map with string keys"),
        ({"body": "binary"}, "routingKey"),
    ],
)
def test_sink_columns(columns: dict[str, str], says: str) -> None:
    from pyspark_warren.errors import SchemaError

    with pytest.raises(SchemaError, match=says):
        check_sink_schema(columns, parse_options({}, "write"))


def test_what_a_source_gives_a_sink_takes() -> None:
    from pyspark_warren.rows.columns import COLUMNS

    check_sink_schema(
        {name: ddl.replace("map<string, ", "map<string,") for name, ddl in COLUMNS.items()},
        parse_options({}, "write"),
    )


# ------------------------------------------------------------ the query of a task


def test_the_name_of_a_query_is_read_from_the_description_of_its_job() -> None:
    """As Spark's StreamExecution writes it; a name may hold anything."""
    tail = f"id = {uuid.UUID(int=1)}\nrunId = {uuid.UUID(int=2)}\nbatch = 41"
    for name in ("orders", "a<br/>b", "id = x", "zwei\nZeilen", "ж" * 300):
        assert query_name(f"{name}\n{tail}") == name
    for other in (tail, f"\n{tail}", "", "my job", "save at NativeMethodAccessorImpl.java:0"):
        assert query_name(other) == ""
