"""A filter that is ready to be asked: three-valued logic, and values that are never errors.

None is unknown. What cannot be computed (arithmetic on a text, a division by zero) is unknown, and
unlike kinds are unequal and in no order. A text and bytes are one kind: a text is its UTF-8.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from warren_wire.sql_filter.lexer import UTC, tokens
from warren_wire.sql_filter.like import matcher
from warren_wire.sql_filter.parser import parse
from warren_wire.sql_filter.tree import (
    Binary,
    Constant,
    Identifier,
    In,
    IsNull,
    Like,
    Node,
    Now,
    Unary,
    Value,
)

Values: TypeAlias = Sequence[Value]
"""Of the identifiers, by number; the time of UTC() comes behind them."""
Evaluate: TypeAlias = Callable[[Values], Value]

_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class SqlFilter:
    """A SQL filter expression of AMQP 1.0.

    text         as it was given
    identifiers  what it needs of a message, in the order in which `matches` takes the values
    uses_time    it has UTC(): its answer changes with the time
    """

    __slots__ = ("_evaluate", "identifiers", "text", "uses_time")

    def __init__(self, text: str) -> None:
        """Raises FilterRefused."""
        numbers: dict[Identifier, int] = {}
        self.text = text
        self._evaluate = compiled(parse(text), numbers)
        self.identifiers = tuple(numbers)
        self.uses_time = any(token.text == UTC for token in tokens(text))

    def matches(self, values: Values, now_ms: int = 0) -> bool:
        """Return whether the filter is true of a message, not false and not unknown.

        values  of the identifiers; None where the message lacks it. Never an error, of whatever
                types they are
        now_ms  since 1970, for UTC()
        """
        return self._evaluate((*values, now_ms)) is True


def compiled(node: Node, numbers: dict[Identifier, int]) -> Evaluate:
    """Return a function of an expression.

    numbers  of the identifiers; filled with those that are new
    """
    match node:
        case Identifier():
            at = numbers.setdefault(node, len(numbers))
            return lambda values: values[at]
        case Constant(value):
            return lambda values: value
        case Now():
            return lambda values: values[-1]
        case IsNull(operand):
            found = compiled(operand, numbers)
            return lambda values: found(values) is None
        case Like(operand, pattern):
            return _like(compiled(operand, numbers), matcher(pattern))
        case In(operand, members):
            return _in(compiled(operand, numbers), [compiled(one, numbers) for one in members])
        case Unary(sign, operand):
            return _unary(sign, compiled(operand, numbers))
        case Binary(sign, left, right):
            return _binary(sign, compiled(left, numbers), compiled(right, numbers))


def _unary(sign: str, operand: Evaluate) -> Evaluate:
    if sign == "NOT":

        def negate(values: Values) -> Value:
            value = operand(values)
            return not value if isinstance(value, bool) else None

        return negate

    def signed(values: Values) -> Value:
        value = operand(values)
        if not _is_number(value):
            return None
        return -value if sign == "-" else value  # type: ignore[operator]

    return signed


def _binary(sign: str, left: Evaluate, right: Evaluate) -> Evaluate:
    if sign in ("AND", "OR"):
        return _logical(sign == "OR", left, right)
    if sign in _ARITHMETIC:
        compute = _ARITHMETIC[sign]
        return lambda values: _computed(compute, left(values), right(values))
    if sign in _ORDERS:
        order = _ORDERS[sign]
        return lambda values: _ordered(order, left(values), right(values))
    wanted = sign == "="

    def compare(values: Values) -> Value:
        one, other = left(values), right(values)
        return None if one is None or other is None else equal(one, other) == wanted

    return compare


def _logical(decides: bool, left: Evaluate, right: Evaluate) -> Evaluate:
    """Return AND, or OR: a value that decides, one or the other way round, hides an unknown one."""

    def join(values: Values) -> Value:
        one = left(values)
        if one is decides:
            return decides
        other = right(values)
        if other is decides:
            return decides
        return not decides if isinstance(one, bool) and isinstance(other, bool) else None

    return join


def _like(operand: Evaluate, match: Callable[[str], bool]) -> Evaluate:
    def like(values: Values) -> Value:
        value = operand(values)
        if isinstance(value, bytes):
            try:
                value = value.decode()
            except UnicodeDecodeError:
                return None
        return match(value) if isinstance(value, str) else None

    return like


def _in(operand: Evaluate, members: list[Evaluate]) -> Evaluate:
    def within(values: Values) -> Value:
        value = operand(values)
        if value is None:
            return None
        return any(equal(value, member(values)) for member in members)

    return within


# ------------------------------------------------------------------ values


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _as_bytes(value: Value) -> bytes | None:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return value if isinstance(value, bytes) else None


def equal(left: Value, right: Value) -> bool:
    """Return whether two known values are equal: numbers by value, a text and its UTF-8."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if _is_number(left) and _is_number(right):
        return left == right
    one, other = _as_bytes(left), _as_bytes(right)
    return one is not None and one == other


def _ordered(order: Callable[[Any, Any], bool], left: Value, right: Value) -> Value:
    if left is None or right is None:
        return None
    if _is_number(left) and _is_number(right):
        return order(left, right)
    one, other = _as_bytes(left), _as_bytes(right)
    return one is not None and other is not None and order(one, other)


def _computed(compute: Callable[[Any, Any], Any], left: Value, right: Value) -> Value:
    if not _is_number(left) or not _is_number(right):
        return None
    try:
        found: Value = compute(left, right)
    except ArithmeticError:
        return None
    return None if isinstance(found, float) and not math.isfinite(found) else found


def _remainder(left: Any, right: Any) -> int | None:
    """Return the remainder with the sign of the dividend; None unless both are whole numbers."""
    if not isinstance(left, int) or not isinstance(right, int):
        return None
    found = abs(left) % abs(right)
    return -found if left < 0 else found


_ARITHMETIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": _remainder,
}
