"""The families of queues and of the readers of their claims.

On `/metrics` they are sums of the queues that this node leads, and the age of the oldest message of
all; on the other paths they are of each queue, in pieces: a scrape of 50,000 queues holds their
readings and one piece of text, never all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from warren_broker.cluster.led_queues import MemberCounts
from warren_broker.counting.message_stats import COUNTED
from warren_broker.metrics.detailed import PREFIX
from warren_broker.metrics.readings import (
    WORK_SUMS,
    NodeReading,
    QueueReading,
    QueueWork,
    ReaderReading,
)

PIECE_SAMPLES: Final = 500
"""Samples of one piece of a family."""
LABELS: Final = ["vhost", "queue"]
Row = tuple[list[str], float]
COUNTS: Final[dict[str, tuple[str, str]]] = {
    "ready": ("rabbitmq_queue_messages_ready", "Messages that can be delivered"),
    "unacked": ("rabbitmq_queue_messages_unacked", "Messages delivered and not acknowledged"),
    "messages": ("rabbitmq_queue_messages", "All messages of the queue"),
    "ready_bytes": (
        "rabbitmq_queue_messages_ready_bytes",
        "Bytes of the messages that can be delivered",
    ),
    "consumers": ("rabbitmq_queue_consumers", "Consumers of the queue"),
    "delayed": ("warren_queue_messages_delayed", "Messages that wait for their next delivery"),
    "dead_lettering": (
        "warren_queue_messages_dead_lettering",
        "Dead letters kept until they are confirmed",
    ),
    "claimed": ("warren_queue_messages_claimed", "Messages in claims"),
}
"""Name and text of each field of `MemberCounts`."""
COUNTERS: Final[dict[str, tuple[str, str]]] = {
    "publish": ("queue_messages_published", "Messages published to the queue"),
    "deliver": ("queue_messages_delivered_ack", "Messages delivered, to be acknowledged"),
    "deliver_no_ack": ("queue_messages_delivered", "Messages delivered without acknowledgement"),
    "get": ("queue_get_ack", "Messages fetched by basic.get, to be acknowledged"),
    "get_no_ack": ("queue_get", "Messages fetched by basic.get, without acknowledgement"),
    "get_empty": ("queue_get_empty", "basic.get that found no message"),
    "redeliver": ("queue_messages_redelivered", "Messages delivered again"),
    "ack": ("queue_messages_acked", "Messages acknowledged"),
}
"""Name and text of each of `message_stats.COUNTED`."""
WORK: Final[dict[str, tuple[str, str]]] = {
    "claims": ("warren_queue_claims", "Open claims, and parts of divided ones"),
    "stages": ("warren_queue_stages", "Stages of sinks that are not published yet"),
    "staged": ("warren_queue_messages_staged", "Messages in stages of sinks"),
    "letters": (
        "warren_queue_letters_in_flight",
        "Dead letters that were published to their targets and are not settled",
    ),
    "jobs": ("warren_queue_jobs", "Jobs that have not ended"),
    "jobs_waiting": (
        "warren_queue_jobs_waiting",
        "Jobs that wait: a target is gone, full or out of reach, or a right is missing",
    ),
    "job_messages": (
        "warren_queue_messages_in_jobs",
        "Messages that jobs have taken, or keep for an undo",
    ),
}
"""Name and text of each field of `QueueWork` that is a number."""
OLDEST_AGE: Final = "warren_queue_oldest_message_age_seconds"
LAG: Final = "warren_reader_lag_messages"
LAG_SECONDS: Final = "warren_reader_lag_seconds"
SILENCE: Final = "warren_reader_silent_seconds"
_TEXTS: Final = {
    OLDEST_AGE: "Age of the oldest message, whatever its state; 0: there is none",
    LAG: "Messages that a reader has not settled: those that are ready, and those in its claims",
    LAG_SECONDS: "Age of the oldest message of a reader's queue; 0: nothing is to be settled",
    SILENCE: "Since the driver of a reader was heard last",
}


Wants = Callable[[str], bool]
"""Returns whether a scrape shows the family of that name: no other one is made."""


def pieces(
    wants: Wants,
    kind: Callable[..., Any],
    name: str,
    text: str,
    labels: list[str],
    rows: Iterable[Row],
) -> Iterator[Metric]:
    """Yield a family in pieces of PIECE_SAMPLES samples; one without samples if it has none."""
    if not wants(name):
        return
    made, begun = kind(name, text, labels=labels), False
    for row in rows:
        if len(made.samples) >= PIECE_SAMPLES:
            yield made
            made, begun = kind(name, text, labels=labels), True
        made.add_metric(*row)
    if made.samples or not begun:
        yield made


def total_families(reading: NodeReading) -> Iterator[Metric]:
    """Yield the sums, and of ages the highest."""
    for key, (name, text) in COUNTS.items():
        yield GaugeMetricFamily(name, text, value=getattr(reading.total, key))
    for key, (name, text) in WORK.items():
        yield GaugeMetricFamily(name, text, value=reading.work.get(key, 0))
    of_readers = [row[1:] for row in _reader_rows(reading)]
    for name, value in (
        (OLDEST_AGE, _since_s(reading, reading.oldest_ms)),
        (LAG, sum([lag for lag, _, _ in of_readers])),
        (LAG_SECONDS, max([lag_s for _, lag_s, _ in of_readers], default=0.0)),
        (SILENCE, max([silent_s for _, _, silent_s in of_readers], default=0.0)),
    ):
        yield GaugeMetricFamily(name, _TEXTS[name], value=value)


def object_families(reading: NodeReading, wants: Wants) -> Iterator[Metric]:
    """Yield the families of each queue that is led here, and of each reader."""
    led = [one for one in reading.queues if one.counts is not None]
    for key, (name, text) in COUNTS.items():
        rows = ((_of(one), getattr(one.counts, key)) for one in led)
        yield from pieces(wants, GaugeMetricFamily, name, text, LABELS, rows)
    for key, (name, text) in WORK.items():
        rows = ((_of(one), getattr(one.work, key)) for one in led)
        yield from pieces(wants, GaugeMetricFamily, name, text, LABELS, rows)
    ages = ((_of(one), age_s(reading, one)) for one in led)
    yield from pieces(wants, GaugeMetricFamily, OLDEST_AGE, _TEXTS[OLDEST_AGE], LABELS, ages)
    labels = [*LABELS, "reader"]
    for at, name in enumerate((LAG, LAG_SECONDS, SILENCE)):
        lags = ((row[0], (row[1], row[2], row[3])[at]) for row in _reader_rows(reading))
        yield from pieces(wants, GaugeMetricFamily, name, _TEXTS[name], labels, lags)
    info = (
        ([*_of(one), one.queue_type, "follower" if one.counts is None else "leader"], 1.0)
        for one in reading.queues
    )
    said = "1 for each queue with a member here"
    labels = [*LABELS, "queue_type", "membership"]
    yield from pieces(wants, GaugeMetricFamily, f"{PREFIX}queue_info", said, labels, info)
    for at, key in enumerate(COUNTED):
        name, text = COUNTERS[key]
        counted = (([one.vhost, one.name], one.counts[at]) for one in reading.counted)
        yield from pieces(wants, CounterMetricFamily, PREFIX + name, text, LABELS, counted)


def _of(queue: QueueReading) -> list[str]:
    return [queue.vhost, queue.name]


def age_s(reading: NodeReading, queue: QueueReading) -> float:
    """Return the age of a queue's oldest message; 0: it has none, or its entry is gone."""
    oldest = queue.work and queue.work.oldest
    if not oldest:
        return 0.0
    return _since_s(reading, reading.times.get(oldest[:2], 0))


def _since_s(reading: NodeReading, written_ms: int) -> float:
    return max(0.0, (reading.now_ms - written_ms) / 1000) if written_ms else 0.0


def _reader_rows(reading: NodeReading) -> Iterator[tuple[list[str], int, float, float]]:
    """Yield labels, lag in messages and in seconds, and the silence of each reader."""
    for queue in reading.queues:
        work, counts = queue.work, queue.counts
        if work is None or counts is None:
            continue
        for reader in work.readers:
            lag = counts.ready + reader.messages
            silent_s = max(0.0, (reading.now_ms - reader.heard_ms) / 1000)
            lag_s = age_s(reading, queue) if lag else 0.0
            yield [*_of(queue), reader.name], lag, lag_s, silent_s


assert {*COUNTS} == {*MemberCounts._fields}, "a text for each count"
assert {*COUNTERS} == {*COUNTED}, "a name for each count"
assert (*WORK,) == WORK_SUMS, "a name for each sum"
assert {*WORK, "readers", "oldest"} == {*QueueWork._fields}, "a name for each number"
assert "heard_ms" in ReaderReading._fields
