"""One member of a PySyncObj cluster, its journal on disk."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pysyncobj import SyncObj, SyncObjConf, replicated

from bench.members.gauge import Gauge, task


class Count(SyncObj):  # type: ignore[misc]
    """A replicated object that counts."""

    def __init__(self, own: str, others: list[str], conf: Any) -> None:
        super().__init__(own, others, conf)
        self._count = 0

    @replicated  # type: ignore[untyped-decorator]
    def add(self, body: bytes) -> int:
        """Increment the count."""
        self._count += 1
        return self._count


def main() -> None:
    """Run the member until it is killed."""
    what = task()
    addresses = [f"127.0.0.1:{what.port(i)}" for i in range(3)]
    own = addresses.pop(what.number)
    what.directory.mkdir(parents=True, exist_ok=True)
    counted = Count(
        own,
        addresses,
        SyncObjConf(
            journalFile=str(what.directory / f"journal-{what.number}"),
            appendEntriesUseBatch=what.outstanding > 1,
            commandsQueueSize=1_000_000,
            logCompactionMinEntries=1_000_000_000,
            logCompactionMinTime=1_000_000,
        ),
    )
    body = bytes(what.size)

    def propose(number: int) -> None:
        counted.add(body, callback=lambda result, error: gauge.done(number))

    gauge = Gauge(what, propose)
    began = False
    while True:
        status = counted.getStatus()
        if not began and counted._isLeader() and status["partner_nodes_count"] == 2:
            connected = [
                name
                for name, state in status.items()
                if name.startswith("partner_node_status_server_") and state == 2
            ]
            if len(connected) == 2:
                began = True
                time.sleep(1)
                gauge.start()
        time.sleep(0.2)


if __name__ == "__main__":
    main()
