"""The documentation's site: `python3 build.py docs` builds it into site/VERSION, and site/latest.

1. The pages of docs/ and those of OUTSIDE are laid in .warren/docs; links follow them there.
2. A comment `<!-- generated: NAME -->` in a page becomes what tools/reference.py makes of the code.
3. Zensical builds them, strict: a link, a page or an anchor that is missing fails.
4. What it built is looked at: nothing in it is loaded from elsewhere, so that it reads offline.

The configuration is zensical.toml. Its theme would load Mermaid from a content delivery network,
and so would search in a page that is opened from a disk: both come from the npm registry.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import shutil
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from tools import console, npm, reference
from tools.environment import LOGS, ROOT, STATE, environment, python
from warren_wire import VERSION

ZENSICAL: Final = "0.0.73"
PLACE: Final = STATE / "docs"
SCRIPTS: Final = STATE / "scripts"
SITE: Final = ROOT / "site"
MERMAID: Final = {
    "dist/mermaid.min.js": "581ed7d74bd9048d0e3a91363927d72ef22942d7722546b27f7cc29e35390eb8"
}
WORKER: Final = {
    "shim/index.js": "e8e412dbcfea9b7e31b5ffa288d7b6035915e714c542f4176a0cdbe262fc9609"
}
OUTSIDE: Final = {
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
    "CODE_OF_CONDUCT.md": "project/conduct.md",
    "bench/README.md": "project/bench.md",
    "examples/README.md": "tutorials/examples.md",
}
"""A page elsewhere in the repository → its place in the site."""
ABOVE: Final = {"index.md": "first page", "semantics.md": "explanation"}
"""Kinds of pages that are in no folder."""

FENCE = re.compile(r"^( *)(```+|~~~+)")
HEADING = re.compile(r"^(#{1,6}) +(.*?) *#*$")
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^()\s]+)\)")
MARKER = re.compile(r"^<!-- generated: ([\w-]+) -->$", re.MULTILINE)
LOADED = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\bsrc=[\"']?(?:https?:)?//[^\"' >]*"
    r"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|preconnect|preload|icon))"
    r"[^>]*?\bhref=[\"']?(?:https?:)?//[^\"' >]*"
    r"|@import\s+[^;]*//[^;]*|url\([\"']?(?:https?:)?//[^)]*",
    re.IGNORECASE,
)
"""What a browser fetches by itself; a link that a reader follows is none."""


def sources(root: Path = ROOT) -> dict[str, str]:
    """Return the pages of the site: place in it → Markdown, with links and tables filled in."""
    places = {path.relative_to(root).as_posix(): path for path in (root / "docs").rglob("*.md")}
    named = {name: name.removeprefix("docs/") for name in places} | OUTSIDE
    return {
        place: _laid(root, name, place, named)
        for name, place in sorted(named.items(), key=lambda item: item[1])
    }


def _laid(root: Path, name: str, place: str, named: dict[str, str]) -> str:
    """Return a page's text with its links as they are from its place in the site."""
    text = MARKER.sub(lambda found: reference.made(found[1]), (root / name).read_text("utf-8"))
    folder = posixpath.dirname(name)

    def moved(found: re.Match[str]) -> str:
        target, hash_, anchor = found[2].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return found[0]
        meant = posixpath.normpath(posixpath.join(folder, target))
        if meant not in named and meant.startswith("docs/"):
            goal = meant.removeprefix("docs/")
        elif meant not in named:
            return found[1].removeprefix("[").removesuffix("]")  # a file that is not in the site
        else:
            goal = named[meant]
        return f"{found[1]}({posixpath.relpath(goal, posixpath.dirname(place))}{hash_}{anchor})"

    return "".join(line if fenced else LINK.sub(moved, line) for line, fenced in lines(text))


