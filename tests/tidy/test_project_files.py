"""The files by which strangers join agree with the rest: versions, verbs, names."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import build

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def _text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def test_the_hooks_run_the_same_ruff() -> None:
    (locked,) = re.findall(r"^ruff==(\S+)$", _text("requirements.in"), re.MULTILINE)
    assert re.findall(r"ruff-pre-commit\n    rev: v(\S+)", _text(".pre-commit-config.yaml")) == [
        locked
    ]


def test_the_workflow_has_every_supported_python() -> None:
    named = [
        one.rpartition(" ")[2]
        for one in PROJECT["project"]["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", one)
    ]
    (matrix,) = re.findall(r"python: (\[.*\])", _text(".github/workflows/ci.yml"))
    assert re.findall(r"3\.\d+", matrix) == named


def test_the_workflows_and_hooks_call_verbs_that_there_are() -> None:
    files = (".pre-commit-config.yaml", *map(str, (ROOT / ".github/workflows").glob("*.yml")))
    text = "".join(map(_text, files))
    called = set(re.findall(r"build\.py ([a-z]+)", text))
    for listed in re.findall(r"verb: \[(.*)\]", text):
        called |= set(listed.split(", "))
    assert called and called <= set(build.VERBS)


def test_the_kinds_of_fragments_are_the_changelogs() -> None:
    kinds = [one["directory"] for one in PROJECT["tool"]["towncrier"]["type"]]
    for kind in kinds:
        assert f"`{kind}`" in _text("changes/README.md")
    for fragment in (ROOT / "changes").glob("*.md"):
        if fragment.name != "README.md":
            assert fragment.name.split(".")[-2] in kinds, fragment.name
