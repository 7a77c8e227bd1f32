"""Signs of life while Spark works on a batch."""

from __future__ import annotations

import threading

from pyspark_warren.renew import Renewer
from tests.patience import PATIENCE_S
from warren.errors import Fenced, Unavailable


class Broken:
    """A reader of a broker that gives the answers of the test, one per call."""

    def __init__(self, answers: list[Exception | None]) -> None:
        self.answers = answers
        self.calls = 0
        self.enough = threading.Event()

    def renew(self) -> None:
        """The next answer; nothing more to say: all is well."""
        self.calls += 1
        answer = self.answers.pop(0) if self.answers else None
        if not self.answers:
            self.enough.set()
        if answer is not None:
            raise answer


def test_it_goes_on_when_nobody_answers() -> None:
    reader = Broken([Unavailable("no majority"), None, Unavailable("still"), None])
    renewer = Renewer(reader, ttl_ms=30)  # type: ignore[arg-type]
    assert reader.enough.wait(PATIENCE_S)
    renewer.stop()
    renewer.join(PATIENCE_S)
    assert reader.calls >= 4


def test_it_ends_when_a_newer_driver_has_taken_over() -> None:
    reader = Broken([None, Fenced("epoch 1 is older than 2")])
    renewer = Renewer(reader, ttl_ms=30)  # type: ignore[arg-type]
    renewer.join(PATIENCE_S)
    assert (renewer.alive, reader.calls) == (False, 2)
