"""What is mutated, and the commands that must notice a mutant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Subject:
    """One part of the product.

    sources    patterns of paths, relative to the repository
    excluded   patterns of paths that another subject covers
    commands   arguments of the interpreter, the quickest command first; a mutant is killed by the
               first command that fails
    """

    sources: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...]
    excluded: tuple[str, ...] = ()

    def files(self, root: Path) -> Iterator[Path]:
        """The source files, relative to `root`, sorted."""
        for pattern in self.sources:
            found = sorted(root.glob(pattern))
            if not found:
                raise ValueError(f"no file matches the pattern {pattern!r}: correct subjects.py")
            for path in found:
                place = path.relative_to(root)
                excluded = any(fnmatch(str(place), other) for other in self.excluded)
                if path.name != "__init__.py" and not excluded:
                    yield place


def _pytest(*arguments: str) -> tuple[str, ...]:
    return ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments)


def _sim(*arguments: str) -> tuple[str, ...]:
    return ("-m", "sim.run", *arguments)


CORE_WORLDS = _sim("--start", "0", "--seeds", "100")
WHOLE_WORLDS = _sim("--whole", "--start", "0", "--seeds", "100")
CLIENT = "tests/broker/cluster/client"
CLAIM_AND_STAGE = (
    "broker/warren_machines/queue/claims/*.py",
    "broker/warren_machines/queue/sinks/*.py",
)
LONG_RECOVERY = (
    "test_compaction_crash or test_every_two_are_noticed_or_harmless"
    " or test_a_bit_flipped_in_any_byte or test_packed_places"
)
"""Tests of storage that take most of its time."""

SUBJECTS: dict[str, Subject] = {
    "core": Subject(
        ("raft/warren_raft/core/*.py",),
        (
            _pytest("tests/raft/core"),
            CORE_WORLDS,
            WHOLE_WORLDS,
        ),
    ),
    "recovery": Subject(
        (
            "raft/warren_raft/storage/recover*.py",
            "raft/warren_raft/storage/wal*.py",
            "raft/warren_raft/storage/file_chain.py",
            "raft/warren_raft/storage/synced_mark.py",
            "raft/warren_raft/storage/identity.py",
            "raft/warren_raft/storage/quarantine.py",
        ),
        (
            _pytest("tests/raft/storage", "-k", f"not ({LONG_RECOVERY})"),
            _pytest("tests/raft/storage", "-k", LONG_RECOVERY),
            WHOLE_WORLDS,
        ),
    ),
    "claim-stage": Subject(
        CLAIM_AND_STAGE,
        (
            _pytest("tests/machines/queue", "-k", "claim or stage or sink"),
            _pytest("tests/machines/queue"),
            WHOLE_WORLDS,
        ),
    ),
    "uplink": Subject(
        ("broker/warren_broker/cluster/client/uplink.py",),
        (
            _pytest(f"{CLIENT}/test_resending.py", f"{CLIENT}/test_queue_client.py"),
            _pytest("tests/broker/cluster/test_windows.py", CLIENT),
            WHOLE_WORLDS,
        ),
    ),
    "queue": Subject(
        ("broker/warren_machines/queue/**/*.py",),
        (_pytest("tests/machines/queue"), WHOLE_WORLDS),
        excluded=CLAIM_AND_STAGE,
    ),
}
