"""SQL filter expressions: the grammar, three values, bounds, hostile texts and values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren_wire.sql_filter import (
    APPLICATION_SECTION,
    FILTER_CHARS_MAX,
    FILTER_TOKENS_MAX,
    HEADER_SECTION,
    PROPERTIES_SECTION,
    FilterRefused,
    Identifier,
    SqlFilter,
)
from warren_wire.sql_filter.like import matcher
from warren_wire.sql_filter.parser import parse
from warren_wire.sql_filter.tree import (
    ANY,
    ONE,
    Binary,
    Constant,
    In,
    IsNull,
    Like,
    Node,
    Now,
    Unary,
)

SHIPMENT: dict[str, Any] = {
    "city": "Łódź",
    "code": b"\x00\xff",
    "count": 7,
    "fragile": True,
    "insured": False,
    "name": "Bob",
    "price": 10.5,
    "zero": 0,
}


def found(text: str, header: Any = None, **properties: Any) -> bool:
    """The filter's answer for SHIPMENT as application properties."""
    made = SqlFilter(text)
    given = {
        HEADER_SECTION: {"priority": header},
        PROPERTIES_SECTION: properties,
        APPLICATION_SECTION: SHIPMENT,
    }
    return made.matches([given[one.section].get(one.name) for one in made.identifiers], 5_000)


@pytest.mark.parametrize(
    "text",
    [
        "city = 'Łódź'",
        '"Łódź" = city AND count=7',
        "count = 7.0 AND price = 10.5 AND price <> 10",
        "fragile AND NOT insured",
        "fragile = TRUE AND insured != TRUE",
        "absent IS NULL AND city IS NOT NULL",
        "absent OR fragile",
        "count OR fragile",
        "NOT (absent AND insured)",
        "1 + 2 * 3 = 7 AND (1 + 2) * 3 = 9 AND 7 - 2 - 1 = 4",
        "count / 2 = 3.5 AND count % 4 = 3 AND -count % 4 = -3 AND count % -4 = 3",
        "-count < +price AND -(-count) = 7",
        "count IN (1, 3 + 4) AND city NOT IN ('a', absent)",
        "'Bob' IN (city, name)",
        "name = 0x426F62 AND code = 0x00FF AND name < 0xFF",
        "name LIKE 'B_b' AND name LIKE '%' AND name NOT LIKE 'b%'",
        "city LIKE '_ó__' AND city LIKE '%ź' AND city LIKE 'Ł%ź'",
        "'50%' LIKE '50!%' ESCAPE '!' AND '50 ' NOT LIKE '50!%' ESCAPE '!'",
        "'it''s' = \"it's\" AND \"a\"\"b\" = 'a\"b'",
        "application_properties.name = 'Bob' AND a.name = [name]",
        "header.priority > 4 AND h.priority = 5",
        "properties.subject = 'order' AND p.subject LIKE 'or%'",
        "p.creation_time > UTC() - 3000",
        "TRUE AND 1.5E1 = 15 AND 2.0E-1 = 0.2",
        "fragile = (count = 7)",
        "TRUE <> 1 AND TRUE <> 'TRUE'",
        "name > 'Bo' AND name <= 'Bob' AND city > 'Z'",
    ],
)
def test_true(text: str) -> None:
    assert found(text, 5, subject="order", creation_time=2_001)
    assert not found(f"NOT ({text})", 5, subject="order", creation_time=2_001)


@pytest.mark.parametrize(
    "text",
    [
        "absent",
        "absent = absent",
        "absent <> 1",
        "absent IN ('a')",
        "absent LIKE '%'",
        "count",
        "'text'",
        "count LIKE '7'",
        "code LIKE '%'",
        "name + 1 = 2",
        "name - 1 = absent",
        "-name < 1",
        "fragile + 1 = 2",
        "count / 0 = 1",
        "count / zero > 0",
        "count % 0 = 0",
        "price % 2 = 0",
        "absent AND fragile",
        "absent OR insured",
        "count AND fragile",
        "1.0E308 * 10 > 0",
        f"{10**400} * 1.0 > 0",
    ],
)
def test_unknown_is_not_true_and_neither_is_its_negation(text: str) -> None:
    assert not found(text) and not found(f"NOT ({text})")
    assert found(f"({text}) OR TRUE") and not found(f"NOT (({text}) AND TRUE)")
    assert found(f"NOT (({text}) AND FALSE)")


@pytest.mark.parametrize(
    "text",
    ["name = 5", "name > 5", "count < 'a'", "fragile > FALSE", "code < 5", "1 = 2", "TRUE = 1"],
)
def test_unlike_kinds_are_unequal_and_in_no_order(text: str) -> None:
    assert not found(text) and found(f"NOT ({text})")


