"""A minimal machine that detects whether a command was lost or done twice."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from warren_raft.machine import Applied, Meta


class LedgerState:
    """The commands done, in order."""

    __slots__ = ("done", "order")

    def __init__(self) -> None:
        self.done: dict[bytes, int] = {}
        self.order: list[tuple[int, int, bytes]] = []


class Ledger:
    """A machine that does each command once; a repeat gets the first answer."""

    def init(self) -> LedgerState:
        """Nothing done."""
        return LedgerState()

    def apply(self, meta: Meta, command: bytes, state: LedgerState) -> Applied:
        """Do the command; reply with the index at which it was done."""
        index = state.done.get(command)
        if index is None:
            index = state.done[command] = meta.index
            state.order.append((meta.index, meta.time_ms, command))
        return Applied(reply=index)

    def leader_effects(self, state: LedgerState) -> tuple[Any, ...]:
        """None."""
        return ()

    def save(self, state: LedgerState) -> bytes:
        """Return the state as `restore` reads it."""
        return msgspec.msgpack.encode(state.order)

    def snapshot(self, state: LedgerState) -> bytes:
        """Return a digest, for the comparison of states."""
        digest = blake2b(digest_size=16)
        for index, time_ms, command in state.order:
            digest.update(b"%d %d %s;" % (index, time_ms, command))
        return digest.digest()

    def form(self, state: object) -> int:
        return 1

    def restore(self, data: bytes) -> LedgerState:
        """Invert `save`."""
        state = LedgerState()
        state.order = msgspec.msgpack.decode(data, type=list[tuple[int, int, bytes]])
        state.done = {command: index for index, _, command in state.order}
        return state

    def live_indexes(self, state: LedgerState) -> tuple[int, ...]:
        """Return the indexes of all commands."""
        return tuple(index for index, _, _ in state.order)
