"""Read the site as a reader without a network does: `build.py docs` runs this where Chromium is.

Pages are opened from the disk: every diagram is drawn, a search finds, nothing else is loaded.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from live.chromium import Chromium

FENCE = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SEARCH = """
(() => {
  const dialog = [...document.querySelectorAll('*')].map(one => one.shadowRoot).find(one => one);
  const input = dialog && dialog.querySelector('dialog[open] input');
  if (!input) {
    const button = document.querySelector('.md-search__button');
    if (button) button.click();
    return 0;
  }
  input.value = 'dead letters';
  input.dispatchEvent(new InputEvent('input', {bubbles: true}));
  return dialog.querySelectorAll('ol[role=listbox] a[href]').length;
})()
"""
"""Opens the search, asks, and counts what it found; is run until it has."""
LOADED = """
performance.getEntriesByType('resource').map(one => one.name)
  .filter(one => !/^(file|data|blob):/.test(one))
"""


def main(source: Path, site: Path) -> int:
    """Open the pages; print what was seen, or fail at what is wrong."""
    drawn = 0
    with Chromium() as browser:
        browser.open((site / "index.html").as_uri())
        browser.until(f"{SEARCH.strip()} > 2", "results of a search")
        for page in sorted(source.rglob("*.md")):
            diagrams = FENCE.findall(page.read_text(encoding="utf-8"))
            if not diagrams:
                continue
            place = (site / page.relative_to(source)).with_suffix(".html")
            browser.open(place.as_uri())
            browser.until("typeof mermaid == 'object'", "Mermaid")
            for text in diagrams:
                read = f"mermaid.parse({json.dumps(text)}).then(() => '', error => `${{error}}`)"
                assert not (wrong := browser.run(read)), f"{page}: {wrong}\n{text}"
            browser.until("!document.querySelector('pre.mermaid')", f"the diagrams of {page.name}")
            assert not (loaded := browser.run(LOADED)), (page, loaded)
            drawn += len(diagrams)
        assert not browser.problems, browser.problems
    print(f"  in Chromium, from the disk: {drawn} diagrams drawn, a search found")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
