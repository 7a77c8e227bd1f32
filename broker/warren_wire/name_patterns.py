"""Regular expressions over names, matched by RE2: in time proportional to a name's length.

A backtracking engine takes exponential time for some patterns: `(a+)+$` on thirty letters holds a
node for minutes. RE2 never goes back. What a pattern may cost is bounded by the size of its program
(PROGRAM_BYTES_MAX), and known before a name is matched (`Pattern.steps`).

The syntax is RE2's, which has no back references, no look-around and no possessive or atomic
groups. Look-aheads directly behind a leading `^`, as in `^(?!amq\\.)`, are taken apart here: each
is a pattern of its own over the same name. A pattern is found anywhere in a name, as in RabbitMQ;
`$` is the name's end, also behind a line feed; a class like `\\w` contains ASCII.

Names are matched as UTF-8. A byte of a name that is no UTF-8 counts as one character, U+FFFD.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

import re2

PATTERN_BYTES_MAX: Final = 1024
"""RabbitMQ's bound."""
PROGRAM_BYTES_MAX: Final = 256 << 10
"""RE2's bound on what it keeps of one pattern (`max_mem`): its program, which has at most some
2,700 instructions, and states that are computed for names."""
MATCHER_STEPS_MAX: Final = 8_000
MATCHER_BYTES_MAX: Final = 2 << 20
"""The same for patterns that are matched as one program, of so many instructions at most."""

_FRONT: Final = re.compile(r"((?:\(\?[ismU-]+\))*)(?:\^|\\A)(?=\(\?[!=])")
"""What may stand in front of look-aheads."""
_TOKEN: Final = re.compile(
    r"\\Q.*?(?:\\E|\Z)|\\.|\[\^?\]?(?:\[:\w+:\]|\\.|[^\]\\])*+\]|.", re.DOTALL
)
"""A quotation, an escaped character, a class, or any other character of a pattern."""
_NO_TEXT: Final = re.compile("[\\ud800-\\udfff]")


class BadPattern(ValueError):
    """A pattern that cannot be used; the text says why, and what can be done."""


class Pattern:
    """A checked pattern.

    must   expressions of RE2 that are found in each name that the pattern is found in
    never  those that are not
    steps  instructions of their programs: one character of a name costs at most so many
    """

    __slots__ = ("must", "never", "steps", "text")

    def __init__(
        self, text: str, ignore_case: bool = False, bytes_max: int = PATTERN_BYTES_MAX
    ) -> None:
        """Raises BadPattern."""
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > bytes_max:
            raise BadPattern(f"must not exceed {bytes_max} bytes")
        if _NO_TEXT.search(text):
            raise BadPattern("should be regular expression but is invalid: it is not UTF-8")
        self.text = text
        self.must, self.never = _split(f"(?i){text}" if ignore_case else text)
        self.steps = sum(_program_size(one) for one in (*self.must, *self.never))


class NameMatcher:
    """Finds the first of some patterns that a name contains.

    patterns  in the order of preference
    steps     what one byte of a name costs at most

    _parts    compiled expressions of some of the patterns; by the number of a pattern's first
              expression among them: its position, and what must be found with it, what must not
    """

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self.steps = sum(pattern.steps for pattern in patterns)
        self._parts: list[tuple[re2.Set, _Rules]] = []
        begin = steps = 0
        for at, pattern in enumerate(patterns):
            if at > begin and steps + pattern.steps > MATCHER_STEPS_MAX:
                self._parts.append(_together(patterns, begin, at))
                begin, steps = at, 0
            steps += pattern.steps
        if patterns:
            self._parts.append(_together(patterns, begin, len(patterns)))

    def first(self, name: str) -> int | None:
        """Return the position of the first pattern found in the name; None: there is none."""
        try:
            data = name.encode()
        except UnicodeEncodeError:
            data = _NO_TEXT.sub("\ufffd", name).encode()
        for compiled, rules in self._parts:
            found = compiled.Match(data)
            for one in sorted(found or ()):
                if one in rules:
                    at, must, never = rules[one]
                    if must.issubset(found) and never.isdisjoint(found):
                        return at
        return None

    def cost(self, name: str) -> int:
        """Return the steps that a name costs at most, each of some nanoseconds."""
        return self.steps * (len(name) + 1)


