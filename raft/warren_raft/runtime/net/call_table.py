"""When a node calls a peer, and when it waits to be called: a table of states and events.

No sockets and no clock: `transport` reports what happened and carries out what is returned.
"""

from __future__ import annotations

from enum import Enum, auto


class LinkState(Enum):
    """The established connection with the peer."""

    DOWN = auto()
    UP = auto()
    SILENT = auto()  # established, and the peer is suspected: it is replaced if a call succeeds


class CallState(Enum):
    """The one attempt to make a connection."""

    NONE = auto()
    WAITING = auto()  # until the next call is due
    CONNECTING = auto()  # this side calls; there is no socket yet
    CALLING = auto()  # this side's call is in its handshake
    CALLED = auto()  # the peer's call is proven and not complete


class Event(Enum):
    """What has happened."""

    DUE = auto()  # a call is due
    MOVED = auto()  # its address has changed
    CONNECTED = auto()  # the socket of this side's call is connected
    FAILED = auto()  # the attempt has ended without a connection
    PROVEN = auto()  # a call of the peer has proven that it is the peer's
    ESTABLISHED = auto()  # a handshake is complete, whichever side called
    LOST = auto()  # there is no established connection: it has ended, or the peer is new
    SUSPECTED = auto()  # it has been silent for too long
    HEARD = auto()  # it is no longer silent


class Act(Enum):
    """What the transport must do, in the order given."""

    DROP = auto()  # abort this side's attempt: timer, connector, call
    CONNECT = auto()
    GREET = auto()  # begin the handshake on the connected socket
    WAIT = auto()  # call later
    REFUSE = auto()  # end the peer's call: this side's continues
    END = auto()  # end the silent connection: the peer is the one that calls


CONNECT_NOW = (CallState.CONNECTING, (Act.CONNECT,))
CONNECT_ANEW = (CallState.CONNECTING, (Act.DROP, Act.CONNECT))
ENDED = (CallState.NONE, (Act.DROP,))
AGAIN = (CallState.WAITING, (Act.WAIT,))
ACCEPT = (CallState.CALLED, (Act.DROP,))
Row = tuple[CallState, tuple[Act, ...]]

FIRST: dict[tuple[CallState, Event], Row] = {
    (CallState.NONE, Event.DUE): CONNECT_NOW,
    (CallState.WAITING, Event.DUE): CONNECT_NOW,
    (CallState.NONE, Event.MOVED): CONNECT_NOW,
    (CallState.WAITING, Event.MOVED): CONNECT_ANEW,
    (CallState.CONNECTING, Event.MOVED): CONNECT_ANEW,
    (CallState.CONNECTING, Event.CONNECTED): (CallState.CALLING, (Act.GREET,)),
    (CallState.CONNECTING, Event.FAILED): AGAIN,
    (CallState.CALLING, Event.FAILED): AGAIN,
    (CallState.CALLED, Event.FAILED): AGAIN,
    (CallState.NONE, Event.PROVEN): ACCEPT,
    (CallState.WAITING, Event.PROVEN): ACCEPT,
    (CallState.CONNECTING, Event.PROVEN): ACCEPT,
    (CallState.CALLING, Event.PROVEN): (CallState.CALLING, (Act.REFUSE,)),
    (CallState.CALLED, Event.PROVEN): ACCEPT,
    **{(attempt, Event.ESTABLISHED): ENDED for attempt in CallState},
    (CallState.NONE, Event.LOST): AGAIN,
    (CallState.NONE, Event.SUSPECTED): CONNECT_NOW,
    # 1. The connection was silent, and a call beside it is in its handshake.  2. The peer speaks:
    # the call continues.  3. The peer is silent again: that call may still replace the connection,
    # so there is no second one.  Replayed by tests/raft/runtime/test_stutter.py
    (CallState.CALLING, Event.SUSPECTED): (CallState.CALLING, ()),
    (CallState.WAITING, Event.HEARD): ENDED,
    (CallState.CONNECTING, Event.HEARD): ENDED,
}
"""Of the node with the first name of the two. A pair that is missing changes nothing."""

SECOND: dict[tuple[CallState, Event], Row] = {
    **{pair: row for pair, row in FIRST.items() if pair[1] is not Event.PROVEN},
    **{(attempt, Event.SUSPECTED): (attempt, (Act.END,)) for attempt in CallState},
}
"""Of the other one: it accepts every call of the first, whatever it does itself."""

LINKS: dict[tuple[LinkState, Event], LinkState] = {
    **{(link, Event.ESTABLISHED): LinkState.UP for link in LinkState},
    **{(link, Event.LOST): LinkState.DOWN for link in LinkState},
    (LinkState.UP, Event.SUSPECTED): LinkState.SILENT,
    (LinkState.SILENT, Event.HEARD): LinkState.UP,
}
UNWANTED: dict[Event, tuple[LinkState, ...]] = {
    Event.DUE: (LinkState.UP,),
    Event.MOVED: (LinkState.UP, LinkState.SILENT),
    Event.SUSPECTED: (LinkState.DOWN,),
    Event.HEARD: (LinkState.DOWN,),
}
"""Events that change nothing while the link is in one of these states."""


class Calls:
    """What one side does about its connection with one peer.

    first  this node's name sorts before the peer's: of two calls at once, this side's continues
    Invariants: one attempt at a time;  none is WAITING or CONNECTING while the link is UP
    """

    __slots__ = ("_table", "attempt", "link")

    def __init__(self, first: bool) -> None:
        self.link = LinkState.DOWN
        self.attempt = CallState.NONE
        self._table = FIRST if first else SECOND

    def step(self, event: Event) -> tuple[Act, ...]:
        """Note an event, and return what must be done."""
        if self.link in UNWANTED.get(event, ()):
            return ()
        self.link = LINKS.get((self.link, event), self.link)
        row = self._table.get((self.attempt, event))
        if row is None:
            return ()
        if row is AGAIN and self.link is LinkState.UP:
            row = (CallState.NONE, ())  # a call beside a connection that is no longer silent
        self.attempt, acts = row
        return acts

    def check(self) -> None:
        """Check the invariant."""
        idle = self.attempt not in (CallState.WAITING, CallState.CONNECTING)
        assert self.link is not LinkState.UP or idle, (self.link, self.attempt)
