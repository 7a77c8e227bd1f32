"""Mutants that operators do not make: faults that once were noticed by no test and no world."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Planted:
    """A text in a file, which has it once, and what takes its place."""

    file: str
    text: str
    instead: str

    def mutant(self, root: Path) -> dict[str, Any]:
        """Return it as the generator returns its own."""
        source = (root / self.file).read_text(encoding="utf-8")
        if source.count(self.text) != 1:
            found = source.count(self.text)
            raise ValueError(f"{self.file} has {self.text!r} {found} times: correct planted.py")
        return {
            "file": self.file,
            "operator": "Planted",
            "line": source[: source.index(self.text)].count("\n") + 1,
            "column": 0,
            "text": self.text.strip(),
            "source": source.replace(self.text, self.instead),
        }


PLANTED: dict[str, tuple[Planted, ...]] = {
    "recovery": (
        Planted(  # a recycled file is renamed before its new beginning is synced
            "raft/warren_raft/storage/files.py",
            """            self.write_at(fd, 0, [data])
            with _syncing(old):
                self.system.fsync(fd)
            self.rename(old, path)
""",
            """            self.write_at(fd, 0, [data])
            self.system.rename(old, path)
            with _syncing(old):
                self.system.fsync(fd)
            self.sync_directory(path.parent)
""",
        ),
    ),
    "queue": (
        Planted(  # a snapshot forgets that a single active consumer makes way
            "broker/warren_machines/queue/queue_snapshot.py",
            "            uplink.yields,\n",
            "            False,\n",
        ),
    ),
    "uplink": (
        Planted(  # rewinds forward
            "broker/warren_broker/cluster/client/uplink.py",
            "min(self.sent_seq, max(seq, first) - 1)",
            "max(seq, first) - 1",
        ),
        Planted(
            "broker/warren_broker/cluster/client/uplink.py",
            "min(self.sent_seq, max(seq, first) - 1)",
            "max(self.sent_seq, max(seq, first) - 1)",
        ),
        Planted(  # sends again what was answered by the entries before
            "broker/warren_broker/cluster/client/uplink.py",
            "min(self.sent_seq, max(seq, first) - 1)",
            "min(self.sent_seq, first - 1)",
        ),
    ),
}
"""By subject."""
