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
from warren.admin import Admin
from warren.connection import Connection

pytestmark = [pytest.mark.live, pytest.mark.slow]
LEVEL = "celery_delayed_1"


@pytest.fixture(scope="module")
def celery(broker, tmp_path_factory):
    """The application, with a worker of its own process."""
    directory = tmp_path_factory.mktemp("celery-quorum")
    with working(broker, directory, "live.celery_quorum_app") as application:
        yield application


def test_a_countdown_waits_in_the_broker(broker, celery):
    asked = time.time()
    results = [celery.clock.apply_async(countdown=3) for _ in range(5)]
    if broker.cluster is not None:
        with Connection(broker.uri) as connection:
            level = Admin(connection).queue(LEVEL)
            assert level.arguments["x-dead-letter-strategy"] == "at-least-once"
            assert level.arguments["x-overflow"] == "reject-publish"
            eventually(lambda: Admin(connection).queue(LEVEL).messages, "tasks wait", 5)
    ran = [result.get(timeout=RESULT_S) for result in results]
    assert all(2.9 <= when - asked < 15 for when in ran), [when - asked for when in ran]


def test_an_eta(celery):
    asked = time.time()
    due = datetime.now(UTC) + timedelta(seconds=4)
    ran = celery.clock.apply_async(eta=due).get(timeout=RESULT_S)
    assert 2.9 <= ran - asked < 15, ran - asked


def test_retries_with_a_countdown(celery):
    asked = time.time()
    retries, ran = celery.flaky.delay(2).get(timeout=RESULT_S)
    assert retries == 2 and ran - asked >= 1.9, (retries, ran - asked)


def test_tasks_without_a_delay(celery):
    results = [celery.clock.delay() for _ in range(10)]
    assert len([result.get(timeout=RESULT_S) for result in results]) == 10
