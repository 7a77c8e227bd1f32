"""Every list of the command line on a running cluster, as a table and for programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator

import pika
import pytest
from typer.testing import CliRunner

from tests.python.test_command_line import ROOT, commands
from warren.cli.app import app
from warren.local import LocalCluster

pytestmark = pytest.mark.live
LISTS = sorted(
    path for path, one in commands(ROOT) if path[-1] in ("list", "list-topic", "links", "status")
)
OF = {
    ("claims", "list"): ["orders"],
    ("sinks", "list"): ["orders"],
    ("relays", "list"): ["orders"],
    ("nodes", "status"): ["node-0"],
}
ELSEWHERE = {("backup", "list"), ("context", "list"), ("cluster", "status")}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=1) as made:
        connection = pika.BlockingConnection(
            pika.URLParameters(f"amqp://guest:guest@{made.addresses[0]}/%2F")
        )
        channel = connection.channel()
        channel.basic_qos(prefetch_count=7)
        channel.queue_declare("orders", durable=True)
        channel.basic_consume("orders", lambda *_: None)
        yield made
        connection.close()


def printed(cluster: LocalCluster, *words: str) -> str:
    uri = f"amqp://guest:guest@{cluster.addresses[0]}/%2F"
    found = CliRunner().invoke(app, [*words, "--uri", uri])
    assert found.exit_code == 0, (words, found.output, found.exception)
    return found.stdout


@pytest.mark.parametrize("path", [one for one in LISTS if one not in ELSEWHERE], ids=" ".join)
def test_a_list_in_every_shape(cluster: LocalCluster, path: tuple[str, ...]) -> None:
    words = [*path, *OF.get(path, [])]
    found = json.loads(printed(cluster, *words, "--json"))
    lines = [json.loads(one) for one in printed(cluster, *words, "--jsonl").splitlines()]
    rows = list(csv.DictReader(io.StringIO(printed(cluster, *words, "--csv"))))
    each = found if isinstance(found, list) else [found]
    assert [set(one) for one in each] == [set(one) for one in lines]
    assert len(rows) == len(each) and all(
        set(one) <= set(row) for one, row in zip(each, rows, strict=True)
    )
    assert printed(cluster, *words)


def test_what_a_client_has_is_shown(cluster: LocalCluster) -> None:
    (consumer,) = json.loads(printed(cluster, "consumers", "list", "--queue", "orders", "--json"))
    (channel,) = json.loads(printed(cluster, "channels", "list", "--json"))
    assert (consumer["prefetch_count"], channel["prefetch_count"]) == (7, 7)
    assert channel["connection"] == consumer["connection"] and channel["user"] == "guest"


def test_exchanges_and_bindings_are_made_and_removed(cluster: LocalCluster) -> None:
    printed(cluster, "exchanges", "declare", "sales", "--type", "topic", "--no-durable")
    printed(cluster, "exchanges", "declare", "north", "--arguments", '{"alternate-exchange": "x"}')
    found = {
        one["name"]: one for one in json.loads(printed(cluster, "exchanges", "list", "--json"))
    }
    assert (found["sales"]["type"], found["sales"]["durable"]) == ("topic", False)
    assert found["north"]["arguments"] == {"alternate-exchange": "x"}
    more = ["--arguments", '{"n": 1}']
    printed(cluster, "bindings", "add", "sales", "orders", "--key", "a.#", *more)
    printed(cluster, "bindings", "add", "sales", "north", "--to-exchange")
    listed = json.loads(printed(cluster, "bindings", "list", "--src", "sales", "--json"))
    assert [one["binding_key"] for one in listed] == ["", "a.#"]
    printed(cluster, "bindings", "remove", "sales", "orders", "--key", "a.#", *more)
    printed(cluster, "bindings", "remove", "sales", "north", "--to-exchange")
    assert json.loads(printed(cluster, "bindings", "list", "--src", "sales", "--json")) == []
    printed(cluster, "exchanges", "delete", "sales")
    names = [one["name"] for one in json.loads(printed(cluster, "exchanges", "list", "--json"))]
    assert "sales" not in names
