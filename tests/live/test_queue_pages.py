"""Pages of the list of queues are those that the whole list, sorted by the client, would give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pika
import pytest

from live.conftest import eventually
from live.http_client import HttpClient, add_user, http_client, quoted
from warren.local import LocalCluster
from warren_wire.admin.queue_pages import SORTS

pytestmark = pytest.mark.live
ROOT = quoted("/")
SAMPLED: dict[str, Any] = {
    "management": {"enabled": True, "tcp": {"port": 0}, "collect_statistics_interval": 100}
}
NAMES = [f"{kind}.{number:02}" for kind in ("quorum", "classic") for number in range(12)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3, settings=SAMPLED) as made:
        http = http_client(made)
        for name in ("other", "hidden"):
            assert http("PUT", f"/vhosts/{name}", {}).status == 201
        policy = {"pattern": "7$", "definition": {"max-length": 100}}
        assert http("PUT", f"/policies/{ROOT}/sevens", policy).status == 201
        for vhost in ("/", "other", "hidden"):
            for at, name in enumerate(NAMES):
                given = {"arguments": {"x-queue-type": name.partition(".")[0]}}
                one = http_client(made, at % 3)
                assert one("PUT", f"/queues/{quoted(vhost)}/{name}", given).status == 201
        login = pika.PlainCredentials("guest", "guest")
        at = pika.ConnectionParameters("127.0.0.1", made.nodes[1].amqp_port, "/", login)
        with pika.BlockingConnection(at) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for number, name in enumerate(NAMES):
                for _ in range(number * 5 % 7):
                    channel.basic_publish("", name, b"body")
            channel.basic_consume(NAMES[3], lambda *_: None)
            connection.process_data_events(0.2)
            yield made


@pytest.fixture
def http(cluster: LocalCluster) -> HttpClient:
    return http_client(cluster)


def names(items: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["vhost"], one["name"]) for one in items]


def pages(http: HttpClient, path: str, **asked: Any) -> list[dict[str, Any]]:
    """The items of all pages of seven."""
    found: list[dict[str, Any]] = []
    for number in range(1, 1_000):
        query = urlencode({"page": number, "page_size": 7, **asked})
        page = http.get(f"{path}?{query}")
        assert page["item_count"] == len(page["items"]) <= 7
        found += page["items"]
        if number >= page["page_count"]:
            assert len(found) == page["filtered_count"]
            return found
    raise AssertionError("no last page")


@pytest.mark.parametrize("sort", sorted(SORTS))
def test_every_order_is_that_of_the_whole_list(http: HttpClient, sort: str) -> None:
    """By rates only that pages hold each queue once: they change from one page to the next."""
    whole = http.get(f"/queues?sort={sort}")
    if "rate" in sort:
        assert sorted(names(pages(http, "/queues", sort=sort))) == sorted(names(whole))
        return
    assert names(pages(http, "/queues", sort=sort)) == names(whole)
    reverse = pages(http, "/queues", sort=sort, sort_reverse="true")
    assert names(reverse) == names(whole)[::-1]


def test_a_page_shows_what_the_whole_list_shows(http: HttpClient) -> None:
    """All keys, counts of leaders on other nodes and what clients did among them."""
    whole = {(one["vhost"], one["name"]): one for one in http.get("/queues")}
    for one in pages(http, "/queues"):
        known = whole[one["vhost"], one["name"]]
        assert one.keys() == known.keys()
        ages = ("_details", "message_stats", "consumer_capacity", "consumer_utilisation")
        stable = [key for key in one if not key.endswith(ages)]
        assert {key: one[key] for key in stable} == {key: known[key] for key in stable}
    assert sum(one["messages"] for one in whole.values()) > 0


def test_rates_order_pages_where_something_happens(http: HttpClient) -> None:
    def published() -> list[str]:
        body = {"properties": {}, "payload": "x", "payload_encoding": "string"}
        for _ in range(3):
            said = {**body, "routing_key": "classic.05"}
            http("POST", f"/exchanges/{ROOT}/amq.default/publish", said)
        query = "page=1&page_size=1&sort=message_stats.publish_details.rate&sort_reverse=true"
        (first,) = http.get(f"/queues?{query}")["items"]
        rate = first.get("message_stats", {}).get("publish_details", {}).get("rate", 0)
        return [first["name"]] if rate else []

    assert eventually(published, "a rate", 20) == ["classic.05"]


def test_filters_and_vhosts(http: HttpClient) -> None:
    assert len(pages(http, f"/queues/{ROOT}")) == len(NAMES)
    found = pages(http, "/queues/other", name="QUORUM.1")
    assert names(found) == [("other", "quorum.10"), ("other", "quorum.11")]
    found = pages(http, "/queues", name="^Q.*[13]$", use_regex="true", sort="name")
    assert {one["name"] for one in found} == {"quorum.01", "quorum.03", "quorum.11"}
    refused = http("GET", "/queues?page=1&name=(&use_regex=true")
    assert refused.status == 400 and "name=" in refused.body["reason"]
    beyond = http("GET", "/queues?page=99")
    assert beyond.status == 400 and beyond.body["error"] == "page_out_of_range"
    assert http("GET", "/queues/nowhere?page=1").status == 404
    assert http.get("/queues?page=1&name=nothing")["items"] == []


def test_pages_hold_what_the_user_may_enter(http: HttpClient) -> None:
    user = add_user(http, "paging", "monitoring", "other")
    assert {one["vhost"] for one in pages(user, "/queues")} == {"other"}
    assert user("GET", "/queues/hidden?page=1").status == 404
