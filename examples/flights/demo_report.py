"""The demo's report: one HTML file, with the throughput drawn in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from proof import Check

WIDTH, HEIGHT, LEFT, BOTTOM = 960, 340, 70, 60
COLORS = {"published": "#2563eb", "read by Spark": "#059669", "alerts": "#d97706"}


@dataclass(slots=True)
class Story:
    """The events of a run, in seconds since the start.

    samples  name to (second, count so far) pairs
    marks    (second, text): the kills and the restarts
    """

    samples: dict[str, list[tuple[float, int]]] = field(
        default_factory=lambda: {name: [] for name in COLORS}
    )
    marks: list[tuple[float, str]] = field(default_factory=list)


def rates(samples: Sequence[tuple[float, int]], seconds: float = 1.0) -> list[tuple[float, float]]:
    """Convert counts so far to messages per second, over windows of at least `seconds`."""
    made: list[tuple[float, float]] = []
    start = 0
    for i, (now, count) in enumerate(samples):
        then, before = samples[start]
        if now - then >= seconds:
            made.append((now, max(0.0, (count - before) / (now - then))))
            start = i
    return made


def round_up(rate: float) -> float:
    """Round up to 1, 2, 4, 6 or 8 times a power of ten, for four even steps on the axis."""
    power = float(10 ** math.floor(math.log10(rate)))
    return next((step * power for step in (1, 2, 4, 6, 8) if step * power >= rate), 10.0 * power)


def chart(story: Story) -> str:
    """Draw messages per second over time, with the marks, as SVG."""
    lines = {name: rates(samples) for name, samples in story.samples.items()}
    points = [point for line in lines.values() for point in line]
    last = max([t for t, _ in points] + [t for t, _ in story.marks] + [1.0])
    top = round_up(max([rate for _, rate in points] + [1.0]))

    def x(second: float) -> float:
        return LEFT + second / last * (WIDTH - LEFT - 10)

    def y(rate: float) -> float:
        return HEIGHT - BOTTOM - rate / top * (HEIGHT - BOTTOM - 30)

    parts = [
        (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            'aria-label="messages per second over time">'
        )
    ]
    for i in range(5):
        rate = top * i / 4
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - 10}" y1="{y(rate):.1f}" y2="{y(rate):.1f}" '
            'class="grid"/>'
            f'<text x="{LEFT - 8}" y="{y(rate) + 4:.1f}" text-anchor="end">'
            f"{rate:,.0f}</text>"
        )
    for i in range(6):
        second = last * i / 5
        parts.append(
            f'<text x="{x(second):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
            f"{second:.0f} s</text>"
        )
    for i, (second, text) in enumerate(story.marks):
        kind = "kill" if "kill" in text else "back"
        parts.append(
            f'<line x1="{x(second):.1f}" x2="{x(second):.1f}" y1="12" '
            f'y2="{HEIGHT - BOTTOM}" class="{kind}"/>'
            f'<text x="{x(second) + 4:.1f}" y="{22 + 14 * (i % 4)}" class="{kind}">'
            f"{escape(text)}</text>"
        )
    for name, line in lines.items():
        path = " ".join(f"{x(t):.1f},{y(rate):.1f}" for t, rate in line)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{COLORS[name]}" stroke-width="2"/>'
        )
    for i, (name, color) in enumerate(COLORS.items()):
        at = LEFT + 190 * i
        parts.append(
            f'<rect x="{at}" y="{HEIGHT - 20}" width="10" height="10" fill="{color}"/>'
            f'<text x="{at + 15}" y="{HEIGHT - 11}">{escape(name)} per second</text>'
        )
    return "".join([*parts, "</svg>"])


STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #1f2937; background: #fff }
svg { width: 100%; height: auto; font-size: 11px } svg text { fill: #6b7280 }
.grid { stroke: #e5e7eb } .kill { stroke: #dc2626; stroke-dasharray: 4 3 }
.back { stroke: #9ca3af; stroke-dasharray: 2 3 }
svg text.kill { fill: #dc2626; stroke: none } svg text.back { fill: #6b7280; stroke: none }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; padding: .3rem .6rem;
       border-bottom: 1px solid #e5e7eb } .yes { color: #059669 } .no { color: #dc2626 }
"""


def write(
    path: Path, title: str, story: Story, checks: Sequence[Check], facts: Sequence[tuple[str, str]]
) -> None:
    """Write the page: the verdict, the chart, the proof, the facts."""
    worked = all(check.worked for check in checks)
    verdict = "Exact: nothing lost, nothing twice." if worked else "NOT EXACT: see below."
    proof = "".join(
        f'<tr><td class="{"yes" if check.worked else "no"}">{"✓" if check.worked else "✗"}</td>'
        f"<td>{escape(check.claim)}</td><td>{escape(check.found)}</td></tr>"
        for check in checks
    )
    told = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in facts
    )
    path.write_text(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{STYLE}</style><h1>{escape(title)}</h1>"
        f'<p class="{"yes" if worked else "no"}"><strong>{verdict}</strong></p>'
        f"<h2>Throughput</h2>{chart(story)}<h2>Proof</h2><table>{proof}</table>"
        f"<h2>Facts</h2><table>{told}</table></html>",
        encoding="utf-8",
    )
