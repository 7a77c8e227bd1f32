"""The recipes for JSON, Avro and Protobuf, run from the page's text: message, columns, message."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql.functions import udf
from pyspark.sql.protobuf import functions
from pyspark.sql.protobuf.functions import from_protobuf, to_protobuf

from connector.channels import channel_of
from tests.pages import placed, python_blocks
from warren.admin import Admin
from warren.local import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.slow, pytest.mark.long]

PAGE = "how-to/decode.md"
QUEUES = ("flights", "flights.bad", "flights.seconds")
OTHER_VERSION = "4.2.0"
"""Of the packages, where PySpark's own version cannot be downloaded."""
DOWNLOAD_S_MAX = 300
RUN_S_MAX = 600
DONE = "these blocks have run"
WAITS = f"print({DONE!r}, flush=True); input()"
ALONE = """
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[2]").config("spark.jars", JARS)
    .config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "1").getOrCreate()
)
"""


@pytest.fixture(scope="module")
def cluster_size() -> int:
    return 1


@pytest.fixture(autouse=True)
def queues(cluster: LocalCluster) -> None:
    """The queues of the recipes, empty."""
    with cluster.connect() as connection:
        for name in QUEUES:
            Admin(connection).queues.declare(name, arguments={"x-queue-type": "quorum"})
            Admin(connection).queues.purge(name)


def publish(cluster: LocalCluster, bodies: Sequence[bytes]) -> None:
    with channel_of(cluster) as opened:
        for body in bodies:
            opened.basic_publish("", "flights", body)


def taken(cluster: LocalCluster, queue: str) -> list[bytes]:
    """The bodies of a queue, which is empty then."""
    found = []
    with channel_of(cluster) as opened:
        while (got := opened.basic_get(queue, auto_ack=True))[0] is not None:
            found.append(got[2])
    return sorted(found)


