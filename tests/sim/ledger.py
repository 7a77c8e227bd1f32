"""The smallest machine that can tell whether a command was lost or done twice."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from warren_raft.machine import Applied, Meta


class LedgerState:
    """Which commands were done, in order."""

    __slots__ = ("done", "order")

    def __init__(self) -> None:
        self.done: dict[bytes, int] = {}
        self.order: list[tuple[int, int, bytes]] = []


class Ledger:
    """Does each command once; a repeat is answered like the first time."""

    version = 1

    def init(self) -> LedgerState:
        """Nothing done."""
        return LedgerState()

    def apply(self, meta: Meta, command: bytes, state: LedgerState) -> Applied:
        """The index at which the command was done."""
        index = state.done.get(command)
        if index is None:
            index = state.done[command] = meta.index
            state.order.append((meta.index, meta.time_ms, command))
        return Applied(reply=index)

    def leader_effects(self, state: LedgerState) -> tuple[Any, ...]:
        """None."""
        return ()

    def save(self, state: LedgerState) -> bytes:
        """What `restore` takes."""
        return msgspec.msgpack.encode(state.order)

    def snapshot(self, state: LedgerState) -> bytes:
        """A digest, to compare states by."""
        digest = blake2b(digest_size=16)
        for index, time_ms, command in state.order:
            digest.update(b"%d %d %s;" % (index, time_ms, command))
        return digest.digest()

    def restore(self, data: bytes) -> LedgerState:
        """The inverse of `save`."""
        state = LedgerState()
        state.order = msgspec.msgpack.decode(data, type=list[tuple[int, int, bytes]])
        state.done = {command: index for index, _, command in state.order}
        return state

    def live_indexes(self, state: LedgerState) -> tuple[int, ...]:
        """All of them."""
        return tuple(index for index, _, _ in state.order)
