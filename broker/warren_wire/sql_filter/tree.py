"""Expressions of a SQL filter as a tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

HEADER_SECTION: Final = "header"
PROPERTIES_SECTION: Final = "properties"
APPLICATION_SECTION: Final = "application_properties"

Value: TypeAlias = bool | int | float | str | bytes | None
"""What an expression is of a message; None: unknown, as where a message has no such property."""


@dataclass(frozen=True, slots=True)
class Identifier:
    """A field of the message's header or properties, or the name of an application property."""

    section: str
    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A number, a text, bytes, TRUE or FALSE."""

    value: Value


@dataclass(frozen=True, slots=True)
class Now:
    """UTC(): milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Unary:
    """NOT, or a sign."""

    operator: str
    operand: Node


@dataclass(frozen=True, slots=True)
class Binary:
    """AND, OR, a comparison, or arithmetic; `<>` also where the text says `!=`."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Like:
    """LIKE: elements of the pattern, each a character, or one of the two wildcards."""

    operand: Node
    pattern: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class In:
    """IN: equality with any of some expressions."""

    operand: Node
    members: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """IS NULL."""

    operand: Identifier


ANY: Final = "%%"
"""Element of a pattern: any text."""
ONE: Final = "__"
"""Element of a pattern: any character."""

Node: TypeAlias = Identifier | Constant | Now | Unary | Binary | Like | In | IsNull
