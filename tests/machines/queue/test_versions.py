"""An upgrade in the middle of a log: before it one version submits, after it the next one.

The second version is of this test alone. It shows what every new one must keep: what an older
version has written is applied as that version did, on every member.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from tests.machines.queue.logs import grow
from warren_machines.queue import ack, machine
from warren_machines.queue.apply_context import QueueContext
from warren_machines.queue.codec import decode_submission, encode_submission
from warren_machines.queue.commands import AnyReply, Return
from warren_machines.queue.machine import QueueMachine
from warren_raft.machine import Applied, Meta
from warren_raft.versions import NEWEST

NEXT = NEWEST + 1
SEEDS = (1, 4, 9)
Log = list[tuple[Meta, bytes]]


def as_failed(context: QueueContext, command: Return) -> AnyReply:
    """What version NEXT does: whatever is returned counts as a failed delivery."""
    failed = command.failed or context.version >= NEXT
    return ack.return_(context, structs.replace(command, failed=failed))


@pytest.fixture
def upgrade(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replace the program by that of version NEXT (True), or of the present one (False)."""
    present = machine.HANDLERS
    handlers = {False: present, True: {**present, Return: as_failed}}
    return lambda upgraded: monkeypatch.setattr(machine, "HANDLERS", handlers[upgraded])


def upgraded_at(log: Log, split: int) -> Log:
    """The log as version NEXT submits it from that entry on."""
    found = []
    for at, (meta, data) in enumerate(log):
        submission, block = decode_submission(data)
        said = structs.replace(submission, version=NEXT if at >= split else NEWEST)
        found.append((meta, encode_submission(said, block)))
    return found


def applied(queue: QueueMachine, state: Any, log: Log) -> list[Applied]:
    return [queue.apply(meta, data, state) for meta, data in log]


@pytest.mark.parametrize("seed", SEEDS)
def test_members_agree_wherever_a_log_is_split_by_an_upgrade(seed: int, upgrade: Any) -> None:
    grown = grow(seed, 40)
    queue = QueueMachine(grown.machine.config, newest=NEXT)
    for split in range(len(grown.log) + 1):
        log = upgraded_at(grown.log, split)
        upgrade(False)
        state = queue.init()
        before = applied(queue, state, log[:split])
        image = queue.snapshot(state)
        upgrade(True)
        restored = queue.restore(image)
        after = applied(queue, restored, log[split:])
        replayed = queue.init()
        assert applied(queue, replayed, log) == [*before, *after], split
        assert queue.snapshot(replayed) == queue.snapshot(restored), split


def test_the_two_versions_differ(upgrade: Any) -> None:
    upgrade(True)
    images = set()
    for version_of in (0, 10_000):
        grown = grow(SEEDS[0], 80)
        grown.machine.newest = NEXT
        state = grown.machine.init()
        applied(grown.machine, state, upgraded_at(grown.log, version_of))
        images.add(grown.machine.snapshot(state))
    assert len(images) == 2
