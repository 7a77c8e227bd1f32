"""What the kernel costs per message: `python -m tests.wire.kernel.bench [compiled|interpreted]`.

Nanoseconds, best of several; a figure for people, not a test: no machine is held to it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from tests.wire.kernel import frames as f
from warren_wire import kernel
from warren_wire.block import block as b
from warren_wire.block.block import Block
from warren_wire.kernel import Kernel, Selection

MESSAGES = 2000
ROUNDS = 15
FRAME_MAX = 131072


def best(work: Callable[[], object]) -> float:
    """Nanoseconds per message."""
    found = []
    for _ in range(ROUNDS):
        began = time.perf_counter_ns()
        work()
        found.append(time.perf_counter_ns() - began)
    return min(found) / MESSAGES


def walk(kernel_now: Kernel, data: bytes) -> dict[str, float]:
    """The whole path of the messages in `data`."""
    scanner = kernel_now.scan.FrameScanner(FRAME_MAX)
    admit, assemble, deliver = kernel_now.admit, kernel_now.assemble, kernel_now.deliver

    def scan() -> None:
        scanner.take_table()
        scanner.feed(data)

    costs = {"scan": best(scan)}
    table = scanner.table
    count = table.count
    assert count == MESSAGES
    whole = [Selection(table, 0, count)]
    targets = [(i % 4,) for i in range(len(table.routes.entries))]
    costs["partition"] = best(lambda: assemble.partition(table, 0, count, targets, 4))
    costs["assemble"] = best(lambda: assemble.assemble(whole))
    encoded = assemble.assemble(whole)
    costs["decode"] = best(lambda: Block.decode(encoded, verify=False))
    costs["verify"] = best(lambda: Block.decode(encoded))
    block = Block.decode(encoded)
    counts = {"x-delivery-count": 1, "x-acquired-count": 2}

    def send(headers: dict[str, int] | None) -> Callable[[], None]:
        return lambda: deliver.format_deliveries(
            bytearray(), block, 0, count, 1, "ctag1.0123456789", 1, False, FRAME_MAX, headers
        )

    costs["deliver"] = best(send(None))
    costs["redeliver"] = best(send(counts))
    costs["load"] = best(lambda: admit.load_block(block))
    costs["structure"] = best(lambda: admit.check_structure(block))
    costs["concat"] = best(lambda: b.concat([(block, 1, count)]))
    return costs


def settle(kernel_now: Kernel) -> float:
    """Single acks of successive tags."""
    scanner = kernel_now.scan.FrameScanner(FRAME_MAX)
    data = b"".join([f.ack(1, tag) for tag in range(1, MESSAGES + 1)])
    return best(lambda: scanner.feed(data))


def shapes() -> dict[str, bytes]:
    """Names of workloads, and their bytes."""
    found = {}
    for size in (16, 100, 1024):
        found[f"{size} B"] = f.publish(1, b"", b"queue", b"x" * size) * MESSAGES
    body = b"x" * 100
    found["100 B, 20 routes"] = b"".join(
        [f.publish(1, b"topic", b"key.%d" % (i % 20), body) for i in range(MESSAGES)]
    )
    found["100 B, ids, 8 priorities"] = b"".join(
        [
            f.publish(1, b"", b"queue", body, f.properties(priority=i % 8, message_id=b"%032d" % i))
            for i in range(MESSAGES)
        ]
    )
    headers = f.table(*((b"header-%d" % i, b"S\0\0\0\x05value") for i in range(10)))
    found["100 B, ids, 10 headers"] = b"".join(
        [
            f.publish(
                1, b"", b"queue", body, f.properties(headers=headers, message_id=b"%032d" % i)
            )
            for i in range(MESSAGES)
        ]
    )
    found["100 B, body in 2 frames"] = f.publish(1, b"", b"queue", body, piece=50) * MESSAGES
    return found


def main() -> None:
    """Print a table per kernel."""
    for mode in sys.argv[1:] or ["compiled", "interpreted"]:
        loaded = kernel.load("compiled" if mode == "compiled" else "interpreted")
        print(f"{mode}: nanoseconds per message")
        for name, data in shapes().items():
            costs = walk(loaded, data)
            print(f"  {name:26}" + "  ".join(f"{key} {cost:.0f}" for key, cost in costs.items()))
        print(f"  {'single acks':26}{settle(loaded):.0f}")


if __name__ == "__main__":
    main()
