"""Text from outside in one line."""

from __future__ import annotations

import pytest

from warren_wire.quoting import SHOWN_CHARACTERS_MAX, escaped, quoted


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("plain", "'plain'"),
        ("", "''"),
        ("über – 名", "'über – 名'"),
        ("a\nb\r\n", "'a\\nb\\r\\n'"),
        ("\x1b[2J\x07\x00\x7f\x9b", "'\\x1b[2J\\x07\\x00\\x7f\\x9b'"),
        ("right\u202eleft\u2028", "'right\\u202eleft\\u2028'"),
        ("it's \\n", "'it\\'s \\\\n'"),
        ("\udcff", "'\\udcff'"),
        (b"\xff\n", "'\\udcff\\n'"),
        (memoryview(b"x"), "'x'"),
        (5, "'5'"),
        ({"a": "\n"}, "'{\\'a\\': \\'\\\\n\\'}'"),
    ],
)
def test_quoted(given: object, shown: str) -> None:
    assert quoted(given) == shown
    assert quoted(given).isprintable()


def test_what_is_long_is_cut() -> None:
    assert quoted("x" * SHOWN_CHARACTERS_MAX) == f"'{'x' * SHOWN_CHARACTERS_MAX}'"
    assert quoted(b"x" * 10**6) == f"'{'x' * SHOWN_CHARACTERS_MAX}'…"
    assert quoted("abc", 2) == "'ab'…"


def test_every_character_is_printable_afterwards() -> None:
    text = "".join(map(chr, range(0x3000)))
    assert escaped(text).isprintable()
    for each in text:
        assert escaped(each) == each or escaped(each).startswith("\\"), each
