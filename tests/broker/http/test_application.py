"""The application of the HTTP API over a node that is played: credentials, bodies, refusals."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from warren_broker.http import application, calls, messages
from warren_broker.http.application import HttpApplication
from warren_broker.http.frames import HIDDEN_CONDITION, ApiJob, ApiListener, NodeAsk, NodeReply
from warren_broker.http.replies import unavailable
from warren_broker.settings.http_settings import ManagementSettings

BODY_BYTES_MAX = 1_000
BASIC = b"Basic " + base64.b64encode(b"user:secret")


class PlayedNode:
    """Answers by route; what it has no answer for is 404. asked: all requests."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {"GET /whoami": (200, {"name": "user", "tags": ["management"]}), **answers}
        self.asked: list[NodeAsk] = []

    async def ask(self, asked: NodeAsk) -> NodeReply:
        """See NodeLink."""
        self.asked.append(asked)
        answer = self.answers.get(asked.route, (404, "none", "amqp:not-found"))
        if isinstance(answer, Exception):
            raise answer
        return NodeReply(0, *answer)


def job(**settings: Any) -> ApiJob:
    """A node's job with small bodies."""
    given = {"http": {"max_body_size": BODY_BYTES_MAX}, **settings}
    told = ManagementSettings.model_validate(given).told()
    listeners = (ApiListener("amqp", "127.0.0.1", 5672),)
    return ApiJob("n", "1", "quorum", listeners, (), told, ("amqp", "h", 1), 1_000, 100)


def request(
    node: PlayedNode,
    method: str,
    path: str,
    *pieces: bytes,
    headers: dict[bytes, bytes] | None = None,
    settings: dict[str, Any] | None = None,
) -> tuple[int, Any, dict[bytes, bytes]]:
    """Status, JSON and headers of an answer; a body of no piece is one that never ends."""
    sent: list[Any] = []
    left = list(pieces)

    async def receive() -> Any:
        if not left:
            await asyncio.Event().wait()
        piece = left.pop(0)
        if piece == b"gone":
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": piece, "more_body": bool(left)}

    async def send(message: Any) -> None:
        sent.append(message)

    raw, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "raw_path": raw.encode(),
        "query_string": query.encode(),
        "client": ("10.0.0.9", 4711),
        "headers": list({b"authorization": BASIC, **(headers or {})}.items()),
    }
    made = job(**(settings or {}))
    app = HttpApplication(node, made)  # type: ignore[arg-type]
    asyncio.run(asyncio.wait_for(app(scope, receive, send), PATIENCE_S))
    if not sent:
        return 0, None, {}
    body = sent[1]["body"]
    return sent[0]["status"], json.loads(body) if body else None, dict(sent[0]["headers"])


def test_the_node_is_asked_with_the_credentials_and_the_clients_address() -> None:
    node = PlayedNode()
    assert request(node, "GET", "/api/whoami")[0] == 200
    assert {(one.user, one.password, one.peer) for one in node.asked} == {
        ("user", "secret", "10.0.0.9:4711")
    }
    assert "secret" not in repr(node.asked)


@pytest.mark.parametrize(
    "given", [b"", b"Basic", b"Basic !", b"Basic dXNlcg==", b"Digest x", b"Basic " + b"a" * 9_000]
)
def test_without_credentials_the_node_is_not_asked(given: bytes) -> None:
    node = PlayedNode()
    status, body, headers = request(
        node, "PUT", "/api/queues/v/q", headers={b"authorization": given}
    )
    assert (status, body["error"]) == (401, "not_authorized")
    assert headers[b"www-authenticate"] == b'Basic realm="RabbitMQ Management"'
    assert node.asked == []


def test_wrong_credentials_wait_and_no_body_is_read(monkeypatch: Any) -> None:
    monkeypatch.setattr(application, "LOGIN_DELAY_S", 0.01)
    node = PlayedNode(**{"GET /whoami": (401, "no", "amqp:unauthorized-access")})
    assert request(node, "PUT", "/api/queues/v/q")[0] == 401, "its body never ends"
    node = PlayedNode(**{"GET /whoami": (403, "no tag", "amqp:unauthorized-access")})
    status, body, _ = request(node, "GET", "/api/queues")
    assert (status, body["reason"]) == (401, "Not management user")


