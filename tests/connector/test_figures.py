"""The figures of a progress, from Spark's JSON of it; with Spark in `test_session`."""

from __future__ import annotations

from typing import Any

import pytest

from pyspark_warren import progress

END_MS = 1_700_000_002_000


def claims_offset(number: int, *claims: list[int], reader: str = "r") -> dict[str, Any]:
    return offset_of(reader, q=(number, list(claims)))


def offset_of(reader: str, **queues: Any) -> dict[str, Any]:
    return {
        "kind": "claims",
        "queues": {
            name: {"claims": claims, "number": number, "reader": reader}
            for name, (number, claims) in queues.items()
        },
        "reader": "r",
        "registered": True,
        "version": 1,
        "vhost": "/",
    }


def of_spark(source: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A progress as its JSON has it; the batch ended at END_MS."""
    return {
        "id": "the id",
        "runId": "the run",
        "name": "flights",
        "timestamp": "2023-11-14T22:13:20.500Z",
        "batchId": 7,
        "batchDuration": 1500,
        "numInputRows": source.get("numInputRows", 0),
        "durationMs": {"addBatch": 900},
        "sources": [{"description": "…", **source}],
        "sink": {"description": "…", "numOutputRows": 10},
        **more,
    }


def only(found: dict[str, Any] | None) -> dict[str, Any]:
    assert found is not None
    (source,) = found["sources"]
    return source


def test_a_queue_of_warren() -> None:
    source = {
        "startOffset": claims_offset(7, [7, 3, 30]),
        "endOffset": claims_offset(8, [8, 10, 500]),
        "latestOffset": {
            "bytes_ready": 40,
            "head_entered_ms": END_MS - 250,
            "messages_claimed": 10,
            "messages_ready": 4,
            "messages_unacknowledged": 0,
            "queue": "q",
        },
        "numInputRows": 20,
    }
    found = progress(of_spark(source))
    assert found is not None
    figures = only(found)
    assert (found["batch"], found["id"], found["name"]) == (7, "the id", "flights")
    assert found["sink"] == {"messages_confirmed": 10, "write_ms": 900}
    # The plan reads the source twice: the rows are twice the claim's messages.
    assert (found["rows"], figures["batch_messages"], figures["batch_bytes"]) == (20, 10, 500)
    assert (figures["messages_ready"], figures["messages_claimed"]) == (4, 10)
    assert (figures["head_age_ms"], figures["claims"], figures["reader"]) == (250, {"q": 8}, "r")
    assert (figures["redelivered"], figures["batch_lag_ms"]) == (None, None)
    seen = {"messages": 10, "redelivered": 2, "oldest_published_ms": END_MS - 5000}
    figures = only(progress(of_spark(source, observedMetrics={"warren": seen})))
    assert (figures["redelivered"], figures["batch_lag_ms"]) == (2, 5000)


def test_another_reader_and_a_batch_without_claims() -> None:
    end = claims_offset(3, [3, 10, 500], reader="other")
    figures = only(progress(of_spark({"startOffset": claims_offset(7), "endOffset": end})))
    assert figures["batch_messages"] == 10
    figures = only(progress(of_spark({"startOffset": end, "endOffset": end})))
    assert (figures["batch_messages"], figures["batch_bytes"]) == (0, 0)
    assert figures["messages_ready"] is None
    planned = claims_offset(1, [1, 0, 0])  # opened when the batch was planned
    source = {"startOffset": None, "endOffset": planned, "numInputRows": 6}
    figures = only(progress(of_spark(source)))
    assert (figures["batch_messages"], figures["batch_bytes"]) == (6, None)


def test_several_queues() -> None:
    figures = only(
        progress(
            of_spark(
                {
                    "startOffset": offset_of("r", a=(1, [[1, 5, 50]]), b=(0, [])),
                    "endOffset": offset_of(
                        "r", a=(1, [[1, 5, 50]]), b=(1, [[1, 2, 20]]), c=(0, [])
                    ),
                    "latestOffset": {"messages_ready": 9, "queues": {"a": 9, "b": 0}},
                }
            )
        )
    )
    assert (figures["batch_messages"], figures["batch_bytes"]) == (2, 20)
    assert (figures["claims"], figures["queues"]) == ({"a": 1, "b": 1, "c": 0}, {"a": 9, "b": 0})


@pytest.mark.parametrize(
    ("offset", "known", "shown"),
    [
        (
            {"kind": "spool", "queues": {"q": {"reader": "r", "row": 12}}},
            {"rows_spooled": 3},
            "rows_spooled",
        ),
        ({"kind": "stream", "offset": 12, "first": None}, {"offsets_behind": 3}, "offsets_behind"),
    ],
)
def test_other_brokers_have_null_for_what_they_do_not_tell(
    offset: dict[str, Any], known: dict[str, Any], shown: str
) -> None:
    end = {**offset, "queue": "q", "vhost": "/", "registered": True, "version": 3}
    figures = only(progress(of_spark({"endOffset": end, "latestOffset": known, "numInputRows": 5})))
    assert (figures[shown], figures["batch_messages"], figures["queue"]) == (3, 5, "q")
    for name in ("batch_bytes", "claims", "head_age_ms", "messages_claimed", "redelivered"):
        assert figures[name] is None, name


def test_offsets_that_are_not_ours_are_left_out() -> None:
    for end in (None, 7, "text", {"offset": 7}, '{"claims": 3, "reader": "r", "version": 1}'):
        found = progress(of_spark({"endOffset": end}))
        assert found is not None and found["sources"] == [], end


def test_no_batch_yet_and_no_progress_at_all() -> None:
    class Query:
        lastProgress = None

    assert progress(Query()) is None
    with pytest.raises(TypeError, match="progress of a int: give a StreamingQuery"):
        progress(7)
