"""The site's pages: each is in the navigation, and every link leads to a page and a heading."""

from __future__ import annotations

from pathlib import Path

from tidy import house
from tools import site

PAGES = site.sources()


def files() -> list[str]:
    docs = house.ROOT / "docs"
    return [path.relative_to(docs).as_posix() for path in docs.rglob("*.*")]


def test_every_page_is_in_the_navigation_once() -> None:
    named = site.navigation()
    findings = [f"{place}: twice" for place in set(named) if named.count(place) > 1]
    findings += [f"{place}: no such page" for place in named if place not in PAGES]
    findings += [f"{place}: missing" for place in PAGES if place not in named]
    house.report(findings, "zensical.toml's nav has each page on a line of its own")


def test_every_link_leads_to_a_page_and_a_heading() -> None:
    house.report(site.broken(PAGES, files()), "link to what there is")


def test_every_link_of_the_repository_leads_somewhere() -> None:
    """As a forge shows them, where README and files of the examples have a place as well."""
    root = house.ROOT
    pages = [*root.glob("*.md"), *root.glob("*/*.md"), *(root / "docs").rglob("*.md")]
    texts = {page.relative_to(root).as_posix(): page.read_text(encoding="utf-8") for page in pages}
    there = [path.relative_to(root).as_posix() for path in root.glob("*")]
    for folder in ("docs", "examples", "bench", "tests"):
        there += [path.relative_to(root).as_posix() for path in (root / folder).rglob("*")]
    house.report(site.broken(texts, there), "link to what there is")


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    for name, text in {
        "docs/a.md": "# A\n[there](how/b.md#the-b) [file](../setup.py) [c](../CONTRIBUTING.md)\n",
        "docs/how/b.md": "# The `B`\n[no](../x.md) [no](../a.md#b)\n```\n[code](y.md)\n```\n",
        "CONTRIBUTING.md": "# C\n[a](docs/a.md)\n",
        **{name: "# D\n" for name in site.OUTSIDE if name != "CONTRIBUTING.md"},
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    pages = site.sources(tmp_path)
    assert pages["a.md"] == "# A\n[there](how/b.md#the-b) file [c](project/contributing.md)\n"
    assert pages["project/contributing.md"] == "# C\n[a](../a.md)\n"
    assert site.broken(pages, []) == [
        "how/b.md: ../x.md: no such page",
        "how/b.md: ../a.md#b: no such heading",
    ]


def test_what_a_browser_would_load_from_elsewhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "index.html"
    page.write_text(
        '<a href="https://example.org">read</a><script src="scripts/a.js"></script>'
        '<script async src="https://cdn.example/x.js"></script>'
        '<link rel="stylesheet" href="//fonts.example/css"><style>@import "https://x";</style>'
    )
    assert len(site.fetched(tmp_path)) == 3
