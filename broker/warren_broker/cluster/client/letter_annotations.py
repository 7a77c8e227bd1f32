"""What consumers have annotated a message with, in its dead letter: as headers."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from warren_broker.amqp091.wire.fields import SHORT_STRING_BYTES_MAX, Field
from warren_broker.amqp10.message.sent import Annotation, annotated_sections
from warren_broker.kernel import is_owned
from warren_broker.kernel.properties import SECTIONS
from warren_broker.queue.modify_command import Pairs

_DECODE: Final = msgspec.msgpack.Decoder().decode


def annotate(headers: dict[str, Any], annotations: Pairs) -> None:
    """Add annotations to a message's headers, where a consumer of either protocol finds them.

    Not those with the names that the broker keeps for itself, or that no header can have. Where
    sections of a message over AMQP 1.0 were kept, they are shown instead of the headers: they get
    the annotations, too.
    """
    if not annotations:
        return
    given: dict[str, Annotation] = {
        name: _DECODE(packed)
        for name, packed in annotations
        if name != SECTIONS and len(name) <= SHORT_STRING_BYTES_MAX and not is_owned(name.encode())
    }
    for name, value in given.items():
        headers[name] = _as_field(value)
    kept = headers.get(SECTIONS)
    there = kept.value if isinstance(kept, Field) else kept
    if isinstance(there, bytes):
        changed = annotated_sections(there, given)
        headers[SECTIONS] = Field(kept.code, changed) if isinstance(kept, Field) else changed


def _as_field(value: Annotation) -> Any:
    if isinstance(value, bytes):
        return Field("x", value)
    if isinstance(value, int) and not isinstance(value, bool):
        return Field("l", value)
    return value
