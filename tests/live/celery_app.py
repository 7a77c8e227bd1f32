"""A Celery application for the tests; the broker is named by CELERY_TEST_BROKER."""

from __future__ import annotations

import os
import time

from celery import Celery
from kombu import Queue

app = Celery("warren_test", broker=os.environ.get("CELERY_TEST_BROKER"), backend="rpc://")
_SUFFIX = os.environ.get("CELERY_TEST_SUFFIX", "")
app.conf.update(
    task_default_queue=f"celery.test{_SUFFIX}",
    task_queues=[Queue(f"celery.test{_SUFFIX}", queue_arguments={"x-max-priority": 10})],
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    result_expires=60,
)
RUNS: list[str] = []


@app.task
def add(x: int, y: int) -> int:
    """Their sum."""
    return x + y


@app.task(bind=True, max_retries=3, default_retry_delay=0.1)
def flaky(self, fail_times: int) -> int:  # type: ignore[no-untyped-def]
    """Fails that often, then tells how often it was retried."""
    if self.request.retries < fail_times:
        raise self.retry(exc=ValueError("not yet"))
    return int(self.request.retries)


@app.task
def note(name: str) -> str:
    """Remember the order of arrival in the worker."""
    RUNS.append(name)
    return name


@app.task
def notes() -> list[str]:
    """What `note` remembered."""
    return list(RUNS)


@app.task
def clock() -> float:
    """When it ran, seconds since the epoch."""
    return time.time()


@app.task
def pause(seconds: float) -> None:
    """Keep the worker busy."""
    time.sleep(seconds)
