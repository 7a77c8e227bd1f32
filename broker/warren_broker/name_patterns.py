"""Regular expressions over names, matched in time proportional to a name's length.

A backtracking engine takes exponential time for some patterns: `(a+)+$` on thirty letters holds a
node for minutes. Here patterns become one automaton. Its states are computed when a name first
needs them and are then kept: a character costs one look-up, whatever the number of patterns. Where
nothing is kept yet, it costs at most the number of the automaton's nodes, which is bounded
(AUTOMATON_NODES_MAX per pattern).

The syntax is that of Python's `re`, without what no automaton can match: back references,
look-around (except behind a leading `^`, as in `^(?!amq\\.)`), `\\b`, atomic groups. `$` is the end
of a name, also behind a line feed. As in RabbitMQ a pattern is found anywhere in a name.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from re import _compiler as compiler  # type: ignore[attr-defined]
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final, TypeAlias

PATTERN_BYTES_MAX: Final = 1024
"""RabbitMQ's bound."""
AUTOMATON_NODES_MAX: Final = 2_000
"""Nodes of one pattern's automata, with its repeats written out."""
ALTERNATIVES_MAX: Final = 32
"""Alternatives of one pattern that begin with look-aheads of their own."""
PATTERN_NESTING_MAX: Final = 100
"""Groups, repeats and alternatives of a pattern inside of one another: it is taken apart by calls
inside of calls. Without a bound of its own a pattern was refused or not by how many calls led to
it, so that one could be set, and be unusable where it was needed."""
STATES_KEPT_MAX: Final = 5_000
"""States kept of a matcher; beyond it all are forgotten, and computed again when needed."""
_CLASSES: Final = re.ASCII | re.UNICODE
"""One of them holds: what a class like `\\w` contains, which letters `(?i)` takes as equal."""
_SUPPORTED_FLAGS: Final = _CLASSES | re.IGNORECASE | re.DOTALL | re.VERBOSE

_AT_THE_FRONT: Final = (ops.AT, ops.ASSERT, ops.ASSERT_NOT)

Items: TypeAlias = Sequence[tuple[Any, Any]]
"""A sequence as Python's parser gives it: (operation, its argument)."""


class BadPattern(ValueError):
    """A pattern that cannot be used; the text says why, and what can be done."""


class Pattern:
    """A checked pattern: alternatives, each of what must be found and what must not.

    Each of these is (items, flags): a sequence of its own, looked for in the same name.

    classes    re.ASCII, or re.UNICODE
    bytes_max  of the pattern
    """

    __slots__ = ("alternatives", "text")

    def __init__(
        self,
        text: str,
        classes: re.RegexFlag = re.ASCII,
        bytes_max: int = PATTERN_BYTES_MAX,
    ) -> None:
        """Raises BadPattern."""
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > bytes_max:
            raise BadPattern(f"must not exceed {bytes_max} bytes")
        self.text = text
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", FutureWarning)
                parsed = parser.parse(text, classes)
            flags = parsed.state.flags
            _check_flags(flags)
            _check_nesting(list(parsed))
            self.alternatives = [_split(items) for items in _distributed(list(parsed))]
            self._check(flags)
        except re.error as error:
            raise BadPattern(f"should be regular expression but is invalid: {error}") from error
        except (FutureWarning, OverflowError, RecursionError) as error:
            raise BadPattern(
                f"should be regular expression but is invalid: {str(error) or 'nested too deeply'}"
            ) from error
        self.alternatives = [
            (tuple((found, flags) for found in must), tuple((found, flags) for found in never))
            for must, never in self.alternatives
        ]

    def _check(self, flags: int) -> None:
        automaton = _Automaton(AUTOMATON_NODES_MAX)
        for must, never in self.alternatives:
            for items in (*must, *never):
                automaton.add(items, flags, 1)


def _check_flags(flags: int) -> None:
    if flags & ~_SUPPORTED_FLAGS:
        raise BadPattern("should be regular expression but has flags other than i, s and x")