_Rules: TypeAlias = dict[int, tuple[int, frozenset[int], frozenset[int]]]


def _together(patterns: Sequence[Pattern], begin: int, end: int) -> tuple[re2.Set, _Rules]:
    """Compile the patterns at begin <= i < end as one program."""
    alone = end - begin == 1
    expressions: list[str] = []
    rules: _Rules = {}
    for at in range(begin, end):
        first = len(expressions)
        expressions += patterns[at].must
        behind = len(expressions)
        expressions += patterns[at].never
        never = frozenset(range(behind, len(expressions)))
        rules[first] = (at, frozenset(range(first, behind)), never)
    return _compiled(expressions, PROGRAM_BYTES_MAX if alone else MATCHER_BYTES_MAX), rules


def _options(bytes_max: int) -> re2.Options:
    made = re2.Options()
    made.max_mem = bytes_max
    made.never_capture = True
    made.log_errors = False
    return made


def _compiled(expressions: Sequence[str], bytes_max: int) -> re2.Set:
    """Compile expressions that are matched at once; raises re2.error."""
    made = re2.Set.SearchSet(_options(bytes_max))
    for one in expressions:
        made.Add(one)
    made.Compile()
    return made


# ------------------------------------------------------------------ checks


def _program_size(text: str) -> int:
    """Return the instructions of an expression's program; raises BadPattern."""
    try:
        size = int(re2.compile(text, _options(PROGRAM_BYTES_MAX)).programsize)
        _compiled([text], PROGRAM_BYTES_MAX)
    except re2.error as error:
        raise BadPattern(_why(error)) from error
    finally:
        re2.purge()  # it keeps the last 128, of any size
    return size


def _why(error: Exception) -> str:
    found = error.args[0]
    said = found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)
    if "too large" in said or "compile Set" in said:
        return (
            f"is too large: its program with the repeats written out needs more than "
            f"{PROGRAM_BYTES_MAX:,} bytes"
        )
    if re.search(r"\(\?<?[!=]", said):
        return (
            "has a look-around that is not supported: only (?!…) and (?=…) directly behind a "
            "leading ^ are, where no | follows outside of a group"
        )
    if re.search(r"escape sequence: \\[1-9]", said):
        return f"has a back reference, which is not supported: {said}"
    return f"should be regular expression but is invalid: {said}"


# ------------------------------------------------------------------ look-aheads at the front


def _split(text: str) -> tuple[list[str], list[str]]:
    """Return the expressions that must be found, and those that must not, of a pattern.

    A pattern with look-aheads that cannot be taken apart is returned as it is: RE2 refuses it.
    """
    front = _FRONT.match(text)
    if front is None:
        return [text], []
    anchor = f"{front[1]}^"
    must: list[str] = []
    never: list[str] = []
    at = front.end()
    while text.startswith(("(?!", "(?="), at):
        end = _closed(text, at)
        if end is None:
            return [text], []
        (never if text[at + 2] == "!" else must).append(f"{anchor}(?:{text[at + 3 : end]})")
        at = end + 1
    if _closed(f"({text[at:]})", 0, alternatives=False) != len(text) - at + 1:
        return [text], []
    return [f"{anchor}{text[at:]}", *must], never


def _closed(text: str, at: int, alternatives: bool = True) -> int | None:
    """Return where the group that opens at `at` closes; None: it does not.

    alternatives  it may have some; else it counts as not closed with them
    """
    depth = 0
    for token in _TOKEN.finditer(text, at):
        if token[0] == "(":
            depth += 1
        elif token[0] == ")":
            depth -= 1
            if not depth:
                return token.start()
        elif token[0] == "|" and depth == 1 and not alternatives:
            return None
    return None