def test_bodies_are_bounded_in_size_and_time(monkeypatch: Any) -> None:
    monkeypatch.setattr(application, "BODY_S", 0.05)
    length = {b"content-length": str(BODY_BYTES_MAX + 1).encode()}
    for pieces, headers in (
        ((b"{}",), length),
        ((b"a" * BODY_BYTES_MAX, b"b"), {}),
    ):
        status, body, answered = request(
            PlayedNode(), "PUT", "/api/queues/v/q", *pieces, headers=headers
        )
        assert status == 400 and "max_body_size" in body["reason"]
        assert answered[b"connection"] == b"close"
    assert request(PlayedNode(), "PUT", "/api/queues/v/q")[0] == 408
    assert request(PlayedNode(), "PUT", "/api/queues/v/q", b"{", b"gone")[0] == 0, "it has left"


def test_a_large_body_is_for_those_alone_who_may_send_one() -> None:
    """12 MB of a million keys stalled the node for 2.7 s, and 18 MB of `[]` this process for 14."""
    large = {"http": {"max_body_size": 10_000_000}}
    length = {b"content-length": b"%d" % (BODY_BYTES_MAX * 1_000)}
    for path in ("/api/queues/v/q", "/api/exchanges/v/x", "/api/bindings/v/e/x/q/q"):
        method = "POST" if "bindings" in path else "PUT"
        status, body, answered = request(PlayedNode(), method, path, headers=length, settings=large)
        assert status == 400 and "131,072 bytes (of this path)" in body["reason"]
        assert answered[b"connection"] == b"close"
    for method, path in (
        *(("POST", f"/api/{path}") for path in ("definitions", "definitions/v")),
        *(("POST", "/api/all-configuration"), ("PUT", "/api/permissions/v/u")),
        *(("PUT", f"/api/{path}") for path in ("users/u", "policies/v/p", "vhosts/v")),
    ):
        node = PlayedNode()
        status, body, _ = request(node, method, path, settings=large)
        assert (status, body["error"]) == (401, "not_authorised"), "its body never ends"
        assert [one.route for one in node.asked] == ["GET /whoami"]


def test_of_a_large_body_only_what_is_asked_for_is_decoded(monkeypatch: Any) -> None:
    seen: list[bytes] = []
    decoded = calls.decoded
    monkeypatch.setattr(messages, "decoded", lambda data: seen.append(data) or decoded(data))
    large = {"http": {"max_body_size": 10_000_000}}
    many = b",".join(b'"k%d":[]' % at for at in range(20_000))
    fields = b'"routing_key":5,"properties":{},"payload_encoding":"string","payload":"p"'
    path = "/api/exchanges/v/x/publish"
    body = b"{%s,%s}" % (many, fields)
    flags = dict.fromkeys(("durable", "auto_delete", "internal"), False)
    exchange = {"name": "x", "type": "topic", "arguments": {}, "policy": "", **flags}
    node = PlayedNode(**{"GET /exchanges": (200, [exchange])})
    status, told, _ = request(node, "POST", path, body, settings=large)
    assert (status, told["reason"]) == (400, "routing_key is '5'; a text is expected")
    assert sum(map(len, seen)) < 100
    seen.clear()
    for name in (b"properties", b"routing_key"):
        body = b'{%s,"%s":{%s}}' % (fields.replace(name, b"x"), name, many)
        status, told, _ = request(node, "POST", path, body, settings=large)
        assert status == 400 and "131,072 is the most" in told["reason"]
    body = b'{"payload":[%s]}' % many.replace(b":", b",")
    assert request(node, "POST", path, body, settings=large)[1]["reason"] == "payload_not_string"
    assert seen == []