def _check_nesting(items: Items) -> None:
    waiting = [(items, 0)]
    while waiting:
        each, depth = waiting.pop()
        if depth > PATTERN_NESTING_MAX:
            raise BadPattern(f"is nested too deeply: more than {PATTERN_NESTING_MAX} levels")
        waiting += [(inner, depth + 1) for item in each for inner in _inside(*item)]


def _inside(kind: Any, argument: Any) -> list[Any]:
    """Return the sequences inside of an item, of a kind that `_Automaton` looks into."""
    if kind is ops.SUBPATTERN:
        return [argument[3]]
    if kind is ops.BRANCH:
        return list(argument[1])
    if kind in (ops.MAX_REPEAT, ops.MIN_REPEAT):
        return [argument[2]]
    if kind in (ops.ASSERT, ops.ASSERT_NOT):
        return [argument[1]]
    return []


def _distributed(items: list[Any]) -> list[list[Any]]:
    """Write a pattern that begins with alternatives with look-aheads as separate sequences."""
    done: list[list[Any]] = []
    waiting = [items]
    while waiting:
        one = waiting.pop()
        behind = (i for i, item in enumerate(one) if item[0] not in _AT_THE_FRONT)
        at = next(behind, len(one))
        inside: list[list[Any]] = []
        if at < len(one) and _looks_ahead([one[at]]):
            kind, argument = one[at]
            if kind is ops.BRANCH:
                inside = [list(branch) for branch in argument[1]]
            elif kind is ops.SUBPATTERN and not argument[1] and not argument[2]:
                inside = [list(argument[3])]
        if not inside:
            done.append(one)
        waiting += [[*one[:at], *branch, *one[at + 1 :]] for branch in reversed(inside)]
        if len(done) + len(waiting) > ALTERNATIVES_MAX:
            raise BadPattern(f"has more than {ALTERNATIVES_MAX} alternatives with look-aheads")
    return done


def _looks_ahead(items: Items) -> bool:
    for kind, argument in items:
        if kind in (ops.ASSERT, ops.ASSERT_NOT):
            return True
        if kind in (ops.SUBPATTERN, ops.BRANCH) and any(
            _looks_ahead(inner) for inner in _inside(kind, argument)
        ):
            return True
    return False


def _split(items: list[Any]) -> tuple[Any, Any]:
    """Return (what must be found, what must not) of a sequence: itself and its look-aheads."""
    begin = (ops.AT, ops.AT_BEGINNING)
    must: list[Any] = []
    never: list[Any] = []
    rest = list(items)
    anchored = False
    while rest and rest[0][0] in _AT_THE_FRONT:
        kind, argument = rest[0]
        if kind is ops.AT:
            if argument not in (ops.AT_BEGINNING, ops.AT_BEGINNING_STRING):
                break
            anchored = True
        elif not anchored or argument[0] != 1:
            break  # refused where nodes are made
        else:
            (must if kind is ops.ASSERT else never).append([begin, *argument[1]])
        rest.pop(0)
    must.append([begin, *rest] if anchored else rest)
    return must, never


# ------------------------------------------------------------------ nodes

_CATEGORIES: Final = {
    ops.CATEGORY_DIGIT: ("0123456789", False),
    ops.CATEGORY_NOT_DIGIT: ("0123456789", True),
    ops.CATEGORY_SPACE: (" \t\n\r\f\v", False),
    ops.CATEGORY_NOT_SPACE: (" \t\n\r\f\v", True),
    ops.CATEGORY_WORD: ("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", False),
    ops.CATEGORY_NOT_WORD: (
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_",
        True,
    ),
}


def _within(items: Items, ignore_case: bool, char: str) -> bool:
    """Return whether a character is in the class that these items describe."""
    negated = bool(items) and items[0][0] is ops.NEGATE
    chars = {char, char.swapcase()} if ignore_case and char.isascii() else {char}
    return negated != any(_one_within(items, one) for one in chars)


def _one_within(items: Items, char: str) -> bool:
    for kind, argument in items:
        if kind is ops.LITERAL and argument == ord(char):
            return True
        if kind is ops.RANGE and argument[0] <= ord(char) <= argument[1]:
            return True
        if kind is ops.CATEGORY:
            members, negated = _CATEGORIES[argument]
            if (char in members) != negated:
                return True
    return False


