"""Messages for groups that this node has not started yet."""

from __future__ import annotations

from collections import OrderedDict

from warren_raft.messages import AnyRaftMessage, Append, SnapshotChunk
from warren_raft.types import GroupId, NodeId

GROUPS_MAX = 4096
GROUP_MESSAGES_MAX = 8
"""Per group; a new group's first candidate and leader send fewer."""


class EarlyMessages:
    """The first few messages per group; the oldest groups are dropped first.

    A new group's preferred member campaigns as soon as it has started, perhaps before the others
    have: without this buffer its request for votes would be lost, and the group would wait for an
    election timeout. Any of the messages may be lost: Raft repeats them.
    Bounds: GROUPS_MAX groups, GROUP_MESSAGES_MAX messages each, none with entries.
    """

    def __init__(self) -> None:
        self._groups: OrderedDict[GroupId, list[AnyRaftMessage]] = OrderedDict()

    def add(self, message: AnyRaftMessage) -> None:
        """Keep a message if there is room; those with entries are left to retransmission."""
        if type(message) is SnapshotChunk:
            return  # the offer is repeated
        if type(message) is Append and message.entries:
            message = message.without_entries()
        messages = self._groups.setdefault(message.group, [])
        if len(messages) < GROUP_MESSAGES_MAX:
            messages.append(message)
        while len(self._groups) > GROUPS_MAX:
            self._groups.popitem(last=False)

    def forget(self, node: NodeId) -> None:
        """Drop every message from that node."""
        for group, messages in list(self._groups.items()):
            messages[:] = [message for message in messages if message.sender != node]
            if not messages:
                del self._groups[group]

    def take(self, group: GroupId) -> list[AnyRaftMessage]:
        """Remove and return that group's messages."""
        return self._groups.pop(group, [])
