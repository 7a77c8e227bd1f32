"""The clients of a run that read by claims: what they do when an answer is lost."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nemesis import readers
from nemesis.clients import World
from nemesis.readers import Claimer
from warren.claims import Registration
from warren.errors import Fenced, Unavailable

STARTS_AGAIN = 0.0
"""Drawn: the claimer registers, as a driver that starts again does."""


class Queue:
    """Registers each reader under a new epoch; the answer of the second registration is lost."""

    def __init__(self) -> None:
        self.epoch = 0

    def reader(self, connection: Any, queue: str, name: str, epoch: int | None) -> Any:
        """As `ClaimReader`."""
        return SimpleNamespace(register=self.register, open=lambda number, **_: self.open(epoch))

    def register(self) -> Registration:
        """Apply the registration."""
        self.epoch += 1
        if self.epoch == 2:
            raise Unavailable("no answer")
        return Registration(self.epoch, 0, 0)

    def open(self, epoch: int | None) -> Any:
        """Open a claim of no messages."""
        if epoch not in (None, self.epoch):
            raise Fenced(f"epoch {self.epoch}, not {epoch}")
        return SimpleNamespace(messages=0)


def test_a_registration_without_an_answer_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kills of two nodes at a time found it: the claimer fenced itself, and read no more."""
    queue = Queue()
    monkeypatch.setattr(readers, "ClaimReader", queue.reader)
    claimer = Claimer(cast(World, SimpleNamespace(seed=1)), "claimer", "q")
    monkeypatch.setattr(claimer, "connect", nullcontext)
    claimer.step()
    monkeypatch.setattr(claimer.chance, "random", lambda: STARTS_AGAIN)
    with pytest.raises(Unavailable):
        claimer.step()
    monkeypatch.setattr(claimer.chance, "random", lambda: 1.0)
    claimer.step()
    assert queue.epoch == 3
