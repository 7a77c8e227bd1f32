"""The metrics and the spans of a node to a collector of OpenTelemetry: OTLP over HTTP.

A thread of its own reads what a scrape of the sums reads, takes the spans that wait, and has
OpenTelemetry's own exporters send them. A collector that is down, slow or hostile costs this thread
its patience and nothing else: what it did not take is not kept, since the next reading has the same
counters, and spans are samples.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final

import requests
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import export as points
from opentelemetry.sdk.metrics.export import MetricExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from prometheus_client.core import Metric

from warren_broker.settings.http_settings import OtlpSettings
from warren_broker.tracing.spans import Outcome, Span, Tracing
from warren_raft.runtime.loop import Loop
from warren_wire import VERSION
from warren_wire.quoting import quoted
from warren_wire.trace_context import TraceContext

log = logging.getLogger(__name__)
PATIENCE_S: Final = 10.0
"""How long a collector may take, with the exporter's repetitions."""
SPANS_WAIT_S: Final = 1.0
"""Between two requests with spans, unless as many wait as one holds."""
SPANS_TOGETHER: Final = 512
SCOPE: Final = InstrumentationScope("warren_broker", VERSION)
CUMULATIVE: Final = points.AggregationTemporality.CUMULATIVE
SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
BOUNDED: Final = {"stream": True, "allow_redirects": False}
"""Of each request: what follows the head of the answer is not read, and goes nowhere else."""


# ------------------------------------------------------------------ metrics


def _histograms(metric: Metric, since_ns: int, now_ns: int) -> Iterator[Any]:
    """Yield a point for each list of labels; Prometheus's buckets have those below them, too."""
    found: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
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
        yield points.HistogramDataPoint(
            attributes=dict(labels_of),
            start_time_unix_nano=since_ns,
            time_unix_nano=now_ns,
            count=below[-1],
            sum=made["sum"],
            bucket_counts=[more - less for less, more in pairwise((0, *below))],
            explicit_bounds=[float(bound) for bound in made["bounds"][:-1]],
            min=None,  # type: ignore[arg-type]  # not known, as the protocol allows
            max=None,  # type: ignore[arg-type]
        )


def _metric(metric: Metric, since_ns: int, now_ns: int) -> points.Metric:
    data: points.DataT
    if metric.type == "histogram":
        data = points.Histogram([*_histograms(metric, since_ns, now_ns)], CUMULATIVE)
    else:
        plain = [
            points.NumberDataPoint(one.labels, since_ns, now_ns, float(one.value))
            for one in metric.samples
            if not one.name.endswith("_created")
        ]
        counts = metric.type == "counter"
        data = points.Sum(plain, CUMULATIVE, True) if counts else points.Gauge(plain)
    return points.Metric(metric.name, metric.documentation, "", data)


def metrics_data(
    metrics: Iterable[Metric], of: Resource, since_ns: int, now_ns: int
) -> points.MetricsData:
    """Return the families of a scrape in OpenTelemetry's form."""
    shown = [_metric(one, since_ns, now_ns) for one in metrics if one.samples]
    scope = points.ScopeMetrics(SCOPE, shown, "")
    return points.MetricsData([points.ResourceMetrics(of, [scope], "")])


# ------------------------------------------------------------------ spans


def _context(context: TraceContext, remote: bool) -> SpanContext:
    trace_id, span_id = (int.from_bytes(one, "big") for one in context)
    return SpanContext(trace_id, span_id, remote, SAMPLED)


def readable(span: Span, of: Resource) -> ReadableSpan:
    """Return a span in OpenTelemetry's form."""
    around = TraceContext(span.context.trace_id, span.parent)
    return ReadableSpan(
        span.name,
        context=_context(span.context, False),
        parent=_context(around, span.kind != "INTERNAL") if span.parent else None,
        resource=of,
        attributes=span.facts,
        links=[Link(_context(one, True)) for one in span.links],
        kind=SpanKind[span.kind],
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=SCOPE,
    )


# ------------------------------------------------------------------ sending


