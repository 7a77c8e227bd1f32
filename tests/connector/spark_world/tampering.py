"""What is done to a checkpoint between two runs: files that are lost, old, cut or edited."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

LOGS = ("offsets", "commits")
Tampering = Callable[[Path, Path], None]


def numbered(log: Path) -> list[Path]:
    """Return the files of a log of Spark's, the oldest one first."""
    return sorted((each for each in log.iterdir() if each.name.isdigit()), key=_number)


def _number(path: Path) -> int:
    return int(path.name)


def _checksum(path: Path) -> Path:
    return path.with_name(f".{path.name}.crc")


def without(offsets: int = 0, commits: int = 0) -> Tampering:
    """Remove so many of the newest files of each log."""

    def remove(checkpoint: Path, older: Path) -> None:
        for log, count in zip(LOGS, (offsets, commits), strict=True):
            for path in numbered(checkpoint / log)[::-1][:count]:
                path.unlink()
                _checksum(path).unlink(missing_ok=True)

    return remove


def edited(log: str, edit: Callable[[str], str]) -> Tampering:
    """Change the text of a log's newest file, as if it had been written so."""

    def write(checkpoint: Path, older: Path) -> None:
        path = numbered(checkpoint / log)[-1]
        path.write_text(edit(path.read_text()))
        _checksum(path).unlink(missing_ok=True)

    return write


def older(*parts: str) -> Tampering:
    """Put parts of an older copy in the place of what is there; none: the whole copy."""

    def replace(checkpoint: Path, copy: Path) -> None:
        for part in parts or [each.name for each in copy.iterdir()]:
            there = checkpoint / part
            if there.is_dir():
                shutil.rmtree(there)
                shutil.copytree(copy / part, there)
            else:
                shutil.copy(copy / part, there)

    return replace


def _metadata_removed(checkpoint: Path, older: Path) -> None:
    (checkpoint / "metadata").unlink()
    (checkpoint / ".metadata.crc").unlink(missing_ok=True)


def last_offset(checkpoint: Path) -> dict:
    """Return the source's newest offset."""
    return dict(json.loads(numbered(checkpoint / "offsets")[-1].read_text().splitlines()[-1]))


def in_offset(change: Callable[[dict], None]) -> Tampering:
    """Change the source's offset in the newest file of the offset log."""

    def edit(text: str) -> str:
        *head, last = text.splitlines()
        offset = json.loads(last)
        change(offset)
        return "\n".join([*head, json.dumps(offset, sort_keys=True, separators=(",", ":"))])

    return edited("offsets", edit)


def _further(offset: dict) -> None:
    for each in offset["queues"].values():
        each.update({name: each[name] + 1000 for name in ("number", "row") if name in each})


def _other_reader(offset: dict) -> None:
    each = offset["queues"] if "reader" not in offset else {"": offset}
    for part in each.values():
        part["reader"] = "spark-" + "0" * 32


def _other_queue(offset: dict) -> None:
    offset["queues"] = {f"{name}-other": each for name, each in offset["queues"].items()}


ALL = 1 << 30
TAMPERINGS: dict[str, Tampering] = {
    "newest commit removed": without(commits=1),
    "two commits removed": without(commits=2),
    "all commits removed": without(commits=ALL),
    "newest offset removed": without(offsets=1),
    "newest offset and commit removed": without(offsets=1, commits=1),
    "two offsets and commits removed": without(offsets=2, commits=2),
    "all offsets and commits removed": without(offsets=ALL, commits=ALL),
    "an older copy": older(),
    "offsets of an older copy": older("offsets"),
    "commits of an older copy": older("commits"),
    "metadata removed": _metadata_removed,
    "newest offset cut short": edited("offsets", lambda text: text[: len(text) - 9]),
    "newest offset empty": edited("offsets", lambda text: ""),
    "newest commit empty": edited("commits", lambda text: ""),
    "offset of another reader": in_offset(_other_reader),
    "offset beyond the last": in_offset(_further),
    "offset of another queue": in_offset(_other_queue),
}
"""Each with the checkpoint and an older copy of it; none removes what the sink has published."""
