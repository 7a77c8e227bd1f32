"""Messages for groups that this node has not started yet."""

from __future__ import annotations

from collections import OrderedDict

from warren_raft.messages import AnyRaftMessage, Append, SnapshotChunk
from warren_raft.types import GroupId, NodeId

GROUPS_MAX = 4096
GROUP_MESSAGES_MAX = 8
"""Per group; a new group's first candidate and leader say less than that."""


class EarlyMessages:
    """The first few messages per group, oldest groups out first.

    A new group's preferred member campaigns as soon as it knows the group, perhaps before
    the others have: without this its request for votes would be lost, and the group would wait for
    an election timeout. All of them may be lost: Raft asks again.
    Bounds: GROUPS_MAX groups, GROUP_MESSAGES_MAX messages each, none with entries.
    """

    def __init__(self) -> None:
        self._groups: OrderedDict[GroupId, list[AnyRaftMessage]] = OrderedDict()

    def add(self, message: AnyRaftMessage) -> None:
        """Keep it if there is room; entries are worth waiting a retransmission for."""
        if type(message) is SnapshotChunk:
            return  # it is offered again
        if type(message) is Append and message.entries:
            message = message.without_entries()
        messages = self._groups.setdefault(message.group, [])
        if len(messages) < GROUP_MESSAGES_MAX:
            messages.append(message)
        while len(self._groups) > GROUPS_MAX:
            self._groups.popitem(last=False)

    def forget(self, node: NodeId) -> None:
        """Nothing that came from that node counts any more."""
        for group, messages in list(self._groups.items()):
            messages[:] = [message for message in messages if message.sender != node]
            if not messages:
                del self._groups[group]

    def take(self, group: GroupId) -> list[AnyRaftMessage]:
        """What waits for that group; it waits no longer."""
        return self._groups.pop(group, [])
