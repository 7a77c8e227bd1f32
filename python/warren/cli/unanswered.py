"""A note on standard error of what does not answer, while a command tries on."""

from __future__ import annotations

import time
from collections.abc import Iterable
from threading import RLock, Timer

from warren.cli import output
from warren.connection import Attempts, Host
from warren.errors import NothingListens, WarrenError

NOTE_S = 2.0
"""A restart of a node is over by then; what lasts longer is said."""


class UnansweredNote(Attempts):
    """Says once which addresses have not answered and until when the command tries on.

    It is told by the thread that waits in a socket, and speaks in one of its own: an address that
    neither accepts nor refuses gives that thread nothing to do. When an answer comes after all,
    that is said, too.

    refusing  the cluster's addresses: NothingListens is raised as soon as all of them refuse;
              empty: they are tried until the command's time is over
    """

    def __init__(self, refusing: Iterable[Host] = ()) -> None:
        self._listens_not: dict[Host, str] = {}
        self._refusing = frozenset(refusing)
        self._lock = RLock()
        self._timer: Timer | None = None
        self._why: dict[Host, str] = {}
        self._repeats = False
        self._said = False
        self._closed = False
        self._ends = 0.0

    def __enter__(self) -> UnansweredNote:
        return self

    def __exit__(self, *failure: object) -> None:
        with self._lock:
            self._closed = True
            self._disarm()

    def trying(self, host: Host, ends: float) -> None:
        """A node is connected to."""
        with self._lock:
            self._ends = ends
            self._why.setdefault(host, f"no answer from {host[0]}:{host[1]}")
            self._arm()

    def reached(self, host: Host) -> None:
        """It has accepted the connection: what it does now may take long."""
        with self._lock:
            if not self._repeats:
                self._over(host)

    def unreached(self, host: Host, failure: WarrenError) -> None:
        """It cannot be connected to."""
        with self._lock:
            self._why[host] = str(failure)
            if isinstance(failure.__cause__, ConnectionRefusedError):
                self._listens_not[host] = str(failure)
            if self._refusing and self._refusing <= self._listens_not.keys():
                self._disarm()
                said = "; ".join(self._listens_not.values())
                raise NothingListens(f"{said} (--wait: wait for a node)")

    def failed(self, host: Host, failure: WarrenError, ends: float) -> None:
        """A request has failed: until it has an answer, a connection alone is none."""
        with self._lock:
            self._repeats, self._ends = True, ends
            self._why[host] = str(failure)
            self._arm()

    def answered(self, host: Host) -> None:
        """The call has its answer."""
        with self._lock:
            self._repeats = False
            self._over(host)

    def _over(self, host: Host) -> None:
        self._disarm()
        self._why.clear()
        if self._said and not self._closed:
            self._said = False
            output.note(f"{host[0]}:{host[1]} answers")

    def _arm(self) -> None:
        if self._timer is None and not self._said and not self._closed:
            self._timer = Timer(NOTE_S, self._say)
            self._timer.daemon = True
            self._timer.start()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _say(self) -> None:
        with self._lock:
            if self._timer is None or self._said:
                return  # it was disarmed as it began
            self._timer, self._said = None, True
            left_s = max(0.0, self._ends - time.monotonic())
            until = time.strftime("%H:%M:%S", time.localtime(time.time() + left_s))
            why = "; ".join(self._why.values())
            output.note(f"no answer yet: {why}; trying on until {until} ({left_s:,.0f} s)")
