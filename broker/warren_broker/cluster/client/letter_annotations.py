"""What consumers have annotated a message with, in its dead letter: as headers."""

from __future__ import annotations

from typing import Any

from warren_machines.queue.annotation_values import as_header, encoded_annotation
from warren_machines.queue.modify_command import Pairs
from warren_wire.amqp091.fields import SHORT_STRING_BYTES_MAX, Field
from warren_wire.amqp10.message.sent import annotated_sections
from warren_wire.kernel import is_owned, split_sections
from warren_wire.kernel.properties import SECTIONS


def annotate(headers: dict[str, Any], annotations: Pairs, properties: bytes) -> None:
    """Add annotations to a message's headers, where a consumer of either protocol finds them.

    Not those with the names that the broker keeps for itself, or that no header can have. Where
    sections of a message over AMQP 1.0 were kept, they are shown instead of the headers: they get
    the annotations, too. Values that are no headers (lists, maps, arrays) are in such sections
    alone, of a message over 0.9.1, too: RabbitMQ does not show them over 0.9.1.

    properties  of the message as it is stored
    """
    given: dict[bytes, bytes] = {}
    typed = False
    for name, packed in annotations:
        short = len(name) <= SHORT_STRING_BYTES_MAX
        if name == SECTIONS or not short or is_owned(name.encode()):
            continue
        given[name.encode()] = encoded_annotation(packed)
        value = as_header(packed)
        if value is None:
            headers.pop(name, None)
            typed = True
        else:
            headers[name] = value
    if not given:
        return
    kept = headers.pop(SECTIONS, None)
    there = kept.value if isinstance(kept, Field) else kept
    if there is not None and not isinstance(there, bytes):
        headers[SECTIONS] = kept
        return
    changed = annotated_sections(split_sections(properties)[0], there or b"", given, typed=typed)
    if changed:
        others = dict(headers)
        headers.clear()
        headers[SECTIONS] = Field("x", changed)  # the first one
        headers.update(others)
