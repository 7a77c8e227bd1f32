"""What clients without a login can take of a node: places of sockets, and logins under way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from warren_broker.config import Limits
from warren_raft.address_shares import AddressShares
from warren_raft.runtime.address_turns import AddressTurns
from warren_raft.runtime.loop import Loop
from warren_raft.runtime.open_files import SocketBound
from warren_wire import errors

PATIENCE_MS: Final = 2_000
"""How long a socket keeps its place before the login while others of its address want it. TLS
handshakes of a share take less than that in the time that a turn has for them."""
WAITING_PER_PLACE: Final = 4
"""Sockets that wait, for each one that may be read before its login."""
FILES_PER_PLACE: Final = 4
"""Files of connections for each place before the login: few files leave most to known clients."""
LOGINS_MAX: Final = 1 << 20
"""All addresses together: a turn of the loop has its bound (`address_turns.BEGINS_MAX`)."""
NEVER_MS: Final = 1 << 60


class Strangers:
    """The places of sockets before their login, and the turns of logins.

    connections  of both ports for clients
    logins       over AMQP; a wrong one is under way until its answer, a second later
    reported     the counts of the HTTP API's process, which has its own
    """

    def __init__(self, loop: Loop, limits: Limits) -> None:
        bound = SocketBound(for_clients=True)
        most = bound.end // FILES_PER_PLACE if bound.limit >= 0 else limits.connections_max
        places = max(1, min(limits.unauthenticated_max, most))
        waiting = max(1, min(WAITING_PER_PLACE * places, most))
        share = min(limits.unauthenticated_per_address_max, places)
        self.connections = AddressTurns(
            "connections before their login",
            loop,
            loop.clock,
            AddressShares(share, places, waiting, PATIENCE_MS),
            limits.handshake_timeout_ms,
        )
        self.reported: dict[str, tuple[int, int, int, int]] = {}
        self.logins = AddressTurns(
            "logins",
            loop,
            loop.clock,
            AddressShares(limits.logins_per_address_max, LOGINS_MAX, places + waiting, NEVER_MS),
            limits.handshake_timeout_ms,
        )

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        """Return of each the numbers with a place, waiting, refused and evicted."""
        turns = {"connections": self.connections, "logins": self.logins}
        return {**{what: one.counts() for what, one in turns.items()}, **self.reported}


@dataclass(eq=False, repr=False, slots=True)
class WaitingLogin:
    """A login that waits for its turn, then is under way until it is answered.

    host   the client's address
    check  begins the check; it calls `Strangers.logins.end` with this
    gone   whether the client has hung up meanwhile
    done   called instead with Unavailable when too many wait
    """

    _turns: AddressTurns
    host: str
    _check: Callable[[WaitingLogin], None]
    _gone: Callable[[], bool]
    _done: Callable[[errors.Refusal], None]

    def begin(self) -> None:
        """See `Newcomer`."""
        if self._gone():
            self._turns.end(self)
        else:
            self._check(self)

    def turn_away(self, reason: str) -> None:
        """See `Newcomer`."""
        self._done(errors.Unavailable(reason))
