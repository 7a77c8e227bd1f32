"""A release is made of a clean tree with its version, says what changed, and has its tag."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import release, release_tools, sbom, wheel_trial, wheels

HEAD = "# Changelog\n\n<!-- the releases, newest first -->\n\n"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository like this one, with a changelog that waits for its date."""
    for path, text in {
        "broker/warren_wire/__init__.py": 'VERSION = "0.1.0"\n',
        "CHANGELOG.md": f"{HEAD}## 0.1.0, unreleased\n\nThe first release.\n",
        "changes/README.md": "Fragments.\n",
        release.PUBLIC: "warren.Connection\nwarren.Admin\n",
        ".gitignore": "dist/\n",
    }.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "CHANGELOG", tmp_path / "CHANGELOG.md")
    monkeypatch.setattr(release, "FRAGMENTS", tmp_path / "changes")

    def make(dist: Path, twice: bool) -> list[Path]:
        assert twice, "two builds, one hash"
        assert "unreleased" not in _git(tmp_path, "show", "HEAD:CHANGELOG.md"), "of the release"
        dist.mkdir(exist_ok=True)
        (dist / "warrenmq-0.1.0.whl").write_bytes(b"wheel")
        return [dist / "warrenmq-0.1.0.whl"]

    def make_bill(dist: Path, made: list[Path]) -> None:
        (dist / "warrenmq-0.1.0.cdx.json").write_bytes(b"{}")

    tools = tmp_path / "twine"
    tools.write_text("#!/bin/sh\n")
    tools.chmod(0o755)
    monkeypatch.setattr(release_tools, "python", lambda: tools)
    monkeypatch.setattr(wheels, "make", make)
    monkeypatch.setattr(wheel_trial, "try_out", lambda made: None)
    monkeypatch.setattr(sbom, "make", make_bill)
    for key, value in (("AUTHOR", "a"), ("COMMITTER", "a")):
        monkeypatch.setenv(f"GIT_{key}_NAME", value)
        monkeypatch.setenv(f"GIT_{key}_EMAIL", "a@example.org")
    _git(tmp_path, "init", "-q", "-b", "main")
    _git(tmp_path, "add", "-A")
    _git(tmp_path, "commit", "-q", "-m", "all")
    return tmp_path


def _git(tree: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=tree, check=True, capture_output=True, text=True
    ).stdout


def test_the_release_is_dated_committed_tagged_and_has_hashes(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert release.run(["0.1.0", "--no-test", "--date", "2026-12-01"]) == 0
    assert "## 0.1.0, 2026-12-01\n" in (tree / "CHANGELOG.md").read_text()
    assert _git(tree, "tag", "--points-at", "HEAD").strip() == "v0.1.0"
    assert _git(tree, "status", "--porcelain") == ""
    sums = (tree / "dist" / release.SUMS).read_text()
    assert sums.endswith("  warrenmq-0.1.0.whl\n") and len(sums.split()[0]) == 64
    assert release.run(["0.1.0", "--no-test", "--check"]) == 0
    assert release.run(["0.1.0", "--no-test"]) == 1
    assert "a release is never made again" in capsys.readouterr().out


def test_what_left_the_public_interface_is_printed(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert release.run(["0.1.0", "--no-test"]) == 0
    (tree / release.PUBLIC).write_text("warren.Connection\n")
    (tree / "broker/warren_wire/__init__.py").write_text('VERSION = "0.2.0"\n')
    (tree / "CHANGELOG.md").write_text(f"{HEAD}## 0.2.0, unreleased\n\nLess.\n")
    _git(tree, "commit", "-q", "-a", "-m", "0.2.0")
    capsys.readouterr()
    assert release.run(["0.2.0", "--no-test"]) == 0
    assert "-warren.Admin" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("version", "edit", "text"),
    [
        ("0.1.1", "", "warren_wire.VERSION is 0.1.0, not 0.1.1"),
        ("0.1.0", "x", "changes that are not committed"),
    ],
)
def test_a_release_of_something_else_is_refused(
    tree: Path, capsys: pytest.CaptureFixture[str], version: str, edit: str, text: str
) -> None:
    if edit:
        (tree / "changes" / "README.md").write_text(edit)
    assert release.run([version, "--no-test"]) == 1
    assert text in capsys.readouterr().out and _git(tree, "tag") == ""


def test_a_section_that_waits_and_fragments_are_refused(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "changes" / "7.added.md").write_text("Something.\n")
    _git(tree, "add", "-A")
    _git(tree, "commit", "-q", "-m", "a fragment")
    assert release.run(["0.1.0", "--no-test"]) == 1
    assert "changes/ has 7.added.md: move them" in capsys.readouterr().out
    assert _git(tree, "status", "--porcelain") == "" == _git(tree, "tag")


def test_a_release_with_nothing_to_say_is_refused(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "CHANGELOG.md").write_text(HEAD)
    _git(tree, "commit", "-q", "-a", "-m", "nothing")
    assert release.run(["0.1.0", "--no-test"]) == 1
    assert "write fragments" in capsys.readouterr().out
