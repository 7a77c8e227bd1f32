"""A Celery worker's ordinary work: tasks, results, retries, priorities, times to come."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest

from live.conftest import eventually
from tests.patience import PATIENCE_S, TooSlow, with_time_enough

pytestmark = [pytest.mark.live, pytest.mark.slow]
RESULT_S = PATIENCE_S


@contextmanager
def working(broker, directory, module):
    """Yield that application module, with a worker of its own process."""
    suffix = f".{os.getpid()}.{time.monotonic_ns()}"
    os.environ["CELERY_TEST_BROKER"] = (
        broker.uri.replace("%2F", "/") if broker.uri.endswith("/%2F") else broker.uri
    )
    os.environ["CELERY_TEST_SUFFIX"] = suffix
    application = import_module(module)
    log = directory / "worker.log"
    words = f"-m celery -A {module} worker -P solo -l info -n worker{suffix}@localhost".split()
    with log.open("wb") as output:
        worker = subprocess.Popen(
            [sys.executable, *words],
            cwd=Path(__file__).resolve().parent.parent,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        eventually(
            lambda: worker.poll() is not None or b" ready." in log.read_bytes(),
            "the worker is ready",
        )
        assert worker.poll() is None, log.read_text()
        yield application
    finally:
        worker.terminate()
        worker.wait(PATIENCE_S)
        application.app.close()
        print(log.read_text()[-4000:])


@pytest.fixture(scope="module")
def celery(broker, tmp_path_factory):
    """The application, with a worker of its own process."""
    with working(broker, tmp_path_factory.mktemp("celery"), "live.celery_app") as application:
        yield application


def test_tasks_and_results(celery):
    results = [celery.add.delay(i, i) for i in range(20)]
    assert [result.get(timeout=RESULT_S) for result in results] == [2 * i for i in range(20)]


def test_retries(celery):
    assert celery.flaky.delay(2).get(timeout=RESULT_S) == 2


def test_eta(celery):
    asked = time.time()
    results = [celery.clock.apply_async(countdown=1.5) for _ in range(5)]
    ran = [result.get(timeout=RESULT_S) for result in results]
    assert all(when - asked >= 1.4 for when in ran), [when - asked for when in ran]


def test_priorities(celery):
    with_time_enough(lambda busy_s: high_before_low(celery, busy_s), 1.0)


def high_before_low(celery, busy_s):
    """Tasks that wait while the worker is busy are run by their priority."""
    over = time.monotonic() + busy_s
    busy = celery.pause.delay(busy_s)
    for i in range(4):
        celery.note.apply_async((f"low{i} {busy_s}",), priority=1)
    for i in range(4):
        celery.note.apply_async((f"high{i} {busy_s}",), priority=9)
    # Sent is not yet queued, and one may be with the worker already.
    with celery.app.connection_for_read() as connection:
        name = celery.app.conf.task_default_queue
        while connection.default_channel.queue_declare(name, passive=True).message_count < 7:
            if time.monotonic() > over:
                break
            time.sleep(0.01)
    if time.monotonic() > over:
        raise TooSlow("the worker had not to wait for all of them")
    busy.get(timeout=RESULT_S)

    def noted():
        every = celery.notes.apply_async(priority=0).get(timeout=RESULT_S)
        ours = [name.split()[0] for name in every if name.endswith(f" {busy_s}")]
        return ours if len(ours) >= 8 else None

    seen = eventually(noted, "all notes")
    # The worker has prefetched one message when the others arrive.
    first_low = [name for name in seen if name.startswith("low")]
    highs = [seen.index(f"high{i}") for i in range(4)]
    assert highs == sorted(highs)
    assert max(highs) < seen.index(first_low[-1]), seen
    assert sum(seen.index(name) < max(highs) for name in first_low) <= 1, seen


def test_remote_control(celery):
    answers = celery.app.control.ping(timeout=PATIENCE_S, limit=1)
    assert answers and "pong" in str(answers), answers
