"""Server-sent events of the HTTP API: a list comes again when it is another one."""

from __future__ import annotations

import http.client
import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from live.conftest import eventually
from live.http_client import HttpClient, add_user, api_address, http_client
from tests.patience import PATIENCE_S
from warren.local import LocalCluster
from warren_broker.http.streams import STREAMS_PER_USER_MAX

pytestmark = pytest.mark.live
SETTINGS = {"management": {"enabled": True, "tcp": {"port": 0}, "collect_statistics_interval": 500}}
NAMES = "/queues/%2F?columns=name,messages&every=1"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=1, settings=SETTINGS) as made:
        yield made


@pytest.fixture
def api(cluster: LocalCluster) -> HttpClient:
    return http_client(cluster)


class Stream:
    """A client that reads events; used as a context manager."""

    def __init__(self, cluster: LocalCluster, path: str, login: str = "guest:guest") -> None:
        host, _, port = api_address(cluster, 0).rpartition(":")
        self._connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S)
        encoded = b64encode(login.encode()).decode()
        headers = {"accept": "text/event-stream", "authorization": f"Basic {encoded}"}
        self._connection.request("GET", f"/api{path}", headers=headers)
        self.answer = self._connection.getresponse()
        self.quiet = 0

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *failure: object) -> None:
        self.answer.close()
        self._connection.close()

    def event(self) -> tuple[str, Any]:
        """Name and value of the next event; what says that nothing has changed is counted."""
        name = ""
        while True:
            line = self.answer.readline().decode().rstrip("\n")
            if line.startswith(":"):
                self.quiet += 1
            elif line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                return name, json.loads(line.removeprefix("data: "))
            else:
                assert line == "", line


def test_a_list_comes_again_when_it_has_changed(cluster: LocalCluster, api: HttpClient) -> None:
    with Stream(cluster, NAMES) as stream:
        assert stream.answer.status == 200
        assert stream.answer.headers["content-type"] == "text/event-stream"
        before = api.get(NAMES)
        assert stream.event() == ("message", before)
        assert api("PUT", "/queues/%2F/streamed", {"durable": True}).status == 201
        name, after = stream.event()
        assert name == "message"
        assert [one for one in after if one not in before] == [{"name": "streamed", "messages": 0}]
    with Stream(cluster, "/queues?page=1&page_size=5&every=1&columns=items.name") as stream:
        assert stream.event()[1].keys() >= {"items", "page"}
        assert api("DELETE", "/queues/%2F/streamed").status == 204
        stream.event()


def test_a_stream_ends_with_the_rights_of_its_user(cluster: LocalCluster, api: HttpClient) -> None:
    add_user(api, "watches", "monitoring")
    with Stream(cluster, NAMES, "watches:pw") as stream:
        stream.event()
        assert api("DELETE", "/users/watches").status == 204
        name, refused = stream.event()
        assert (name, refused["error"]) == ("refused", "not_authorised")
        assert stream.answer.read().strip() == b"", "the answer is complete"


def test_streams_are_bounded_in_number_and_kind(cluster: LocalCluster, api: HttpClient) -> None:
    add_user(api, "many", "monitoring")
    opened = [Stream(cluster, NAMES, "many:pw") for _ in range(STREAMS_PER_USER_MAX)]
    try:
        for one in opened:
            one.event()
        with Stream(cluster, NAMES, "many:pw") as refused:
            assert refused.answer.status == 503
    finally:
        for one in opened:
            one.__exit__()

    def has_room() -> bool:
        with Stream(cluster, NAMES, "many:pw") as again:
            return again.answer.status == 200

    eventually(has_room, "those that were closed are counted no more")
    for path, status in (
        *(("/definitions", 406), ("/queues/%2F/q/messages", 406), (f"{NAMES}0000", 400)),
        *(("/queues/none", 404), ("/queues?page=0", 400), ("/queues?every=x", 400)),
    ):
        with Stream(cluster, path) as refused:
            assert refused.answer.status == status, path
