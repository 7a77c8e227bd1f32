"""Pages, orders and columns of lists."""

from __future__ import annotations

from typing import Any

import pytest

from warren_broker.cluster.turns import Turns, Work
from warren_broker.http.listing import Columns, columns_of, cut_columns, paged, shown
from warren_broker.http.replies import HttpRefusal

ITEMS: list[dict[str, Any]] = [
    {"name": "b", "vhost": "/", "n": 3, "deep": {"x": 1, "y": 2}},
    {"name": "A", "vhost": "/", "n": None},
    {"name": "c", "vhost": "/", "n": True, "deep": {"x": 0}},
    {"name": "a", "vhost": "+"},
]


def done(work: Work[Any]) -> tuple[Any, int]:
    """Return what some work returns, and the turns that it took."""
    running, turns = Turns(work), 1
    while not running.turn():
        turns += 1
    return running.result, turns


def run_paged(items: list[dict[str, Any]], query: dict[str, str]) -> Any:
    return done(paged(items, query))[0]


def names(listed: Any) -> list[str]:
    return [item["name"] for item in listed]


def test_lists_are_sorted_by_vhost_and_name_unless_said_otherwise() -> None:
    assert names(run_paged(ITEMS, {})) == ["a", "A", "b", "c"]
    assert names(run_paged(ITEMS, {"sort": "name"})) == ["A", "a", "b", "c"]
    assert names(run_paged(ITEMS, {"sort": "deep.x"})) == ["a", "A", "c", "b"], "nothing is 0"
    assert names(run_paged(ITEMS, {"sort": "n", "sort_reverse": "true"})) == ["A", "c", "b", "a"]


def test_a_page_has_its_numbers() -> None:
    page = run_paged(ITEMS, {"page": "2", "page_size": "3"})
    assert names(page.pop("items")) == ["c"]
    assert page == {
        "total_count": 4,
        "item_count": 1,
        "filtered_count": 4,
        "page": 2,
        "page_size": 3,
        "page_count": 2,
    }
    empty = run_paged([], {"page": "1"})
    assert (empty["items"], empty["page_count"], empty["page_size"]) == ([], 0, 100)
    assert names(run_paged(ITEMS, {"page": "1", "name": "a"})["items"]) == ["a", "A"]
    regex = {"page": "1", "name": "^[bc]$", "use_regex": "true"}
    assert names(run_paged(ITEMS, regex)["items"]) == ["b", "c"]


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
        run_paged(ITEMS, query)
    assert (refused.value.reply.status, refused.value.reply.body["error"]) == (400, error)


def test_a_pattern_that_takes_exponential_time_elsewhere_does_not() -> None:
    query = {"page": "1", "name": "(a+)+$", "use_regex": "true"}
    assert run_paged([{"name": "a" * 5_000 + "b"}], query)["items"] == []


def cut(value: Any, columns: Columns | None) -> Any:
    return done(shown(value, columns))[0]


def test_columns_are_cut_in_depth() -> None:
    columns = columns_of({"columns": "name,deep.x,none"})
    assert cut(ITEMS[0], columns) == {"name": "b", "deep": {"x": 1}}
    assert cut(ITEMS[1:2], columns) == [{"name": "A"}]
    page = run_paged(ITEMS, {"page": "1", "page_size": "1"})
    assert cut(page, columns)["items"] == [{"name": "a"}]
    assert cut(page, columns)["page_count"] == 4
    assert cut(ITEMS, None) is ITEMS
    for both in ("deep,deep.y", "deep.y,deep"):
        assert cut({"deep": {"x": 1}}, columns_of({"columns": both})) == {"deep": {"x": 1}}
    assert cut(ITEMS[0], columns_of({"columns": ""})) == {}


class Counting(dict[str, Any]):
    """Columns that count how often a key is looked for."""

    looked = 0

    def __contains__(self, key: object) -> bool:
        self.looked += 1
        return super().__contains__(key)


def test_many_columns_cost_no_more_than_the_keys_that_there_are() -> None:
    """3,000 columns were each compared with each key of each of thirty queues."""
    found = columns_of({"columns": ",".join(f"c{at}.d" for at in range(3_000))})
    assert found is not None
    columns = Counting(found)
    items = [{f"c{at}": {"d": 1} for at in range(20)} for _ in range(30)]
    assert [cut_columns(item, columns) for item in items] == items
    assert columns.looked == 30 * 20


class Deep(dict[str, Any]):
    """An item that counts how often a key is asked for."""

    asked = 0

    def get(self, key: str, default: Any = None) -> Any:
        Deep.asked += 1
        return super().get(key, default)


def test_a_deep_sort_ends_where_an_item_does() -> None:
    items = [Deep(name=f"q{at}", vhost="/") for at in range(9)]
    run_paged(items, {"sort": ".".join("a" * 10_000)})
    assert Deep.asked == 9 * len(("sort", "vhost", "name"))


def test_other_requests_have_their_turn_while_a_long_list_is_answered() -> None:
    """A list was ranked, matched and cut in one turn, whatever its length and the pattern."""
    items = [{"name": f"q{at}" + "xa" * 120, "vhost": "/"} for at in range(2_000)]
    assert done(paged(items, {}))[1] >= 4
    assert done(shown(items, {"name": None}))[1] >= 4
    plain = {"page": "1", "name": "q1", "use_regex": "true"}
    hostile = {**plain, "name": "a.{240}[cd]"}
    few = done(paged(items, plain))[1]
    assert done(paged(items, hostile))[1] > few + 100
