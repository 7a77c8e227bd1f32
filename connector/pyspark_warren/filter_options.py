"""Options of a source that leaves messages out by a SQL filter; see option_table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark_warren.errors import OptionError
from pyspark_warren.option_spec import Spec
from pyspark_warren.option_values import word_of
from pyspark_warren.sql_rows import checked_filter

KEEP: Final = "keep"
SETTLE: Final = "settle"


def parse_filter(text: str) -> str:
    """Return a filter that is one; FilterRefused is a ValueError."""
    return checked_filter(text).text


FILTER: Final[tuple[Spec, ...]] = (
    Spec(
        "filter",
        "row_filter",
        parse_filter,
        "",
        "only messages that this SQL filter expression of AMQP 1.0 is true of",
        "read",
    ),
    Spec(
        "filterUnmatched",
        "filter_unmatched",
        word_of(KEEP, SETTLE),
        "",
        "what becomes of the others: keep: they stay (spark.read, startingOffset, and the default "
        "there); settle: they are acknowledged with their batch (spark.readStream of queues, where "
        "it must be given)",
        "read",
    ),
)


def check_filter(values: Mapping[str, Any], how: str) -> None:
    """Refuse what would lose messages unsaid, and what cannot be; raises OptionError."""
    unmatched = values["filter_unmatched"]
    if not values["row_filter"]:
        if unmatched:
            raise OptionError(f"option filterUnmatched={unmatched} needs the option filter")
        return
    leaves = how == "stream" and values["starting_offset"] is None
    if leaves and unmatched == KEEP:
        raise OptionError(
            "option filterUnmatched=keep with spark.readStream of a queue: a micro-batch takes "
            "messages in the queue's order and acknowledges them together, so those that stay "
            "would be at the queue's head again, before each batch; bind a queue of its own to "
            "what the query wants (a topic or headers exchange), or give filterUnmatched=settle"
        )
    if leaves and unmatched != SETTLE:
        raise OptionError(
            "option filter with spark.readStream of a queue: messages that it is not true of leave "
            "the queue with their batch, unseen; say so with filterUnmatched=settle"
        )
    if not leaves and unmatched == SETTLE:
        raise OptionError(
            "option filterUnmatched=settle is for spark.readStream of a queue; nothing that is "
            "read here leaves: leave it out"
        )
