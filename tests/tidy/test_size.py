"""One reason per module: the limits that keep it so."""

from __future__ import annotations

from tidy import house
from tidy.ratchet import over

MODULE_LINES_MAX = 800
FUNCTION_LINES_MAX = 60
LINE_CHARACTERS_MAX = 100
BANNED_NAMES = {"util", "utils", "common", "helper", "helpers", "misc", "stuff"}


def test_module_length() -> None:
    measured = {module.place: len(module.lines) for module in house.everything()}
    house.report(
        over("module_lines", MODULE_LINES_MAX, measured),
        "split it by reasons to change; the aim is 300 lines",
    )


def test_function_length() -> None:
    measured = {
        f"{module.place}:{function.name}": (function.end_lineno or 0) - function.lineno + 1
        for module in house.everything()
        for function in house.functions(module)
    }
    house.report(
        over("function_lines", FUNCTION_LINES_MAX, measured),
        "branching in the parent, arithmetic in leaves, moves in a table",
    )


def test_line_length() -> None:
    findings = [
        f"{module.place}:{number}: {len(line)} characters"
        for module in house.everything()
        for number, line in enumerate(module.lines, 1)
        if len(line) > LINE_CHARACTERS_MAX
    ]
    house.report(findings, f"break the line at {LINE_CHARACTERS_MAX}")


def test_module_names_say_something() -> None:
    findings = [
        module.place
        for module in house.everything()
        if {part.removesuffix(".py") for part in module.path.relative_to(house.ROOT).parts}
        & BANNED_NAMES
    ]
    house.report(findings, "name it for the one thing that it does")
