"""Damaged streams of frames: what a client sends, with frames changed, lost, doubled, out of order.

`python -m tests.broker.clients10.stream_fuzz FIRST SECONDS` runs seeds from FIRST on, and prints
each kind of fault once with its seed; with 0 SECONDS it replays that seed alone.
"""

from __future__ import annotations

import random
import struct
import sys
import time
import traceback
from typing import Any, Final

from proton import (
    UNDESCRIBED,
    Array,
    Data,
    Delivery,
    Described,
    Link,
    Message,
    Terminus,
    symbol,
    ulong,
)

from tests.broker.clients10.test_connection import Client, attach_management, new, output, send
from warren_broker.clients10 import connection_requests, link_requests
from warren_broker.clients10.connection import Connection10
from warren_broker.clients10.filter_set import PROPERTIES_FILTER, SQL_FILTER
from warren_machines.queue.commands import Delivery as Run
from warren_wire import errors
from warren_wire.block.block import Block, encode
from warren_wire.queue_values.command_base import QueueCommand

CONSUMER = 7
BLOCK = Block.decode(encode([b"late" * 5, b"x"], [b"", b""], (b"", b"q"), 4, None))
RUN = Run(0, 1, 0, 1)
ANSWERS: Final[dict[type, Any]] = {
    connection_requests.Login: connection_requests.LoggedIn(),
    connection_requests.OpenVhost: connection_requests.VhostOpened("n", "c"),
    link_requests.Consume: link_requests.Consuming(CONSUMER),
    link_requests.OpenTarget: link_requests.TargetOpened(),
    link_requests.OpenReplies: link_requests.RepliesOpened("amq.rabbitmq.reply-to.x"),
    link_requests.DeclareTemporary: link_requests.TemporaryDeclared("amq.dyn-x"),
}
FILTERS: Final[dict[Any, Any]] = {
    symbol("p"): Described(
        symbol(PROPERTIES_FILTER), {symbol("subject"): "&p:ab", symbol("to"): 5}
    ),
    symbol("a"): Described(ulong(0x174), {"k": None, "b": b"\xff", "f": 2.5, "n": -1}),
    symbol("s"): Described(
        symbol(SQL_FILTER), "k IN (1, 'a') AND p.subject LIKE '%_b' OR n * 2 > 3"
    ),
    symbol("j"): Described(
        ulong(0x0000468C00000004), "JMSPriority > 3 and name like 'x!%' escape '!'"
    ),
    symbol("other"): Described(symbol("apache.org:no-local-filter:list"), []),
}
PIECES: Final = tuple(
    bytes((number,)) for number in b"\x00\xff\x7f\x80\x43\x40\xc0\xd0\xe0\xf0\x45\xa1\xb1\x9c"
) + (b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x00\x53")
"""Bytes that mean something to a decoder: sizes, counts, constructors."""


def recorded() -> list[bytes]:
    """Return the frames of a client that uses every kind of link for single messages."""
    client = Client(new())
    client.answers.update(ANSWERS)
    taken: list[bytes] = []
    take = client.connection.receive

    def receive(data: bytes | bytearray | memoryview) -> None:
        taken.append(bytes(data))
        take(data)

    client.connection.receive = receive  # type: ignore[method-assign]
    client.turn()
    receiver = client.session.receiver("r")
    receiver.source.address = "/queues/q"
    receiver.properties = {symbol("rabbitmq:priority"): 3}
    receiver.source.filter.put_dict(FILTERS)
    receiver.open()
    client.turn()
    receiver.flow(10)
    client.turn()
    client.connection.deliver(CONSUMER, RUN, BLOCK)
    client.turn()
    while (delivery := receiver.current) is not None:
        receiver.recv(delivery.pending)
        receiver.advance()
        nested: list[Any] = [{"k": Array(UNDESCRIBED, Data.INT, 1, 2)}, Described(symbol("d"), "b")]
        delivery.local.annotations = {symbol("x-opt-delivery-time"): 5, symbol("x-a"): nested}
        delivery.local.failed = True
        delivery.update(Delivery.MODIFIED)
        delivery.settle()
    receiver.drain(5)
    client.turn()
    sender = client.session.sender("s")
    sender.target.address = "/exchanges/x/k"
    sender.open()
    client.turn()
    send(sender, Message(body=b"b" * 3000, id=1, properties={"k": [1, {"a": 1}]}).encode())
    send_alike(sender)
    send_aborted(client, sender)
    anonymous = client.session.sender("a")
    anonymous.open()
    client.turn()
    send(anonymous, Message(address="/queues/q", annotations={symbol("x-a"): 1}).encode())
    replies = client.session.receiver("v")
    replies.source.dynamic = True
    replies.source.expiry_policy = Terminus.EXPIRE_WITH_LINK
    named = Array(UNDESCRIBED, Data.SYMBOL, symbol("rabbitmq:volatile-queue"))
    replies.source.capabilities.put_object(named)
    replies.snd_settle_mode = Link.SND_SETTLED
    replies.open()
    requests, _ = attach_management(client)
    send(requests, Message(id=1, address="/queues", subject="GET").encode())
    end(client, anonymous, receiver)
    return frames(b"".join(taken))


def end(client: Client, closed: Any, detached: Any) -> None:
    """End links, another session and the connection."""
    second = client.engine.connection.session()
    second.open()
    client.turn()
    second.close()
    closed.close()
    detached.detach()
    client.turn()
    client.engine.connection.close()
    client.turn()


def send_alike(sender: Any) -> None:
    """Send messages that are alike up to their bodies."""
    for body in (b"", b"c", b"d" * 300):
        send(sender, Message(body=body, inferred=True, durable=True).encode())


def send_aborted(client: Client, sender: Any) -> None:
    """Send a part of a message, then that no more of it comes."""
    delivery = sender.delivery("aborted")
    sender.stream(b"part")
    client.turn()
    delivery.abort()


def frames(data: bytes) -> list[bytes]:
    """Cut a stream into its protocol headers and frames."""
    found, at = [], 0
    while at < len(data):
        head = data[at : at + 4]
        size = 8 if head == b"AMQP" else int.from_bytes(head, "big")
        found.append(data[at : at + size])
        at += size
    return found


FRAMES: Final = recorded()
LOGIN: Final = 3
"""So many are the first header, the login, and the second header."""


def damaged(rng: random.Random, frame: bytes) -> bytes:
    """Change a frame in some places; mostly its size is right again."""
    made = bytearray(frame)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if len(made) < 9:
            break
        at = rng.randrange(0 if rng.random() < 0.15 else 8, len(made))
        piece = rng.choice(PIECES)
        other = rng.choice(FRAMES[LOGIN:])
        start = rng.randrange(8, len(other)) if len(other) > 8 else 0
        change = rng.randrange(6)
        if change == 0:
            made[at] ^= 1 << rng.randrange(8)
        elif change == 1:
            made[at] = rng.randrange(256)
        elif change == 2:
            made[at : at + len(piece)] = piece
        elif change == 3:
            made[at:at] = piece
        elif change == 4:
            del made[at : at + rng.randrange(1, 5)]
        else:
            made[at:at] = other[start : start + rng.randrange(1, 24)]
    if rng.random() < 0.9 and len(made) >= 8:
        made[:4] = struct.pack(">I", len(made))
    return bytes(made)


def stream(rng: random.Random) -> list[bytes]:
    """Return a client's frames after the login, some of them damaged or at other places."""
    sent: list[bytes] = []
    for frame in FRAMES[LOGIN:]:
        drawn = rng.random()
        if drawn < 0.08:
            sent.append(damaged(rng, frame))
        elif drawn < 0.11:
            continue
        elif drawn < 0.14:
            sent += [frame, frame]
        elif drawn < 0.17:
            sent += [frame, damaged(rng, rng.choice(FRAMES[LOGIN:]))]
        else:
            sent.append(frame)
    if rng.random() < 0.2:
        one, other = rng.randrange(len(sent)), rng.randrange(len(sent))
        sent[one], sent[other] = sent[other], sent[one]
    return sent


def carry_out(connection: Connection10, passes: int = 4, reads: bool = True) -> None:
    """Answer what the connection asks for, and read what it sends."""
    for _ in range(passes):
        for request in connection.take_requests():
            answer = ANSWERS.get(type(request))
            if isinstance(request, link_requests.PublishMessages):
                accepted = list(range(request.table.count))
                answer = link_requests.PublishOutcomes(accepted=accepted, last=True)
            elif isinstance(request, link_requests.GrantCredit):
                answer = link_requests.CreditDrained(request.delivered)
            if not isinstance(request, QueueCommand):
                connection.answer(request.token, answer or errors.NotFound("no"))
            if isinstance(request, link_requests.Consume):
                connection.deliver(CONSUMER, RUN, BLOCK)
        if reads:
            output(connection)


def play(seed: int) -> str:
    """Play one damaged stream; returns why the connection ended. It must not raise."""
    rng = random.Random(seed)
    slow = rng.random() < 0.3  # queues answer late, and the client reads late
    connection = new(in_flight_bytes_max=rng.choice((50, 3000))) if slow else new()
    for at, frame in enumerate(FRAMES[:LOGIN] + stream(rng)):
        cut = rng.randrange(len(frame) + 1) if rng.random() < 0.1 else 0
        connection.receive(frame[:cut])
        carry_out(connection)
        connection.receive(frame[cut:])
        if slow and at > LOGIN and rng.random() < 0.7:
            carry_out(connection, passes=rng.randrange(2), reads=False)
        else:
            carry_out(connection)
        drawn = rng.random()
        if drawn < 0.02:
            connection.tick(rng.randrange(1 << 40))
        elif drawn < 0.03:
            connection.cancelled(CONSUMER, errors.ResourceDeleted("queue 'q' was deleted"))
        elif drawn < 0.05:
            connection.timed_out(CONSUMER, rng.choice([(), ((0, 0),), ((0, 99),)]))
            carry_out(connection)
    why = connection.failure
    connection.end_of_input()
    carry_out(connection)
    connection.free()
    return why


def main(first: int, seconds: float) -> int:
    """Play seeds until the time is over; return 1 if there was a fault."""
    known: set[str] = set()
    deadline, seed = time.monotonic() + seconds, first
    while seed == first or time.monotonic() < deadline:
        try:
            play(seed)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            fault = f"{type(error).__name__} in {where.filename}:{where.lineno}"
            if fault not in known:
                known.add(fault)
                traceback.print_exc()
                print(f"replay: python -m tests.broker.clients10.stream_fuzz {seed} 0", flush=True)
        seed += 1
    print(f"{seed - first} streams, {len(known)} kinds of faults")
    return 1 if known else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2])))
