"""One member of a pyraft cluster."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pyraft import raft
from pyraft.common import Future

from bench.members.gauge import Gauge, task


def main() -> None:
    """Run the member until it is killed."""
    what = task()
    what.directory.mkdir(parents=True, exist_ok=True)
    os.chdir(what.directory)  # it writes its log to the working directory
    addresses = {str(i): f"127.0.0.1:{what.port(i)}" for i in range(3)}
    own = str(what.number)
    node = raft.RaftNode(own, addresses.pop(own), addresses)
    body = "x" * what.size

    def propose(number: int) -> None:
        future = Future(["set", "key", body], 0)
        # Future.get can miss the notification, and then waits out its timeout.
        future.set = lambda value: gauge.done(number)
        node.q_entry.put(future)

    gauge = Gauge(what, propose)
    node.start()
    while True:
        peers: dict[str, Any] = node.get_peers()
        if node.state == "l" and len(peers) == 2:
            if all(peer.raft_req.connected() for peer in peers.values()):
                break
        time.sleep(0.2)
    time.sleep(2)
    gauge.start()
    node.join()


if __name__ == "__main__":
    main()
