"""Shovels, as a policymaker sees and changes them."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from warren.calls import AdminCalls, call
from warren.connection import Connection
from warren.errors import Conflict, NotFound, UsageError
from warren.waiting import Waiting, until
from warren_wire.admin import shovels as m
from warren_wire.admin.parameters import ListParametersRequest, PutParameterRequest
from warren_wire.admin.queues import GetQueueRequest
from warren_wire.admin.shovels import ShovelInfo

SHOVEL_NAME_BYTES_MAX = 200
MOVER_PREFIX = "Move from "
"""Beginning of the names of shovels that move a queue's messages, as in RabbitMQ's UI."""
MOVED_AT_ONCE = 1000
"""Messages that such a shovel has under way."""


def shovel_name(prefix: str, queue: str) -> str:
    """Return the name of a queue's shovel: the queue's, or a digest where that is too long."""
    name = prefix + queue
    if len(name.encode()) <= SHOVEL_NAME_BYTES_MAX:
        return name
    return prefix + hashlib.sha256(queue.encode()).hexdigest()


def queue_to_queue(
    source_uri: str,
    source: str,
    target_uri: str,
    target: str,
    *,
    prefetch: int = MOVED_AT_ONCE,
    stays: bool = False,
) -> dict[str, object]:
    """Return the parameter of a shovel between two queues that exist.

    stays  it moves what comes later, too; otherwise it ends with what is there when it begins
    """
    return {
        "src-uri": source_uri,
        "src-queue": source,
        "src-predeclared": True,
        "src-prefetch-count": prefetch,
        "src-delete-after": "never" if stays else "queue-length",
        "dest-uri": target_uri,
        "dest-queue": target,
        "dest-predeclared": True,
        "ack-mode": "on-confirm",
    }


class ShovelCalls(AdminCalls):
    """Shovels, which are parameters of component `shovel`."""

    def __init__(self, connection: Connection, waiting: Waiting | None = None) -> None:
        super().__init__(connection)
        self.waiting = waiting

    list = call(m.ListShovelsRequest)
    get = call(m.ShovelRequest)
    restart = call(m.RestartShovelRequest)
    pause = call(m.PauseShovelRequest)
    delete = call(m.DeleteShovelRequest)

    def move_messages(self, queue: str, to: str, uri: str) -> str:
        """Begin to move what is in a queue now to another queue of its vhost; a repeat joins in.

        uri      of the shovel: without a host it is its own node; without a user, it acts for the
                 caller's user
        returns  the name of the shovel, which removes itself at the end

        With `Admin.waiting`, it waits for the end of the shovel. The progress is its state; None:
        it is not known.

        Conflict: they are being moved to another queue, or one of the queues is exclusive, which
        the shovel's connection cannot use. NotFound: one of the queues.
        """
        vhost, name = self.connection.address.vhost, shovel_name(MOVER_PREFIX, queue)
        if queue == to:
            raise UsageError(f"queue {queue!r}: name another queue to move its messages to")
        for each in (queue, to):
            if self.ask(GetQueueRequest(each)).exclusive:
                raise Conflict(
                    f"queue {each!r} is exclusive: only the connection that declared it can use "
                    "it, and a shovel has a connection of its own"
                )
        moving = self._mover(vhost, name)
        if moving is None:
            value = queue_to_queue(uri, queue, uri, to)
            self.ask(PutParameterRequest("shovel", vhost, name, value))
        elif (moving.get("src-queue"), moving.get("dest-queue")) != (queue, to):
            raise Conflict(
                f"shovel {name!r} moves messages of {moving.get('src-queue')!r} to "
                f"{moving.get('dest-queue')!r}: wait for its end, or delete it"
            )
        if self.waiting is not None:
            self._wait_for_mover(name, self.waiting, f"queue {queue!r}")
        return name

    def _wait_for_mover(self, name: str, waiting: Waiting, shown: str) -> None:
        """Wait until a shovel has removed its parameter: its state is known for a while longer."""
        vhost = self.connection.address.vhost
        states: list[ShovelInfo | None] = [None]

        def is_over(left: float) -> bool:
            if self._mover(vhost, name) is None:
                return True
            states[0] = self._shovel_or_none(vhost, name)
            if waiting.progress is not None:
                waiting.progress(states[0])
            return False

        silent = replace(waiting, progress=None)
        until(is_over, bool, silent, lambda over: f"{shown}: {moved_so_far(states[0])}")

    def _mover(self, vhost: str, name: str) -> dict[str, object] | None:
        """Return a shovel's parameter; None: there is none."""
        found = self.ask(ListParametersRequest("shovel", vhost))
        return next((dict(one.value) for one in found if one.name == name), None)

    def _shovel_or_none(self, vhost: str, name: str) -> ShovelInfo | None:
        try:
            return self.get(vhost, name)
        except NotFound:
            return None


def moved_so_far(shovel: ShovelInfo | None) -> str:
    """Return what a shovel has moved, what is left, and why it moves nothing now."""
    if shovel is None:
        return "its state is not known"
    said = f"{shovel.forwarded:,} messages moved"
    if shovel.remaining is not None:
        said += f", {shovel.remaining:,} left"
    return f"{said}; {shovel.reason}" if shovel.reason else said
