"""The subject of a message that was converted from AMQP 0.9.1, which has none."""

from __future__ import annotations

from pyspark_warren.amqp10.received import NULL, PROPERTIES_CODE, SUBJECT, elements, value_end


def with_subject(sections: bytes, subject: bytes) -> bytes:
    """Return the sections that precede a body, with that subject; b"": as they are.

    sections  as `encode_message` makes them: each descriptor has three bytes
    """
    if not subject:
        return sections
    at = 0
    while at < len(sections) and sections[at + 2] < PROPERTIES_CODE:
        at = value_end(sections, at + 3)
    end, fields = at, []
    if at < len(sections) and sections[at + 2] == PROPERTIES_CODE:
        end = value_end(sections, at + 3)
        fields = elements(sections, at + 3)
    fields += [bytes((NULL,))] * (SUBJECT + 1 - len(fields))
    fields[SUBJECT] = b"\xb1" + len(subject).to_bytes(4, "big") + subject
    content = b"".join(fields)
    head = b"\x00\x53\x73\xd0" + (len(content) + 4).to_bytes(4, "big")
    return b"".join((sections[:at], head, len(fields).to_bytes(4, "big"), content, sections[end:]))
