"""Reports of results: a table on the terminal, JSON on disk."""

from __future__ import annotations

import json
import os
import platform
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.generator import PLACE
from tools import interpreter


def show(title: str, rows: list[dict[str, str]], notes: list[str]) -> None:
    """Print a table with one row per dict, and the notes below it."""
    table = Table(title=title, title_justify="left")
    for column in rows[0] if rows else ():
        numeric = rows[0][column][:1].isdigit()
        table.add_column(column, justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*row.values())
    console = Console(width=None if os.isatty(1) else 140)
    console.print(table)
    for note in notes:
        console.print(f"NOTE: {note}", style="yellow")


def machine() -> dict[str, Any]:
    """Return what is to be known of the machine that this runs on."""
    return {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "python_optimised": interpreter.is_optimised(),
    }


def keep(part: str, results: list[dict[str, Any]]) -> Path:
    """Write the full results, with the machine they were measured on; return where."""
    PLACE.mkdir(parents=True, exist_ok=True)
    path = PLACE / f"{part}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.write_text(json.dumps({"machine": machine(), "results": results}, indent=1))
    print(f"kept in {path}")
    return path
