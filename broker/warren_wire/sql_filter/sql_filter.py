"""A filter that is ready to be asked."""

from __future__ import annotations

from warren_wire.sql_filter.evaluate import Values, compiled
from warren_wire.sql_filter.parser import parse
from warren_wire.sql_filter.tree import Binary, Identifier, In, Like, Node, Now, Unary


class SqlFilter:
    """A SQL filter expression of AMQP 1.0.

    text         as it was given
    identifiers  what it needs of a message, in the order in which `matches` takes the values
    uses_time    it has UTC(): its answer changes with the time
    """

    __slots__ = ("_evaluate", "identifiers", "text", "uses_time")

    def __init__(self, text: str) -> None:
        """Raises FilterRefused."""
        tree = parse(text)
        numbers: dict[Identifier, int] = {}
        self.text = text
        self._evaluate = compiled(tree, numbers)
        self.identifiers = tuple(numbers)
        self.uses_time = _uses_time(tree)

    def matches(self, values: Values, now_ms: int = 0) -> bool:
        """Return whether the filter is true of a message, not false and not unknown.

        values  of the identifiers; None where the message lacks it. Never an error, of whatever
                types they are
        now_ms  since 1970, for UTC()
        """
        return self._evaluate((*values, now_ms)) is True


def _uses_time(node: Node) -> bool:
    match node:
        case Now():
            return True
        case Unary(_, operand) | Like(operand, _):
            return _uses_time(operand)
        case Binary(_, left, right):
            return _uses_time(left) or _uses_time(right)
        case In(operand, members):
            return any(_uses_time(one) for one in (operand, *members))
        case _:
            return False
