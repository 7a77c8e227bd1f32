"""What tests of shovels share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika

from live.conftest import Broker, eventually
from warren.admin import Admin
from warren_broker.transfers.shovel.process import WORKER
from warren_wire.admin.shovels import ShovelInfo


def clean(admin: Admin) -> None:
    """Delete all shovels, and their queues."""
    for one in admin.shovels.list():
        admin.shovels.delete(one.vhost, one.name)
    for queue in admin.queues.list("^shovel-"):
        admin.queues.delete(queue.name)


def fill(
    broker: Broker, queue: str, count: int, *, auto_delete: bool = False, **properties: Any
) -> list[bytes]:
    """Publish messages with bodies of their own, in one transaction."""
    bodies = [f"{queue} {i}".encode() for i in range(count)]
    with broker.connect() as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True, auto_delete=auto_delete)
        channel.tx_select()
        for body in bodies:
            channel.basic_publish("", queue, body, pika.BasicProperties(**properties))
        channel.tx_commit()
    return bodies


def taken(broker: Broker, queue: str) -> list[tuple[Any, bytes]]:
    """Properties and bodies of all ready messages, taken from the queue."""
    found = []
    with broker.connect() as connection:
        channel = connection.channel()
        while True:
            method, properties, body = channel.basic_get(queue, auto_ack=True)
            if method is None:
                return found
            found.append((properties, body))


def shows(admin: Admin, name: str, holds: Callable[[ShovelInfo], bool], what: str) -> ShovelInfo:
    """Wait for a state of a shovel."""
    seen: list[ShovelInfo] = []

    def found() -> ShovelInfo | None:
        seen[:] = [admin.shovels.get("/", name)]
        return seen[0] if holds(seen[0]) else None

    try:
        return eventually(found, what)  # type: ignore[no-any-return]
    except AssertionError as error:
        raise AssertionError(f"{error}; last: {seen}") from None


def gone(admin: Admin, name: str) -> bool:
    """Whether there is no such shovel."""
    return name not in [one.name for one in admin.shovels.list("/")]


def worker_pids(node: int) -> list[int]:
    """The processes of the shovels that a node runs."""
    found = []
    for place in Path("/proc").iterdir():
        try:
            arguments = (place / "cmdline").read_bytes().split(b"\0")
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if WORKER.encode() in arguments and parent == node:
            found.append(int(place.name))
    return found
