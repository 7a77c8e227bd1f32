"""An HTTP client for the tests of the management API: one request, its status and JSON."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from tests.patience import PATIENCE_S
from warren.local import LocalCluster

SETTINGS: dict[str, Any] = {"management": {"enabled": True, "tcp": {"port": 0}}}
"""Of a cluster with the API, on any free ports."""


@dataclass(frozen=True)
class HttpAnswer:
    """What came back; body is None without one."""

    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class HttpClient:
    """Requests as one user of one node.

    login   "user:password"; "": without credentials
    bearer  a token, instead of them
    """

    base: str
    login: str = "guest:guest"
    bearer: str = ""

    def as_user(self, login: str) -> HttpClient:
        """The same node as another user."""
        return HttpClient(self.base, login)

    def __call__(self, method: str, path: str, body: Any = None) -> HttpAnswer:
        """Make a request; bytes are sent as they are, other bodies as JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data=data, method=method)
        if data is not None:
            request.add_header("Content-Type", "application/json")
        if self.bearer:
            request.add_header("Authorization", f"Bearer {self.bearer}")
        elif self.login:
            encoded = base64.b64encode(self.login.encode()).decode()
            request.add_header("Authorization", f"Basic {encoded}")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return _answer(answer.status, answer.read(), answer.headers)
        except urllib.error.HTTPError as refused:
            return _answer(refused.code, refused.read(), refused.headers)

    def get(self, path: str) -> Any:
        """The body of a GET that succeeds."""
        answer = self("GET", path)
        assert answer.status == 200, answer
        return answer.body


def _answer(status: int, data: bytes, headers: Any) -> HttpAnswer:
    named = {key.lower(): value for key, value in headers.items()}
    return HttpAnswer(status, json.loads(data) if data else None, named)


def api_address(cluster: LocalCluster, node: int) -> str:
    """host:port of a node's API."""
    said = json.loads((cluster.nodes[node].data_dir / "listening.json").read_text())
    return str(said["management"])


def http_client(cluster: LocalCluster, node: int = 0, login: str = "guest:guest") -> HttpClient:
    """A client of a node's API."""
    return HttpClient(f"http://{api_address(cluster, node)}/api", login)


def quoted(name: str) -> str:
    """A name as a segment of a path."""
    return quote(name, safe="")


def add_user(http: HttpClient, name: str, tags: str, vhost: str | None = "/") -> HttpClient:
    """A user of that tag, with all permissions in the vhost; return it."""
    assert http("PUT", f"/users/{name}", {"password": "pw", "tags": tags}).status in (201, 204)
    if vhost is not None:
        every = {"configure": ".*", "write": ".*", "read": ".*"}
        path = f"/permissions/{quoted(vhost)}/{name}"
        assert http("PUT", path, every).status in (201, 204)
    return http.as_user(f"{name}:pw")
