"""The password: from a file, from a variable, and in nothing that Spark or the connector shows."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spark_world.fake import FakeServer

from pyspark_warren.amqp.connection import parameters
from pyspark_warren.errors import OptionError
from pyspark_warren.login.endpoint import SECRET_FILE_BYTES_MAX
from pyspark_warren.login.tokens import address_with_password
from pyspark_warren.options.options import Options, parse_options

SECRET = "geheim-7d1f"
VARIABLE = "WARREN_TEST_SECRET"


def read(**given: str) -> Options:
    return parse_options({"queue": "q", **given}, "read")


# ------------------------------------------------------------------ file and variable


@pytest.mark.parametrize("text", ["{}", "{}\n", "{}\r\n", "\ufeff{}\n"])
def test_the_file_is_read_where_the_connection_is_made(tmp_path: Path, text: str) -> None:
    file = tmp_path / "secret"
    options = read(user="u", passwordFile=str(file))  # need not exist where options are parsed
    file.write_bytes(text.format(SECRET).encode())
    assert address_with_password(options).password == SECRET
    assert parameters(options)[0].credentials.password == SECRET
    file.write_text("changed")
    assert address_with_password(options).password == "changed"
    assert b"changed" not in pickle.dumps(options) and "changed" not in repr(options)


def test_spaces_belong_to_the_password(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("  a b \n")
    assert address_with_password(read(passwordFile=str(tmp_path / "secret"))).password == "  a b "


def test_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    options = read(passwordEnv=VARIABLE)
    monkeypatch.setenv(VARIABLE, SECRET)
    assert address_with_password(options).password == SECRET
    assert SECRET.encode() not in pickle.dumps(options)


def test_a_uri_without_a_password_takes_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text(SECRET)
    monkeypatch.setenv(VARIABLE, SECRET)
    for more in (
        {"password": SECRET},
        {"passwordFile": str(tmp_path / "secret")},
        {"passwordEnv": VARIABLE},
    ):
        address = address_with_password(read(uri="amqp://u@a/v", **more))
        assert (address.user, address.password, address.vhost) == ("u", SECRET, "v")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"password": SECRET, "passwordFile": "/f"}, "password and passwordFile both"),
        ({"passwordFile": "/f", "passwordEnv": "V"}, "passwordFile and passwordEnv both"),
        ({"uri": f"amqp://u:{SECRET}@a", "passwordFile": "/f"}, "uri has a password"),
        ({"uri": "amqp://u:@a", "passwordEnv": "V"}, "uri has a password"),
        ({"uri": f"amqp://u:{SECRET}@a", "password": SECRET}, "uri has a password"),
        ({"passwordEnv": f"{SECRET}!"}, "passwordEnv: give a variable's name"),
        (
            {"tls": "true", "saslMechanism": "EXTERNAL", "certFile": "/c", "passwordEnv": "V"},
            "passwordEnv means nothing with saslMechanism=EXTERNAL",
        ),
        (
            {"tls": "true", "saslMechanism": "EXTERNAL", "certFile": "/c", "password": SECRET},
            "password means nothing with saslMechanism=EXTERNAL",
        ),
        (
            {"tls": "true", "saslMechanism": "EXTERNAL", "certFile": "/c", "user": "u"},
            "user means nothing with saslMechanism=EXTERNAL",
        ),
        (
            {"uri": f"amqps://u:{SECRET}@a?saslMechanism=EXTERNAL&certFile=/c"},
            "uri has a password, which means nothing with saslMechanism=EXTERNAL",
        ),
        (
            {"uri": "amqps://a?saslMechanism=EXTERNAL&certFile=/c", "passwordFile": "/f"},
            "passwordFile means nothing with saslMechanism=EXTERNAL",
        ),
    ],
)
def test_contradictions_are_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says) as told:
        read(**given)
    assert SECRET not in str(told.value)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (None, "cannot be read: No such file"),
        (b"", "is empty"),
        (b"\n", "is empty"),
        (SECRET.encode() + b"\0\n", "has a zero byte"),
        (SECRET.encode() + b"\nmore\n", "has several lines"),
        (SECRET.encode() + b"\xff", "is not UTF-8"),
        (b"x" * (SECRET_FILE_BYTES_MAX + 1), "has more than 65536 bytes"),
    ],
)
def test_a_wrong_file_is_named_and_not_shown(tmp_path: Path, data: bytes | None, says: str) -> None:
    file = tmp_path / "f"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(OptionError, match=says) as told:
        address_with_password(read(passwordFile=str(file)))
    assert str(file) in str(told.value) and SECRET not in str(told.value)
    with pytest.raises(OptionError, match="cannot be read"):
        address_with_password(read(passwordFile=str(tmp_path)))
    with pytest.raises(OptionError, match="not a path"):
        address_with_password(read(passwordFile="a\0b"))


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    options = read(passwordEnv=VARIABLE)
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(OptionError, match=f"is not set .*spark.executorEnv.{VARIABLE}"):
        address_with_password(options)
    monkeypatch.setenv(VARIABLE, "")
    with pytest.raises(OptionError, match="is empty"):
        address_with_password(options)


# ------------------------------------------------------------------ what Spark shows


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as made:
        made.broker.declare("in")
        made.broker.declare("out")
        yield made


URIS_TOO = "(?i)ur[il]"
"""For Spark's setting of options whose values it hides, as docs/how-to/secrets.md says."""
WAYS = {
    "password": ({"user": "u", "password": SECRET}, None),
    "uri": ({"uri": f"amqp://u:{SECRET}@AT/%2F"}, URIS_TOO),
}
"""The options, and the setting that they need."""


