"""One member of a group of warren_raft."""

from __future__ import annotations

import struct
from typing import Any

from bench.members.gauge import Gauge, Task, task
from warren_raft.machine import Applied, GroupSpec, Meta
from warren_raft.runtime.config import HostConfig
from warren_raft.runtime.host import Host
from warren_raft.runtime.loop import Loop
from warren_raft.runtime.observer import Observer

GROUP = 1
NUMBER = struct.Struct(">Q")


class Count:
    """A machine that counts."""

    def init(self) -> list[int]:
        """Return the count 0."""
        return [0]

    def apply(self, meta: Meta, command: bytes, state: list[int]) -> Applied:
        """Increment the count."""
        state[0] += 1
        return Applied()

    def leader_effects(self, state: list[int]) -> tuple[Any, ...]:
        """Return no effects."""
        return ()

    def snapshot(self, state: list[int]) -> bytes:
        """Return the encoded count."""
        return NUMBER.pack(state[0])

    def form(self, state: object) -> int:
        return 1

    def restore(self, data: bytes) -> list[int]:
        """Decode a snapshot."""
        return list(NUMBER.unpack(data))

    def live_indexes(self, state: list[int]) -> tuple[int, ...]:
        """Return no indexes: the state refers to no entry."""
        return ()


class Member(Observer):
    """A member that proposes when it leads and both others are connected."""

    def __init__(self, what: Task) -> None:
        self.loop = Loop()
        names = {f"n{i}": ("127.0.0.1", what.port(i)) for i in range(3)}
        own = f"n{what.number}"
        self.host = Host(
            HostConfig(
                node=own,
                cluster="bench",
                secret=b"benchmark",
                listen=names.pop(own),
                peers=names,
                data_dir=what.directory / own,
            ),
            self.loop,
            self,
        )
        body = bytes(what.size - NUMBER.size)
        self.gauge = Gauge(what, lambda number: self._propose(NUMBER.pack(number) + body))
        self.leads = self.began = False
        self.up = 0
        self.voters = tuple(sorted([own, *names]))

    def run(self) -> None:
        """Run the member until it is killed."""
        self.host.start()
        self.host.start_group(GroupSpec(GROUP, self.voters, preferred="n0"), Count())
        self.loop.run()

    def _propose(self, data: bytes) -> None:
        self.host.propose(GROUP, data)

    def _begin(self) -> None:
        if self.leads and self.up == 2 and not self.began:
            self.began = True
            self.loop.call_later(500, self.gauge.start)

    def peer_up(self, node: str, boot_id: int) -> None:
        """See Observer."""
        self.up += 1
        self._begin()

    def became_leader(self, group: int, effects: tuple[Any, ...]) -> None:
        """See Observer."""
        self.leads = True
        self._begin()

    def applied(self, group: int, meta: Meta, data: bytes, applied: Applied, leading: bool) -> None:
        """See Observer."""
        if leading and self.began:
            self.gauge.done(NUMBER.unpack_from(data)[0])


if __name__ == "__main__":
    Member(task()).run()
