"""Properties that are made to fit into a frame."""

from __future__ import annotations

import random

from tests.wire.kernel import frames as f
from warren_wire.amqp091 import properties
from warren_wire.amqp091.fitting import fit, shortened

FIRST, LAST = (b"a", b"I\0\0\0\1"), (b"z", b"s\0\2")


def dead(count: int, size: int = 100) -> bytes:
    entries = [f.death(b"q%d" % i, more=bytes(size)) for i in range(count)]
    headers = f.table(FIRST, (b"x-death", f.deaths(*entries)), LAST)
    return f.properties(headers=headers, message_id=b"id", priority=3)


def queues(data: bytes) -> list[str]:
    given = properties.decode(data).headers or {}
    return [death["queue"] for death in given.get("x-death", [])]


def test_what_fits_stays_as_it_is() -> None:
    data = dead(3)
    assert fit(data, len(data)) is data


def test_the_oldest_deaths_go_first_and_no_more_than_must() -> None:
    data = dead(30)
    for limit in range(len(dead(1)), len(data), 37):
        fitted = fit(data, limit)
        assert fitted is not None and len(fitted) <= limit
        kept = queues(fitted)
        assert kept == [f"q{i}" for i in range(len(kept))], "the newest stand first"
        assert fitted == dead(len(kept)), "everything else byte for byte"
        assert len(dead(len(kept) + 1)) > limit, "one more would not fit"


def test_without_any_death_the_header_goes() -> None:
    fitted = fit(
        dead(5), len(f.properties(headers=f.table(FIRST, LAST), message_id=b"id", priority=3))
    )
    assert fitted is not None
    assert properties.decode(fitted).headers == {"a": 1, "z": 2}


def test_what_the_publisher_wrote_is_never_shortened() -> None:
    data = f.properties(headers=f.table((b"h", b"x" + (500).to_bytes(4, "big") + bytes(500))))
    assert fit(data, 499) is None
    assert fit(f.properties(message_id=b"x" * 200), 100) is None
    value = b"x" + (500).to_bytes(4, "big") + bytes(500)
    named = f.properties(headers=f.table((b"x-death", value)))
    assert fit(named, 499) is None, "x-death that is no array is the publisher's own"


def test_as_short_as_can_be_keeps_the_newest() -> None:
    assert queues(shortened(dead(9), 50, 1)) == ["q0"]
    assert queues(shortened(dead(9), 50, 2)) == ["q0", "q1"]
    assert fit(dead(9), 10) is None


def test_entries_of_any_kind_stay_as_they_were() -> None:
    chance = random.Random(5)
    for _ in range(50):
        entries = [
            chance.choice([f.death(b"q"), b"V", b"t\1", b"S\0\0\0\2hi", b"A\0\0\0\0"])
            for _ in range(9)
        ]
        data = f.properties(headers=f.table((b"x-death", f.deaths(*entries))))
        limit = chance.randrange(20, len(data))
        fitted = fit(data, limit)
        left = next(
            n
            for n in range(9, -1, -1)
            if n == 0
            or len(f.properties(headers=f.table((b"x-death", f.deaths(*entries[:n]))))) <= limit
        )
        expected = f.table((b"x-death", f.deaths(*entries[:left]))) if left else f.table()
        assert fitted == f.properties(headers=expected)
