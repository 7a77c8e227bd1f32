"""Celery's countdown, ETA and retries on quorum queues: delays of kombu's native delayed delivery.

Its queues ask for dead lettering at least once. When that was refused the worker logged a line, and
every delayed task vanished.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from live.conftest import eventually
from live.test_celery import RESULT_S, working
from tests.patience import TooSlow, with_time_enough
from warren.admin import Admin
from warren.connection import Connection

pytestmark = [pytest.mark.live, pytest.mark.slow]


@pytest.fixture(scope="module")
def celery(broker, tmp_path_factory):
    """The application, with a worker of its own process."""
    directory = tmp_path_factory.mktemp("celery-quorum")
    with working(broker, directory, "live.celery_quorum_app") as application:
        yield application


def test_a_countdown_waits_in_the_broker(broker, celery):
    with_time_enough(lambda countdown_s: waits_in_the_broker(broker, celery, countdown_s), 3)


def waits_in_the_broker(broker, celery, countdown_s):
    """Tasks wait in the queue of their highest bit, for so many seconds."""
    asked = time.time()
    results = [celery.clock.apply_async(countdown=countdown_s) for _ in range(5)]
    if broker.cluster is not None:
        bit = countdown_s.bit_length() - 1
        name = f"celery_delayed_{bit}"
        with Connection(broker.uri) as connection:
            level = Admin(connection).queues.get(name)
            assert level.arguments["x-dead-letter-strategy"] == "at-least-once"
            assert level.arguments["x-overflow"] == "reject-publish"

            def wait():
                found = Admin(connection).queues.get(name).messages
                if not found and time.time() > asked + (1 << bit):
                    raise TooSlow("they may have waited there, and gone")
                return found

            eventually(wait, "tasks wait")
    ran = [result.get(timeout=RESULT_S) for result in results]
    assert all(when - asked >= countdown_s - 0.1 for when in ran), [when - asked for when in ran]


def test_an_eta(celery):
    asked = time.time()
    due = datetime.now(UTC) + timedelta(seconds=4)
    ran = celery.clock.apply_async(eta=due).get(timeout=RESULT_S)
    assert ran - asked >= 2.9, ran - asked


def test_retries_with_a_countdown(celery):
    asked = time.time()
    retries, ran = celery.flaky.delay(2).get(timeout=RESULT_S)
    assert retries == 2 and ran - asked >= 1.9, (retries, ran - asked)


def test_tasks_without_a_delay(celery):
    results = [celery.clock.delay() for _ in range(10)]
    assert len([result.get(timeout=RESULT_S) for result in results]) == 10
