"""A Celery application on a quorum queue, where delays are kept by the broker.

Kombu's native delayed delivery: 28 quorum queues, each with a time to live of 2 ** level seconds,
that dead-letter at least once into the topic exchange of the next level.
"""

from __future__ import annotations

import os
import time

from celery import Celery
from kombu import Exchange, Queue

app = Celery("warren_quorum", broker=os.environ.get("CELERY_TEST_BROKER"), backend="rpc://")
_NAME = f"celery.quorum{os.environ.get('CELERY_TEST_SUFFIX', '')}"
app.conf.update(
    task_default_queue=_NAME,
    task_default_exchange=_NAME,
    task_default_exchange_type="topic",
    task_queues=[
        Queue(
            _NAME,
            exchange=Exchange(_NAME, type="topic"),
            routing_key=_NAME,
            queue_arguments={"x-queue-type": "quorum"},
        )
    ],
    task_default_routing_key=_NAME,
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    result_expires=60,
)


@app.task
def clock() -> float:
    """When it ran, seconds since the epoch."""
    return time.time()


@app.task(bind=True, max_retries=3)
def flaky(self, fail_times: int) -> list[float]:  # type: ignore[no-untyped-def]
    """Fails that often, a second apart; then tells how often it was retried, and when it ran."""
    if self.request.retries < fail_times:
        raise self.retry(exc=ValueError("not yet"), countdown=1)
    return [float(self.request.retries), time.time()]
