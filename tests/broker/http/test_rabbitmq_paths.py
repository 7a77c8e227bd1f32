"""Each path of RabbitMQ 4.3's HTTP API is answered here, or its absence is documented."""

from __future__ import annotations

from pathlib import Path

import pytest

from warren_broker.http.replies import HttpRefusal
from warren_broker.http.routes import TABLE

VHOST, ONE = ("", "/V"), ("", "/V", "/V/N")


def below(path: str, *ends: str) -> tuple[str, ...]:
    """A path with each of these ends."""
    return tuple(path + end for end in ends)


CHECKS = (
    *("alarms", "local-alarms", "metadata-store/initialized", "port-listener/1"),
    *("metadata-store/initialized/with-data", "protocol-listener/amqp", "virtual-hosts"),
    *("node-is-quorum-critical", "is-in-service", "below-node-connection-limit"),
    *("ready-to-serve-clients", "reached-target-cluster-size"),
    *below("quorum-queues-without-elected-leaders/all-vhosts", "", "/pattern/P"),
    *below("quorum-queues-without-elected-leaders/vhost/V", "", "/pattern/P"),
)
ANSWERED = (
    "overview",
    "cluster-name",
    *below("nodes", "", "/N", "/N/memory", "/N/memory/relative"),
    "health/checks/certificate-expiration/1/days",
    *("extensions", "version", "whoami", "all-configuration", "permissions", "topic-permissions"),
    *below("definitions", *VHOST),
    *below("parameters", "", "/C", "/C/V", "/C/V/N"),
    *below("global-parameters", "", "/N"),
    *below("policies", *ONE),
    *below("operator-policies", *ONE),
    *below("vhost-limits", *ONE),
    *below("user-limits", "", "/U", "/U/N"),
    *below("connections", "", "/N", "/username/U", "/N/channels"),
    *below("channels", "", "/N"),
    *below("consumers", *VHOST),
    *below("exchanges", *ONE),
    *below("exchanges/V/N", "/publish", "/bindings/source", "/bindings/destination"),
    *below("queues", "/detailed", *ONE),
    *below("queues/V/N", "/bindings", "/contents", "/get", "/actions"),
    *below("queues/quorum/V/N", "/replicas/add", "/replicas/delete", "/status"),
    *below("queues/quorum/replicas/on/N", "/grow", "/shrink"),
    *below("bindings", *VHOST),
    *below("bindings/V/e/S/q/D", "", "/P"),
    *below("vhosts", "", "/V", "/V/start/N", "/V/permissions", "/V/topic-permissions"),
    *below("vhosts/V", "/connections", "/channels"),
    *below("users", "", "/bulk-delete", "/without-permissions", "/U"),
    *below("users/U", "/permissions", "/topic-permissions"),
    *("feature-flags", "deprecated-features", "deprecated-features/used"),
    *("feature-flags/N/enable", "vhosts/V/deletion/protection"),
    *("auth/attempts/N", "auth/attempts/N/source"),
    *("permissions/V/U", "topic-permissions/V/U", "topic-permissions/V/U/X", "aliveness-test/V"),
    *below("healthchecks/node", "", "/N"),
    *(f"health/checks/{check}" for check in CHECKS),
    *below("reset", "", "/N"),
    *("rebalance/queues", "auth/hash_password/P"),
    *below("shovels", *VHOST),
    *("shovels/vhost/V/N", "shovels/vhost/V/N/restart"),
    *below("federation-links", *VHOST),
)
ABSENT = {
    "nodes/N/memory/ets": "/nodes/NAME/memory/ets",
    "nodes/N/memory/ets/relative": "/nodes/NAME/memory/ets",
    "connections/N/sessions": "/connections/NAME/sessions",
    "users/U/queues": "/users/NAME/queues",
    "login": "/login",
    "config/effective": "/config/effective",
}
"""Path → how docs/reference/compatibility.md names it."""
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "compatibility.md"


def is_answered(path: str) -> bool:
    """Whether a route fits the path."""
    try:
        return bool(TABLE.allowed(path.split("/")))
    except HttpRefusal:
        return False


@pytest.mark.parametrize("path", ANSWERED)
def test_a_path_is_answered(path: str) -> None:
    assert is_answered(path)


@pytest.mark.parametrize("path", ABSENT)
def test_an_absent_path_is_documented(path: str) -> None:
    assert not is_answered(path), "it is there: move it to ANSWERED"
    section = PAGE.read_text().partition("## The HTTP API")[2].partition("\n## ")[0]
    assert f"`{ABSENT[path]}" in section
