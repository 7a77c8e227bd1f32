"""Bodies with values of every JSON type in every field, beside RabbitMQ 4.3's statuses."""

from __future__ import annotations

import json
import re

import pytest

from live.http_body_types import RECORDED, played
from live.http_client import SETTINGS, http_client
from warren.local import LocalCluster

pytestmark = [pytest.mark.live, pytest.mark.slow]

KNOWN: dict[str, str] = {
    r"=null$": "a field that is null counts as left out",
    r"=1180591620717411303424$": "numbers have 64 bits",
    r"^POST /definitions": "an import checks the types of all fields before anything is changed, "
    "and says in a report what has no effect",
    r"properties\.(delivery_mode|priority)=-1$": "numbers of AMQP are checked",
    r"publish payload properties=": "unknown properties are named; a list of none is none",
    r"properties\.headers=\[": "headers are an object",
    r"(count|truncate)=(-1|1\.5)$": "numbers of messages and bytes are whole ones from 0 on",
    r" arguments=\[1\]$": "arguments are an object; [] is taken",
    r"priority=1\.5$": "a policy's priority is a whole number",
    r"(uri)=\[\]$": "a shovel or upstream needs an address",
    r"value\.-dest-queue$": "a shovel that would feed itself is refused",
    r"(src|dest)-queue=\"\"$": "a shovel's queue has a name",
    r"topic-permissions/typed/guest exchange": "the exchange has a name, and need not exist; "
    "patterns are texts",
    r"hashing_algorithm": "texts are texts",
    r"tags=\[1\]$": "tags are texts",
    r"default_queue_type description=": "a description is a text",
    r"default_queue_type default_queue_type=\"\"$": "no type is the node's default",
}
"""A pattern of what is answered otherwise → why (compatibility.md)."""


@pytest.mark.long
def test_no_body_is_an_internal_error_and_statuses_are_rabbitmqs() -> None:
    recorded = json.loads(RECORDED.read_text())["statuses"]
    with LocalCluster(nodes=1, settings=SETTINGS) as cluster:
        found = played(http_client(cluster))
    assert found.keys() == recorded.keys(), "record again: http_body_types.py"
    errors = {one: status for one, status in found.items() if status >= 500}
    assert not errors, errors
    other, used = [], set()
    for one, status in found.items():
        if recorded[one] in (status, 500):
            continue  # RabbitMQ answers 500 to 246 of them
        why = next((part for part in KNOWN if re.search(part, one)), None)
        if why is None:
            other.append(f"{one}: RabbitMQ {recorded[one]}, here {status}")
        else:
            used.add(why)
    assert not other, "\n".join([f"{len(other)} of {len(found)} differ:", *other])
    assert used == KNOWN.keys(), ("explains nothing any more: remove it", KNOWN.keys() - used)
