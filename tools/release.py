"""`build.py release VERSION`: the last commit of a release, its tag and its files.

1. The tree is clean, on main, and `warren_wire.VERSION` is VERSION.
2. What the public interface in Python lost since the last tag is printed: a name that was public
   leaves only after a release in which it was deprecated (docs/project/versions.md). Tests.
3. The fragments in `changes/` become a section of CHANGELOG.md; that commit is the release.
4. Sdist and wheels of that commit, built twice, tried and checked as PyPI checks them; what a wheel
   with `broker` installs, as CycloneDX (`tools/sbom.py`). `dist/SHA256SUMS` has the hash of each
   file. If one of these fails, the commit has no tag: mend, or `git reset`, and run it again.
5. The tag, where one can be made.

`--check` is for a tag that exists: it changes nothing, and does 1, 2 and 4 at that commit.
"""

from __future__ import annotations

import argparse
import datetime
import difflib
import hashlib
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tools import console, environment, release_tools, sbom, wheel_trial, wheels
from tools.environment import LOGS, ROOT, python

CHANGELOG = ROOT / "CHANGELOG.md"
FRAGMENTS = ROOT / "changes"
PUBLIC = "tests/tidy/public_api.txt"
SUMS = "SHA256SUMS"


class ReleaseRefused(Exception):
    """Something that a release needs is missing; the text says what to do."""


def run(arguments: Sequence[str]) -> int:
    """Make the release, or check one; return the exit code."""
    parser = argparse.ArgumentParser(prog="build.py release", description=__doc__)
    parser.add_argument("version", help="such as 0.2.0")
    parser.add_argument(
        "--date", default=f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}", help="YYYY-MM-DD"
    )
    parser.add_argument("--check", action="store_true", help="change nothing: the tag exists")
    parser.add_argument("--no-test", action="store_true", help="the tests passed at this commit")
    options = parser.parse_args(arguments)
    try:
        _ready(options.version, options.check)
        _print_public_changes()
        if not options.no_test:
            _run("the tests", [str(python()), "build.py", "test"])
        if not options.check:
            _write_changelog(options.version, options.date)
            _commit(options.version)
        _artefacts()
        if not options.check:
            _tag(options.version)
    except (ReleaseRefused, wheels.WheelFailed, release_tools.ToolsMissing) as refused:
        console.say(f" ✗ no release: {refused}")
        return 1
    return 0


def _git(*arguments: str) -> str:
    made = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        raise ReleaseRefused(f"git {' '.join(arguments)}: {made.stderr.strip()}")
    return made.stdout


def _run(title: str, command: list[str], **more: str) -> None:
    env = environment.environment(**more)
    if not console.quiet(title, command, LOGS / "release.log", env=env):
        raise ReleaseRefused(f"{title} failed")


def _ready(version: str, exists: bool) -> None:
    home = (ROOT / "broker" / "warren_wire" / "__init__.py").read_text(encoding="utf-8")
    (own,) = re.findall(r'^VERSION = "(.+)"$', home, re.MULTILINE)
    if own != version:
        raise ReleaseRefused(f"warren_wire.VERSION is {own}, not {version}: set it first")
    tags = _git("tag", "--list", f"v{version}").split()
    if exists and not _section(version):
        raise ReleaseRefused(f"CHANGELOG.md has no section {version} with a date")
    if not exists:
        if tags:
            raise ReleaseRefused(f"the tag v{version} exists; a release is never made again")
        if changed := _git("status", "--porcelain"):
            raise ReleaseRefused(f"the tree has changes that are not committed:\n{changed}")


def _section(version: str) -> str:
    """Return the changelog's heading of a release with its date; "": there is none."""
    text = CHANGELOG.read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(version)}, \d{{4}}-\d\d-\d\d$", text, re.MULTILINE)
    return found[0] if found else ""


def _write_changelog(version: str, date: str) -> None:
    """Put the fragments into the changelog; a section that waits for its date gets it."""
    if _section(version):
        return
    text = CHANGELOG.read_text(encoding="utf-8")
    waiting = f"## {version}, unreleased"
    fragments = sorted(one.name for one in FRAGMENTS.glob("*.md") if one.name != "README.md")
    if waiting in text and fragments:
        raise ReleaseRefused(
            f"CHANGELOG.md has {waiting[3:]!r}, and changes/ has {', '.join(fragments)}: move them "
            "into that section, or rename it"
        )
    if waiting in text:
        CHANGELOG.write_text(text.replace(waiting, f"## {version}, {date}"), encoding="utf-8")
    if fragments:
        own = str(release_tools.python())
        build = [own, "-m", "towncrier", "build", "--yes", "--version", version]
        _run("the changelog", [*build, "--date", date])
    if not _section(version):
        raise ReleaseRefused(f"there is nothing to say of {version}: write fragments in changes/")


def _print_public_changes() -> None:
    """Print how the public interface differs from the last tag's."""
    tags = _git("tag", "--list", "v*", "--sort=-creatordate", "--no-contains", "HEAD").split()
    if not tags:
        console.say("   public interface: there is no earlier tag to compare with")
        return
    before = _git("show", f"{tags[0]}:{PUBLIC}").splitlines()
    now = (ROOT / PUBLIC).read_text(encoding="utf-8").splitlines()
    changed = list(difflib.unified_diff(before, now, tags[0], "now", n=0, lineterm=""))
    console.say(f"   public interface: {len(changed[2:])} lines differ from {tags[0]}")
    for line in changed:
        console.say(f"     {line}")


def _artefacts() -> None:
    dist = ROOT / "dist"
    for old in dist.glob("*"):
        old.unlink()
    made = wheels.make(dist, twice=True)
    own = str(release_tools.python())
    _run("twine check", [own, "-m", "twine", "check", "--strict", *map(str, made)])
    wheel_trial.try_out(made)
    sbom.make(dist, made)
    lines = [f"{_sha256(path)}  {path.name}\n" for path in sorted(dist.iterdir())]
    (dist / SUMS).write_text("".join(lines), encoding="utf-8")
    for line in lines:
        console.say(f"   {line.strip()}")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _commit(version: str) -> None:
    """Commit the changelog; the files are made of this commit, and have its time."""
    _git("add", "--all", CHANGELOG.name, FRAGMENTS.name)
    if _git("status", "--porcelain"):
        _git("commit", "--message", f"Release {version}")


def _tag(version: str) -> None:
    _git("tag", "--annotate", f"v{version}", "--message", f"Warren {version}")
    console.say(f"   tag v{version} made; `git push origin main v{version}` publishes it")
