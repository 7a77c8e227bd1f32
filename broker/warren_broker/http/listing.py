"""Lists as RabbitMQ's HTTP API gives them: filtered, sorted, cut into pages and columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from warren_broker.cluster.turns import Work, filtered
from warren_broker.http.replies import HttpRefusal, bad_request
from warren_wire.name_patterns import BadPattern, NameMatcher, Pattern

PAGE_SIZE: Final = 100
PAGE_SIZE_MAX: Final = 500
PAGE_MAX: Final = 1 << 31
FILTER_CHARACTERS_MAX: Final = 1024
DEFAULT_SORTS: Final = ("vhost", "name")
ITEM_STEPS: Final = 4_000
"""Steps of ranking or cutting an item: of a turn, 500 take all."""

Item: TypeAlias = dict[str, Any]
Columns: TypeAlias = dict[str, Any]
"""Keys that are shown, each with the columns of what is below it, or with None: all of that."""


@dataclass(frozen=True, slots=True)
class Paging:
    """The page that is asked for, and of which names."""

    page: int
    page_size: int
    name: str
    use_regex: bool


def paging_of(query: Mapping[str, str]) -> Paging | None:
    """Return the page that a query asks for; None: everything. Raises HttpRefusal."""
    if "page" not in query:
        return None
    page, size = _number(query["page"]), _number(query.get("page_size", str(PAGE_SIZE)))
    if not 1 <= page <= PAGE_MAX or not 1 <= size <= PAGE_SIZE_MAX:
        raise HttpRefusal(
            400,
            "invalid_pagination_parameters",
            f"Invalid pagination parameters: page number {page}, page size {size}; pages begin "
            f"with 1 and have 1 to {PAGE_SIZE_MAX} items",
        )
    name, regex = query.get("name", ""), query.get("use_regex") == "true"
    if len(name) > FILTER_CHARACTERS_MAX:
        raise HttpRefusal(
            400,
            "invalid_pagination_parameters",
            f"the filter of names has {len(name)} characters; {FILTER_CHARACTERS_MAX} is the limit",
        )
    return Paging(page, size, name, regex)


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise bad_request("Pagination parameters are invalid")
    return int(text)


def columns_of(query: Mapping[str, str]) -> Columns | None:
    """Return the columns that a query asks for; None: all."""
    if "columns" not in query:
        return None
    found: Columns = {}
    for one in query["columns"].split(","):
        *above, last = [part for part in one.split(".") if part] or [""]
        at: Any = found
        for part in above:
            at = at.setdefault(part, {})
            if at is None:
                break  # a shorter one shows all of it
        else:
            at[last] = None
    return found


def sorts_of(query: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that a query has a list sorted by, the first one first."""
    given = (query["sort"],) if query.get("sort") else ()
    return (*given, *(one for one in DEFAULT_SORTS if one not in given))


def paged(items: list[Item], query: Mapping[str, str]) -> Work[Any]:
    """Return the items sorted, or the page that is asked for with its numbers; raises HttpRefusal.

    Columns are not cut yet: `shown`.
    """
    paging = paging_of(query)
    sorts = [key.split(".") for key in sorts_of(query)]
    ranked = []
    for item in items:
        ranked.append((tuple(_rank(_value(item, keys)) for keys in sorts), item))
        yield ITEM_STEPS
    ranked.sort(key=lambda one: one[0])
    items = [item for _, item in ranked]
    if query.get("sort_reverse") == "true":
        items.reverse()
    if paging is None:
        return items
    chosen = yield from _named(items, paging)
    first = (paging.page - 1) * paging.page_size
    shown = chosen[first : first + paging.page_size]
    return page_of(paging, shown, len(chosen), len(items))


def page_of(paging: Paging, shown: list[Item], chosen: int, total: int) -> dict[str, Any]:
    """Return a page with its numbers; raises HttpRefusal for one beyond the end.

    shown  the items of the page; chosen: how many match, on all pages; total: how many there are
    """
    if (paging.page - 1) * paging.page_size > chosen:
        raise HttpRefusal(
            400,
            "page_out_of_range",
            f"Page out of range, page: {paging.page} page size: {paging.page_size}, len: {chosen}",
        )
    return {
        "total_count": total,
        "item_count": len(shown),
        "filtered_count": chosen,
        "page": paging.page,
        "page_size": paging.page_size,
        "page_count": (chosen + paging.page_size - 1) // paging.page_size,
        "items": shown,
    }


def _named(items: list[Item], paging: Paging) -> Work[list[Item]]:
    """Return the items with the text in their names, or matched by it, whatever the case."""
    if not paging.name:
        return items
    wanted = paging.name.lower()
    if not paging.use_regex:
        return [item for item in items if wanted in str(item.get("name", "")).lower()]
    try:
        matcher = NameMatcher([Pattern(paging.name, ignore_case=True)])
    except BadPattern as error:
        raise bad_request(f"name={paging.name!r} {error}") from error
    return (
        yield from filtered(
            items,
            lambda item: matcher.first(str(item.get("name", ""))) is not None,
            lambda item: matcher.cost(str(item.get("name", ""))),
        )
    )


def _value(item: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        if not isinstance(item, Mapping):
            return 0
        item = item.get(key, 0)
    return item


def _rank(value: Any) -> tuple[Any, ...]:
    """Return what orders values of any type: numbers, then false and true, lists, texts."""
    if isinstance(value, bool):
        return (1, value)
    if isinstance(value, int | float):
        return (0, value)
    if value is None:
        return (2,)
    if isinstance(value, Mapping):
        return (3, len(value))
    if isinstance(value, list | tuple):
        return (4, tuple(map(_rank, value)))
    return (5, str(value))


def shown(value: Any, columns: Columns | None) -> Work[Any]:
    """Return a value with these columns alone, in lists and in pages of them, too."""
    if columns is None:
        return value
    if isinstance(value, list):
        found = []
        for item in value:
            found.append(cut_columns(item, columns))
            yield ITEM_STEPS
        return found
    if isinstance(value, Mapping) and "items" in value and "page_count" in value:
        return {**value, "items": (yield from shown(value["items"], columns))}
    return cut_columns(value, columns)


def cut_columns(value: Any, columns: Columns) -> Any:
    """Return a value with these columns alone; each of its keys is looked up once."""
    if isinstance(value, list):
        return [cut_columns(item, columns) for item in value]
    if not isinstance(value, Mapping):
        return value
    return {
        key: item if columns[key] is None else cut_columns(item, columns[key])
        for key, item in value.items()
        if key in columns
    }
