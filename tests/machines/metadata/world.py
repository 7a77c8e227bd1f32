"""A metadata machine with a log in memory, as one node's client would see it."""

from __future__ import annotations

from typing import Any

from warren_machines.metadata import commands
from warren_machines.metadata.changes import Change, DefinitionEvent
from warren_machines.metadata.codec import encode_submission
from warren_machines.metadata.machine import MetadataMachine
from warren_machines.metadata.records import QueueRecord, User, Vhost
from warren_raft.machine import Meta
from warren_raft.versions import FIRST, NEWEST, Versions
from warren_wire.arguments import QueueDefaults, queue_declaration

NODES = ("a", "b", "c")
UPLINK = 71


class World:
    """Applies commands as node `a`, keeps the log, checks the state after every entry.

    changes, events  effects of the last entry
    """

    def __init__(self, bootstrap: bool = True) -> None:
        self.machine = MetadataMachine()
        self.state = self.machine.init()
        self.log: list[bytes] = []
        self.changes: list[Change] = []
        self.events: list[DefinitionEvent] = []
        self.seqs: dict[int, int] = {}
        if bootstrap:
            self.do(commands.Bootstrap(Vhost("/"), User("guest", "hash", ("administrator",))))

    def entry(self, data: bytes) -> Any:
        """Apply one entry; its reply."""
        self.log.append(data)
        applied = self.machine.apply(Meta(len(self.log), 1, 1000), data, self.state)
        self.state.check()
        effects = applied.effects
        self.changes = [one for one in effects if not isinstance(one, DefinitionEvent)]
        self.events = [one for one in effects if isinstance(one, DefinitionEvent)]
        return applied.reply

    def submit(
        self,
        *some: commands.AnyCommand,
        uplink: int = UPLINK,
        node: str = "a",
        seq: int | None = None,
    ) -> commands.MetadataSubmissionReply:
        """Apply a submission, the next of its uplink unless `seq` is given."""
        if seq is None:
            seq = self.seqs[uplink] = self.seqs.get(uplink, 0) + 1
        return self.entry(encode_submission(uplink, node, seq, some, NEWEST))

    def do(self, command: commands.AnyCommand, uplink: int = UPLINK, node: str = "a") -> Any:
        """Apply one command; its reply, or its refusal raised."""
        (reply,) = self.submit(command, uplink=uplink, node=node).replies
        if isinstance(reply, commands.MetadataRefused):
            raise commands.to_refusal(reply)
        return reply

    def declare(
        self,
        name: str,
        *,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: dict[str, Any] | None = None,
        connection: int = 1,
        server_named: bool = False,
        uplink: int = UPLINK,
        node: str = "a",
        nodes: tuple[str, ...] = ("a",),
    ) -> QueueRecord:
        """Declare a queue; the queue."""
        declaration = queue_declaration(
            "/",
            name,
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            arguments=arguments or {},
            defaults=QueueDefaults(),
        )
        command = commands.DeclareQueue(
            declaration.config,
            declaration.arguments,
            nodes,
            nodes[0],
            connection,
            server_named,
            by_default=declaration.by_default,
        )
        return self.do(command, uplink, node).queue

    def exchange(self, name: str, kind: str = "direct", **more: Any) -> None:
        """Declare an exchange."""
        self.do(commands.DeclareExchange("/", name, kind, **more))

    def bind(self, source: str, destination: str, routing_key: str = "", **more: Any) -> None:
        """Bind a queue, or an exchange with to_queue=False."""
        to_queue = more.pop("to_queue", True)
        self.do(commands.Bind("/", source, destination, to_queue, routing_key, **more))

    def unbind(self, source: str, destination: str, routing_key: str = "", **more: Any) -> None:
        """Remove a binding of a queue, or of an exchange with to_queue=False."""
        to_queue = more.pop("to_queue", True)
        self.do(commands.Unbind("/", source, destination, to_queue, routing_key, **more))


def start(
    world: World,
    node: str,
    life: int,
    disk: int,
    address: str = "",
    versions: Versions = FIRST,
) -> None:
    """Submit the first command of a node's life: it started, with that disk."""
    address = address or f"{node}:1"
    world.seqs.pop(life, None) if life != UPLINK else None
    started = commands.NodeStarted(node, life, disk, address, versions=versions)
    world.do(started, uplink=life, node=node)


def with_nodes(nodes: str) -> World:
    """Make a world with nodes of lives 71, 72 … and disks 101, 102 …"""
    made = World()
    for number, node in enumerate(nodes):
        start(made, node, 71 + number, 101 + number)
    return made
