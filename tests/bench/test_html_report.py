"""The page of a run of loads."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

from bench.loads import LATE, page, rows

SVG = "{http://www.w3.org/2000/svg}"


def result(peer: str, turn: int, p50: float) -> dict[str, Any]:
    """What a run of a load with a rate gives."""
    return {
        "name": "1,000 msg/s",
        "peer": peer,
        "round": turn,
        "lost": 0,
        "duplicates": 0,
        "order_violations": 0,
        "bad_bodies": 0,
        "errors": 0,
        "blocked": 0,
        "nacked": 0,
        "confirm_ms": {"p50": p50, "p99": 3 * p50},
        "cpu": {"watched_cores": 1.5},
    }


def test_each_figure_is_a_chart_with_the_medians_and_a_row_of_the_table(tmp_path: Path) -> None:
    results = [
        result(peer, turn, p50)
        for turn in (0, 1)
        for peer, p50 in (("Warren", 1.07 + turn / 50), ("Rabbit <MQ>", 1.66))
    ]
    path = tmp_path / "loads.html"
    page(results, path)
    text = path.read_text(encoding="utf-8")
    charts = [part[: part.index("</svg>") + 6] for part in text.split("<svg")[1:]]
    assert len(charts) == len(LATE)
    for chart in charts:
        ElementTree.fromstring(f"<svg{chart}".replace("xlink:", ""))
    assert "<!-- 1.08 -->" in charts[0] and "<!-- 1.66 -->" in charts[0]
    assert text.count("<tr>") == 1 + len(rows(results)) == 1 + len(LATE)
    assert "Rabbit &lt;MQ&gt;" in text and "Rabbit <MQ>" not in text
