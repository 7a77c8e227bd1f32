"""The HTTP API beside what RabbitMQ 4.3 answered to the same requests, status by status."""

from __future__ import annotations

import json

import pytest

from live.http_api_requests import RECORDED, played
from live.http_client import SETTINGS, http_client
from warren.local import LocalCluster

pytestmark = [pytest.mark.live, pytest.mark.slow]

LIMITED = "the tag policymaker is needed to see policies, as over /management"
OPEN = "every path needs credentials here"
KNOWN: dict[str, str] = {
    "GET /health/checks/below-node-connection-limit": OPEN,
    "GET /health/checks/reached-target-cluster-size": OPEN,
    "management GET /policies": LIMITED,
    "monitoring GET /policies": LIMITED,
    "GET /operator-policies": "the tag administrator is needed, as over /management",
    "GET /vhost-limits/theirs": "401 where RabbitMQ has 404",
    "PUT /policies/theirs/x": "401 where RabbitMQ has 404",
    "policymaker GET /global-parameters": "global parameters are an administrator's",
    "PUT /global-parameters/x": "global parameters are an administrator's",
    "policymaker GET /shovels": "a policymaker sees shovels, as over /management",
    "policymaker GET /federation-links": "a policymaker sees links, as over /management",
    "monitoring GET /vhosts/theirs": "what the list shows is shown by itself, too",
    "monitoring GET /user-limits/management": "limits of others are an administrator's",
}
"""A part of the request, as it is recorded → why it is answered otherwise (compatibility.md)."""


def test_each_request_is_answered_as_by_rabbitmq() -> None:
    recorded = json.loads(RECORDED.read_text())["answers"]
    with LocalCluster(nodes=1, settings=SETTINGS) as cluster:
        found = {one: tuple(answer) for one, answer in played(http_client(cluster)).items()}
    assert found.keys() == recorded.keys(), "record again: http_api_requests.py"
    other, used = [], set()
    for one, answer in found.items():
        status, error = recorded[one]
        if answer[0] == status and error in (None, answer[1]):
            continue  # RabbitMQ has no body for some refusals
        why = [part for part in KNOWN if part in one]
        used.update(why)
        if not why:
            other.append(f"{one}: RabbitMQ {recorded[one]}, here {list(answer)}")
    assert not other, "\n".join([f"{len(other)} of {len(found)} differ:", *other])
    assert used == KNOWN.keys(), "explains nothing any more: remove it"
