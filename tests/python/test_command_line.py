"""The command line's order, and tables on terminals and in pipes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from warren.cli import output
from warren.cli.app import app
from warren.cli.command_line import FORMATS, READS, ordered
from warren.cli.requests import NEEDED, every_column, parameters_of
from warren_wire import VERSION
from warren_wire.admin.requests import AdminRequest, seen, summary_of

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
        ("--context prod --csv queues list", "queues list --context prod --csv"),
        ("--context=prod queues --jsonl list", "queues list --context=prod --jsonl"),
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


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command, with the words that call it."""
    for name, one in group.commands.items():
        if hasattr(one, "commands"):
            yield from commands(one, (*path, name))
        else:
            yield (*path, name), one


def test_every_list_is_there_for_programs() -> None:
    without = {
        path
        for path, one in commands(ROOT)
        if path[-1] in READS and not any(tuple(each.opts) == FORMATS for each in one.params)
    }
    assert without == {("definitions", "export"), ("users", "authenticate")}


@pytest.mark.parametrize(
    ("shape", "printed"),
    [
        ("--csv", 'name,size,tags\na,1,"[""x"", ""y""]"\n"b,",,\n'),
        ("--jsonl", '{"name": "a", "size": 1, "tags": ["x", "y"]}\n{"name": "b,"}\n'),
        ("--json", '[\n  {\n    "name": "a",'),
    ],
)
def test_values_for_programs(
    shape: str, printed: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "wanted_format", lambda: shape)
    output.as_json([{"name": "a", "size": 1, "tags": ["x", "y"]}, {"name": "b,"}])
    assert capsys.readouterr().out.startswith(printed)


def test_a_shell_completes_commands_and_contexts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARREN_CONTEXTS", str(tmp_path / "contexts.json"))
    CliRunner().invoke(app, ["context", "add", "prod", "amqp://one/"])

    def completed(*words: str) -> list[str]:
        asked = {
            "_WARREN_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(("warren", *words)),
            "COMP_CWORD": str(len(words)),
        }
        return CliRunner().invoke(app, [], env=asked, prog_name="warren").stdout.split()

    assert completed("excha") == ["exchanges"]
    assert "list" in completed("exchanges", "l")
    assert completed("context", "use", "p") == ["prod"]
    assert completed("queues", "list", "--context", "p") == ["prod"]


class Thing(msgspec.Struct, frozen=True):
    """A value with a field that nothing names but its struct."""

    name: Annotated[str, seen(column=True)]
    hidden: int
    brand_new: Annotated[int, seen(column=True)] = 0


class ListThingsRequest(AdminRequest[list[Thing]], frozen=True):
    """Return things, by name; 404. Answer: Listed (Thing).

    vhost      None: of all
    brand_new  a text that the command shows
    """

    vhost: str | None = None
    brand_new: bool = False


class PutThingRequest(AdminRequest[None], frozen=True, rename={"name": "thing"}):
    """Add a thing. Answer: Put."""

    vhost: str
    name: str
    size: int = 3


def test_a_command_has_the_fields_of_its_request() -> None:
    assert summary_of(ListThingsRequest) == "Return things, by name."
    listed = parameters_of(ListThingsRequest, {})
    assert [(key, default) for key, (_, default) in listed.items()] == [
        ("vhost", None),
        ("brand_new", False),
    ]
    option = listed["brand_new"][0].__metadata__[0]
    assert (option.default, option.help) == ("--brand-new", "a text that the command shows")
    put = parameters_of(PutThingRequest, {})
    assert {key: default for key, (_, default) in put.items() if default is not NEEDED} == {
        "vhost": "/",
        "size": 3,
    }
    assert put["thing"][0].__metadata__[0].help == "the thing's name"
    assert list(parameters_of(PutThingRequest, {"vhost": "/"})) == ["thing", "size"]


def test_a_table_has_every_field_that_its_struct_marks() -> None:
    assert list(every_column(Thing, {})) == ["name", "brand_new"]
    assert list(every_column(Thing, {"name": "name", "state": str})) == [
        *("name", "state", "brand_new"),
    ]
