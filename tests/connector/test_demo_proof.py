"""The demo's proof can fail: each way of being inexact is seen."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

FLIGHTS = Path(__file__).resolve().parents[2] / "examples" / "flights"


@pytest.fixture(scope="module")
def demo() -> Iterator[Any]:
    """The demo's modules, by name."""
    sys.path.insert(0, str(FLIGHTS))
    try:
        import data
        import demo_report
        import proof

        yield {"data": data, "proof": proof, "report": demo_report}
    finally:
        sys.path.remove(str(FLIGHTS))


def test_alert_priorities_rise_with_the_delay(demo: Any) -> None:
    urgency = demo["data"].alert_priority
    assert [urgency(minutes) for minutes in (61, 80, 81, 660, 661, 1301)] == [1, 1, 2, 30, 31, 31]


@pytest.mark.long
def test_every_flight_is_a_message_and_all_are_counted(demo: Any, tmp_path: Path) -> None:
    data = demo["data"]
    table, alerts = data.expected(0.001)
    flights = data.flights(data.convert(tmp_path), 0.001)
    assert len(flights) == sum(totals.flights for totals in table.values()) == 337
    assert sum(totals.delayed for totals in table.values()) == len(alerts)
    assert set(alerts) <= {flight.number for flight in flights}
    assert data.convert(tmp_path).stat().st_size > 1 << 20


@pytest.mark.parametrize("change", ["missing", "strange", "count"])
def test_parquet_that_differs_is_seen(demo: Any, change: str) -> None:
    data, check = demo["data"], demo["proof"].check_parquet
    wanted = {("UA", "2013-01-01"): data.Totals(3, 3, 70, 1), ("AA", "2013-01-01"): data.Totals(1)}
    found = dict(wanted)
    assert check(found, wanted).worked
    if change == "missing":
        del found["AA", "2013-01-01"]
    elif change == "strange":
        found["B6", "2013-01-01"] = data.Totals(1)
    else:
        found["UA", "2013-01-01"] = replace(wanted["UA", "2013-01-01"], flights=4)
    assert not check(found, wanted).worked


@pytest.mark.parametrize(
    ("got", "worked"),
    [
        ([(2, 9, "2"), (1, 5, "1"), (3, 5, "3")], [True, True]),
        ([(2, 9, "2"), (1, 5, "1")], [False, True]),
        ([(2, 9, "2"), (1, 5, "1"), (3, 5, "3"), (3, 5, "3")], [False, True]),
        ([(2, 9, "2"), (1, 5, "1"), (3, 5, "3"), (4, 5, "4")], [False, False]),
        ([(1, 5, "1"), (2, 9, "2"), (3, 5, "3")], [True, False]),
        ([(2, 9, "2"), (1, 6, "1"), (3, 5, "3")], [True, False]),
    ],
)
def test_alerts_that_differ_are_seen(
    demo: Any, got: list[tuple[int, int, str]], worked: list[bool]
) -> None:
    checks = demo["proof"].check_alerts(got, {1: 5, 2: 9, 3: 5})
    assert [check.worked for check in checks] == worked


def test_the_report_is_one_page_with_the_chart_and_the_kills(demo: Any, tmp_path: Path) -> None:
    report, check = demo["report"], demo["proof"].Check
    story = report.Story()
    for second in range(20):
        story.samples["published"].append((second * 0.5, second * 1000))
    story.marks.append((3.0, "kill -9 node 2 <leads>"))
    svg = ElementTree.fromstring(report.chart(story))
    assert any(each.text == "kill -9 node 2 <leads>" for each in svg.iter("text"))
    path = tmp_path / "demo.html"
    report.write(path, "title", story, [check("claim", "found", False)], [("a", "b")])
    text = path.read_text()
    assert "NOT EXACT" in text and "<script" not in text and "http" not in text
    assert [rate for _, rate in report.rates(story.samples["published"])] == [2000.0] * 9
