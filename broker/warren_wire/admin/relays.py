"""What a queue keeps for relays (shovels, federation links), and the request about it.

The relays themselves are shown with their queue (`queues.RelayInfo`).
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

from warren_wire.admin.queues import QueueRequest
from warren_wire.admin.requests import route
from warren_wire.errors import InvalidArgument


class ReleaseRelayRequest(QueueRequest[int], frozen=True):
    """Make ready what a queue keeps for a shovel or link that is away; return how much.

    What it had published without a confirm may be at its destination, too, and is then in the world
    twice: so it is for one that does not come back. 0: the queue keeps nothing for that name.
    Answer: MessagesCounted; 404; 409 while it is connected (`queue.relay_commands.ReleaseRelay`).

    relay  as `QueueInfo.relays` names it; it may be longer than other names
    """

    ROUTES: ClassVar = (route("POST /queues/:queue/relays/release"),)
    relay: Any = ""

    def checked(self) -> Self:
        """See the base class."""
        if not isinstance(self.relay, str) or not self.relay:
            raise InvalidArgument("relay: a string is expected, its name as the queue shows it")
        return self
