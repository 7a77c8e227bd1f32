"""The command line's order, and tables on terminals and in pipes."""

from __future__ import annotations

import io

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from warren.cli import output
from warren.cli.app import app
from warren.cli.command_line import ordered
from warren_wire import VERSION

ROOT = typer.main.get_command(app)


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        ("--uri x queues list", "queues list --uri x"),
        ("queues --json list --uri=x", "queues list --json --uri=x"),
        ("--json --uri=x queues show q", "queues show --json --uri=x q"),
        ("queues list --wait", "--wait queues list"),
        ("nodes drain n --wait", "nodes drain n --wait"),
        ("--wait nodes drain n", "nodes drain --wait n"),
        ("queues show --uri", "queues show --uri"),
        ("publish q --uri x", "publish q --uri x"),
        ("--bogus queues list", "--bogus queues list"),
        ("queues bogus --json", "queues bogus --json"),
    ],
)
def test_options_may_stand_before_the_command_or_behind_it(given: str, parsed: str) -> None:
    assert ordered(ROOT, given.split()).arguments == parsed.split()


def test_the_version_is_shown() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout == f"warren {VERSION}\n"


def shown(
    monkeypatch: pytest.MonkeyPatch, width: int | None, columns: list[str], *rows: list[object]
) -> tuple[list[str], str]:
    """The lines of a table, and the notes. width: of a terminal; None: a pipe."""
    out, notes = io.StringIO(), io.StringIO()
    terminal = width is not None
    monkeypatch.setattr(
        output, "_OUT", Console(file=out, force_terminal=terminal, width=width, color_system=None)
    )
    monkeypatch.setattr(output, "ERRORS", Console(file=notes, width=200))
    output.table("", columns, rows)
    return out.getvalue().splitlines(), notes.getvalue()


def test_a_pipe_gets_whole_lines_without_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "a-name-" * 40
    lines, notes = shown(monkeypatch, None, ["name", "ready"], [name, 1_234], ["b", 5])
    assert [line.split() for line in lines] == [["name", "ready"], [name, "1,234"], ["b", "5"]]
    assert lines[2].endswith("    5") and not notes


def test_a_terminal_of_80_columns_leaves_out_the_last_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    columns = ["name", *(f"messages_of_kind_{i}" for i in range(9))]
    name = "orders." * 20
    lines, notes = shown(monkeypatch, 80, columns, [name, *range(9)])
    assert max(map(len, lines)) <= 80
    left_out = notes.removeprefix("left out for want of width: ").partition(";")[0].split(", ")
    assert left_out and left_out == columns[-len(left_out) :]
    row = next(line for line in lines if "orders" in line)
    kept = row.split("│")[1].strip()
    assert len(kept) >= output.NAME_WIDTH_MIN and "…" in kept
    assert kept.startswith("orders.orders") and kept.endswith("orders.")
    assert len([cell for cell in row.split("│") if cell.strip()]) == len(columns) - len(left_out)


@pytest.mark.parametrize("width", range(1, 40))
def test_no_terminal_is_too_narrow(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    lines, _ = shown(monkeypatch, width, ["name", "ready"], ["a-long-name-of-a-queue", 1])
    assert lines


def test_a_text_is_shortened_in_its_middle() -> None:
    assert [output.shortened("abcdefgh", width) for width in (8, 7, 4, 3, 2, 1)] == [
        *("abcdefgh", "abc…fgh", "ab…h", "a…h", "ab", "a"),
    ]


def test_a_title_is_the_name_in_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [type("Row", (), {"name": "q", "messages_ready": 3})()]
    monkeypatch.setattr(output, "_OUT", Console(force_terminal=False, width=80))
    output.listing(found, False, {"queue": "name", "ready": "messages_ready"})
    assert capsys.readouterr().out.splitlines()[0].split() == ["name", "messages_ready"]