REFUSED = {
    "": "at its end: a name, a constant or a parenthesis is missing",
    "a AND": "at its end",
    "a b": "character 3: an operator is missing",
    "a = b = c": "character 7: before =: comparisons do not follow each other",
    "a IN (1) = b": "character 10: before =: comparisons",
    "a = NOT b": "character 5: before NOT: a name",
    "a NOT b": "character 3: NOT between two operands",
    "a IN ()": "character 7: before )",
    "a IN 1": "character 6: ( is missing",
    "a IS 1": "character 6: NULL is missing",
    "1 IS NULL": "character 3: IS NULL is for the name of a property",
    "(a": "at its end: ) is missing",
    "a)": "character 2: before ): an operator is missing",
    "- - 1 = 1": "character 3: before -: two signs",
    "a and b": "upper case: AND; a property of that name is written as [and]",
    "exists = 1": "EXISTS is not supported; a property of that name is written as [exists]",
    "UPPER(a) = 'A'": "UPPER is not supported",
    "UTC": "at its end: ( is missing",
    "a = 'x": "character 5: the text that begins with ' does not end",
    "[a = 1": "character 1: the name that begins with [",
    "a = 5x": "character 5: '5x' is no number",
    "a = 1.": "'1.' is no number",
    "a = .5": "'.' means nothing here",
    "a = 1E3": "'1E3' is no number",
    "a = 1.0E999": "above what 64 bits hold",
    "a = 0x1": "'0x1' is no number",
    "a = 0xab": "is no number",
    "a = 0x": "is no number",
    "ä = 1": "'ä' means nothing here; names with other characters are written as [a name]",
    "a == 1": "character 4: before =",
    "a; b": "';' means nothing here",
    "p.colour = 1": "section properties has no field 'colour' for filters; it has message_id",
    "h.durable": "section header has no field 'durable'",
    "m.x = 1": "'m.x': sections are header (h)",
    "a LIKE b": "character 8: LIKE needs a constant text",
    "a LIKE 0x41": "LIKE needs a constant text",
    "a LIKE 'x' ESCAPE 'ab'": "ESCAPE takes one character, not 2",
    "a LIKE 'x' ESCAPE ''": "ESCAPE takes one character, not 0",
    "a LIKE 'x!' ESCAPE '!'": "ends with its escape character '!'",
    "a LIKE 'x\n'": "control character 0x0a",
    "[a\tb] = 1": "control character 0x09",
    "a = '\ud800'": "half of a surrogate pair",
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused_with_what_and_where(text: str) -> None:
    with pytest.raises(FilterRefused, match=re.escape(REFUSED[text])):
        SqlFilter(text)


def test_limits_met_and_exceeded() -> None:
    longest = f"a = '{'x' * (FILTER_CHARS_MAX - 6)}'"
    assert SqlFilter(longest).matches(["x" * (FILTER_CHARS_MAX - 6)])
    with pytest.raises(FilterRefused, match="has 4097 characters, 4096 is the limit"):
        SqlFilter(longest + " ")
    most = "a = 1" + " OR a = 1" * 49 + " "
    assert len(most.split()) == FILTER_TOKENS_MAX - 1
    assert SqlFilter("NOT " + most).matches([2])
    with pytest.raises(FilterRefused, match="has 201 words, constants and operators, 200 is"):
        SqlFilter("NOT NOT " + most)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("(" * 99 + "a" + ")" * 99, True),
        ("NOT " * 198 + "a", True),
        ("NOT(" * 66 + "a" + ")" * 66, True),
        ("-(" * 65 + "a" + ")" * 65 + "=1", False),
        ("a" + "=(a" * 49 + ")" * 49, True),
        ("a" + " AND a" * 99, True),
        ("a" + "*a" * 98 + "=a", False),
    ],
)
def test_the_deepest_filters_need_no_more_stack_than_there_is(text: str, answer: bool) -> None:
    assert SqlFilter(text).matches([True]) is answer


def test_identifiers_are_named_once_in_order_and_utc_is_told() -> None:
    made = SqlFilter("p.to = a AND h.priority IN (a, [b]) OR [a] IS NULL OR a LIKE 'x'")
    assert made.identifiers == (
        Identifier(PROPERTIES_SECTION, "to"),
        Identifier(APPLICATION_SECTION, "a"),
        Identifier(HEADER_SECTION, "priority"),
        Identifier(APPLICATION_SECTION, "b"),
    )
    assert not made.uses_time
    for text in ("UTC() > 1", "NOT a IN (1, -UTC())", "a AND b = UTC() % 2", "a IN (UTC() + 1)"):
        assert SqlFilter(text).uses_time, text


