"""Which queues a source reads, and what they hold now."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_warren.conditions import naming_queue
from pyspark_warren.errors import OptionError
from pyspark_warren.options import Options
from pyspark_warren.port import BrokerPort
from pyspark_warren.share import SELECTED_MAX
from warren.admin import Queue
from warren.errors import NotFound, WarrenError
from warren_wire.name_patterns import NameMatcher, Pattern


class Selection:
    """The queues of the options `queue`, `queues` or `queuePattern`.

    A pattern's names are matched by the broker, which counts the messages of those queues only, and
    once more here: a node of an older version lists every queue.
    """

    def __init__(self, options: Options) -> None:
        self._names = options.queues or (options.queue,)
        self._several = options.several
        self._pattern = options.queue_pattern
        self._matcher: NameMatcher | None = None
        if self._pattern:
            self._matcher = NameMatcher([Pattern(self._pattern)])

    @property
    def by_pattern(self) -> bool:
        """Return whether queues may come and go."""
        return self._matcher is not None

    def selects(self, name: str) -> bool:
        """Return whether a queue of that name is one of them, if there is one."""
        if self._matcher is not None:
            return self._matcher.first(name) is not None
        return name in self._names

    def look(self, broker: BrokerPort, exact: bool) -> dict[str, Queue]:
        """Return the queues with their counts, by name.

        exact   the counts are the leaders'; else a pattern's are zeros where a leader is slow
        raises  NotFound when a queue that is named does not exist; OptionError
        """
        if not self._several:
            return {name: broker.queue(name) for name in self._names}
        if not self.by_pattern:
            return self._counted(broker, self._names)
        # An exclusive queue is its connection's own: no other may read it.
        listed = {
            queue.name: queue
            for queue in broker.queues(self._pattern)
            if self.selects(queue.name) and not queue.exclusive
        }
        if len(listed) > SELECTED_MAX:
            raise OptionError(
                f"option queuePattern={self._pattern!r} is found in the names of {len(listed)} "
                f"queues, {SELECTED_MAX} is the limit of one query: give patterns that divide them "
                "among several queries"
            )
        if not exact:
            return listed
        return self._counted(broker, list(listed))

    def _counted(self, broker: BrokerPort, names: Sequence[str]) -> dict[str, Queue]:
        """Return the leaders' counts, asked at once."""
        found: dict[str, Queue] = {}
        for name, queue in zip(names, broker.queues_named(names), strict=True):
            if isinstance(queue, NotFound) and self.by_pattern:
                continue  # deleted since it was listed
            if isinstance(queue, WarrenError):
                raise naming_queue(name, queue)
            found[name] = queue
        return found
