"""Makes this process a program of the version after this one; see the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from warren_raft import versions

HERE = Path(__file__).parent
NEXT = versions.NEWEST + 1
FRAME = 4
"""The kind of a frame that such a program sends with its heartbeats."""


def install() -> None:
    """Change what that version changes; before the broker is imported."""
    vars(versions).update(NEWEST=NEXT, OWN=versions.Versions(versions.OLDEST, NEXT))
    _files()
    _frames()
    _queue()
    _metadata()
    _requests()


def _files() -> None:
    """A snapshot of that version is in a file that says so, and ends with a word of its own."""
    from warren_raft.storage import snapshot
    from warren_raft.storage.format import OtherVersion
    from warren_raft.storage.framed_file import seal, unseal

    encode, decode, end = snapshot.encode, snapshot.decode, b"remarks"

    def encoded(value: snapshot.Snapshot) -> bytes:
        if value.version < NEXT:
            return encode(value)
        return seal(snapshot.MAGIC, NEXT, [msgspec.msgpack.encode(value), end])

    def decoded(file: Any) -> snapshot.Snapshot:
        try:
            return decode(file)
        except OtherVersion:
            payload = unseal(snapshot.MAGIC, NEXT, file)
            assert payload[-len(end) :] == end
            return decode(seal(snapshot.MAGIC, snapshot.VERSION, [payload[: -len(end)]]))

    vars(snapshot).update(encode=encoded, decode=decoded)


def _frames() -> None:
    """A link of that version carries a frame that ends a connection of this version."""
    from warren_raft.runtime.net import codec, connection

    beat, take = connection.PeerConnection.send_heartbeat, connection.PeerConnection._take

    def send_heartbeat(self: connection.PeerConnection) -> None:
        if self.version >= NEXT:
            self.stream.send(codec.frame(FRAME, b"of that version"))
        beat(self)

    def taken(self: connection.PeerConnection, kind: int, body: memoryview) -> None:
        if kind == FRAME and self.version >= NEXT:
            return
        take(self, kind, body)

    connection.PeerConnection.send_heartbeat = send_heartbeat  # type: ignore[method-assign]
    connection.PeerConnection._take = taken  # type: ignore[method-assign]


def with_command(submission: type[msgspec.Struct], added: type) -> msgspec.msgpack.Decoder[Any]:
    """Return the decoder of submissions that may have one more kind of command."""
    fields = []
    for field in msgspec.structs.fields(submission):
        kind = field.type
        if field.name == "commands":
            (commands, _) = kind.__args__
            kind = tuple[commands | added, ...]  # type: ignore[valid-type]
        needed = field.default is msgspec.NODEFAULT
        fields.append((field.name, kind) if needed else (field.name, kind, field.default))
    made = msgspec.defstruct("Submission", fields, frozen=True, array_like=True)
    return msgspec.msgpack.Decoder(made)


def with_part(module: Any, write: str, read: str, part: str) -> None:
    """Give a machine's snapshot one more part at its end, in the form of that version."""
    written, restored = getattr(module, write), getattr(module, read)

    def snapshot(state: Any) -> bytes:
        data: bytes = written(state)
        if state.version < NEXT:
            return data
        return msgspec.msgpack.encode([*msgspec.msgpack.decode(data), getattr(state, part)])

    def restore(data: bytes) -> Any:
        state = restored(data)
        if state.version >= NEXT:
            setattr(state, part, msgspec.msgpack.decode(data)[-1])
        return state

    setattr(module, write, snapshot)
    setattr(module, read, restore)


def _queue() -> None:
    from upgrade.variant.commands import Remark
    from warren_machines.queue import codec, commands, machine, queue_snapshot
    from warren_machines.queue.state import QueueState

    class RemarkedQueue(QueueState):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.remarks: list[str] = []

    def remark(context: Any, command: Remark) -> commands.Done:
        context.state.remarks.append(command.text)
        return commands.Done()

    machine.HANDLERS[Remark] = remark  # type: ignore[index]
    vars(codec).update(_DECODER=with_command(commands.Submission, Remark))
    for module in (machine, queue_snapshot):
        vars(module).update(QueueState=RemarkedQueue)
    with_part(queue_snapshot, "snapshot", "restore", "remarks")


def _metadata() -> None:
    from upgrade.variant.commands import Note
    from warren_machines.metadata import codec, commands, image, machine
    from warren_machines.metadata.state import MetadataState

    class NotedState(MetadataState):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.notes: list[str] = []

    def note(context: Any, command: Note) -> commands.MetadataDone:
        context.state.notes.append(command.text)
        return commands.MetadataDone()

    machine.HANDLERS[Note] = note
    vars(codec).update(_SUBMISSIONS=with_command(commands.MetadataSubmission, Note))
    for module in (machine, image):
        vars(module).update(MetadataState=NotedState)
    with_part(image, "to_bytes", "from_bytes", "notes")


def _requests() -> None:
    """Requests as everywhere: modules in the folders of requests and of their handlers."""
    import warren_broker.admin
    import warren_wire.admin

    warren_wire.admin.__path__.append(str(HERE / "wire_admin"))
    warren_broker.admin.__path__.append(str(HERE / "broker_admin"))
