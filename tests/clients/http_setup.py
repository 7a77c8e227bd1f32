"""What suites of the HTTP API expect on the broker: their scripts make it with `rabbitmqctl`."""

from __future__ import annotations

from live.http_client import HttpClient, quoted

HTTP_PORT = 15672
EVERY = {"configure": ".*", "write": ".*", "read": ".*"}


def http() -> HttpClient:
    """The API of the broker."""
    return HttpClient(f"http://127.0.0.1:{HTTP_PORT}/api")


def vhost(name: str) -> None:
    """Make a vhost that the administrator may use."""
    _put(f"/vhosts/{quoted(name)}", {})
    _put(f"/permissions/{quoted(name)}/guest", EVERY)


def user(name: str, password: str, tags: str) -> None:
    """Make a user with all permissions in the default vhost."""
    _put(f"/users/{name}", {"password": password, "tags": tags})
    _put(f"/permissions/%2F/{name}", EVERY)


def _put(path: str, body: object) -> None:
    answer = http()("PUT", path, body)
    assert answer.status in (201, 204), (path, answer)
