"""The header in which federated messages carry the queues that they were fetched from."""

from __future__ import annotations

from typing import Any, Final

RECEIVED_FROM: Final = "x-received-from"
VISITS: Final = "visit-count"


def travelled(before: Any, uri: str, queue: str, redelivered: bool) -> list[Any]:
    """Return the header's value after another hop, the latest first.

    before  the value that the message has; whatever is no list of tables is replaced
    uri     of the upstream, without user and password

    Each upstream queue has one entry, so that the header of a message that moves to and fro stays
    as short as the number of queues.
    """
    entries = [one for one in before if isinstance(one, dict)] if isinstance(before, list) else []
    visits, others = 0, []
    for entry in entries:
        if (entry.get("uri"), entry.get("queue")) == (uri, queue):
            counted = entry.get(VISITS)
            visits += counted if isinstance(counted, int) else 1
        else:
            others.append(entry)
    latest = {"uri": uri, "queue": queue, "redelivered": redelivered, VISITS: visits + 1}
    return [latest, *others]
