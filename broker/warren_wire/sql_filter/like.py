"""LIKE, in time proportional to the text's length whatever the pattern is."""

from __future__ import annotations

from collections.abc import Callable

from warren_wire.sql_filter.tree import ANY, ONE


def matcher(pattern: tuple[str, ...]) -> Callable[[str], bool]:
    """Return a function that says whether the pattern matches a whole text."""
    return _with_bits(pattern) if ONE in pattern else _with_pieces(pattern)


def _with_pieces(pattern: tuple[str, ...]) -> Callable[[str], bool]:
    """Find the pieces between ANY one after another: the first place of each leaves most room."""
    pieces = [""]
    for element in pattern:
        if element == ANY:
            pieces.append("")
        else:
            pieces[-1] += element
    begin, *middle = pieces
    if not middle:
        return lambda text: text == begin
    end = middle.pop()
    least = len(begin) + len(end)
    middle = [piece for piece in middle if piece]

    def match(text: str) -> bool:
        if len(text) < least or not text.startswith(begin) or not text.endswith(end):
            return False
        at, stop = len(begin), len(text) - len(end)
        for piece in middle:
            at = text.find(piece, at, stop)
            if at < 0:
                return False
            at += len(piece)
        return True

    return match


def _with_bits(pattern: tuple[str, ...]) -> Callable[[str], bool]:
    """Follow all matches at once: bit k of a number says that k characters' elements are matched.

    A character moves each match by one element where the element takes it, and leaves a match where
    it is when ANY follows there: two operations on numbers of as many bits as the pattern has
    elements, for each character.
    """
    stays = 0
    moves: dict[str, int] = {}
    every = 0
    size = 0
    for element in pattern:
        if element == ANY:
            stays |= 1 << size
            continue
        size += 1
        if element == ONE:
            every |= 1 << size
        else:
            moves[element] = moves.get(element, 0) | 1 << size
    moves = {char: bits | every for char, bits in moves.items()}
    accepted = 1 << size

    def match(text: str) -> bool:
        found = 1
        for char in text:
            found = ((found << 1) & moves.get(char, every)) | (found & stays)
            if not found:
                return False
        return bool(found & accepted)

    return match