class _StatusSession(requests.Session):
    """Reads nothing of an answer but its head: a collector chooses how long the rest is.

    failure  why the last request failed; "": it did not
    """

    failure = ""

    def request(self, method: Any, url: Any, *given: Any, **named: Any) -> requests.Response:
        """See `requests.Session`; a redirection is a failure, as what was sent is not taken."""
        try:
            answer = super().request(method, url, *given, **(named | BOUNDED))
        except requests.RequestException as error:
            self.failure = str(error)
            raise
        answer.close()
        answer._content = b""
        self.failure = "" if answer.ok else f"HTTP {answer.status_code}"
        if answer.is_redirect:
            self.failure = f"HTTP {answer.status_code}: it is elsewhere"
            raise requests.HTTPError(self.failure)
        return answer


class OtlpSender:
    """The thread that sends; it ends with `close`, or with the process."""

    def __init__(
        self,
        read: Callable[[], list[Metric]] | None,
        tracing: Tracing | None,
        loop: Loop,
        node: str,
        settings: OtlpSettings,
    ) -> None:
        """Begin.

        read     returns the families of a scrape, or raises; not called on the loop's thread. None:
                 metrics are not sent
        tracing  has the spans; None: the node does not trace
        """
        # Each failure is logged here, once.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._read, self._tracing, self._loop = read, tracing, loop
        of = {"service.name": "warren", "service.version": VERSION, "service.instance.id": node}
        self._of = Resource(of)
        self._settings = settings
        self._sessions = {"metrics": _StatusSession(), "traces": _StatusSession()}
        base = settings.endpoint.rstrip("/")
        self._metrics = OTLPMetricExporter(
            f"{base}/v1/metrics", **self._options("metrics"), preferred_temporality={}
        )
        self._spans = OTLPSpanExporter(f"{base}/v1/traces", **self._options("traces"))
        self._since_ns = time.time_ns()
        self._failing: set[str] = set()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self._thread.start()

    def _options(self, what: str) -> dict[str, Any]:
        return {
            "headers": self._settings.headers,
            "timeout": PATIENCE_S,
            "compression": Compression.Gzip,
            "session": self._sessions[what],
        }

    def _run(self) -> None:
        interval_s = self._settings.interval_ms / 1000
        wait_s = interval_s if self._tracing is None else min(SPANS_WAIT_S, interval_s)
        due = time.monotonic() + interval_s
        more = False
        while not self._closing.wait(0 if more else wait_s):
            more = self._tracing is not None and self._send_spans(self._tracing)
            if self._read is not None and time.monotonic() >= due:
                due = time.monotonic() + interval_s
                self._attempt("metrics", partial(self._send_metrics, self._read))

    def _attempt(self, what: str, send: Callable[[], bool]) -> bool:
        """Send; log when it begins to fail, and when it no longer does."""
        try:
            done, why = send(), self._sessions[what].failure
        except Exception as error:  # the rim of this thread: this reading is not sent
            done, why = False, str(error)
        where = self._settings.endpoint
        if done and what in self._failing:
            self._failing.discard(what)
            log.info("OTLP: %s takes %s again", where, what)
        elif not done and what not in self._failing:
            self._failing.add(what)
            lost = "what is sent until it takes some is dropped"
            log.warning("OTLP: %s are not taken by %s: %s; %s", what, where, quoted(why), lost)
        return done

    def _send_metrics(self, read: Callable[[], list[Metric]]) -> bool:
        told = metrics_data(read(), self._of, self._since_ns, time.time_ns())
        return self._metrics.export(told) is MetricExportResult.SUCCESS

    def _send_spans(self, tracing: Tracing) -> bool:
        """Send the spans that wait; return whether more may, and are taken."""
        spans = tracing.taken(SPANS_TOGETHER)
        if not spans:
            return False
        done = self._attempt("traces", partial(self._export, spans))
        outcome: Outcome = "exported" if done else "refused"
        self._loop.post(partial(tracing.count, outcome, len(spans)))
        return done and len(spans) == SPANS_TOGETHER

    def _export(self, spans: Sequence[Span]) -> bool:
        told = [readable(span, self._of) for span in spans]
        return self._spans.export(told) is SpanExportResult.SUCCESS

    def close(self) -> None:
        """Begin no further request; one that is being sent ends with the process."""
        self._closing.set()
