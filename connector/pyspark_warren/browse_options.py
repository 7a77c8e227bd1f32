"""Options of spark.read, and of how a row is made; see option_table."""

from __future__ import annotations

from typing import Final

from pyspark_warren.columns import CORRUPT_DEFAULT
from pyspark_warren.option_spec import INT_MAX, WARREN, Spec
from pyspark_warren.option_values import parse_count, parse_states, word_of

PUSH_NOTHING: Final = "false"
PUSH_ONCE: Final = "once"
PUSH_ALWAYS: Final = "true"
"""The values of pushFilters."""

BROWSE: Final[tuple[Spec, ...]] = (
    Spec(
        "maxMessages",
        "browse_max",
        parse_count,
        0,
        "spark.read: browse at most that many; 0: all that were ready; of a stream: offsets",
        "read",
        0,
        INT_MAX,
        "batch",
    ),
    Spec(
        "state",
        "states",
        parse_states,
        None,
        "spark.read: which messages: ready, held, delayed, claimed, dead, some of them with commas "
        "between, or all; with the columns that say so. Left out: ready, without those columns",
        "read",
        how="batch",
        broker=WARREN,
    ),
    Spec(
        "firstIndex",
        "first_index",
        parse_count,
        0,
        "spark.read: only messages with position.index from that on",
        "read",
        0,
        2**62,
        "batch",
        WARREN,
    ),
    Spec(
        "lastIndex",
        "last_index",
        parse_count,
        None,
        "spark.read: only messages with position.index up to that",
        "read",
        0,
        2**62,
        "batch",
        WARREN,
    ),
    Spec(
        "pushFilters",
        "push_filters",
        word_of(PUSH_NOTHING, PUSH_ONCE, PUSH_ALWAYS),
        PUSH_NOTHING,
        "spark.read: Spark's predicates are applied before bodies are fetched; needs "
        "spark.sql.python.filterPushdown.enabled=true. once: each frame is used once, which Spark "
        "up to 4.3 needs; true: Spark mixes up no uses",
        "read",
        how="batch",
        broker=WARREN,
    ),
    Spec(
        "mode",
        "mode",
        word_of("failfast", "permissive", "dropmalformed"),
        "failfast",
        "a message that cannot be decoded: failfast fails the query; permissive has its bytes in "
        "columnNameOfCorruptRecord, dropmalformed leaves it out (spark.read, startingOffset)",
        "read",
    ),
    Spec(
        "columnNameOfCorruptRecord",
        "corrupt_column",
        str,
        CORRUPT_DEFAULT,
        "name of the column that mode=PERMISSIVE adds",
        "read",
    ),
    Spec(
        "headerValues",
        "header_values",
        word_of("typed", "string"),
        "typed",
        "column headers: typed keeps each value's type, string makes it map<string, string>",
        "read",
    ),
)
