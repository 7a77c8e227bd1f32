"""Renewal of claims and readers that expire, while their query runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from pyspark_warren.errors import WarrenSparkError
from warren.errors import Fenced, WarrenError

log = logging.getLogger("pyspark_warren")


class Renewer:
    """A thread that renews readers and their claims every third of their time to live.

    It ends with its process, or when a newer driver has registered. It exists on Spark's driver
    only, in the object that is never pickled.
    """

    def __init__(self, renew: Callable[[], None], ttl_ms: int) -> None:
        assert ttl_ms > 0, ttl_ms
        self._renew = renew
        self._every_s = ttl_ms / 3000
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="warren-renew", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop renewing; returns at once."""
        self._stop.set()

    def join(self, timeout_s: float) -> None:
        """Wait until the thread has ended."""
        self._thread.join(timeout_s)

    @property
    def alive(self) -> bool:
        """Return whether it still renews."""
        return self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            try:
                self._renew()
            except Fenced:
                return  # Spark's next call is refused with the reason
            except (WarrenError, WarrenSparkError) as wrong:
                # Of the login, too: 1. A tokenFile is empty while it is written.  2. The connection
                # is lost.  3. The next one needs a token. Claims would expire under the query.
                log.warning("claims could not be renewed, will be retried: %s", wrong)
