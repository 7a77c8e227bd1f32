"""Warren's filters beside what RabbitMQ 4.3.6 was observed to answer (observe.py)."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from warren_wire.block.layout import PRIORITY_DEFAULT
from warren_wire.sql_filter import (
    HEADER_SECTION,
    PROPERTIES_SECTION,
    FilterRefused,
    Identifier,
    SqlFilter,
)
from wire.sql_filter.messages import FAILED, FILTERS, MESSAGES, OBSERVED, PRIORITY, REFUSED

ANSWERS: Final = json.loads(OBSERVED.read_text(encoding="utf-8"))["answers"]
NOW_MS: Final = 1_790_000_000_000
_OVERFLOW: Final = "a product above a double's range ends RabbitMQ's session; it is unknown here"
KNOWN: Final = {
    "a * b > 0": _OVERFLOW,
    "NOT (a * b > 0)": _OVERFLOW,
    "a * b IN (0, 1, 3, 3.5, 0.5)": _OVERFLOW,
    "a * a > 0": _OVERFLOW,
    "a * b * a * b > 0": _OVERFLOW,
    "a = 1.0E999": "RabbitMQ ends the session; it is refused here",
    "(a) IS NULL": "RabbitMQ takes no parentheses there",
    "b NOT LIKE 'a'": "bytes that are not UTF-8: unequal to a plain pattern; unknown here",
    "a=1AND b=2": "RabbitMQ lets a word follow a number at once; it is refused here",
}


def answer(text: str) -> list[int] | str:
    try:
        made = SqlFilter(text)
    except FilterRefused:
        return REFUSED

    def value(given: dict[str, Any], one: Identifier) -> Any:
        if one.section == HEADER_SECTION:
            return given.get(PRIORITY, PRIORITY_DEFAULT)
        prefix = "p." if one.section == PROPERTIES_SECTION else ""
        return given.get(prefix + one.name)

    return [
        number
        for number, given in enumerate(MESSAGES)
        if made.matches([value(given, one) for one in made.identifiers], NOW_MS)
    ]


@pytest.mark.parametrize("text", FILTERS)
def test_a_filter_answers_as_rabbitmq_or_differs_as_listed(text: str) -> None:
    if text in KNOWN:
        assert answer(text) != ANSWERS[text], "it differs no more: take it from the list"
    else:
        assert answer(text) == ANSWERS[text]


def test_what_was_observed_is_what_is_asked_and_says_something() -> None:
    assert list(ANSWERS) == FILTERS and set(KNOWN) <= set(FILTERS)
    assert {text for text in FILTERS if ANSWERS[text] == FAILED} <= set(KNOWN)
    true_of_some = [found for found in ANSWERS.values() if isinstance(found, list) and found]
    assert len(true_of_some) > 100
