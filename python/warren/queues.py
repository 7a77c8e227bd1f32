"""Calls about queues; of `Admin`, and of clients that need no other part of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from warren.calls import AdminCalls, call
from warren.errors import WarrenError
from warren_wire.admin import queues
from warren_wire.admin.queues import QueueInfo as Queue
from warren_wire.admin.queues import ReaderInfo as Reader

__all__ = ["Queue", "QueueCalls", "Reader"]
QUEUES_PER_PAGE = 500
Listing: TypeAlias = list[Queue]
Answers: TypeAlias = list[Queue | WarrenError]
"""Said here: in a class with a call named `list` an annotation may mean that."""


class QueueCalls(AdminCalls):
    """Queues of the connection's vhost."""

    declare = call(queues.DeclareQueueRequest)
    get = call(queues.GetQueueRequest)
    delete = call(queues.DeleteQueueRequest)
    purge = call(queues.PurgeQueueRequest)

    def get_each(self, names: Sequence[str]) -> Answers:
        """Return several queues in one round trip; in the place of one why it is not known."""
        answers = self.ask_each([[queues.GetQueueRequest(name)] for name in names])
        return [answer for (answer,) in answers]

    def list(self, pattern: str = "", *, counts: bool = True) -> Listing:
        """Return the queues of the vhost, by name; with zeros for counts that no leader gave.

        pattern  only those with names in which this regular expression is found
        counts   False: no leader is asked
        """
        found: Listing = []
        while True:  # one page of the answer
            after = found[-1].name if found else ""
            asked = queues.ListQueuesRequest(after, QUEUES_PER_PAGE, pattern, counts=counts)
            page = self.ask(asked)
            found += page
            if len(page) < QUEUES_PER_PAGE:
                return found
