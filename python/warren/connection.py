"""A connection to a cluster, which fails over to the next node."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from threading import RLock
from typing import Any, TypeAlias, TypeVar

from warren.errors import (
    AccessRefused,
    ConnectionLost,
    DeadlinePassed,
    NoNodeReached,
    TlsError,
    Unavailable,
    UsageError,
    WarrenError,
    refusal,
)
from warren.login_secrets import LoginSecrets
from warren.near_hosts import first_host
from warren.uri import Address, as_address
from warren.wire import LinkHandler, Request, Wire
from warren_wire.amqp10.deliveries import handle_of, read_message
from warren_wire.amqp10.fetched import decode_section
from warren_wire.amqp10.proton import Delivery, Link, Session

T = TypeVar("T")
Host: TypeAlias = tuple[str, int]
PAUSE_S_FIRST = 0.02
PAUSE_S_MAX = 0.5
STREAM_CREDIT = 4
"""Messages of `streams` that are sent ahead: each may have 4 MB, and they are what a task holds."""
LINKS_AHEAD_MAX = 32
"""Links of `streams` that are attached at once; all but the one that is read get one message."""
CLOSE_S = 1.0


class Attempts:
    """What is told of the attempts of a connection, while a call waits for one to succeed.

    It takes no notice of them.
    """

    def trying(self, host: Host, ends: float) -> None:
        """A node is connected to; the call gives up at `ends` (time.monotonic)."""

    def unreached(self, host: Host, failure: WarrenError) -> None:
        """It cannot be connected to; another node is tried if there is time."""

    def reached(self, host: Host) -> None:
        """It has accepted the connection."""

    def failed(self, host: Host, failure: WarrenError, ends: float) -> None:
        """A request to it has failed; it is repeated if there is time until `ends`."""

    def answered(self, host: Host) -> None:
        """The call has its answer."""


class Connection:
    """A connection to a cluster through any node that answers.

    It connects at the first use, and again at a use after it was lost or idle for long; requests
    in progress are repeated on the next node until their deadline (every request of this package
    may be repeated). A lock serializes calls from several threads. It does not survive a fork:
    the child connects again. As long as no node has accepted it, a call waits no longer than the
    address's request_timeout_s, whatever it allows for the answer.

    where  an Address or a URI, see `warren.uri.parse_uri`
    name   shown by the broker
    prefer_near  begin with a host that has an address of this machine, if one has
    secrets  passwords that follow each other, in the place of the address's
    attempts  is told of what a call waits for
    """

    def __init__(
        self,
        where: str | Address,
        *,
        name: str = "warren",
        prefer_near: bool = False,
        secrets: LoginSecrets | None = None,
        attempts: Attempts | None = None,
    ) -> None:
        self.address = as_address(where)
        self.name = name
        self.lock = RLock()
        self._secrets = secrets
        self._attempts = attempts or Attempts()
        self._reached = False
        self._wire: Wire | None = None
        self._pid = os.getpid()
        self._turn = first_host(self.address.hosts, prefer_near)
        self._closed = False
        self._refused: set[Host] = set()

    def __repr__(self) -> str:
        return f"Connection({str(self.address)!r})"

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    @property
    def node(self) -> Host | None:
        """Return host and port of the connected node; None: not connected."""
        wire = self._wire
        return wire.host if wire is not None and wire.lost is None else None

    def close(self) -> None:
        """Close the connection; harmless when repeated."""
        with self.lock:
            self._closed = True
            wire, self._wire = self._wire, None
            if wire is not None:
                if self._pid == os.getpid():
                    wire.close(time.monotonic() + CLOSE_S)
                else:
                    wire.abandon()

    def renew_token(self, token: str) -> None:
        """Log in with this token from now on, and give it to the node of an open connection.

        A node ends a connection with the token that it was given last. The token must be of the
        same user and let it stay in the vhost: else PeerError is raised, and the connection
        continues with the one before.
        """
        if self._secrets is not None:
            raise UsageError("this connection gets its tokens by itself, from its `secrets`")
        if self.node is not None:
            self.request("PUT", "/auth/tokens", token.encode())
        with self.lock:
            self.address = replace(self.address, password=token)

    # -------------------------------------------------------------- requests

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        timeout_s: float | None = None,
        is_answer: Callable[[int, Any], bool] = lambda status, answer: False,
    ) -> Any:
        """Make a management request; return the answer's body or raise the refusal.

        is_answer  whether an answer with a status of 400 and above is returned, not raised
        """

        def ask(wire: Wire, deadline: float) -> Any:
            ((status, answer),) = wire.request_all([(method, path, body)], deadline)
            if status >= 400 and not is_answer(status, answer):
                raise _refusal(method, path, status, answer)
            return answer

        return self.use(ask, timeout_s=timeout_s)

    def request_each(self, asked: Sequence[Sequence[Request]]) -> list[list[object]]:
        """Make sequences of management requests in one round trip; return each answer's body.

        A refusal is returned in the place of its answer. The node carries a sequence out in its
        order, but when a connection is lost all are repeated, and the first time may end between
        two.

        A sequence with an answer of Unavailable is repeated by itself until the deadline, and then
        that is returned in the place of the answer: the others are not lost with it. A failure of
        the connection itself is returned in the place of every answer that did not come.
        """
        found: list[list[Any] | None] = [None] * len(asked)
        latest: dict[int, list[Any]] = {}

        def ask(wire: Wire, deadline: float) -> None:
            left = [at for at, answers in enumerate(found) if answers is None]
            requests = [request for at in left for request in asked[at]]
            answers = iter(wire.request_all(requests, deadline))
            failed: Unavailable | None = None
            for at in left:
                latest[at] = [
                    _refusal(method, path, *answer) if answer[0] >= 400 else answer[1]
                    for (method, path, _), answer in zip(asked[at], answers, strict=False)
                ]
                late = [each for each in latest[at] if isinstance(each, Unavailable)]
                if late:
                    failed = late[0]
                else:
                    found[at] = latest[at]
            if failed is not None:
                raise failed

        try:
            if asked:
                self.use(ask)
        except Unavailable as error:
            for at, answers in enumerate(found):
                if answers is None:
                    told = latest.get(at, [error] * len(asked[at]))
                    found[at] = [error if isinstance(one, Unavailable) else one for one in told]
        return [answers for answers in found if answers is not None]

    def use(self, operation: Callable[[Wire, float], T], *, timeout_s: float | None = None) -> T:
        """Run an operation; when Unavailable, repeat it on the next node.

        operation  must be repeatable; gets an open wire and the deadline (time.monotonic)
        raises     NoNodeReached: no node has ever accepted this connection
        """
        limit = self.address.request_timeout_s
        timeout = limit if timeout_s is None else timeout_s
        began = time.monotonic()
        # What takes minutes in a cluster is not waited for while there may be none at the address.
        at_first = timeout if self._reached else min(timeout, limit)
        pause = Pause(began + at_first, at_first)
        while True:
            with self.lock:
                try:
                    wire = self.wire(pause.deadline)
                    pause.extend(began + timeout, timeout)
                    return self._told(wire, operation, pause.deadline)
                except Unavailable as error:
                    failure = error
            try:
                pause.after(failure)
            except Unavailable as error:
                if self._reached:
                    raise
                raise NoNodeReached(str(error)) from failure

    def _told(self, wire: Wire, operation: Callable[[Wire, float], T], deadline: float) -> T:
        """Run an operation, and tell what became of it."""
        try:
            answer = operation(wire, deadline)
        except Unavailable as error:
            self._attempts.failed(wire.host, error, deadline)
            raise
        self._attempts.answered(wire.host)
        return answer

    def stream(self, source: Callable[[], str], *, resumable: bool = True) -> Iterator[memoryview]:
        """Yield the messages that a receiver from `source()` gets until the broker closes the link.

        Each message's bytes are a view of its own. With resumable, a lost connection is opened
        again and `source` is called again: it must then name what is still missing.
        """
        for _, message in self.streams([source], resumable=resumable):
            yield message

    def streams(
        self, sources: Sequence[Callable[[], str]], *, resumable: bool = True
    ) -> Iterator[tuple[int, memoryview]]:
        """Yield what `stream` yields of several sources, one after another, with their numbers.

        Up to LINKS_AHEAD_MAX of them are attached at once, so that the first messages of the next
        ones come while those of one are taken. A refusal ends all of them, at its place.
        """
        timeout = self.address.request_timeout_s
        pause = Pause(time.monotonic() + timeout, timeout)
        progress = False
        at = 0
        while True:
            attached: deque[_Receiver] = deque()
            try:
                with self.lock:
                    wire = self.wire(pause.deadline)
                try:
                    while at < len(sources):
                        with self.lock:
                            for source in sources[at + len(attached) : at + LINKS_AHEAD_MAX]:
                                attached.append(_Receiver.attach(wire, source()))
                            attached[0].begin()
                        while (
                            message := self._next(wire, attached[0], pause.deadline)
                        ) is not None:
                            progress = True
                            yield at, message
                            pause = Pause(time.monotonic() + timeout, timeout)
                        with self.lock:
                            wire.detach(attached.popleft())
                        at += 1
                    return
                finally:
                    with self.lock:
                        for receiver in attached:
                            wire.detach(receiver)
            except Unavailable as error:
                if progress and not resumable:
                    raise
                failure = error
            pause.after(failure)

    def wire(self, deadline: float) -> Wire:
        """Return an open connection to any node; the caller must hold the lock.

        Raises AccessRefused and other refusals that every node would give; Unavailable.
        """
        if self._closed:
            raise UsageError("this connection was closed")
        wire = self._wire
        if wire is not None and self._pid != os.getpid():
            wire.abandon()  # the parent process's socket must not be used
            wire = None
        if wire is not None:
            wire.poll()
            if wire.lost is None:
                return wire
            wire.abandon()
            self._turn += 1
        self._wire = None
        self._pid = os.getpid()
        host = self.address.hosts[self._turn % len(self.address.hosts)]
        self._turn += 1  # the next attempt uses another node; reset when this one succeeds
        secrets, address = self._secrets, self.address
        if secrets is not None:
            address = replace(address, password=secrets.current())
        limit = min(deadline, time.monotonic() + address.connect_timeout_s)
        self._attempts.trying(host, deadline)
        try:
            wire = self._open(host, address, limit)
        except Unavailable as error:
            self._attempts.unreached(host, error)
            raise
        self._attempts.reached(host)
        self._refused.clear()
        self._turn -= 1
        self._wire = wire
        self._reached = True
        return wire

    def _open(self, host: Host, address: Address, limit: float) -> Wire:
        """Return a wire to that node; raises Unavailable where another node may do."""
        secrets = self._secrets
        try:
            return Wire(host, address, self.name, limit, secrets)
        except AccessRefused as error:
            if secrets is not None and secrets.over(address.password):
                raise ConnectionLost(f"{error}; the token was over by then") from error
            if secrets is not None:
                secrets.refused(address.password)
            raise
        except TlsError as error:
            # One node's certificate may have expired while the others' are good.
            self._refused.add(host)
            if self._refused >= set(self.address.hosts):
                self._refused.clear()
                raise
            raise ConnectionLost(str(error)) from error

    def _next(self, wire: Wire, receiver: _Receiver, deadline: float) -> memoryview | None:
        with self.lock:
            wire.run(lambda: bool(receiver.messages) or receiver.ended, deadline)
            return receiver.take()


class Pause:
    """The wait between two attempts, longer each time, never beyond the deadline."""

    def __init__(self, deadline: float, timeout_s: float) -> None:
        self.deadline = deadline
        self._timeout_s = timeout_s
        self._pause_s = PAUSE_S_FIRST
        self._reason: WarrenError | None = None

    def extend(self, deadline: float, timeout_s: float) -> None:
        """Have it end at another time."""
        self.deadline, self._timeout_s = deadline, timeout_s

    def after(self, failure: WarrenError) -> None:
        """Wait; raises Unavailable when there is no time for another attempt.

        Its text is that of the last failure other than a passed deadline.
        """
        if self._reason is None or not isinstance(failure, DeadlinePassed):
            self._reason = failure
        left = self.deadline - time.monotonic()
        if left <= self._pause_s:
            raise Unavailable(f"gave up after {self._timeout_s:g} s: {self._reason}") from failure
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, PAUSE_S_MAX)


class _Receiver(LinkHandler):
    """A receiving link with its completely received messages, bounded by the credit.

    A message may have megabytes: links that wait for others get one, which is all of a short slice.
    """

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self.messages: list[memoryview] = []

    @classmethod
    def attach(cls, wire: Wire, source: str) -> _Receiver:
        """Attach a receiver; a refusal is raised when the first message is taken."""

        def make(session: Session, name: str) -> _Receiver:
            link = session.receiver(name)
            link.source.address = source
            link.snd_settle_mode = link.SND_SETTLED
            link.flow(1)
            return cls(link)

        return wire.attach(make)

    def begin(self) -> None:
        """Have more than the first message come: this link is read now."""
        if not self.ended:
            self.link.flow(STREAM_CREDIT - 1)

    def take(self) -> memoryview | None:
        """Return the next message; None: the broker has closed the link. Raises its refusal."""
        if self.messages:
            if not self.ended:
                self.link.flow(1)
            return self.messages.pop(0)
        if self.failure is not None:
            raise self.failure
        return None

    def delivered(self, delivery: Delivery) -> None:
        """Take a message when it is complete."""
        if delivery.partial or not delivery.readable:
            return
        _, data, _ = read_message(handle_of(self.link), handle_of(delivery))
        delivery.settle()
        self.messages.append(decode_section(memoryview(data)))


def _refusal(method: str, path: str, status: int, answer: object) -> WarrenError:
    """Return the error for an answer with a status of 400 and above."""
    detail, condition = _problem(answer)
    return refusal(status, condition, detail or f"{method} {path}: status {status}")


def _problem(answer: object) -> tuple[str, str]:
    """Return detail and condition of a refusal's body: a map, or a text from other brokers."""
    if isinstance(answer, dict):
        return str(answer.get("detail", "")), str(answer.get("condition", ""))
    return str(answer or ""), ""


__all__ = ["Attempts", "Connection", "ConnectionLost", "Pause"]
