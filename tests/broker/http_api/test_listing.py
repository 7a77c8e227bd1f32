"""Pages, orders and columns of lists."""

from __future__ import annotations

from typing import Any

import pytest

from warren_broker.http_api.listing import columns_of, cut_columns, paged
from warren_broker.http_api.replies import HttpRefusal

ITEMS: list[dict[str, Any]] = [
    {"name": "b", "vhost": "/", "n": 3, "deep": {"x": 1, "y": 2}},
    {"name": "A", "vhost": "/", "n": None},
    {"name": "c", "vhost": "/", "n": True, "deep": {"x": 0}},
    {"name": "a", "vhost": "+"},
]


def names(shown: Any) -> list[str]:
    return [item["name"] for item in shown]


def test_lists_are_sorted_by_vhost_and_name_unless_said_otherwise() -> None:
    assert names(paged(ITEMS, {})) == ["a", "A", "b", "c"]
    assert names(paged(ITEMS, {"sort": "name"})) == ["A", "a", "b", "c"]
    assert names(paged(ITEMS, {"sort": "deep.x"})) == ["a", "A", "c", "b"], "nothing counts as 0"
    assert names(paged(ITEMS, {"sort": "n", "sort_reverse": "true"})) == ["A", "c", "b", "a"]


def test_a_page_has_its_numbers() -> None:
    page = paged(ITEMS, {"page": "2", "page_size": "3"})
    assert names(page.pop("items")) == ["c"]
    assert page == {
        "total_count": 4,
        "item_count": 1,
        "filtered_count": 4,
        "page": 2,
        "page_size": 3,
        "page_count": 2,
    }
    empty = paged([], {"page": "1"})
    assert (empty["items"], empty["page_count"], empty["page_size"]) == ([], 0, 100)
    assert names(paged(ITEMS, {"page": "1", "name": "a"})["items"]) == ["a", "A"]
    regex = {"page": "1", "name": "^[bc]$", "use_regex": "true"}
    assert names(paged(ITEMS, regex)["items"]) == ["b", "c"]


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ({"page": "0"}, "invalid_pagination_parameters"),
        ({"page": "1", "page_size": "501"}, "invalid_pagination_parameters"),
        ({"page": "1", "page_size": "0"}, "invalid_pagination_parameters"),
        ({"page": "1", "name": "x" * 1025}, "invalid_pagination_parameters"),
        ({"page": "3"}, "page_out_of_range"),
        ({"page": "-1"}, "bad_request"),
        ({"page": "²"}, "bad_request"),
        ({"page": "9" * 5_000}, "bad_request"),
        ({"page": "1", "name": "(", "use_regex": "true"}, "bad_request"),
        ({"page": "1", "name": r"(a)\1", "use_regex": "true"}, "bad_request"),
    ],
)
def test_a_page_that_cannot_be_is_refused(query: dict[str, str], error: str) -> None:
    with pytest.raises(HttpRefusal) as refused:
        paged(ITEMS, query)
    assert (refused.value.reply.status, refused.value.reply.body["error"]) == (400, error)


def test_a_pattern_that_takes_exponential_time_elsewhere_does_not() -> None:
    query = {"page": "1", "name": "(a+)+$", "use_regex": "true"}
    assert paged([{"name": "a" * 5_000 + "b"}], query)["items"] == []


def test_columns_are_cut_in_depth() -> None:
    columns = columns_of({"columns": "name,deep.x,none"})
    assert cut_columns(ITEMS[0], columns) == {"name": "b", "deep": {"x": 1}}
    assert cut_columns(ITEMS[1:2], columns) == [{"name": "A"}]
    page = paged(ITEMS, {"page": "1", "page_size": "1"})
    assert cut_columns(page, columns)["items"] == [{"name": "a"}]
    assert cut_columns(page, columns)["page_count"] == 4
    assert cut_columns(ITEMS, None) is ITEMS
    assert cut_columns({"deep": {"x": 1}}, columns_of({"columns": "deep,deep.y"})) == {
        "deep": {"x": 1}
    }
