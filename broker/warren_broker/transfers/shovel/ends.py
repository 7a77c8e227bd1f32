"""What a transfer knows of its two ends, whatever protocol each speaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from warren_broker.transfers.shovel.received import Received
from warren_wire.links.uris import ShovelUri
from warren_wire.relay_names import RelayedName

Answers: TypeAlias = list[tuple[int, bool]]
"""Numbers of publishes; with true it stands for all before it, too."""


class Prepared(Protocol):
    """A message as its destination takes it; it may be published more than once."""

    def described(self) -> str:
        """Return which message it is, in words."""


class End(Protocol):
    """A connection to one end.

    refuses         whether the peer has ended the link or channel for what was sent on it
    access_refused  whether it has refused user, password, vhost or permission
    """

    uri: ShovelUri
    refuses: bool
    access_refused: bool

    @property
    def knows_relays(self) -> bool:
        """Whether the peer gives messages names, and recognises them (`relay_names`)."""

    def open(self, ioloop: Any, opened: Callable[[], None]) -> None:
        """Connect; a failure is reported."""

    def fail(self, words: str) -> None:
        """Report a failure, the first one."""

    def close(self, done: Callable[[], None] = ...) -> None:
        """Close after what has been written; no failure is reported any more."""


class SourceEnd(End, Protocol):
    """Where messages come from.

    `acknowledge` is with the peer before the connection is closed. What is not acknowledged goes
    back to the queue then.
    """

    def find(self, found: Callable[[int], None]) -> None:
        """Find or make what is consumed from; `found` gets its number of messages, as far as known.

        Nothing is delivered yet.
        """

    def count(self, relay: str, counted: Callable[[int], None]) -> None:
        """Find the number of messages there are now, with those that the relay has taken."""

    def sees(self, probe: str, answer: Callable[[bool], None]) -> None:
        """Answer whether the destination's probe is here: both ends are one vhost."""

    def consume(
        self,
        limit: int,
        delivered: Callable[[Received], None],
        begun: Callable[[], None],
        relay: str,
    ) -> None:
        """Have at most `limit` messages delivered at once, as far as they are wanted.

        relay  consume as that relay, in order and with names; "": as any consumer
        """

    def want(self, wanted: bool) -> None:
        """Have messages delivered, or no more than what is under way."""

    def limit(self, prefetch: int) -> None:
        """Have at most that many under way."""

    def stop(self, done: Callable[[], None]) -> None:
        """Begin nothing more; `done` is called when no further delivery comes.

        What arrives until then is given back; what a relay gets is delivered, for `return_`.
        """

    def return_(self, tag: int) -> None:
        """Have the peer give a delivery to any consumer."""

    def acknowledge(self, tag: int, multiple: bool) -> None:
        """Acknowledge a delivery; multiple: and those before it."""

    def fail_held(self) -> None:
        """Count the delivery that is held, the only one, as one that has failed."""


class TargetEnd(End, Protocol):
    """Where messages go to.

    blocked  whether it accepts no publishes at the moment
    """

    @property
    def blocked(self) -> bool:
        """Whether it accepts no publishes at the moment."""

    def find(self, found: Callable[[], None]) -> None:
        """Find or make what is published to."""

    @property
    def refusals_are_sure(self) -> bool:
        """Whether the destination surely does not have what it has refused, of a relay."""

    def probe(self, made: Callable[[str | None], None]) -> None:
        """Make a queue that only this vhost has; None: it cannot be made."""

    def forget_probe(self, probe: str) -> None:
        """Delete it."""

    def prepare(self, received: Received) -> Prepared:
        """Return a message as it is to be published; raises InvalidArgument, MalformedSections."""

    def publish(self, number: int, prepared: Any, name: RelayedName | None) -> None:
        """Publish; number: of the publish in the answers, one higher each time.

        name  of a relay's message; None: it has none
        """

    def unsent_bytes(self) -> int:
        """Return how much of what was published is not with the operating system yet."""