@pytest.mark.parametrize(
    ("answer", "status", "error"),
    [
        ((409, "inequivalent", "amqp:precondition-failed"), 400, "bad_request"),
        ((400, "wrong", "amqp:invalid-field"), 400, "bad_request"),
        ((403, "refused", "amqp:unauthorized-access"), 401, "not_authorised"),
        ((404, "no vhost", "amqp:not-found"), 404, "not_found"),
        ((404, "hidden", HIDDEN_CONDITION), 404, "not_found"),
        ((405, "no", "amqp:not-allowed"), 405, "method_not_allowed"),
        ((503, "later", "amqp:internal-error"), 503, "service_unavailable"),
        ((500, "fault", "amqp:internal-error"), 500, "internal_server_error"),
        ((501, "not here", "amqp:not-implemented"), 501, "not_implemented"),
        (unavailable("the node does not answer"), 503, "service_unavailable"),
        (ZeroDivisionError(), 500, "internal_server_error"),
    ],
)
def test_refusals_have_rabbitmqs_form(answer: Any, status: int, error: str) -> None:
    node = PlayedNode(**{"PUT /queues/:queue": answer})
    found, body, _ = request(node, "PUT", "/api/queues/v/q", b"{}")
    assert (found, body["error"]) == (status, error) and body["reason"]


def test_an_answer_that_json_does_not_have_is_refused() -> None:
    node = PlayedNode(**{"GET /vhost-limits": (200, [{"a": object()}])})
    assert request(node, "GET", "/api/vhost-limits")[0] == 500


def test_paths_prefixes_methods_and_heads() -> None:
    node = PlayedNode(**{"GET /vhost-limits": (200, [])})
    prefix = {"path_prefix": "/rabbit"}
    assert request(node, "GET", "/rabbit/api/vhost-limits", settings=prefix)[:2] == (200, [])
    assert request(node, "GET", "/api/vhost-limits", settings=prefix)[0] == 404
    assert request(node, "OPTIONS", "/api/vhost-limits")[2][b"allow"] == b"HEAD, GET, OPTIONS"
    assert request(node, "HEAD", "/api/vhost-limits")[0] == 200
    assert request(node, "DELETE", "/api/vhost-limits", b"")[0] == 405
    assert request(node, "GET", "/api/")[0] == 404


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({}, 200),
        ({b"content-type": b"text/plain"}, 200),
        ({b"origin": b"https://evil.example"}, 415),
        ({b"origin": b"null", b"content-type": b"text/plain"}, 415),
        ({b"origin": b"http://h", b"content-type": b"application/x-www-form-urlencoded"}, 415),
        ({b"origin": b"http://h", b"content-type": b"multipart/form-data; boundary=x"}, 415),
        ({b"origin": b"http://h", b"content-type": b"Application/JSON; charset=utf-8"}, 200),
    ],
)
def test_a_page_of_another_site_cannot_have_a_browser_post(
    given: dict[bytes, bytes], status: int
) -> None:
    """A browser sends JSON of another site's page only if the answer to OPTIONS permits it."""
    chief = {"name": "user", "tags": ["administrator"]}
    node = PlayedNode(**{"GET /whoami": (200, chief), "POST /nodes/:node/drain": (200, {})})
    found, body, _ = request(node, "POST", "/api/nodes/n/drain", b"", headers=given)
    assert found == status
    if status == 415:
        assert node.asked == [] and "application/json" in body["reason"]
    asked = request(node, "OPTIONS", "/api/nodes/n/drain", headers=given)[2]
    assert not [name for name in asked if name.startswith(b"access-control")]


def test_a_connection_is_closed_with_the_reason_of_the_header() -> None:
    path = "/connections/a%20-%3E%20b"
    node = PlayedNode(**{"DELETE /connections/:connection": (204, None)})
    given = {b"x-reason": b"too old"}
    assert request(node, "DELETE", f"/api{path}", b"", headers=given)[0] == 204
    assert node.asked[-1].fields == {"connection": "a -> b", "reason": "too old"}


def test_lists_over_vhosts_leave_out_what_is_hidden_or_gone() -> None:
    node = PlayedNode(**{"GET /vhosts": (200, [{"name": "a"}, {"name": "b"}])})

    async def of_vhost(asked: NodeAsk) -> NodeReply:
        if asked.route == "GET /bindings":
            if asked.vhost == "a":
                return NodeReply(0, 404, "hidden", HIDDEN_CONDITION)
            one = {"source": "x", "destination_queue": "q", "binding_key": "k", "arguments": {}}
            return NodeReply(0, 200, [one])
        return await PlayedNode.ask(node, asked)

    node.ask = of_vhost  # type: ignore[method-assign]
    status, body, _ = request(node, "GET", "/api/bindings?columns=vhost,source")
    assert (status, body) == (200, [{"vhost": "b", "source": "x"}])
    assert request(node, "GET", "/api/bindings/a")[0] == 404
