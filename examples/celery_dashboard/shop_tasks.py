"""A Celery application that publishes the result of each task into queue `task-results`.

    CELERY_BROKER_URL=amqp://user:password@host:5672// celery -A shop_tasks worker

A message is `{"task": …, "state": "SUCCESS" or "FAILURE", "seconds": …, "finished": …}`. Tasks are
acknowledged late: when a worker dies, its tasks run again, also those with a published result. The
queue has `x-deduplication` and the task's id is the message's, so each task is there once.
"""

from __future__ import annotations

import json
import time
from typing import Any

from celery import Celery, Task

RESULTS = "task-results"


class Reported(Task):
    """A task with a result that is published before the task is acknowledged."""

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        """Remember when it began."""
        self.request.began = time.monotonic()

    def after_return(
        self, status: str, retval: Any, task_id: str, args: Any, kwargs: Any, einfo: Any
    ) -> None:
        """Publish the result and wait for the confirm, for as long as the broker is away."""
        result = {
            "task": self.name,
            "state": status,
            "seconds": time.monotonic() - self.request.began,
            "finished": time.time(),
        }
        with self.app.amqp.producer_pool.acquire(block=True) as producer:
            producer.publish(
                json.dumps(result),
                routing_key=RESULTS,
                message_id=task_id,
                headers={"x-deduplication-id": task_id},
                content_type="application/json",
                content_encoding="utf-8",
                delivery_mode=2,
                retry=True,
                retry_policy={"max_retries": None},
            )


app = Celery("shop", task_cls=Reported)
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_transport_options={"confirm_publish": True},
    task_acks_late=True,
    task_default_queue="shop-tasks",
    task_ignore_result=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
)


@app.task(name="shop.charge")
def charge(order: int) -> int:
    """Charge an order; every tenth is refused."""
    if order % 10 == 0:
        raise ValueError(f"order {order}: card refused")
    return order


@app.task(name="shop.ship")
def ship(order: int) -> int:
    """Ship an order."""
    time.sleep(0.01)
    return order
