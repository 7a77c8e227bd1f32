"""Identifiers that look like the text of a UUID, sent to AMQP 1.0 clients."""

from __future__ import annotations

import uuid
from random import Random

import pytest
from proton import Message

from tests.wire.kernel import frames as f
from warren_wire.amqp091 import properties
from warren_wire.kernel import Kernel


def sent(kernel: Kernel, raw: bytes) -> Message:
    """The message as an AMQP 1.0 client reads it."""
    head = kernel.sections_out.write_sections(raw, b"", b"", (-1, -1, True, 0), {}, False)
    made = Message()
    made.decode(bytes(head) + b"\x00\x53\x75\xa0\x00")
    return made


NO_UUIDS = (
    "urn:uuid:" + "-".join(" " * size for size in (8, 4, 4, 4, 12)),
    "urn:uuid:550e8400-e29b-41d4-a716-4466554400  ",
    "urn:uuid:  550e84-e29b-41d4-a716-446655440000",
    "urn:uuid:550e8400-e29b-41d4-a716-44665544000\n",
    "urn:uuid:550e8400-e29b-41d4-a716-44665544000g",
    "urn:uuid:550e84000e29b-41d4-a716-446655440000",
    "URN:UUID:550e8400-e29b-41d4-a716-446655440000",
    "urn:uuid:" + "\t" * 36,
)


@pytest.mark.parametrize("text", NO_UUIDS)
def test_a_text_that_is_almost_a_uuid_stays_a_text(both: Kernel, text: str) -> None:
    """Spaces between the hyphens became a UUID without bytes, and clients read what followed."""
    raw = properties.encode(properties.Properties(message_id=text, correlation_id=text))
    found = sent(both, raw)
    assert (found.id, found.correlation_id) == (text, text)


def test_any_text_of_a_uuids_length_comes_back(both: Kernel) -> None:
    rng, uuids = Random(8), 0
    for _ in range(1500):
        text = list(f"urn:uuid:{uuid.UUID(bytes=rng.randbytes(16))}")
        for _ in range(rng.choice((0, 1, 2, 9))):
            text[rng.randrange(9, 45)] = rng.choice(" 0aF-\n_g")
        wanted = "".join(text)
        found = sent(both, f.properties(message_id=wanted.encode()))
        if isinstance(found.id, uuid.UUID):
            uuids += 1
            assert f"urn:uuid:{found.id}" == wanted.lower()
        else:
            assert found.id == wanted
    assert 300 < uuids < 1200
