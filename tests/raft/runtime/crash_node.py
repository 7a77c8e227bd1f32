"""One node as a process: proposes while it leads, says what was acknowledged, obeys stdin.

python crash_node.py NODE DIR NAME=PORT...
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from warren_raft.errors import NotLeader
from warren_raft.machine import Applied, GroupSpec, Meta
from warren_raft.runtime.config import HostConfig
from warren_raft.runtime.host import Host
from warren_raft.runtime.loop import Loop
from warren_raft.runtime.observer import Observer

WINDOW = 16
GROUP = 1
NOTHING = Applied()


class Commands:
    """The state is the list of commands' first words; the rest is ballast."""

    def init(self) -> list[bytes]:
        return []

    def apply(self, meta: Meta, command: bytes, state: list[bytes]) -> Applied:
        state.append(command.split(b" ", 1)[0])
        return NOTHING

    def leader_effects(self, state: list[bytes]) -> tuple[object, ...]:
        return ()

    def snapshot(self, state: list[bytes]) -> bytes:
        return b"\n".join(state)

    def form(self, state: object) -> int:
        return 1

    def restore(self, data: bytes) -> list[bytes]:
        return data.split(b"\n")

    def live_indexes(self, state: list[bytes]) -> tuple[int, ...]:
        return ()


class Proposer(Observer):
    """Keeps WINDOW commands under way while this node leads and the test wants it."""

    def __init__(self) -> None:
        self.host: Host
        self.number = 0
        self.load = True

    def propose(self) -> None:
        if not self.load:
            return
        self.number += 1
        name = b"%s-%x-%d" % (self.host.node_id.encode(), self.host.boot_id, self.number)
        try:
            self.host.propose(GROUP, name + b" " + b"x" * (self.number * 37 % 3000))
        except NotLeader:
            pass

    def became_leader(self, group, effects) -> None:  # type: ignore[no-untyped-def]
        say(b"leads")
        for _ in range(WINDOW):
            self.propose()

    def applied(self, group, meta, data, applied, leading) -> None:  # type: ignore[no-untyped-def]
        if leading:
            say(b"ack " + data.split(b" ", 1)[0])
            self.propose()


def say(line: bytes) -> None:
    """To the test, at once."""
    os.write(1, line + b"\n")


def main() -> None:
    """Serve until killed."""
    node, root = sys.argv[1], Path(sys.argv[2])
    ports = {name: int(port) for name, port in (word.split("=") for word in sys.argv[3:])}
    loop, proposer = Loop(), Proposer()
    host = Host(
        HostConfig(
            node=node,
            cluster="crash",
            secret=b"crash secret",
            listen=("127.0.0.1", ports[node]),
            peers={name: ("127.0.0.1", port) for name, port in ports.items() if name != node},
            data_dir=root / node,
            wal_file_bytes=200_000,
            memtable_bytes=100_000,
        ),
        loop,
        proposer,
    )
    proposer.host = host
    host.start()
    host.start_group(GroupSpec(GROUP, tuple(sorted(ports))), Commands())

    def obey() -> None:
        words = os.read(0, 4096).split()
        if not words:
            loop.stop()
        for word in words:
            if word == b"quiet":
                proposer.load = False
            elif word == b"dump":
                state = host.state(GROUP)
                (root / f"{node}.new").write_bytes(b"\n".join(state))
                os.replace(root / f"{node}.new", root / f"{node}.dump")
                say(b"dumped %d" % len(state))

    loop.register(0, obey)
    loop.run()
    host.stop()


if __name__ == "__main__":
    main()