@pytest.fixture(params=WAYS)
def given(request: Any, spark: Any, server: FakeServer) -> Iterator[dict[str, str]]:
    """Options with a password, in a session with the setting that they need."""
    options, setting = WAYS[request.param]
    at = f"127.0.0.1:{server.port}"
    if setting is not None:
        spark.conf.set("spark.sql.redaction.options.regex", setting)
    made = {name: value.replace("AT", at) for name, value in options.items()}
    yield made if "uri" in made else {**made, "hosts": at}
    spark.conf.unset("spark.sql.redaction.options.regex")


def everything_shown(spark: Any) -> str:
    """The descriptions of all executions: what the UI shows, and event logs and history keep."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    found = spark._jsparkSession.sharedState().statusStore().executionsList()
    each = [found.apply(number) for number in range(found.size())]
    assert each, "there were executions"
    return "\n".join(
        f"{one.physicalPlanDescription()} {one.description()} {one.details()}"
        f" {one.modifiedConfigs()}"
        for one in each
    )


@pytest.mark.spark
@pytest.mark.slow
def test_nothing_that_spark_shows_has_it(
    spark: Any, server: FakeServer, tmp_path: Path, given: dict[str, str], capsys: Any
) -> None:
    server.broker.publish("in", [b"a", b"b"])
    rows = spark.readStream.format("warren_dying").options(queue="in", **given).load()
    rows.explain(True)
    query = (
        rows.select("body")
        .writeStream.format("warren_dying")
        .options(routingKey="out", **given)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert server.broker.bodies("out") == [b"a", b"b"]
    query.explain(True)
    shown = [json.dumps(query.status), *(str(one.json) for one in query.recentProgress)]
    failing = (
        rows.select("body")
        .writeStream.format("warren_dying")
        .options(exchange="nowhere", routingKey="out", **given)
        .option("checkpointLocation", str(tmp_path / "checkpoint-2"))
        .trigger(availableNow=True)
        .start()
    )
    server.broker.publish("in", [b"c"])
    with pytest.raises(Exception) as told:
        failing.awaitTermination(120)
    shown += [str(told.value), str(failing.exception())]
    table = spark.read.format("warren_dying").options(queue="out", **given).load()
    table.explain("formatted")
    table.write.format("warren_dying").mode("append").options(routingKey="in", **given).save()
    shown += [everything_shown(spark), capsys.readouterr().out]
    for path in tmp_path.rglob("*"):
        if path.is_file():
            shown.append(path.read_bytes().decode(errors="replace"))
    leaks = [text for text in shown if SECRET in text]
    assert not leaks, leaks[0][:3000]
