"""Blocks of reference and how-to pages, run from their text in one cluster and Spark session."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

import pyspark_warren
from connector.channels import channel_of
from live.http_client import SETTINGS, api_address
from live.test_rabbitmqadmin import script
from pyspark_warren.options.options import parse_options
from tests import pages
from warren.admin import Admin
from warren.cli.app import app
from warren.connection import Connection
from warren.local import LocalCluster
from warren.uri import Address

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.slow]

FAR = "far"
"""The vhost that stands for another broker."""
VHOSTS = ("/", FAR, "billing", "invoices")
RESTARTED = "node-2"
COMMAND_S = 300.0
"""For one command of a page: one that never ends fails by then."""
CONFIGURATION = """
node = "warren-1"
secret = "a long random text"
data_dir = "data"

[listen]
amqp = "127.0.0.1:5672"
peers = "127.0.0.1:25672"

[peers]
warren-1 = "127.0.0.1:25672"
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = {**SETTINGS, "event_exchange": {"enabled": True}}
    with LocalCluster(3, tmp_path_factory.mktemp("cluster"), settings=settings) as made:
        with made.connect() as connection:
            Admin(connection).vhosts.put("keeper")
        yield made


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[Admin]:
    """Vhosts in which a page before has left nothing."""
    address = Address(hosts=cluster.node_address(0).hosts, vhost="keeper")
    with Connection(address) as connection:
        made = Admin(connection)
        for name in VHOSTS:
            made.vhosts.put(name)
        yield made
        for vhost in made.vhosts.list():
            if vhost.name != "keeper":
                made.vhosts.delete(vhost.name)
        for user in made.users.list():
            if user.name != "guest":
                made.users.delete(user.name)


class Reader:
    """Does what a page says, block by block.

    places  what stands in the test for the addresses and directories of the page
    """

    def __init__(
        self, name: str, cluster: LocalCluster, place: Path, request: pytest.FixtureRequest
    ) -> None:
        host = cluster.addresses[0]
        api = f"http://{api_address(cluster, 0)}"
        self._name, self._cluster, self._place, self._request = name, cluster, place, request
        self.places = {
            "python": sys.executable,
            "hosts": cluster.hosts,
            "host": host,
            "uri": f"amqp://guest:guest@{host}/%2F",
            "far": f"amqp://guest:guest@{host}/{FAR}",
            "api": api,
            "place": str(place),
            "format": f'format("warren").option("hosts", "{cluster.hosts}")',
        }

    def read(self, channel: Any) -> None:
        """Run all blocks."""
        names: dict[str, Any] = {
            "pika": pika,
            "channel": channel,
            "queue": "talk",
            "body": b"an order",
            "options_of": options_of,
        }
        for block in pages.blocks(self._name):
            text = pages.placed(self._name, block.text, **self.places)
            if block.kind == "sh":
                for command in commands(text):
                    self._command(command)
            elif block.kind == "python":
                if "spark." in text:
                    names.setdefault("spark", self._spark())
                exec(compile(text, self._name, "exec"), names)
            elif block.kind == "sql":
                self._sql(text)
        if "spark" in names:
            self._finish(names)

    def _command(self, command: str) -> None:
        words = shlex.split(command, comments=True)
        if words[0] == "systemctl":
            self._cluster.restart(RESTARTED)
        elif words[0] == "warren":
            said = pages.SHARED[self._name].said
            done = CliRunner().invoke(app, words[1:], input=said)
            assert done.exit_code == 0, (command, done.output, done.exception)
        else:
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            subprocess.run(
                ["sh", "-euc", command],
                check=True,
                env=os.environ | {"PATH": path},
                timeout=COMMAND_S,
            )

    def _spark(self) -> SparkSession:
        """A session of its own: views, settings and listeners of a page end with it."""
        session: SparkSession = self._request.getfixturevalue("spark").newSession()
        pyspark_warren.register(session)
        return session

    def _sql(self, text: str) -> None:
        spark = self._spark()
        for statement in filter(str.strip, text.split(";")):
            spark.sql(statement).collect()
        spark.sql("DROP TABLE q")

    def _finish(self, names: dict[str, Any]) -> None:
        """What the page begins to read is read."""
        for query in names["spark"].streams.active:
            query.processAllAvailable()
            query.stop()
        for name, value in names.items():
            if isinstance(value, DataFrame) and value.isStreaming:
                writer = value.writeStream.format("noop").trigger(availableNow=True)
                checkpoint = str(self._place / "read" / name)
                writer.option("checkpointLocation", checkpoint).start().awaitTermination()


def options_of(**given: str) -> None:
    """The connector takes these options of a source."""
    parse_options(given, "read", "stream")


def commands(text: str) -> Iterator[str]:
    """Return the commands of a block, without lines of comments."""
    command = ""
    for line in text.splitlines():
        command += line
        try:
            words = shlex.split(command, comments=True)
        except ValueError:  # the next line belongs to it
            command += "\n"
            continue
        if words:
            yield command
        command = ""
    assert not command, text


@pytest.mark.parametrize("name", pages.SHARED)
def test_the_blocks_of_a_page_run(
    name: str,
    cluster: LocalCluster,
    admin: Admin,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "warren.toml").write_text(CONFIGURATION, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    reader = Reader(name, cluster, tmp_path, request)
    monkeypatch.setenv("WARREN_URI", reader.places["uri"])
    if name == "reference/http-api.md":
        port = reader.places["api"].rpartition(":")[2]
        command = [sys.executable, script(), "-H", "127.0.0.1", "-P", port]
        reader.places["admin"] = shlex.join(command)
    with channel_of(cluster) as channel:
        for queue in pages.SHARED[name].queues:
            channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
            channel.basic_publish("", queue, b"a message")
        reader.read(channel)