class _Automaton:
    """Nodes of all sequences of some patterns; each sequence owns a bit.

    onward  per node the nodes behind it
    tests   per node when it leads to those behind it: after a character of a class (items, ignore
            case), or a pattern of one character; None: at once; "begin", "end": at the name's
            beginning, at its end. An int: never (the sequence of that bit is found)
    owners  per node its sequence's bit
    """

    def __init__(self, nodes_max: int) -> None:
        self.onward: list[list[int]] = []
        self.tests: list[Any] = []
        self.owners: list[int] = []
        self.starts: list[int] = []
        self._left = nodes_max
        self._owner = 0

    def add(self, items: Items, flags: int, bit: int) -> None:
        """Add a sequence that reports `bit`; raises BadPattern."""
        self._owner = bit
        self.starts.append(self._sequence(items, flags, self._node(bit, [])))

    def _spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise BadPattern(
                f"is too large: more than {AUTOMATON_NODES_MAX} nodes with its repeats"
            )

    def _node(self, test: Any, onward: list[int]) -> int:
        self._spend()
        self.tests.append(test)
        self.onward.append(onward)
        self.owners.append(self._owner)
        return len(self.tests) - 1

    def _sequence(self, items: Items, flags: int, behind: int) -> int:
        """Make the nodes of a sequence from its end; return its first."""
        self._spend()
        for kind, argument in reversed(list(items)):
            behind = self._item(kind, argument, flags, behind)
        return behind

    def _item(self, kind: Any, argument: Any, flags: int, behind: int) -> int:
        if kind is ops.LITERAL:
            return self._taking([(kind, argument)], flags, behind)
        if kind is ops.NOT_LITERAL:
            return self._taking([(ops.NEGATE, None), (ops.LITERAL, argument)], flags, behind)
        if kind is ops.ANY:
            refused = [] if flags & re.DOTALL else [(ops.LITERAL, 10)]
            return self._taking([(ops.NEGATE, None), *refused], flags & re.ASCII, behind)
        if kind is ops.IN:
            return self._taking(list(argument), flags, behind)
        if kind is ops.BRANCH:
            first = [self._sequence(branch, flags, behind) for branch in argument[1]]
            return self._node(None, first)
        if kind is ops.SUBPATTERN:
            _, added, removed, inner = argument
            _check_flags(added)
            kept = flags & ~_CLASSES if added & _CLASSES else flags
            return self._sequence(inner, (kept | added) & ~removed, behind)
        if kind in (ops.MAX_REPEAT, ops.MIN_REPEAT):
            return self._repeat(argument, flags, behind)
        if kind is ops.AT and argument in (ops.AT_BEGINNING, ops.AT_BEGINNING_STRING):
            return self._node("begin", [behind])
        if kind is ops.AT and argument in (ops.AT_END, ops.AT_END_STRING):
            return self._node("end", [behind])
        if kind in (ops.ASSERT, ops.ASSERT_NOT):
            raise BadPattern(
                "has a look-around that is not supported: only (?!…) and (?=…) directly behind a "
                "leading ^ are"
            )
        name = str(argument if kind is ops.AT else kind).lower()
        raise BadPattern(f"uses {name}, which is not supported in patterns over names")

    def _taking(self, items: list[Any], flags: int, behind: int) -> int:
        """Make a node that takes a character of a class."""
        if flags & re.UNICODE:
            state = parser.State()
            state.flags = flags & (_CLASSES | re.IGNORECASE)
            single = parser.SubPattern(state, [(ops.IN, items)])
            return self._node(compiler.compile(single, state.flags), [behind])
        return self._node((items, bool(flags & re.IGNORECASE)), [behind])

    def _repeat(self, argument: Any, flags: int, behind: int) -> int:
        least, most, inner = argument
        if most is ops.MAXREPEAT:
            first = self._node(None, [])
            self.onward[first] += [self._sequence(inner, flags, first), behind]
        else:
            first = behind
            for _ in range(most - least):
                first = self._node(None, [self._sequence(inner, flags, first), behind])
        for _ in range(least):
            first = self._sequence(inner, flags, first)
        return first

    def takes(self, node: int, char: str) -> bool:
        """Return whether a node takes that character."""
        test = self.tests[node]
        if test == "end":
            return False
        if isinstance(test, re.Pattern):  # of one character: it cannot backtrack
            return test.fullmatch(char) is not None
        items, ignore_case = test
        return _within(items, ignore_case, char)

    def closure(self, nodes: Sequence[int], begin: bool, end: bool) -> tuple[frozenset[int], int]:
        """Return the nodes that wait for a character or for the end, and the bits reported."""
        seen = set(nodes)
        waiting = list(nodes)
        kept: list[int] = []
        found = 0
        while waiting:
            node = waiting.pop()
            test = self.tests[node]
            if test is None or (test == "begin" and begin) or (test == "end" and end):
                for each in self.onward[node]:
                    if each not in seen:
                        seen.add(each)
                        waiting.append(each)
            elif type(test) is int:
                found |= test
            elif test != "begin":
                kept.append(node)
        return frozenset(kept), found


