"""What the messages of a queue have in common: groups of dead letters, and how many there are."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Self

import msgspec

from warren_wire.admin.browse import SelectingRequest, wanted_states
from warren_wire.admin.requests import Number, Result, Text, route, seen
from warren_wire.errors import InvalidArgument

LETTER_GROUPS_MAX: Final = 1_000
"""Groups in one answer."""
BY_MAX: Final = 8
BY_HEADER: Final = "header:"
BY_REASON: Final = "reason"
BY_ORIGIN: Final = "origin"
BY_HOUR: Final = "hour"
BY_EXCHANGE: Final = "exchange"
BY_KEY: Final = "routing_key"
_KNOWN: Final = (BY_REASON, BY_ORIGIN, BY_HOUR, BY_EXCHANGE, BY_KEY)


class LetterGroup(msgspec.Struct, frozen=True):
    """Messages with the same values.

    values          by what they are grouped, in that order; "": a message has none
    messages        their number, and bytes of bodies
    first_at, last_at  when the first and the last of them entered the queue
    index, ordinal  the place of one of them
    """

    values: Annotated[dict[str, str], seen(column=True)]
    messages: Annotated[int, seen(column=True, amqp="ulong")]
    body_bytes: Annotated[int, seen(column=True, amqp="ulong")]
    first_at: Annotated[int, seen(column=True, amqp="ulong")]
    last_at: Annotated[int, seen(column=True, amqp="ulong")]
    index: Number
    ordinal: Number


class LetterGroups(Result, frozen=True):
    """Groups of the messages that were looked at.

    next     for `after` of the next request, of which the groups are added to these; "": all
             messages were looked at
    looked   messages looked at
    current  False: the leader was not reached, and what it has committed last may be missing
    """

    groups: tuple[LetterGroup, ...]
    next: str
    looked: int
    current: bool


class GroupLettersRequest(SelectingRequest[LetterGroups], frozen=True):
    """Count messages of a queue by what they have in common; 404. Answer: LetterGroups.

    Nothing is taken, and nothing changes. One request looks at a bounded number of messages, and
    says where the next one continues. Without `by` it says how many messages are meant: what a job
    with the same selection would do.

    by      of reason, origin, hour, exchange, routing_key, header:NAME, joined by commas
    states  of ready, held, delayed, claimed, dead, kept, joined by commas; "": all
    after   where to continue, `next` of an earlier answer; "": from the beginning
    """

    ROUTES: ClassVar = (
        route("GET /queues/:queue/letters", body=True, http="/queues/:vhost/:queue/letters"),
    )
    by: Text = ""
    states: Text = "ready"
    after: Text = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """By what messages are grouped."""
        return tuple(self.by.split(",")) if self.by else ()

    def checked(self) -> Self:
        """See the base class."""
        wanted_states(self.states)
        for key in self.keys:
            if key not in _KNOWN and not (key.startswith(BY_HEADER) and key != BY_HEADER):
                known = ", ".join((*_KNOWN, f"{BY_HEADER}NAME"))
                raise InvalidArgument(f"by: {key[:40]!r} is unknown; known: {known}")
        if len(self.keys) > BY_MAX:
            raise InvalidArgument(f"by: {len(self.keys)} keys; at most {BY_MAX} are possible")
        return super().checked()