def lines(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line, and whether it is inside of a fenced block."""
    fence = ""
    for line in text.splitlines(keepends=True):
        found = FENCE.match(line)
        if fence:
            yield line, True
            if found and found[2].startswith(fence):
                fence = ""
        else:
            yield line, found is not None
            fence = found[2] if found else ""


def anchors(text: str) -> set[str]:
    """Return the anchors of a page: of its headings, named as the usual forges do, and `<a id>`."""
    found = set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    for line, fenced in lines(text):
        heading = None if fenced else HEADING.match(line.rstrip())
        if heading:
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[2])
            found.add(re.sub(r"[^\w\- ]", "", words.replace("`", "").lower()).replace(" ", "-"))
    return found


def broken(pages: dict[str, str], files: Iterable[str]) -> list[str]:
    """Return links of the pages that lead to no page, file or heading."""
    there = set(files)
    known = {place: anchors(text) for place, text in pages.items()}
    findings = []
    for place, text in pages.items():
        for target in links(text):
            path, _, anchor = target.partition("#")
            goal = posixpath.normpath(posixpath.join(posixpath.dirname(place), path or place))
            goal = goal if path else place
            if goal not in known and goal not in there:
                findings.append(f"{place}: {target}: no such page")
            elif anchor and goal in known and anchor not in known[goal]:
                findings.append(f"{place}: {target}: no such heading")
    return findings


def links(text: str) -> Iterator[str]:
    """Yield where a page's links lead to, but those to other sites."""
    for line, fenced in lines(text):
        if not fenced:
            for found in LINK.finditer(re.sub(r"`[^`]*`", "", line)):
                if "://" not in found[2] and not found[2].startswith("mailto:"):
                    yield found[2]


def navigation(root: Path = ROOT) -> list[str]:
    """Return the pages of zensical.toml's navigation, in its order."""
    text = (root / "zensical.toml").read_text(encoding="utf-8")
    return list(_leaves(tomllib.loads(text)["project"]["nav"]))


def _leaves(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    else:
        for each in node.values() if isinstance(node, dict) else node:
            yield from _leaves(each)


def words(pages: dict[str, str]) -> Counter[str]:
    """Count the words of each kind of page, as `wc` does."""
    counts: Counter[str] = Counter()
    for place, text in pages.items():
        if place not in OUTSIDE.values():
            kind = posixpath.dirname(place) or ABOVE[place]
            counts[kind] += len(text.split())
    return counts


def fetched(built: Path) -> list[str]:
    """Return what pages and style sheets of the site would load from elsewhere."""
    findings = []
    for path in sorted(built.rglob("*")):
        if path.suffix in (".html", ".css"):
            text = path.read_text(encoding="utf-8")
            findings += [f"{path.relative_to(built)}: {one}" for one in LOADED.findall(text)]
    return findings


def lay() -> dict[str, str]:
    """Lay the pages, images, scripts and the configuration in PLACE; return the pages."""
    pages = sources()
    shutil.rmtree(PLACE, ignore_errors=True)
    for place, text in pages.items():
        path = PLACE / "docs" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    shutil.copytree(ROOT / "docs" / "images", PLACE / "docs" / "images")
    shutil.copy(ROOT / "zensical.toml", PLACE)
    return pages


def build() -> bool:
    """Build the site into PLACE/site with the pinned Zensical; return whether it is whole."""
    tool = STATE / "zensical" / ZENSICAL
    if not (tool / "zensical").is_dir():
        command = [str(python()), "-m", "pip", "--disable-pip-version-check", "install"]
        wanted = ["--upgrade", "--target", str(tool), f"zensical=={ZENSICAL}"]
        if not console.quiet("installing Zensical", [*command, *wanted], LOGS / "docs-pip.log"):
            return False
    vendored = npm.ensure("mermaid", "11.17.2", MERMAID, SCRIPTS)
    if not (vendored and npm.ensure("iframe-worker", "1.0.4", WORKER, SCRIPTS / "iframe-worker")):
        return False
    shutil.copytree(SCRIPTS, PLACE / "docs" / "scripts")
    command = [str(python()), "-m", "zensical", "build", "--clean", "--strict"]
    env = environment(PYTHONPATH=str(tool))
    return console.loud(command, env=env, cwd=PLACE) == 0


def publish() -> Path:
    """Put what was built at site/VERSION, with `latest` and a page that leads there."""
    place = SITE / VERSION
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(PLACE / "site", place)
    latest = SITE / "latest"
    if latest.is_symlink():
        latest.unlink()
    latest.symlink_to(VERSION)
    versions = sorted(path.name for path in SITE.iterdir() if path.is_dir() and path != latest)
    listed = [
        {"version": name, "title": name, "aliases": ["latest"] if name == VERSION else []}
        for name in versions
    ]
    (SITE / "versions.json").write_text(json.dumps(listed), encoding="utf-8")
    leads = '<!doctype html><meta http-equiv="refresh" content="0; url=latest/index.html">\n'
    (SITE / "index.html").write_text(leads, encoding="utf-8")
    return place


def read_offline(place: Path) -> int:
    """Open the site in Chromium where there is one: diagrams are drawn, and search finds."""
    if shutil.which("chromium") is None:
        console.say("  no Chromium: diagrams and search were not tried in a browser")
        return 0
    command = [str(python()), "-m", "live.site_in_chromium", str(PLACE / "docs"), str(place)]
    paths = os.pathsep.join((str(ROOT / "tests"), str(ROOT)))
    return console.loud(command, env=environment(PYTHONPATH=paths), cwd=ROOT)


def main() -> int:
    """Build the site; say what it has, or what is wrong with it."""
    pages = lay()
    files = (path.relative_to(PLACE / "docs").as_posix() for path in PLACE.rglob("docs/**/*.*"))
    findings = broken(pages, files)
    findings += [f"{place}: not in zensical.toml's nav" for place in set(pages) - {*navigation()}]
    if not findings and build():
        findings = fetched(PLACE / "site")
        if not findings:
            place = publish()
            counts = words(pages)
            for kind, count in sorted(counts.items()):
                console.say(f"  {count:7,} words  {kind}")
            total = sum(counts.values())
            of_code = sum(len(make().split()) for make in reference.MAKERS.values())
            console.say(f"  {of_code:7,} words of these are made of the code")
            console.say(f"  {total:7,} words in {len(pages)} pages, every link and anchor checked")
            console.say(f"  nothing is loaded from elsewhere: {os.path.relpath(place)}/index.html")
            return read_offline(place)
    for each in findings:
        console.say(f" ✗ {each}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
