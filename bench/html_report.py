"""The loads of a run as a page with charts: each cluster's figures, and the table."""

from __future__ import annotations

import html
import io
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from bench.rounds import Column

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem }}
table {{ border-collapse: collapse; font-size: 13px }}
td, th {{ border-bottom: 1px solid #ddd; padding: .3rem .7rem; text-align: left }}
svg {{ height: auto; max-width: 100% }}
</style></head><body>
<h1>{title}</h1>
<p>{machine}</p>
{charts}
<h2>Every figure</h2>
{table}
</body></html>
"""
BAR_HEIGHT_IN = 0.3
WIDTH_IN = 9.5


def write(
    path: Path,
    title: str,
    machine: dict[str, Any],
    results: Sequence[dict[str, Any]],
    rows: Sequence[dict[str, str]],
    columns_of: Callable[[str], Sequence[Column]],
) -> None:
    """Write the page.

    results     one per load, cluster and round: `name`, `peer` and what the columns read
    rows        of the table, the same keys in each
    columns_of  the figures that count for a load
    """
    loads = list(dict.fromkeys(one["name"] for one in results))
    columns = list(dict.fromkeys(column for name in loads for column in columns_of(name)))
    charts = []
    for column in columns:
        having = [name for name in loads if column in columns_of(name)]
        charts.append(chart(column, having, results))
    about = ", ".join(f"{name} {value}" for name, value in machine.items())
    text = PAGE.format(
        title=html.escape(title),
        machine=html.escape(about),
        charts="\n".join(charts),
        table=table(rows),
    )
    path.write_text(text, encoding="utf-8")


def chart(column: Column, loads: Sequence[str], results: Sequence[dict[str, Any]]) -> str:
    """Draw one figure of some loads as SVG: a bar per cluster, a line from minimum to maximum."""
    peers = list(dict.fromkeys(one["peer"] for one in results))
    height = 1.2 + BAR_HEIGHT_IN * len(loads) * (len(peers) + 0.6)
    figure = Figure(figsize=(WIDTH_IN, height), layout="constrained")
    axes = figure.subplots()
    for place, peer in enumerate(peers):
        spots, medians, below, above = [], [], [], []
        for at, name in enumerate(loads):
            values = [column.value(r) for r in results if (r["name"], r["peer"]) == (name, peer)]
            if values:
                middle = statistics.median(values)
                spots.append(at + (place - (len(peers) - 1) / 2) * 0.8 / len(peers))
                medians.append(middle)
                below.append(middle - min(values))
                above.append(max(values) - middle)
        bars = axes.barh(spots, medians, 0.75 / len(peers), xerr=[below, above], label=peer)
        axes.bar_label(bars, [format(value, column.form) for value in medians], padding=3)
    axes.set_yticks(range(len(loads)), loads)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.set_title(column.title)
    axes.legend(loc="best", fontsize="small")
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg")
    return drawn.getvalue()[drawn.getvalue().index("<svg") :]


def table(rows: Sequence[dict[str, str]]) -> str:
    """Return the rows as a table in HTML."""
    if not rows:
        return ""
    heads = "".join(f"<th>{html.escape(name)}</th>" for name in rows[0])
    lines = [
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row.values()) + "</tr>"
        for row in rows
    ]
    return f"<table><tr>{heads}</tr>{''.join(lines)}</table>"