def package(name: str) -> Path:
    """The jar of one of Spark's packages for this PySpark; skips where there is none."""
    if shutil.which("mvn") is None:
        assert "WARREN_STRICT" not in os.environ, "no Maven: apt-get install maven"
        pytest.skip("Maven is missing")
    for version in (pyspark.__version__, OTHER_VERSION):
        place = Path.home() / ".m2" / "repository" / "org" / "apache" / "spark" / name / version
        jar = place / f"{name}-{version}.jar"
        artifact = f"-Dartifact=org.apache.spark:{name}:{version}"
        command = ["mvn", "-q", "-B", "dependency:get", artifact, "-Dtransitive=false"]
        if not jar.exists():
            short = os.environ | {"MAVEN_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
            subprocess.run(command, capture_output=True, timeout=DOWNLOAD_S_MAX, env=short)
        if jar.exists():
            return jar
    pytest.skip(f"{name} {pyspark.__version__} cannot be downloaded, nor {OTHER_VERSION}")


def run_alone(
    parts: Sequence[Sequence[str]], jar: Path, cluster: LocalCluster, place: Path
) -> Iterator[None]:
    """Run parts, each of some blocks, in a session that has a package; yield after each of them."""
    lines = [f"JARS = {str(jar)!r}", ALONE]
    for texts in parts:
        lines += [
            *(placed(PAGE, each, hosts=cluster.hosts, place=str(place)) for each in texts),
            WAITS,
        ]
    (place / "recipe.py").write_text("\n".join(lines))
    with (place / "errors").open("wb") as errors:
        run = subprocess.Popen(
            [sys.executable, "recipe.py"],
            cwd=place,
            env=os.environ | {"PYSPARK_PYTHON": sys.executable},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    too_late = threading.Timer(RUN_S_MAX, run.kill)
    too_late.start()
    assert run.stdin is not None and run.stdout is not None
    try:
        for _ in parts:
            said = iter(run.stdout.readline, "")
            assert DONE in map(str.strip, said), (place / "errors").read_text()[-4000:]
            yield
            run.stdin.write("\n")
            run.stdin.flush()
        assert run.wait() == 0, (place / "errors").read_text()[-4000:]
    finally:
        too_late.cancel()
        run.kill()
        run.communicate()


def test_json_to_columns_and_back(spark: Any, cluster: LocalCluster, tmp_path: Path) -> None:
    wrong = [b"{", b"\xff", b"", b'{"flight": "BA7", "delay": "late"}']
    publish(cluster, [b'{"flight": "LH1", "delay": 3}', *wrong, b'{"flight": "AF2", "delay": -1}'])
    names = {"spark": spark}
    for block in python_blocks(PAGE, "")[:2]:
        exec(placed(PAGE, block, hosts=cluster.hosts, place=str(tmp_path)), names)
    made = [json.loads(each) for each in taken(cluster, "flights.seconds")]
    assert made == [{"flight": "AF2", "seconds": -60}, {"flight": "LH1", "seconds": 180}]
    assert taken(cluster, "flights.bad") == sorted(wrong)
    assert taken(cluster, "flights") == []


def avro(flight: str, delay: int) -> bytes:
    """A record of the recipe's schema."""
    zigzag = delay * 2 if delay >= 0 else -delay * 2 - 1
    assert zigzag < 1 << 14
    number = bytes([zigzag]) if zigzag < 128 else bytes([zigzag & 127 | 128, zigzag >> 7])
    return bytes([len(flight) * 2]) + flight.encode() + number


def test_avro_to_columns_and_back_also_behind_a_registrys_prefix(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    jar = package("spark-avro_2.13")
    first, _, plain, framed, _ = python_blocks(PAGE, "")
    cut = avro("LH1", 3)[:-1]
    publish(cluster, [avro("LH1", 3), cut, avro("AF2", -1)])
    definitions = plain[: plain.index("made =")]
    run = run_alone([[first, plain], [first, definitions, framed]], jar, cluster, tmp_path)
    next(run)
    assert taken(cluster, "flights.seconds") == sorted([avro("LH1", 180), avro("AF2", -60)])
    assert taken(cluster, "flights.bad") == [cut]
    known, other = b"\x00" + struct.pack(">I", 42), b"\x00" + struct.pack(">I", 43)
    wrong = [known + cut, other + avro("LH1", 3), avro("LH1", 3)]
    publish(cluster, [known + avro("LH1", 3), *wrong])
    next(run)
    assert taken(cluster, "flights.seconds") == [known + avro("LH1", 3)]
    assert taken(cluster, "flights.bad") == sorted(wrong)
    assert not list(run), "it ends"


def descriptor() -> bytes:
    """What protoc makes of `message Flight { string flight = 1; int32 delay = 2; }`, proto3."""

    def part(number: int, data: bytes | int) -> bytes:
        if isinstance(data, int):
            return bytes([number << 3, data])
        return bytes([number << 3 | 2, len(data)]) + data

    optional, text, int32 = 1, 9, 5
    fields = [
        part(1, name) + part(3, number) + part(4, optional) + part(5, kind) + part(10, name)
        for name, number, kind in ((b"flight", 1, text), (b"delay", 2, int32))
    ]
    message = part(1, b"Flight") + b"".join(part(2, each) for each in fields)
    return part(1, part(1, b"flight.proto") + part(4, message) + part(12, b"proto3"))


PROTOBUF = b"\x0a\x03LH1\x10\x03"
"""A Flight LH1 with a delay of 3."""
PROTOBUF_MADE = b"\x0a\x03LH1\x10\xb4\x01"
"""The same with 180."""
PROTOBUF_WRONG = b"\x0a\x7fLH1"


def test_protobuf_to_columns_and_back(cluster: LocalCluster, tmp_path: Path) -> None:
    jar = package("spark-protobuf_2.13")
    first, *_, recipe = python_blocks(PAGE, "")
    (tmp_path / "flight.desc").write_bytes(descriptor())
    publish(cluster, [PROTOBUF, PROTOBUF_WRONG])
    assert len(list(run_alone([[first, recipe]], jar, cluster, tmp_path))) == 1
    assert taken(cluster, "flights.seconds") == [PROTOBUF_MADE]
    assert taken(cluster, "flights.bad") == [PROTOBUF_WRONG]


def test_protobuf_but_for_what_sparks_package_does(
    spark: Any, cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The block with stand-ins for the package's two functions: they take what PySpark's take."""

    def decoded(body: bytes) -> tuple[str | None, int | None]:
        return ("LH1", body[6]) if body == PROTOBUF else (None, None)

    def encoded(row: Any) -> bytes:
        return PROTOBUF_MADE if tuple(row) == ("LH1", 180) else b"?"

    def from_stand_in(*given: Any, **named: Any) -> Any:
        said = inspect.signature(from_protobuf).bind(*given, **named).arguments
        assert (said["messageName"], said["binaryDescriptorSet"]) == ("Flight", descriptor())
        assert said["options"] == {"mode": "PERMISSIVE", "emit.default.values": "true"}
        return udf(decoded, "flight string, delay int")(said["data"])

    def to_stand_in(*given: Any, **named: Any) -> Any:
        said = inspect.signature(to_protobuf).bind(*given, **named).arguments
        assert (said["messageName"], said["binaryDescriptorSet"]) == ("Flight", descriptor())
        return udf(encoded, "binary")(said["data"])

    monkeypatch.setattr(functions, "from_protobuf", from_stand_in)
    monkeypatch.setattr(functions, "to_protobuf", to_stand_in)
    monkeypatch.chdir(tmp_path)
    Path("flight.desc").write_bytes(descriptor())
    publish(cluster, [PROTOBUF, PROTOBUF_WRONG])
    first, *_, recipe = python_blocks(PAGE, "")
    names = {"spark": spark}
    for block in (first, recipe):
        exec(placed(PAGE, block, hosts=cluster.hosts, place=str(tmp_path)), names)
    assert taken(cluster, "flights.seconds") == [PROTOBUF_MADE]
    assert taken(cluster, "flights.bad") == [PROTOBUF_WRONG]
