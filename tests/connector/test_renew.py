"""Signs of life while Spark works on a batch."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from pyspark_warren.claims.driver import ClaimDriver
from pyspark_warren.errors import OptionError, TokenError
from pyspark_warren.options.options import parse_options
from pyspark_warren.surroundings import Renewer, Surroundings
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
    renewer = Renewer(reader.renew, ttl_ms=30)
    assert reader.enough.wait(PATIENCE_S)
    renewer.stop()
    renewer.join(PATIENCE_S)
    assert reader.calls >= 4


def test_a_login_that_fails_for_a_moment_ended_it_and_claims_expired() -> None:
    """1. The file of a token is empty while it is written.  2. The connection is lost."""
    reader = Broken([OptionError("tokenFile is empty"), None, TokenError("refused"), None])
    renewer = Renewer(reader.renew, ttl_ms=30)
    assert reader.enough.wait(PATIENCE_S), "it renews again"
    assert renewer.alive
    renewer.stop()
    renewer.join(PATIENCE_S)


def test_a_failed_login_of_one_queue_delays_no_other_renewal() -> None:
    answers: list[Exception | None] = [TokenError("refused"), None]
    readers = [Broken([answer]) for answer in answers]
    broker: Any = None
    options = parse_options({"queues": "0,1"}, "read")
    driver: Any = ClaimDriver(broker, options, Surroundings.of_this_process())
    driver._queues = {str(number): each for number, each in enumerate(readers)}
    with pytest.raises(TokenError):
        driver.renew()
    assert [each.calls for each in readers] == [1, 1]


def test_it_ends_when_a_newer_driver_has_taken_over() -> None:
    reader = Broken([None, Fenced("epoch 1 is older than 2")])
    renewer = Renewer(reader.renew, ttl_ms=30)
    renewer.join(PATIENCE_S)
    assert (renewer.alive, reader.calls) == (False, 2)
