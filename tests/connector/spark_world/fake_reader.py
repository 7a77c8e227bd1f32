"""The driver's side of a claim reader of the fake broker."""

from __future__ import annotations

from typing import Any

from warren import errors
from warren.claims import Claim, ReaderStep, Registration, StepTaken


class TwoAtOnce:
    """What `take_steps` does, of a reader with `settle` and `open`."""

    settle: Any
    open: Any

    def settle_and_open(self, number: int, **limits: Any) -> tuple[int, Claim | None]:
        """Settle, then open; a refusal to open is left to `open`."""
        settled = self.settle(number - 1)
        try:
            return settled, self.open(number, **limits)
        except errors.PeerError:
            return settled, None

    def open_ahead(self, number: int, *, settles: int, **limits: Any) -> tuple[int, Claim | None]:
        """Settle, then open ahead."""
        settled = self.settle(settles) if settles else 0
        if not number:
            return settled, None
        try:
            return settled, self.open(number, **limits, ahead=True)
        except errors.PeerError:
            return settled, None


class FakeReader(TwoAtOnce):
    """`warren.claims.ClaimReader`."""

    def __init__(self, call: Any, queue: str, reader: str) -> None:
        self._call, self._name, self.epoch = call, (queue, reader), None

    def register(self, *, go_on_after: int = 0, expires_ms: int = 0) -> Registration:
        """Get a new epoch."""
        self.expires_ms = expires_ms
        made = self._call("register", *self._name, go_on_after)
        self.epoch = made.epoch
        return made

    def open(self, number: int, *, max_messages: int, max_bytes: int, **more: Any) -> Claim:
        """Open a claim."""
        more = {"keep_empty": more.get("keep_empty", False), "ahead": more.get("ahead", False)}
        limits = (number, max_messages, max_bytes, *more.values())
        return self._call("open", *self._name, self.epoch, *limits)

    def settle(self, number: int) -> int:
        """Acknowledge claims up to `number`."""
        return self._call("settle", *self._name, self.epoch, number)

    def withdraw(self, number: int) -> int:
        """Empty a claim."""
        return self._call("withdraw", *self._name, self.epoch, number)

    def renew(self) -> None:
        """Renew the claims."""
        self._call("renew", *self._name, self.epoch)

    def release(self, number: int = 0, *, failed: bool = False) -> int:
        """Return claims to the queue."""
        return self._call("release", *self._name, self.epoch, number, failed)


def take(reader_of: Any, step: ReaderStep) -> StepTaken:
    """Settle and open as a step of a reader says."""
    reader = reader_of(step.queue, step.reader)
    reader.epoch = step.epoch
    limits = {"max_messages": step.max_messages, "max_bytes": step.max_bytes}
    if not step.opens:
        return StepTaken(reader.settle(step.settles), None)
    if step.ahead:
        return StepTaken(*reader.open_ahead(step.opens, settles=step.settles, **limits))
    if step.settles:
        assert step.settles == step.opens - 1, step
        return StepTaken(*reader.settle_and_open(step.opens, **limits, ttl_ms=step.ttl_ms))
    return StepTaken(0, reader.open(step.opens, **limits, ttl_ms=step.ttl_ms))


def told(call: Any, *args: Any) -> Any:
    """What a call returns, or its refusal."""
    try:
        return call(*args)
    except errors.WarrenError as refused:
        return refused
