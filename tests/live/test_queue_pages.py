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
from warren_wire.admin.queue_pages import BINDING_SORTS, SORTS

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


def ends(items: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    keys = ("vhost", "source", "destination", "destination_type", "routing_key", "properties_key")
    return [tuple(one[key] for key in keys) for one in items]


@pytest.fixture(scope="module")
def bound(cluster: LocalCluster) -> Iterator[HttpClient]:
    """Bindings of queues and exchanges in two vhosts, and an exchange with a queue of its own."""
    http = http_client(cluster)
    for vhost in (ROOT, "other"):
        for exchange, kind in (("x", "topic"), ("a", "headers"), ("kept", "x-recent-history")):
            said = {"type": kind, "durable": True}
            assert http("PUT", f"/exchanges/{vhost}/{exchange}", said).status == 201
        for number, name in enumerate(NAMES):
            said = {"routing_key": f"key.{number % 3}", "arguments": {"n": number}}
            assert http("POST", f"/bindings/{vhost}/e/x/q/{name}", said).status == 201
        assert http("POST", f"/bindings/{vhost}/e/a/e/x", {"routing_key": "of"}).status == 201
    yield http
    for vhost in (ROOT, "other"):
        assert http("DELETE", f"/exchanges/{vhost}/kept").status == 204


@pytest.mark.parametrize("sort", ["", *sorted(BINDING_SORTS)])
def test_pages_of_bindings_are_those_of_the_list(bound: HttpClient, sort: str) -> None:
    whole = bound.get(f"/bindings?sort={sort}" if sort else "/bindings")
    asked = {"sort": sort, "pagination": "true"} if sort else {"pagination": "true"}
    assert len(whole) > 5 * len(NAMES)
    assert ends(pages(bound, "/bindings", **asked)) == ends(whole)
    reverse = pages(bound, "/bindings", **asked, sort_reverse="true")
    assert ends(reverse) == ends(whole)[::-1]
    assert len(pages(bound, "/bindings/other", **asked)) < len(whole)


def test_bindings_are_found_by_each_of_their_texts(bound: HttpClient) -> None:
    paged = {"pagination": "true"}
    every = ends(bound.get("/bindings"))
    for text in ("KEY.1", "quorum.0", "a", "nowhere"):
        wanted = [one for one in every if text.lower() in "\0".join((*one[1:3], one[4])).lower()]
        assert ends(pages(bound, "/bindings", **paged, name=text)) == wanted
    found = pages(bound, "/bindings", **paged, name="^KEY.[02]$", use_regex="true")
    assert {one["routing_key"] for one in found} == {"key.0", "key.2"}
    assert bound("GET", "/bindings?page=1&pagination=true&name=(&use_regex=true").status == 400
    assert bound("GET", "/bindings?page=99&pagination=true").status == 400
    stranger = add_user(bound, "reader", "management", vhost="other")
    seen = pages(stranger, "/bindings", **paged)
    assert {one["vhost"] for one in seen} == {"other"}
