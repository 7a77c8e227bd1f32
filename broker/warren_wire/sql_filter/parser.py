"""The tree of a SQL filter's tokens.

Operators by strength: OR, AND, NOT, comparisons (with LIKE, IN and IS NULL, which do not chain),
`+ -`, `* / %`, signs. One call per operator that waits for its operand, so that the bound on tokens
is one on the depth of calls.
"""

from __future__ import annotations

from typing import Final

from warren_wire.sql_filter.lexer import UTC, FilterRefused, Token, refuse_control, tokens
from warren_wire.sql_filter.tree import (
    ANY,
    ONE,
    Binary,
    Constant,
    Identifier,
    In,
    IsNull,
    Like,
    Node,
    Now,
    Unary,
)

_NOT: Final = 3
_COMPARED: Final = 4
_SUM: Final = 5
_STRENGTH: Final = {
    "OR": 1,
    "AND": 2,
    **dict.fromkeys(("=", "<>", "<", ">", "<=", ">=", "LIKE", "IN", "IS", "NOT"), _COMPARED),
    **dict.fromkeys("+-", _SUM),
    **dict.fromkeys("*/%", _SUM + 1),
}
"""Of the operators between two operands; NOT is one as in NOT LIKE."""


def parse(text: str) -> Node:
    """Return the tree of a filter; raises FilterRefused."""
    parser = _Parser(tokens(text))
    node = parser.expression(0)
    parser.end()
    return node


class _Parser:
    def __init__(self, given: list[Token]) -> None:
        self._tokens = given
        self._next = 0

    # -------------------------------------------------------------- tokens

    @property
    def _here(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._here
        if token is not self._tokens[-1]:
            self._next += 1
        return token

    def _took(self, text: str) -> bool:
        found = self._here.text == text
        if found:
            self._take()
        return found

    def _expect(self, text: str) -> None:
        if not self._took(text):
            raise self._wrong(f"{text} is missing")

    def _wrong(self, what: str) -> FilterRefused:
        token = self._here
        if token is self._tokens[-1]:
            return FilterRefused(f"at its end: {what}")
        shown = f"before {token.text}: " if token.text else ""
        return FilterRefused(f"character {token.at + 1}: {shown}{what}")

    def end(self) -> None:
        """Raise FilterRefused unless everything is read."""
        if self._here is not self._tokens[-1]:
            raise self._wrong("an operator is missing, or something is too much")

    # -------------------------------------------------------------- expressions

    def expression(self, least: int) -> Node:
        """Return an expression of operators that are at least that strong."""
        if self._here.text == "NOT" and least <= _NOT:
            self._take()
            node: Node = Unary("NOT", self.expression(_NOT))
            bound = _NOT
        else:
            node = self._operand()
            bound = _SUM + 1
        while True:
            strength = _STRENGTH.get(self._here.text, -1)
            if strength < max(least, 1):
                return node
            if strength > bound:
                raise self._wrong("comparisons do not follow each other; put one in parentheses")
            node = self._compared(node) if strength == _COMPARED else self._joined(node, strength)
            bound = strength - 1 if strength == _COMPARED else strength

    def _joined(self, left: Node, strength: int) -> Node:
        operator = self._take().text
        return Binary(operator, left, self.expression(strength + 1))

    def _compared(self, left: Node) -> Node:
        token = self._take()
        if token.text == "IS":
            negated = self._took("NOT")
            self._expect("NULL")
            if not isinstance(left, Identifier):
                raise FilterRefused(
                    f"character {token.at + 1}: IS NULL is for the name of a property"
                )
            return _perhaps_not(IsNull(left), negated)
        negated = token.text == "NOT"
        operator = self._take().text if negated else token.text
        if operator == "LIKE":
            return _perhaps_not(Like(left, self._pattern()), negated)
        if operator == "IN":
            return _perhaps_not(In(left, self._members()), negated)
        if negated:
            raise FilterRefused(
                f"character {token.at + 1}: NOT between two operands needs LIKE or IN behind it"
            )
        return Binary(operator, left, self.expression(_SUM))

    def _operand(self) -> Node:
        token = self._here
        if token.given is not None:
            self._take()
            return token.given
        if self._took("("):
            node = self.expression(0)
            self._expect(")")
            return node
        if token.text in ("+", "-"):
            self._take()
            if self._here.text in ("+", "-"):
                raise self._wrong("two signs; put the second one in parentheses")
            return Unary(token.text, self._operand())
        if self._took(UTC):
            self._expect("(")
            self._expect(")")
            return Now()
        raise self._wrong("a name, a constant or a parenthesis is missing")

    def _members(self) -> tuple[Node, ...]:
        self._expect("(")
        members = [self.expression(_SUM)]
        while self._took(","):
            members.append(self.expression(_SUM))
        self._expect(")")
        return tuple(members)

    # -------------------------------------------------------------- patterns

    def _pattern(self) -> tuple[str, ...]:
        token = self._here
        pattern = self._text("LIKE needs a constant text behind it")
        refuse_control(pattern, token.at)
        escape = ""
        if self._took("ESCAPE"):
            escape = self._text("ESCAPE needs a constant text behind it")
            if len(escape) != 1:
                raise FilterRefused(
                    f"character {token.at + 1}: ESCAPE takes one character, not {len(escape)}"
                )
        elements: list[str] = []
        chars = iter(pattern)
        for char in chars:
            if char == escape:
                escaped = next(chars, "")
                if not escaped:
                    raise FilterRefused(
                        f"character {token.at + 1}: the pattern ends with its escape character "
                        f"{escape!r}"
                    )
                elements.append(escaped)
            else:
                elements.append({"%": ANY, "_": ONE}.get(char, char))
        return tuple(elements)

    def _text(self, missing: str) -> str:
        given = self._here.given
        if not isinstance(given, Constant) or not isinstance(given.value, str):
            raise self._wrong(missing)
        self._take()
        return given.value


def _perhaps_not(node: Node, negated: bool) -> Node:
    return Unary("NOT", node) if negated else node
