"""Where the memory of a node's process is: by kind of mapping, and as its metrics say."""

from __future__ import annotations

import json
import re
import urllib.request
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

KIB, MIB = 1 << 10, 1 << 20
THREAD_ARENA_BYTES = 64 * MIB
"""The allocator reserves so much, so aligned, for an arena that is not the first one."""
SCRAPE_S = 10.0
ALLOCATOR = "warren_allocator_bytes"
PARTS = ("heap", "arenas", "mapped", "code", "files")

_MAPPING = re.compile(r"([0-9a-f]+)-[0-9a-f]+ \S+ \S+ \S+ \d+ *(.*)")


def resident(smaps: Iterable[str]) -> dict[str, int]:
    """Return resident bytes by kind of mapping, of the lines of a process's `smaps`.

    heap     what the C allocator took by moving the end of the heap
    arenas   the allocator's arenas for further threads
    mapped   other memory without a file: Python's arenas, for objects of up to 512 bytes; large
             blocks of the allocator; stacks of threads
    code     programs and libraries
    files    other files
    """
    found: Counter[str] = Counter()
    kind = "mapped"
    for line in smaps:
        if line.startswith("Rss:"):
            found[kind] += int(line.split()[1]) * KIB
        elif mapping := _MAPPING.match(line):
            kind = _kind(mapping[2], int(mapping[1], 16))
    return dict(found)


def _kind(name: str, start: int) -> str:
    if name == "[heap]":
        return "heap"
    if name.startswith("/"):
        return "code" if ".so" in Path(name).name or "/bin/" in name else "files"
    if not name and start % THREAD_ARENA_BYTES == 0:
        return "arenas"
    return "mapped"


def of_process(pid: int) -> dict[str, int]:
    """Return the resident bytes of a process by kind of mapping."""
    with open(f"/proc/{pid}/smaps") as lines:
        return resident(lines)


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def allocator(data_dir: Path) -> Mapping[str, int]:
    """Return what the node's metrics say of its allocator, by the label `part`."""
    address = json.loads((data_dir / "listening.json").read_text())["prometheus"]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=SCRAPE_S) as answer:
        text = answer.read().decode()
    found = re.findall(rf'^{ALLOCATOR}{{part="(\w+)"}} (\S+)$', text, re.MULTILINE)
    return {part: int(float(value)) for part, value in found}
