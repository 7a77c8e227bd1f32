"""What a query's progress says of its Warren sources and its sink, in one form.

Spark gives a Python source one way into `query.lastProgress`: `reportLatestOffset`, shown as the
source's `latestOffset`. It holds the queue's counts; the offsets hold the claim. What only the rows
tell (redelivered ones, the publishers' timestamps) is counted by `observed` where Spark reads them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast

from pyspark_warren.claims.offset import CLAIMS_KIND, SPOOL_KIND, STREAM_KIND, ClaimInfo, Offset
from pyspark_warren.errors import CheckpointError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQueryListener

OBSERVATION: Final = "warren"
"""The name under which `observed` counts and `progress` looks."""
LINE_BEGINS: Final = "warren batch "
"""How each line of `batch_log` begins; the rest is the JSON of `progress`."""
REPORTED: Final = (
    "messages_ready",
    "bytes_ready",
    "messages_claimed",
    "messages_unacknowledged",
    "messages_recognised",
    "rows_spooled",
    "consumers",
    "offset_end",
    "offsets_behind",
    "queues",
    "given_up",
    "warning",
)
"""What a source reports of its queue, and `progress` shows as it is."""


def progress(query: Any) -> dict[str, Any] | None:
    """Return the figures of a query's last batch; None before there is one.

    query  a StreamingQuery, a StreamingQueryProgress (of `recentProgress` or of a listener), or the
           latter as a dictionary
    """
    last = query
    if not isinstance(query, Mapping) and hasattr(query, "lastProgress"):
        last = query.lastProgress
    if last is None:
        return None
    found = _plain(last)
    ended_ms = _ended_ms(found)
    sources = [
        figures
        for source in found.get("sources") or ()
        if (figures := _source(source, ended_ms)) is not None
    ]
    seen = (found.get("observedMetrics") or {}).get(OBSERVATION)
    if len(sources) == 1 and seen is not None:
        _add_observed(sources[0], _record(seen), ended_ms)
    durations = found.get("durationMs") or {}
    return {
        "batch": found.get("batchId"),
        "batch_ms": found.get("batchDuration"),
        "id": found.get("id"),
        "name": found.get("name"),
        "rows": found.get("numInputRows"),
        "run": found.get("runId"),
        "sink": _sink(found.get("sink") or {}, durations),
        "sources": sources,
        "timestamp": found.get("timestamp"),
    }


def observed(frame: DataFrame) -> DataFrame:
    """Return the frame of a source, with what its rows tell counted on the way.

    Call it on what `.load()` returned, once per query: it counts the columns `redelivered`, `body`
    and `timestamp`, those of them that the frame has. `progress` shows the figures.
    """
    from pyspark.sql import functions as f

    figures = [f.count(f.lit(1)).alias("messages")]
    columns = {column.lower() for column in frame.columns}
    if "body" in columns:
        figures.append(f.coalesce(f.sum(f.octet_length("body")), f.lit(0)).alias("body_bytes"))
    if "redelivered" in columns:
        figures.append(f.count_if(f.col("redelivered")).alias("redelivered"))
    if "timestamp" in columns:
        figures.append(f.unix_millis(f.min("timestamp")).alias("oldest_published_ms"))
    return frame.observe(OBSERVATION, *figures)


def batch_log(logger: logging.Logger | None = None) -> StreamingQueryListener:
    """Return a listener that logs a line per batch of each query with a Warren source.

    Add it with `spark.streams.addListener`. A line is LINE_BEGINS and the JSON of `progress`, at
    level INFO.

    logger  where to; None: the logger `pyspark_warren`
    """
    from pyspark.sql.streaming import StreamingQueryListener

    target = logger or logging.getLogger("pyspark_warren")

    class BatchLog(StreamingQueryListener):
        """Logs progress events; the others say nothing of batches."""

        def onQueryStarted(self, event: object) -> None:
            """Nothing to log yet."""

        def onQueryProgress(self, event: Any) -> None:
            """Log the batch."""
            figures = progress(event.progress)
            if figures is not None and figures["sources"]:
                target.info("%s%s", LINE_BEGINS, json.dumps(figures, sort_keys=True))

        def onQueryIdle(self, event: object) -> None:
            """No batch."""

        def onQueryTerminated(self, event: object) -> None:
            """No batch."""

    return BatchLog()


# ------------------------------------------------------------------ steps


def _plain(last: object) -> Mapping[str, Any]:
    """Return Spark's progress as its JSON has it."""
    text = getattr(last, "json", None)
    if isinstance(text, str):
        return cast("Mapping[str, Any]", json.loads(text))
    if isinstance(last, Mapping):
        return last
    raise TypeError(
        f"progress of a {type(last).__name__}: give a StreamingQuery, or a progress of "
        "query.recentProgress"
    )


