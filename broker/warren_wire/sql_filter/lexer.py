"""Tokens of a SQL filter's text."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from warren_wire.sql_filter.tree import (
    APPLICATION_SECTION,
    HEADER_SECTION,
    PROPERTIES_SECTION,
    Constant,
    Identifier,
    Value,
)

FILTER_CHARS_MAX: Final = 4096
"""Characters of a filter; RabbitMQ's bound, as is FILTER_TOKENS_MAX."""
FILTER_TOKENS_MAX: Final = 200
UTC: Final = "UTC"
WORDS: Final = frozenset({"AND", "OR", "NOT", "LIKE", "IN", "IS", "NULL", "ESCAPE", UTC})
"""Reserved words that are operators; TRUE and FALSE are constants."""
_TRUTHS: Final = {"TRUE": True, "FALSE": False}
_UNSUPPORTED: Final = frozenset(
    {"EXISTS", "NAN", "INF", "LOWER", "UPPER", "LEFT", "RIGHT", "SUBSTRING", "DATE"}
)
_SECTIONS: Final = {
    "header": HEADER_SECTION,
    "h": HEADER_SECTION,
    "properties": PROPERTIES_SECTION,
    "p": PROPERTIES_SECTION,
    "application_properties": APPLICATION_SECTION,
    "a": APPLICATION_SECTION,
}
_FIELDS: Final = {
    HEADER_SECTION: ("priority",),
    PROPERTIES_SECTION: (
        "message_id",
        "user_id",
        "to",
        "subject",
        "reply_to",
        "correlation_id",
        "content_type",
        "content_encoding",
        "absolute_expiry_time",
        "creation_time",
        "group_id",
        "group_sequence",
        "reply_to_group_id",
    ),
}
_TOKEN: Final = re.compile(
    r"""
    (?P<space>[ \t\f\n\r]+)
    | (?P<binary>0x(?:[0-9A-F]{2})+(?![0-9A-Za-z_]))
    | (?P<float>[0-9]+\.[0-9]+(?:E[+-]?[0-9]+)?(?![0-9A-Za-z_.]))
    | (?P<integer>[0-9]+(?![0-9A-Za-z_.]))
    | (?P<string>'[^']*+(?:''[^']*+)*+' | "[^"]*+(?:""[^"]*+)*+")
    | (?P<section>[A-Za-z][A-Za-z_]*\.[A-Za-z][A-Za-z0-9_]*)
    | (?P<word>[A-Za-z][A-Za-z0-9_]*)
    | (?P<delimited>\[(?:[^\[\]]|\[\[|\]\])*+\])
    | (?P<operator><>|!=|>=|<=|[=<>+\-*/%(),])
    """,
    re.VERBOSE,
)


class FilterRefused(ValueError):
    """A text that is no filter; says what, where, and what can be done."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token and where it begins.

    text   an operator or reserved word; "" for an operand
    given  the constant or identifier; None for the others
    """

    at: int
    text: str
    given: Constant | Identifier | None = None


def tokens(text: str) -> list[Token]:
    """Return the tokens of a filter, with one of text "" and no operand at its end."""
    if len(text) > FILTER_CHARS_MAX:
        raise FilterRefused(
            f"has {len(text)} characters, {FILTER_CHARS_MAX} is the limit: make it shorter"
        )
    if any(0xD800 <= ord(char) < 0xE000 for char in text):
        raise FilterRefused("has half of a surrogate pair, which UTF-8 cannot represent")
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise FilterRefused(f"character {at + 1}: {_unreadable(text, at)}")
        if match.lastgroup != "space":
            found.append(_token(at, match.lastgroup or "", match.group()))
        at = match.end()
    if len(found) > FILTER_TOKENS_MAX:
        raise FilterRefused(
            f"has {len(found)} words, constants and operators, {FILTER_TOKENS_MAX} is the limit: "
            "make it shorter"
        )
    return [*found, Token(len(text), "")]


def _unreadable(text: str, at: int) -> str:
    char = text[at]
    if char in "'\"":
        return f"the text that begins with {char} does not end"
    if char == "[":
        return "the name that begins with [ does not end, or has a bracket that is not doubled"
    if char.isdigit():
        return (
            f"{text[at : at + 12]!r} is no number; give such as 5, 1.5, 1.5E3 or, for bytes, 0x0AFF"
        )
    return f"{char!r} means nothing here; names with other characters are written as [a name]"


def _token(at: int, kind: str, text: str) -> Token:
    if kind == "operator":
        return Token(at, "<>" if text == "!=" else text)
    if kind == "word":
        return _word(at, text)
    if kind == "section":
        return Token(at, "", _field(at, text))
    if kind == "delimited":
        name = text[1:-1].replace("[[", "[").replace("]]", "]")
        refuse_control(name, at)
        return Token(at, "", Identifier(APPLICATION_SECTION, name))
    return Token(at, "", Constant(_constant(at, kind, text)))


def _constant(at: int, kind: str, text: str) -> Value:
    if kind == "binary":
        return bytes.fromhex(text[2:])
    if kind == "string":
        return text[1:-1].replace(text[0] * 2, text[0])
    if kind == "integer":
        return int(text)
    number = float(text)
    if not math.isfinite(number):
        raise FilterRefused(
            f"character {at + 1}: {text[:40]} is above what 64 bits hold; give a smaller number"
        )
    return number


def _word(at: int, text: str) -> Token:
    if text in WORDS:
        return Token(at, text)
    if text in _TRUTHS:
        return Token(at, "", Constant(_TRUTHS[text]))
    upper = text.upper()
    if upper in _UNSUPPORTED:
        raise FilterRefused(
            f"character {at + 1}: {upper} is not supported; a property of that name is written as "
            f"[{text}]"
        )
    if upper in WORDS or upper in _TRUTHS:
        raise FilterRefused(
            f"character {at + 1}: reserved words are written in upper case: {upper}; a property of "
            f"that name is written as [{text}]"
        )
    return Token(at, "", Identifier(APPLICATION_SECTION, text))


def _field(at: int, text: str) -> Identifier:
    prefix, name = text.split(".")
    section = _SECTIONS.get(prefix)
    if section is None:
        raise FilterRefused(
            f"character {at + 1}: {text!r}: sections are header (h), properties (p) and "
            "application_properties (a); a property with a dot in its name is written as "
            f"[{text}]"
        )
    if section != APPLICATION_SECTION and name not in _FIELDS[section]:
        raise FilterRefused(
            f"character {at + 1}: section {section} has no field {name!r} for filters; it has "
            f"{', '.join(_FIELDS[section])}"
        )
    return Identifier(section, name)


def refuse_control(text: str, at: int) -> None:
    """Raise FilterRefused for a control character in a name or pattern that begins at `at`."""
    for char in text:
        if ord(char) < 32 or ord(char) == 127:
            raise FilterRefused(
                f"character {at + 1}: control character {ord(char):#04x} in a name or pattern"
            )