# ------------------------------------------------------------------ against other ways to do it


class Counted(str):
    """A text that counts its characters as they are read."""

    __slots__ = ("read",)
    read: int

    def __iter__(self) -> Iterator[str]:
        self.read = 0
        for char in super().__iter__():
            self.read += 1
            yield char


PATTERNS = st.lists(st.sampled_from(["a", "b", "\n", ONE, ANY]), max_size=8).map(tuple)


@given(PATTERNS, st.text("ab\n", max_size=10))
def test_like_finds_what_a_search_that_goes_back_finds(pattern: tuple[str, ...], text: str) -> None:
    pieces = ({ANY: ".*", ONE: "."}.get(one, re.escape(one)) for one in pattern)
    wanted = re.fullmatch("".join(pieces), text, re.DOTALL) is not None
    assert matcher(pattern)(text) is wanted


class Sought(str):
    """A text that notes from where pieces are sought in it."""

    __slots__ = ("places",)
    places: list[int]

    def find(self, piece: str, at: int, stop: int) -> int:  # type: ignore[override]
        self.places.append(at)
        return super().find(piece, at, stop)


@pytest.mark.parametrize("pair", ["%a", "a%", "%ab%%"])
def test_like_without_single_characters_seeks_each_piece_once(pair: str) -> None:
    text = Sought("ab" * 60_000)
    text.places = []
    elements = [{"%": ANY}.get(char, char) for char in pair * 1_000]
    assert not matcher((*elements, "x", ANY))(text)
    assert len(text.places) <= 1_001 and text.places == sorted(text.places)


@pytest.mark.parametrize("pair", ["%_", "_%", "%a_"])
def test_like_reads_each_character_once(pair: str) -> None:
    text = Counted("a" * 60_000)
    elements = [{"%": ANY, "_": ONE}.get(char, char) for char in pair * 1_000]
    assert not matcher((*elements, "x"))(text)
    assert text.read == len(text)


VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from(
        [0.0, -0.5, 1.0, 2.5, "", "a", "ab", b"", b"a", b"\xff", float("inf"), float("nan"), 2**70]
    )
)
NAMES = [
    Identifier(APPLICATION_SECTION, "x"),
    Identifier(APPLICATION_SECTION, "y"),
    Identifier(HEADER_SECTION, "priority"),
]
CONSTANTS = st.sampled_from([True, False, 0, 1, 2, 2.5, "", "a", "a'%b", b"a", b"\xff"])
LEAVES: st.SearchStrategy[Node] = st.one_of(
    st.sampled_from(NAMES), st.builds(Constant, CONSTANTS), st.just(Now())
)


