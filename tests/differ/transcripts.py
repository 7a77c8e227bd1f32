"""Transcripts: written to files, read, compared step by step; known differences are explained."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from differ.script import Step

FOLDER = Path(__file__).parent / "recorded"
Transcript: TypeAlias = Sequence[Step]


@dataclass(frozen=True)
class Known:
    """A way in which Warren differs on purpose.

    row       words of docs/reference/compatibility.md that state the difference
    where     regular expression, found in "SCENARIO NUMBER. TITLE" of the steps that it is about
    rabbitmq  (pattern, replacement): turns what is observed on RabbitMQ into what is on Warren
    warren    the same for what is observed on Warren
    """

    row: str
    where: str
    rabbitmq: tuple[tuple[str, str], ...] = ()
    warren: tuple[tuple[str, str], ...] = ()


def text_of(transcripts: Mapping[str, Transcript]) -> str:
    """Return scenarios as text: a line per step, what was observed indented below it."""
    lines = []
    for name, steps in transcripts.items():
        lines.append(f"== {name}")
        for step in steps:
            lines.append(step.title)
            lines.extend(f"    {line}" for line in step.observed)
        lines.append("")
    return "\n".join(lines)


def parse(text: str) -> dict[str, list[Step]]:
    """Read what `text_of` has written; lines before the first scenario are remarks."""
    found: dict[str, list[Step]] = {}
    steps: list[Step] = []
    for line in text.splitlines():
        if line.startswith("== "):
            steps = found.setdefault(line.removeprefix("== "), [])
        elif line.startswith("    "):
            steps[-1].observed.append(line.removeprefix("    "))
        elif line and line[0].isdigit():
            steps.append(Step(line))
    return found


def recorded() -> dict[str, list[Step]]:
    """Read all recordings of RabbitMQ, by scenario."""
    found: dict[str, list[Step]] = {}
    for path in sorted(FOLDER.glob("*.txt")):
        found.update(parse(path.read_text(encoding="utf-8")))
    return found


def record(name: str, transcripts: Mapping[str, Transcript]) -> None:
    """Write the recordings of a broker, one file per module of scenarios.

    Scenarios that were not run keep what was recorded of them.
    """
    kept = {**recorded(), **transcripts}
    by_module: dict[str, dict[str, Transcript]] = {}
    for scenario in sorted(kept):
        by_module.setdefault(scenario.partition(".")[0], {})[scenario] = kept[scenario]
    for module, part in by_module.items():
        head = f"What a client observes on {name}, written by `build.py differ --record`.\n\n"
        (FOLDER / f"{module}.txt").write_text(head + text_of(part), encoding="utf-8")


def differences(
    scenario: str,
    rabbitmq: Transcript,
    warren: Transcript,
    known: Iterable[Known] = (),
) -> tuple[list[str], set[Known]]:
    """Compare two transcripts; return what is different, and which known differences were met."""
    used: set[Known] = set()
    found: list[str] = []
    for theirs, ours in zip(rabbitmq, warren, strict=False):
        if theirs == ours:
            continue
        met = _explained(scenario, theirs, ours, known)
        if met:
            used |= met
        else:
            found.append(_shown(scenario, theirs, ours))
    if len(rabbitmq) != len(warren):
        found.append(f"{scenario}: {len(rabbitmq)} steps on RabbitMQ, {len(warren)} on Warren")
    return found, used


def _explained(scenario: str, theirs: Step, ours: Step, known: Iterable[Known]) -> set[Known]:
    """Return the known differences that together explain a step's; empty: they do not."""
    if theirs.title != ours.title:
        return set()
    there, here = "\n".join(theirs.observed), "\n".join(ours.observed)
    used: set[Known] = set()
    for one in known:
        if re.search(one.where, f"{scenario} {ours.title}"):
            before = there, here
            there, here = _rewritten(there, one.rabbitmq), _rewritten(here, one.warren)
            if (there, here) != before:
                used.add(one)
    return used if there == here else set()


def _rewritten(text: str, changes: Iterable[tuple[str, str]]) -> str:
    for pattern, replacement in changes:
        text = re.sub(pattern, replacement, text)
    return text


def _shown(scenario: str, theirs: Step, ours: Step) -> str:
    lines = [f"{scenario}, step {theirs.title}"]
    if theirs.title != ours.title:
        lines.append(f"  on Warren, step {ours.title}")
    lines.extend(f"  RabbitMQ: {line}" for line in theirs.observed or ["(nothing)"])
    lines.extend(f"  Warren:   {line}" for line in ours.observed or ["(nothing)"])
    return "\n".join(lines)