# ------------------------------------------------------------------ matching


class _State:
    """Where a name's characters so far have led.

    onward  character → state
    found   bits of the sequences found so far
    final   bits found when the name ends here
    over    no further character changes anything
    """

    __slots__ = ("final", "found", "nodes", "onward", "over")

    def __init__(self, nodes: frozenset[int], found: int, final: int, over: bool) -> None:
        self.nodes = nodes
        self.found = found
        self.final = final
        self.over = over
        self.onward: dict[str, _State] = {}


class NameMatcher:
    """Finds the first of some patterns that a name contains.

    patterns    in the order of preference
    states_max  states kept
    """

    def __init__(self, patterns: Sequence[Pattern], states_max: int = STATES_KEPT_MAX) -> None:
        self._states_max = states_max
        self._automaton = automaton = _Automaton(AUTOMATON_NODES_MAX * max(1, len(patterns)))
        self._rules: list[list[tuple[int, int]]] = []
        bit = 1
        for pattern in patterns:
            rule = []
            for must, never in pattern.alternatives:
                masks = [0, 0]
                for which, sequences in enumerate((must, never)):
                    for items, flags in sequences:
                        automaton.add(items, flags, bit)
                        masks[which] |= bit
                        bit <<= 1
                rule.append((masks[0], masks[1]))
            self._rules.append(rule)
        self._again, self._always = automaton.closure(automaton.starts, False, False)
        self._winners: dict[int, int | None] = {}
        self._forget()

    def _forget(self) -> None:
        self._states: dict[tuple[frozenset[int], int], _State] = {}
        nodes, found = self._automaton.closure(self._automaton.starts, True, False)
        self._first = self._state(nodes, found, True)

    def first(self, name: str) -> int | None:
        """Return the position of the first pattern found in the name; None: there is none."""
        if len(self._states) > self._states_max:
            self._forget()
        state = self._first
        for char in name:
            onward = state.onward.get(char)
            state = onward if onward is not None else self._step(state, char)
            if state.over:
                break
        mask = state.final
        try:
            return self._winners[mask]
        except KeyError:
            if len(self._winners) > self._states_max:
                self._winners.clear()
            won = self._winners[mask] = self._winner(mask)
            return won

    def _winner(self, mask: int) -> int | None:
        for at, rule in enumerate(self._rules):
            if any(mask & must == must and not mask & never for must, never in rule):
                return at
        return None

    def _step(self, state: _State, char: str) -> _State:
        automaton = self._automaton
        moved = [
            onward
            for node in state.nodes
            if automaton.takes(node, char)
            for onward in automaton.onward[node]
        ]
        nodes, found = automaton.closure(moved, False, False)
        then = self._state(nodes | self._again, state.found | found | self._always, False)
        state.onward[char] = then
        return then

    def _state(self, nodes: frozenset[int], found: int, begin: bool) -> _State:
        automaton = self._automaton
        live = frozenset(node for node in nodes if not automaton.owners[node] & found)
        known = None if begin else self._states.get((live, found))
        if known is None:
            _, ended = automaton.closure(sorted(live), begin, True)
            again = any(not automaton.owners[node] & found for node in self._again)
            known = _State(live, found, found | ended, not live and not again)
            if not begin:
                self._states[live, found] = known
        return known
