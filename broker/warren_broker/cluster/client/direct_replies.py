"""Direct reply-to: messages sent to a connection without a queue."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

from warren_broker.cluster import messages
from warren_broker.cluster.cluster import Cluster
from warren_wire.block.block import Block
from warren_wire.kernel import MessageTable, Selection, assemble, load_block

REPLY_PREFIX = "amq.rabbitmq.reply-to."
Take = Callable[[MessageTable, int], None]
"""Receives a message for the name with which it was opened: its table and position."""


class DirectReplies:
    """The reply names of this node's clients; a name contains the node that has it.

    Replies are lost when their consumer has ended, as the protocol allows.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._takers: dict[str, Take] = {}
        cluster.handlers[messages.ReplyFor] = self._on_reply_for

    def open(self, name: str, take: Take) -> None:
        """Deliver what is published to that name to `take`."""
        self._takers[name] = take

    def close(self, name: str) -> None:
        """Stop delivering to that name."""
        self._takers.pop(name, None)

    def exists(self, name: str) -> bool:
        """Return whether a consumer may exist: known here, assumed on another reachable node."""
        if not name.startswith(REPLY_PREFIX):
            return False
        node = node_of(name)
        if node == self._cluster.host.node_id:
            return name in self._takers
        host = self._cluster.host
        return node is not None and host.connected(node) and not host.suspected(node)

    def publish(self, name: str, selection: Selection) -> bool:
        """Deliver messages to a reply name; return False when it has no consumer."""
        node = node_of(name)
        if node == self._cluster.host.node_id:
            return self._take(name, selection.table, list(selection))
        if node is None:
            return False
        data = assemble([selection])
        message = messages.ReplyFor(name, len(data))
        return self._cluster.host.send(node, messages.encode(message, data))

    def _take(self, name: str, table: MessageTable, positions: list[int]) -> bool:
        take = self._takers.get(name)
        if take is None:
            return False
        for i in positions:
            take(table, i)
        return True

    def _on_reply_for(self, node: str, message: messages.ReplyFor, rest: memoryview) -> None:
        (data,) = messages.cut(rest, (message.length,))
        table = load_block(Block.decode(bytes(data)))
        self._take(message.name, table, list(range(table.count)))


def node_of(name: str) -> str | None:
    """Return the node of a reply name; None when the name is malformed."""
    encoded = name.rpartition(".")[2]
    try:
        return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
