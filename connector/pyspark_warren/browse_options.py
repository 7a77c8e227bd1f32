"""Options of spark.read, and of how a row is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark_warren.claim_options import ClaimOptions
from pyspark_warren.columns import CORRUPT_DEFAULT
from pyspark_warren.option_spec import AS_BATCH, READ, WARREN, Rule, options_of
from pyspark_warren.option_values import INT_MAX, count, parse_column, parse_states, word_of

PUSH_NOTHING: Final = "false"
PUSH_ONCE: Final = "once"
PUSH_ALWAYS: Final = "true"
"""The values of pushFilters."""
_read = options_of(READ)
_table = options_of(READ, AS_BATCH)
_view = options_of(READ, AS_BATCH, WARREN)


@dataclass(frozen=True, kw_only=True)
class BrowseOptions(ClaimOptions):
    """See the module."""

    browse_max: int = _table(
        "maxMessages",
        count(0, INT_MAX),
        0,
        "spark.read: browse at most that many; 0: all that were ready; of a stream: offsets",
    )
    states: tuple[str, ...] | None = _view(
        "state",
        parse_states,
        None,
        "spark.read: which messages: ready, held, delayed, claimed, dead, some of them with commas "
        "between, or all; with the columns that say so. Left out: ready, without those columns",
    )
    first_index: int = _view(
        "firstIndex",
        count(0, 2**62),
        0,
        "spark.read: only messages with position.index from that on",
    )
    last_index: int | None = _view(
        "lastIndex",
        count(0, 2**62),
        None,
        "spark.read: only messages with position.index up to that",
        excludes=(
            Rule(
                lambda o: o.last_index < o.first_index,
                "={o.last_index} is below firstIndex={o.first_index}: give that or more, or leave "
                "one out",
            ),
        ),
    )
    push_filters: str = _view(
        "pushFilters",
        word_of(PUSH_NOTHING, PUSH_ONCE, PUSH_ALWAYS),
        PUSH_NOTHING,
        "spark.read: Spark's predicates are applied before bodies are fetched; needs "
        "spark.sql.python.filterPushdown.enabled=true. once: each frame is used once, which Spark "
        "up to 4.3 needs; true: Spark mixes up no uses",
    )
    mode: str = _read(
        "mode",
        word_of("failfast", "permissive", "dropmalformed"),
        "failfast",
        "a message that cannot be decoded: failfast fails the query; permissive has its bytes in "
        "columnNameOfCorruptRecord, dropmalformed leaves it out (spark.read, startingOffset)",
    )
    corrupt_column: str = _read(
        "columnNameOfCorruptRecord",
        parse_column,
        CORRUPT_DEFAULT,
        "name of the column that mode=PERMISSIVE adds",
        requires=(
            Rule(
                lambda o: o.mode == "permissive",
                "needs mode=PERMISSIVE: with mode={o.mode} there is no such column",
            ),
        ),
    )
    header_values: str = _read(
        "headerValues",
        word_of("typed", "string"),
        "typed",
        "column headers: typed keeps each value's type, string makes it map<string, string>",
    )

    @property
    def corrupt(self) -> str | None:
        """Return the column for bytes that cannot be decoded; None: see `mode`."""
        return self.corrupt_column if self.mode == "permissive" else None

    @property
    def drops_malformed(self) -> bool:
        """Return whether messages that cannot be decoded are left out."""
        return self.mode == "dropmalformed"