def _larger(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    operators = ["AND", "OR", "=", "<>", "<", "<=", ">", ">=", *"+-*/%"]
    return st.one_of(
        st.builds(Unary, st.sampled_from(["NOT", "+", "-"]), inner),
        st.builds(Binary, st.sampled_from(operators), inner, inner),
        st.builds(Like, inner, PATTERNS.filter(lambda one: "\n" not in one)),
        st.builds(In, inner, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(IsNull, st.sampled_from(NAMES)),
    )


TREES = st.recursive(LEAVES, _larger, max_leaves=10)


def written(node: Node) -> str:
    """The text of a tree, with every parenthesis."""
    match node:
        case Identifier(section, name):
            return f"{section}.{name}"
        case Constant(bool() as value):
            return str(value).upper()
        case Constant(bytes() as value):
            return f"0x{value.hex().upper()}"
        case Constant(str() as value):
            return "'" + value.replace("'", "''") + "'"
        case Constant(value):
            return str(value)
        case Now():
            return "UTC()"
        case IsNull(operand):
            return f"{written(operand)} IS NULL"
        case Like(operand, pattern):
            chars = "".join({ANY: "%", ONE: "_"}.get(one, one) for one in pattern)
            return f"({written(operand)}) LIKE '{chars}'"
        case In(operand, members):
            return f"({written(operand)}) IN ({', '.join(f'({written(m)})' for m in members)})"
        case Unary(sign, operand):
            return f"{sign} ({written(operand)})"
        case Binary(sign, left, right):
            return f"({written(left)}) {sign} ({written(right)})"


def by_the_book(node: Node, values: dict[Identifier, Any]) -> Any:
    """The value of a tree, as the specification's sentences say it one by one."""
    match node:
        case Identifier():
            return values[node]
        case Constant(value):
            return value
        case Now():
            return 5
        case IsNull(operand):
            return values[operand] is None
        case Like(operand, pattern):
            text = by_the_book(operand, values)
            if isinstance(text, bytes):
                text = None if b"\xff" in text else text.decode()
            if not isinstance(text, str):
                return None
            pieces = ({ANY: ".*", ONE: "."}.get(one, re.escape(one)) for one in pattern)
            return re.fullmatch("".join(pieces), text) is not None
        case In(operand, members):
            value = by_the_book(operand, values)
            each = [compared("=", value, by_the_book(member, values)) for member in members]
            return None if value is None else True in each
        case Unary("NOT", operand):
            return {True: False, False: True}.get(truth(by_the_book(operand, values)))
        case Unary(sign, operand):
            value = by_the_book(operand, values)
            return computed("-", 0, value) if sign == "-" else computed("+", 0, value)
        case Binary("AND" | "OR" as sign, left, right):
            both = [truth(by_the_book(left, values)), truth(by_the_book(right, values))]
            order = [False, None, True]
            pick = min if sign == "AND" else max
            return order[pick(order.index(one) for one in both)]
        case Binary(sign, left, right) if sign in "+-*/%":
            return computed(sign, by_the_book(left, values), by_the_book(right, values))
        case Binary(sign, left, right):
            return compared(sign, by_the_book(left, values), by_the_book(right, values))


def truth(value: Any) -> bool | None:
    return value if type(value) is bool else None


def numeric(value: Any) -> bool:
    return type(value) in (int, float)


def compared(sign: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    left, right = (one.encode() if type(one) is str else one for one in (left, right))
    alike = type(left) is type(right) or (numeric(left) and numeric(right))
    if sign == "=":
        return alike and bool(left == right)
    if sign == "<>":
        return not (alike and left == right)
    if not alike or type(left) is bool:
        return False
    return bool(
        {"<": left < right, "<=": left <= right, ">": left > right}.get(sign, left >= right)
    )


def computed(sign: str, left: Any, right: Any) -> Any:
    if not numeric(left) or not numeric(right):
        return None
    if sign in "/%" and right == 0:
        return None
    if sign == "%":
        if type(left) is float or type(right) is float:
            return None
        return left - right * (abs(left) // abs(right)) * (1 if (left < 0) == (right < 0) else -1)
    if sign == "/":
        result = left / right
    else:
        result = {"+": left + right, "-": left - right, "*": left * right}[sign]
    finite = type(result) is int or result - result == 0
    return result if finite else None


def _sign_of_infinity(node: Node, values: dict[Identifier, Any]) -> bool:
    """A sign alone keeps what is not finite; `computed` does not."""
    match node:
        case Unary("+" | "-", operand):
            value = by_the_book(operand, values)
            return type(value) is float and value - value != 0
        case _:
            return False


def nodes_of(node: Node) -> Iterator[Node]:
    yield node
    match node:
        case Unary(_, operand) | Like(operand, _):
            yield from nodes_of(operand)
        case Binary(_, left, right):
            yield from nodes_of(left)
            yield from nodes_of(right)
        case In(operand, members):
            for one in (operand, *members):
                yield from nodes_of(one)


@given(TREES, st.tuples(VALUES, VALUES, VALUES))
def test_a_tree_is_read_as_written_and_has_the_value_of_the_book(
    tree: Node, given_values: tuple[Any, ...]
) -> None:
    text = written(tree)
    if len(text) > FILTER_CHARS_MAX:
        return
    values = dict(zip(NAMES, given_values, strict=True))
    assert parse(text) == tree
    if any(_sign_of_infinity(one, values) for one in nodes_of(tree)):
        return
    made = SqlFilter(text)
    answer = made.matches([values[one] for one in made.identifiers], 5)
    assert answer is (by_the_book(tree, values) is True)


WORDS = [
    "AND",
    "OR",
    "NOT",
    "LIKE",
    "IN",
    "IS",
    "NULL",
    "ESCAPE",
    "TRUE",
    "FALSE",
    "UTC",
    "(",
    ")",
    ",",
    "=",
    "<>",
    "!=",
    "<",
    ">",
    "<=",
    ">=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "a",
    "p.to",
    "h.priority",
    "[b]",
    "1",
    "2.5",
    "0xFF",
    "'%_'",
    "''",
    "and",
    "\x00",
    "'",
    "[",
    '"',
    "é",
]


@given(
    st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join) | st.text(max_size=40),
    st.lists(VALUES, min_size=30, max_size=30),
)
def test_any_text_is_refused_or_has_an_answer_for_any_values(text: str, values: list[Any]) -> None:
    try:
        made = SqlFilter(text)
    except FilterRefused as wrong:
        assert str(wrong)
        return
    assert made.matches(values[: len(made.identifiers)], 1) in (True, False)
