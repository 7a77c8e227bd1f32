"""Options of a source that leaves messages out by a SQL filter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark_warren.amqp_options import AmqpSourceOptions
from pyspark_warren.errors import OptionError
from pyspark_warren.option_spec import READ, Rule, options_of
from pyspark_warren.option_values import word_of
from pyspark_warren.sql_rows import checked_filter

KEEP: Final = "keep"
SETTLE: Final = "settle"


def parse_filter(text: str) -> str:
    """Return a filter that is one; FilterRefused is a ValueError."""
    return checked_filter(text).text


_read = options_of(READ)


@dataclass(frozen=True, kw_only=True)
class FilterOptions(AmqpSourceOptions):
    """See the module."""

    row_filter: str = _read(
        "filter",
        parse_filter,
        "",
        "only messages that this SQL filter expression of AMQP 1.0 is true of",
    )
    filter_unmatched: str = _read(
        "filterUnmatched",
        word_of(KEEP, SETTLE),
        "",
        "what becomes of the others: keep: they stay (spark.read, startingOffset, and the default "
        "there); settle: they are acknowledged with their batch (spark.readStream of queues, where "
        "it must be given)",
        requires=(Rule(lambda o: o.row_filter, "={o.filter_unmatched} needs the option filter"),),
    )


def check_filter(options: FilterOptions, how: str) -> None:
    """Refuse what would lose messages unsaid, and what cannot be; raises OptionError."""
    unmatched = options.filter_unmatched
    if not options.row_filter:
        return
    leaves = how == "stream" and options.starting_offset is None
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
