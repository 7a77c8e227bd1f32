"""Management of a vhost: declare, show and delete queues, exchanges, bindings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote

import msgspec

from warren.claims import reader_path
from warren.client_connections import ConnectionCalls
from warren.connection import Connection
from warren.definitions import DefinitionCalls
from warren.errors import Conflict, UsageError, WarrenError
from warren.limits import LimitCalls
from warren.membership import MembershipCalls
from warren.policies import PolicyCalls
from warren.shovels import ShovelCalls
from warren.users import UserCalls
from warren_wire.admin.queue_values import (
    DelayedInfo,
    ForgottenSink,
    QueueInfo,
    ReaderInfo,
    SinksInfo,
)

QUEUES_PER_PAGE = 500


Queue: TypeAlias = QueueInfo
Reader: TypeAlias = ReaderInfo


class Admin(
    MembershipCalls,
    UserCalls,
    PolicyCalls,
    LimitCalls,
    DefinitionCalls,
    ShovelCalls,
    ConnectionCalls,
):
    """Management calls over one connection.

    Each raises NotFound, Conflict, AccessRefused, Unavailable. The calls for nodes and the members
    of queues are in `MembershipCalls`, those for users, vhosts and permissions in `UserCalls`,
    those for policies in `PolicyCalls`, those for limits in `LimitCalls`, those for exports,
    imports and parameters in `DefinitionCalls`, those for shovels in `ShovelCalls`, those for
    clients' connections in `ConnectionCalls`.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def overview(self) -> dict[str, Any]:
        """Return the answering node, its cluster and the cluster's nodes."""
        return dict(self.connection.request("GET", "/overview"))

    # -------------------------------------------------------------- queues

    def declare_queue(
        self,
        name: str,
        *,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> Queue:
        """Declare a queue; Conflict when it exists with other settings."""
        body = {
            "durable": durable,
            "exclusive": exclusive,
            "auto_delete": auto_delete,
            "arguments": dict(arguments or {}),
        }
        return _queue(self.connection.request("PUT", _queue_path(name), body))

    def queue(self, name: str) -> Queue:
        """Return one queue; NotFound."""
        return _queue(self.connection.request("GET", _queue_path(name)))

    def queues_named(self, names: Sequence[str]) -> list[Queue | WarrenError]:
        """Return several queues in one round trip; in the place of one why it is not known."""
        asked = [[("GET", _queue_path(name), None)] for name in names]
        return [
            body if isinstance(body, WarrenError) else _queue(body)
            for (body,) in self.connection.request_each(asked)
        ]

    def queues(self, pattern: str = "") -> list[Queue]:
        """Return the queues of the vhost, by name; with zeros for counts that no leader gave.

        pattern  only those with names in which this regular expression is found
        """
        found: list[Queue] = []
        chosen = f"&pattern={quote(pattern, safe='')}" if pattern else ""
        while True:  # one page of the answer
            after = f"&after={quote(found[-1].name, safe='')}" if found else ""
            page = self.connection.request("GET", f"/queues?count={QUEUES_PER_PAGE}{after}{chosen}")
            found += [_queue(body) for body in page]
            if len(page) < QUEUES_PER_PAGE:
                return found

    def delete_queue(
        self, name: str, *, if_unused: bool = False, if_empty: bool = False, force: bool = False
    ) -> int:
        """Delete a queue if it exists; return how many ready messages it had.

        force  without asking the queue, for one that has permanently lost its majority: its
               messages are lost, uncounted. Needs the tag `administrator`; not with the other two
        """
        asked = (("if-unused", if_unused), ("if-empty", if_empty), ("force", force))
        flags = "&".join(f"{flag}=true" for flag, on in asked if on)
        path = _queue_path(name) + (f"?{flags}" if flags else "")
        return int(self.connection.request("DELETE", path)["message_count"])

    def purge_queue(self, name: str) -> int:
        """Drop the ready and delayed messages of a queue; return how many."""
        return int(
            self.connection.request("DELETE", _queue_path(name) + "/messages")["message_count"]
        )

    def retry_delayed(self, name: str) -> int:
        """Return the delayed messages to the queue now; return how many."""
        path = _queue_path(name) + "/messages/delayed/retry"
        return int(self.connection.request("POST", path)["message_count"])

    def delayed_messages(self, name: str, count: int = 100) -> list[DelayedInfo]:
        """Return the delayed messages of a queue that are ready first, at most 500.

        name  of a queue, or `amq.delayed.` and the name of an exchange of type x-delayed-message
        """
        found = self.connection.request(
            "GET", f"{_queue_path(name)}/messages/delayed?count={count}"
        )
        return [msgspec.convert(one, DelayedInfo) for one in found]

    def drop_delayed(self, name: str, message: str) -> None:
        """Drop the delayed message with that id; NotFound when it is not delayed."""
        path = f"{_queue_path(name)}/messages/delayed/{quote(message, safe='')}"
        self.connection.request("DELETE", path)

    def retry_delayed_message(self, name: str, message: str) -> None:
        """Make the delayed message with that id ready now; NotFound when it is not delayed."""
        path = f"{_queue_path(name)}/messages/delayed/{quote(message, safe='')}/retry"
        self.connection.request("POST", path)

    # -------------------------------------------------------------- exchanges and bindings

    def declare_exchange(
        self,
        name: str,
        kind: str = "direct",
        *,
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Declare an exchange; Conflict when it exists with other settings."""
        self.connection.request(
            "PUT",
            f"/exchanges/{quote(name, safe='')}",
            {
                "type": kind,
                "durable": durable,
                "auto_delete": auto_delete,
                "internal": internal,
                "arguments": dict(arguments or {}),
            },
        )

    def delete_exchange(self, name: str, *, if_unused: bool = False) -> None:
        """Delete an exchange if it exists."""
        flag = "?if-unused=true" if if_unused else ""
        self.connection.request("DELETE", f"/exchanges/{quote(name, safe='')}{flag}")

    def exchanges(self) -> list[dict[str, Any]]:
        """Return all exchanges of the vhost, by name."""
        return [dict(body) for body in self.connection.request("GET", "/exchanges")]

    def bind(
        self,
        source: str,
        *,
        queue: str | None = None,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Bind a queue (or an exchange) to the exchange `source`."""
        body = {"source": source, "binding_key": routing_key, "arguments": dict(arguments or {})}
        body.update(_destination(queue, exchange))
        self.connection.request("POST", "/bindings", body)

    def unbind(
        self,
        source: str,
        *,
        queue: str | None = None,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Undo `bind`; harmless when there is no such binding."""
        wanted = dict(arguments or {})
        for body in self.bindings(
            source=source, queue=queue, exchange=exchange, routing_key=routing_key
        ):
            if dict(body["arguments"]) == wanted:
                self.connection.request("DELETE", body["location"])

    def bindings(
        self,
        *,
        source: str | None = None,
        queue: str | None = None,
        exchange: str | None = None,
        routing_key: str | None = None,
    ) -> list[dict[str, Any]]:
        """Return the bindings that match; None: any."""
        asked = {"src": source, "dstq": queue, "dste": exchange, "key": routing_key}
        query = "&".join(
            f"{key}={quote(value, safe='')}" for key, value in asked.items() if value is not None
        )
        return [dict(body) for body in self.connection.request("GET", f"/bindings?{query}")]

    # -------------------------------------------------------------- claims, by an operator

    def readers(self, queue: str) -> tuple[Reader, ...]:
        """Return the queue's claim readers."""
        return self.queue(queue).readers

    def settle_claims(self, queue: str, reader: str, number: int) -> int:
        """Settle a reader's claims up to `number`; return the number of messages."""
        body = {"epoch": self._current_epoch(queue, reader), "number": number}
        return int(
            self.connection.request("POST", reader_path(queue, reader) + "/settle", body)[
                "messages"
            ]
        )

    def release_claims(
        self,
        queue: str,
        reader: str,
        number: int = 0,
        *,
        failed: bool = False,
        undecided: bool = False,
    ) -> int:
        """Release a reader's claim (0: all, and forget the reader); return the message count.

        One that a batch settles is settled when the batch was published; see `ClaimReader.release`.
        """
        body = {"epoch": -1, "number": number, "failed": failed, "undecided": undecided}
        return int(
            self.connection.request("POST", reader_path(queue, reader) + "/release", body)[
                "messages"
            ]
        )

    def sinks(self, queue: str, sink: str = "", run: str = "", count: int = 100) -> SinksInfo:
        """Return what a queue remembers of sinks, those that published into it last first.

        sink, run  only those of that name; "": all
        count      of runs, at most 500
        """
        asked = f"sink={quote(sink, safe='')}&run={quote(run, safe='')}&count={count}"
        found = self.connection.request("GET", f"{_queue_path(queue)}/sinks?{asked}")
        return msgspec.convert(found, SinksInfo)

    def forget_sink(
        self, queue: str, sink: str, run: str = "", *, force: bool = False
    ) -> ForgottenSink:
        """Have a queue forget a sink's runs: their epochs, batches and stages.

        A batch that is published after that is a new run's, whatever its number: one that was
        published before is published again. So it is for sinks that will not come back, or begin
        with a new checkpoint. Raises Conflict while attempts at a batch are staged.

        run    only this one; "": all
        force  drop what is staged; a driver that still publishes it gets StageLost
        """
        asked = f"run={quote(run, safe='')}&force={'true' if force else 'false'}"
        path = f"{_queue_path(queue)}/sinks/{quote(sink, safe='')}?{asked}"
        found = self.connection.request("DELETE", path)
        return msgspec.convert(found, ForgottenSink)

    def release_relay(self, queue: str, relay: str) -> int:
        """Make ready what a queue keeps for a shovel or link that is away; return how much.

        What it had published without a confirm may be at its destination, too, and is then in the
        world twice: so it is for one that does not come back. Raises Conflict while it is
        connected. 0: the queue keeps nothing for that name.

        relay  as `QueueInfo.relays` names it
        """
        path = f"{_queue_path(queue)}/relays/release"
        return int(self.connection.request("POST", path, {"relay": relay})["messages"])

    def _current_epoch(self, queue: str, reader: str) -> int:
        """Return the epoch of the driver on behalf of which an operator acts."""
        for known in self.readers(queue):
            if known.name == reader:
                return known.epoch
        raise Conflict(
            f"queue {queue!r} has no reader {reader!r}; see `warren claims list {queue}`"
        )


def _queue_path(name: str) -> str:
    """Return the path of a queue's requests."""
    if not name:
        raise UsageError("a queue's name must not be empty")
    return f"/queues/{quote(name, safe='')}"


def _destination(queue: str | None, exchange: str | None) -> dict[str, str]:
    """Return a binding's destination."""
    if (queue is None) == (exchange is None):
        raise UsageError(
            f"bind to queue={queue!r}, exchange={exchange!r}: give exactly one of them"
        )
    return (
        {"destination_queue": queue}
        if queue is not None
        else {"destination_exchange": str(exchange)}
    )


def _queue(body: Mapping[str, Any]) -> Queue:
    """Convert a reply's body to a Queue; keys that this version does not know are ignored."""
    known = {key: value for key, value in body.items() if value is not None}
    return msgspec.convert({**known, "by_priority": dict(known.get("by_priority", ()))}, Queue)
