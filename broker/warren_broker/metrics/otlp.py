"""The metrics of a node to a collector of OpenTelemetry: OTLP over HTTP, in its JSON form.

A thread of its own reads what a scrape of the sums reads, and posts it. A collector that does not
answer costs this thread its patience and nothing else: what it did not take is not kept, since the
next reading has the same counters.
source: OpenTelemetry Protocol 1.5, metrics.proto, and its mapping to JSON: 64-bit numbers are text
"""

from __future__ import annotations

import json
import logging
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, Final

from prometheus_client.core import Metric

from warren_broker.settings.http_settings import OtlpSettings
from warren_wire import VERSION
from warren_wire.quoting import quoted

log = logging.getLogger(__name__)
CUMULATIVE: Final = 2
PATIENCE_S: Final = 10.0
"""How long a collector may take for its answer."""
Json = dict[str, Any]


def _attributes(labels: dict[str, str]) -> list[Json]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in labels.items()]


def _histograms(metric: Metric, moment: Json) -> Iterator[Json]:
    """Yield a point for each list of labels; Prometheus's buckets have those below them, too."""
    found: dict[tuple[tuple[str, str], ...], Json] = {}
    for sample in metric.samples:
        labels = {key: value for key, value in sample.labels.items() if key != "le"}
        made = found.setdefault((*labels.items(),), {"below": [], "bounds": [], "sum": 0.0})
        if sample.name.endswith("_bucket"):
            made["below"].append(int(sample.value))
            made["bounds"].append(sample.labels["le"])
        elif sample.name.endswith("_sum"):
            made["sum"] = sample.value
    for labels_of, made in found.items():
        below = made["below"]
        yield {
            **moment,
            "attributes": _attributes(dict(labels_of)),
            "count": str(below[-1]),
            "sum": made["sum"],
            "bucketCounts": [str(more - less) for less, more in pairwise((0, *below))],
            "explicitBounds": [float(bound) for bound in made["bounds"][:-1]],
        }


def _metric(metric: Metric, since_ns: int, now_ns: int) -> Json:
    moment = {"startTimeUnixNano": str(since_ns), "timeUnixNano": str(now_ns)}
    told = {"name": metric.name, "description": metric.documentation}
    if metric.type == "histogram":
        points = [*_histograms(metric, moment)]
        kept = {"dataPoints": points, "aggregationTemporality": CUMULATIVE}
        return {**told, "histogram": kept}
    points = [
        {**moment, "attributes": _attributes(one.labels), "asDouble": float(one.value)}
        for one in metric.samples
        if not one.name.endswith("_created")
    ]
    if metric.type == "counter":
        grows = {"aggregationTemporality": CUMULATIVE, "isMonotonic": True}
        return {**told, "sum": {"dataPoints": points, **grows}}
    return {**told, "gauge": {"dataPoints": points}}


def request(metrics: Iterable[Metric], node: str, since_ns: int, now_ns: int) -> Json:
    """Return an ExportMetricsServiceRequest."""
    of = {"service.name": "warren", "service.version": VERSION, "service.instance.id": node}
    shown = [_metric(one, since_ns, now_ns) for one in metrics if one.samples]
    scope = {"scope": {"name": "warren_broker", "version": VERSION}, "metrics": shown}
    return {
        "resourceMetrics": [{"resource": {"attributes": _attributes(of)}, "scopeMetrics": [scope]}]
    }


class OtlpSender:
    """The thread that posts; it ends with `close`, or with the process."""

    def __init__(self, read: Callable[[], list[Metric]], node: str, settings: OtlpSettings) -> None:
        """read: returns the families of a scrape, or raises; not called on the loop's thread."""
        self._read = read
        self._node = node
        self._settings = settings
        self._since_ns = time.time_ns()
        self._failing = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closing.wait(self._settings.interval_ms / 1000):
            try:
                self._post()
            except Exception as error:  # the rim of this thread: this reading is not sent
                if not self._failing:
                    log.warning(
                        "OTLP: metrics are not taken by %s: %s; each reading until it takes one is "
                        "dropped",
                        self._settings.endpoint,
                        quoted(str(error)),
                    )
                self._failing = True
            else:
                if self._failing:
                    log.info("OTLP: %s takes metrics again", self._settings.endpoint)
                self._failing = False

    def _post(self) -> None:
        told = request(self._read(), self._node, self._since_ns, time.time_ns())
        headers = {"Content-Type": "application/json", **self._settings.headers}
        post = urllib.request.Request(self._settings.endpoint, json.dumps(told).encode(), headers)
        with urllib.request.urlopen(post, timeout=PATIENCE_S) as answer:
            answer.read(1)

    def close(self) -> None:
        """Begin no further reading; one that is being sent ends with the process."""
        self._closing.set()
