"""CPU per message of fetching a claim: messages that were published one by one, and in blocks.

A node of its own, with a queue of each kind. A claim may be fetched any number of times, so the
same one is fetched again and again: while the node has its entries in memory, and after another
queue has driven them out, from the log's files.
"""

from __future__ import annotations

import time
from typing import Any

from bench.processes import cpu_s
from bench.report import show
from warren import Admin
from warren.claims import ClaimReader
from warren.connection import Connection
from warren.local import LocalCluster
from warren.outgoing import SEND_WINDOW_BYTES, BlockSender
from warren_wire.block.block import encode

MESSAGES = 20_000
BODY_BYTES = 100
BLOCK_MESSAGES = {"one by one": 1, "in blocks of 4,000": 4_000}
DRIVEN_OUT_BYTES = 80 << 20
"""More than the entries that a node keeps in memory (`memtable_bytes`)."""
REPEATS = 5
ROUNDS = 5
QUEUE = "singles-{}"


def singles() -> list[dict[str, Any]]:
    """Fetch the claims in turn; of each kind the round with the least CPU counts."""
    found: list[dict[str, Any]] = []
    with LocalCluster(1) as cluster, cluster.connect() as connection:
        claims = {kind: _claimed(connection, size) for kind, size in BLOCK_MESSAGES.items()}
        for place in ("memory", "files"):
            if place == "files":
                _drive_out(connection)
            for _ in range(ROUNDS):
                for kind, claim in claims.items():
                    node_s, client_s = _fetched(*claim, cluster.pid(0))
                    found.append(
                        {"published": kind, "entries in": place, "node": node_s, "client": client_s}
                    )
    results = [
        {
            "published": kind,
            "entries_in": place,
            **{
                f"{each}_us": 1e6
                * min(
                    one[each]
                    for one in found
                    if (one["published"], one["entries in"]) == (kind, place)
                )
                for each in ("node", "client")
            },
        }
        for place in ("memory", "files")
        for kind in BLOCK_MESSAGES
    ]
    show(
        f"fetching a claim of {MESSAGES:,} messages of {BODY_BYTES} B, CPU per message",
        [
            {
                "published": one["published"],
                "entries in": one["entries_in"],
                "µs of the node": f"{one['node_us']:.2f}",
                "µs of the client": f"{one['client_us']:.2f}",
            }
            for one in results
        ],
        [f"one node; the least of {ROUNDS} rounds in turn, each of {REPEATS} fetches"],
    )
    return results


def _publish(connection: Connection, queue: str, bodies: list[bytes], block: int) -> None:
    """Publish in blocks of so many messages: each is an entry of the queue's log."""
    Admin(connection).queues.declare(queue)
    sender = BlockSender.to_exchange(connection, "", window_bytes=SEND_WINDOW_BYTES, timeout_s=120)
    for first in range(0, len(bodies), block):
        part = bodies[first : first + block]
        sender.send(encode(part, [b"\0\0"] * len(part), (b"", queue.encode())))
    sender.flush()
    sender.close()


def _claimed(connection: Connection, block: int) -> tuple[ClaimReader, int]:
    """Publish MESSAGES, and claim all of them; return the reader and the claim's number."""
    queue = QUEUE.format(block)
    _publish(connection, queue, [b"%0*d" % (BODY_BYTES, n) for n in range(MESSAGES)], block)
    reader = ClaimReader(connection, queue, "bench")
    number = reader.register().settled + 1
    claim = reader.open(number, max_messages=MESSAGES, max_bytes=1 << 40)
    assert claim.messages == MESSAGES, claim
    return reader, number


def _drive_out(connection: Connection) -> None:
    large = [b"x" * (1 << 20)] * (DRIVEN_OUT_BYTES >> 20)
    _publish(connection, QUEUE.format("others"), large, 1)


def _fetched(reader: ClaimReader, number: int, pid: int) -> tuple[float, float]:
    """Return the CPU seconds per message of the node and of this process."""
    before, own = cpu_s(pid), time.process_time()
    for _ in range(REPEATS):
        got = sum(each.messages for each in reader.fetch(number, 0, MESSAGES))
        assert got == MESSAGES, got
    own = time.process_time() - own
    count = MESSAGES * REPEATS
    return (cpu_s(pid) - before) / count, own / count
