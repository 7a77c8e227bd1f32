"""Film the notebook of examples/ and the UI of Spark: `build.py film` draws docs/images/ again.

The notebook runs in a Jupyter kernel. After each cell it is drawn as a page, by nbconvert and a
Chromium without a window; while the streaming query runs, and at its end, Spark's own pages are.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image, ImageChops

from tools.environment import ROOT

NOTEBOOK = ROOT / "examples" / "notebook" / "departures.ipynb"
IMAGES = ROOT / "docs" / "images"
SPARK = "http://127.0.0.1:4040"
STREAMING = "maxMessagesPerTrigger"
"""In the source of the cell that runs the query."""
PAGE_WIDTH = 1000
PAGE_HEIGHT_MAX = 6_000
FRAME_HEIGHT = 720
FRAME_MS = 1_800
WAIT_FOR_QUERY_S = 9.0
"""Until the query has made some batches."""
CELL_S_MAX = 300
STILL = "spark-statistics.png"
STILL_HEIGHT = 1_100
COLOURS = 64
"""Of a still picture in the docs."""


class Film:
    """Frames of a run, and the browser that draws them."""

    def __init__(self, place: Path, exporter: Any) -> None:
        self.place = place
        self.exporter = exporter
        self.frames: list[Image.Image] = []

    def draw(self, address: str, height: int = PAGE_HEIGHT_MAX) -> Image.Image:
        """Draw a page; the empty part below it is cut off."""
        target = self.place / "page.png"
        size = f"--window-size={PAGE_WIDTH},{height}"
        quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        waits = "--virtual-time-budget=4000"
        command = ["chromium", *quiet, waits, size, f"--screenshot={target}", address]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        with Image.open(target) as opened:
            page = opened.convert("RGB")
        blank = Image.new("RGB", page.size, page.getpixel((page.width - 1, page.height - 1)))
        box = ImageChops.difference(page, blank).getbbox()
        return page.crop((0, 0, page.width, box[3] + 20 if box else height))

    def add(self, page: Image.Image, bottom: bool) -> None:
        """Add a frame: the top of a page, or its bottom."""
        start = max(0, page.height - FRAME_HEIGHT) if bottom else 0
        frame = Image.new("RGB", (PAGE_WIDTH, FRAME_HEIGHT), "white")
        frame.paste(page.crop((0, start, page.width, min(page.height, start + FRAME_HEIGHT))))
        self.frames.append(frame)

    def notebook(self, notebook: Any, cells: int) -> None:
        """Add the notebook as it is after its first so many cells."""
        shown = notebook.copy()
        shown.cells = [quiet_cell(cell) for cell in notebook.cells[:cells]]
        text, _ = self.exporter.from_notebook_node(shown)
        page = self.place / "notebook.html"
        page.write_text(text, encoding="utf-8")
        self.add(self.draw(page.as_uri()), bottom=True)

    def spark(self, statistics: bool = False) -> None:
        """Add Spark's page of its streaming queries, or the statistics of the query, kept."""
        address = f"{SPARK}/StreamingQuery/"
        page = self.draw(statistics_address(address) if statistics else address)
        self.add(page, bottom=False)
        if statistics:
            save(page.crop((0, 0, page.width, min(page.height, STILL_HEIGHT))), STILL)


def statistics_address(address: str) -> str:
    """Return the page of the first query that Spark's list of queries links to."""
    with urllib.request.urlopen(address, timeout=10) as answer:
        text = answer.read().decode()
    link = text.split("/StreamingQuery/statistics/?id=", 1)[1].split('"', 1)[0]
    return f"{address}statistics/?id={link}"


def quiet_cell(cell: Any) -> Any:
    """Return the cell without what Spark writes to stderr when it starts."""
    cell = cell.copy()
    if cell.cell_type == "code":
        cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    return cell


def save(picture: Image.Image, name: str) -> None:
    """Write a picture of the docs, with few colours, since it is text mostly."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    picture.quantize(COLOURS).save(IMAGES / name, optimize=True)


def run(said: Callable[[str], None]) -> int:
    """Run the notebook and film it; say what was written."""
    import nbformat
    from nbclient import NotebookClient
    from nbconvert import HTMLExporter

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with tempfile.TemporaryDirectory(prefix="warren-film-") as place:
        film = Film(Path(place), HTMLExporter(template_name="lab"))
        os.environ["FLIGHTS_DATA"] = str(NOTEBOOK.parent.parent / "flights")
        os.environ["PYSPARK_PYTHON"] = sys.executable
        resources = {"metadata": {"path": place}}
        client = NotebookClient(
            notebook, timeout=CELL_S_MAX, kernel_name="python3", resources=resources
        )
        asyncio.run(_execute(client, film, said))
        first, *others = film.frames
        first.save(
            IMAGES / "notebook.webp",
            save_all=True,
            append_images=others,
            duration=FRAME_MS,
            loop=0,
            quality=45,
            method=6,
        )
    for path in sorted(IMAGES.iterdir()):
        said(f"   {path.relative_to(ROOT)}  {path.stat().st_size // 1024} KiB")
    return 0


async def _execute(client: Any, film: Film, said: Callable[[str], None]) -> None:
    async with client.async_setup_kernel():
        for index, cell in enumerate(client.nb.cells):
            running = asyncio.ensure_future(client.async_execute_cell(cell, index))
            if STREAMING in cell.source:
                await asyncio.wait([running], timeout=WAIT_FOR_QUERY_S)
                await asyncio.to_thread(film.spark)
            await running
            if index + 1 < len(client.nb.cells):
                await asyncio.to_thread(film.notebook, client.nb, index + 1)
            if STREAMING in cell.source:
                await asyncio.to_thread(film.spark, statistics=True)
            said(f"   cell {index + 1} of {len(client.nb.cells)}")


if __name__ == "__main__":
    sys.exit(run(print))