def _record(value: object) -> Mapping[str, Any]:
    """Return an offset or a row; Spark has them as objects, as text, or not at all."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    elif hasattr(value, "asDict"):
        value = value.asDict()
    return value if isinstance(value, Mapping) else {}


def _ended_ms(found: Mapping[str, Any]) -> int | None:
    """Return when the batch ended, in milliseconds since 1970."""
    try:
        began = datetime.fromisoformat(str(found["timestamp"]))
        if began.tzinfo is None:
            began = began.replace(tzinfo=UTC)
        return int(began.timestamp() * 1000) + int(found.get("batchDuration") or 0)
    except (KeyError, ValueError):
        return None


def _age_ms(since_ms: object, ended_ms: int | None) -> int | None:
    if not isinstance(since_ms, int) or ended_ms is None:
        return None
    return max(0, ended_ms - since_ms)


def _source(source: Mapping[str, object], ended_ms: int | None) -> dict[str, Any] | None:
    """Return a source's figures; None: it is not Warren's. What is not known is None."""
    end = _record(source.get("endOffset"))
    kind = end.get("kind")
    messages, size_bytes = source.get("numInputRows"), None
    claims: dict[str, int] | None = None
    if kind == CLAIMS_KIND:
        try:
            stands = Offset.from_dict(end)
            new = _new_claims(_record(source.get("startOffset")), stands)
        except CheckpointError:
            return None
        claims = {name: offset.number for name, offset in stands.queues.items()}
        if all(claim.messages for claim in new):  # 0: opened when the batch was planned
            messages = sum(claim.messages for claim in new)
            size_bytes = sum(claim.size_bytes for claim in new)
    elif kind not in (SPOOL_KIND, STREAM_KIND):
        return None
    known = _record(source.get("latestOffset"))
    only = _only(end)
    return {
        **{name: known.get(name) for name in REPORTED},
        "batch_bytes": size_bytes,
        "batch_lag_ms": None,
        "batch_messages": messages,
        "claims": claims,
        "head_age_ms": _age_ms(known.get("head_entered_ms"), ended_ms),
        "kind": kind,
        "queue": only.get("queue"),
        "reader": only.get("reader"),
        "redelivered": None,
        "vhost": end.get("vhost"),
    }


def _only(end: Mapping[str, object]) -> Mapping[str, object]:
    """Return queue and reader of an offset; of several queues the reader that began."""
    queues = end.get("queues")
    if isinstance(queues, Mapping) and len(queues) == 1:
        for name, position in queues.items():
            return {"queue": name, "reader": _record(position).get("reader")}
    return end


def _new_claims(start: Mapping[str, object], end: Offset) -> list[ClaimInfo]:
    """Return the claims of the batch between two offsets; raises CheckpointError."""
    before = Offset.from_dict(start).queues if start else {}
    new: list[ClaimInfo] = []
    for name, offset in end.queues.items():
        was = before.get(name)
        known = was.number if was is not None and was.reader == offset.reader else 0
        new += [claim for claim in offset.claims if claim.number > known]
    return new


def _add_observed(
    source: dict[str, object], seen: Mapping[str, object], ended_ms: int | None
) -> None:
    source["redelivered"] = seen.get("redelivered")
    source["batch_lag_ms"] = _age_ms(seen.get("oldest_published_ms"), ended_ms)
    if source["batch_bytes"] is None:
        source["batch_bytes"] = seen.get("body_bytes")


def _sink(sink: Mapping[str, object], durations: Mapping[str, object]) -> dict[str, object]:
    """Return the sink's figures. Spark counts rows of tasks that have succeeded, -1: unknown."""
    rows = sink.get("numOutputRows")
    return {
        "messages_confirmed": rows if isinstance(rows, int) and rows >= 0 else None,
        "write_ms": durations.get("addBatch"),
    }
