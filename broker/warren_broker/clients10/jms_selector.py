"""JMS message selectors as SQL filter expressions.

Both come from SQL's WHERE. A selector's words may be in lower case, and the header fields of JMS
have names of their own; BETWEEN and what else differs is refused.

https://jakarta.ee/specifications/messaging/3.1/, section 3.8
"""

from __future__ import annotations

import re
from typing import Final

from warren_wire.sql_filter import FilterRefused

_WORDS: Final = frozenset({"AND", "OR", "NOT", "LIKE", "IN", "IS", "NULL", "ESCAPE"})
_TRUTHS: Final = frozenset({"TRUE", "FALSE"})
_FIELDS: Final = {
    "JMSPriority": "h.priority",
    "JMSMessageID": "p.message_id",
    "JMSCorrelationID": "p.correlation_id",
    "JMSTimestamp": "p.creation_time",
    "JMSType": "p.subject",
    "JMSXGroupID": "p.group_id",
    "JMSXGroupSeq": "p.group_sequence",
    "JMSXUserID": "p.user_id",
}
_PIECE: Final = re.compile(
    r"(?P<string>'[^']*+(?:''[^']*+)*+'?)|(?P<word>[^\W\d][\w.$]*)|(?P<other>.)",
    re.DOTALL,
)


def translate(text: str) -> str:
    """Return the SQL filter expression of a selector; raises FilterRefused.

    Only words outside texts are replaced, so the positions in a later refusal may be shifted.
    """
    return "".join(_replaced(match, text) for match in _PIECE.finditer(text))


def _replaced(match: re.Match[str], text: str) -> str:
    piece = match.group()
    if match.lastgroup != "word":
        return piece
    upper = piece.upper()
    before = text[match.start() - 1 : match.start()]
    if upper in _WORDS or upper in _TRUTHS or (before.isdigit() and upper.startswith("E")):
        return upper
    if piece in _FIELDS:
        return _FIELDS[piece]
    if upper == "BETWEEN" or (piece.startswith("JMS") and not piece.startswith("JMS_")):
        raise FilterRefused(f"character {match.start() + 1}: {piece} is not supported")
    return f"[{piece}]"
