"""How long a client waits while many queues are imported: `python -m tests.live.import_latency`.

Arguments: how many queues (10,000), on how many nodes (1). Prints the seconds of the import and the
longest round trips of a client of the first node, which is where the import is asked for.
"""

from __future__ import annotations

import json
import sys
import threading
import time

import pika

from warren.admin import Admin
from warren.connection import Connection
from warren.local import LocalCluster

AFTER_S = 5.0
"""The queues are still being started when the import is answered."""


def main() -> None:
    """Import, and ask for a queue's counts all the time."""
    queues = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    nodes = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    document = {"queues": [{"name": f"many-{i:05}", "vhost": "/"} for i in range(queues)]}
    settings = {"limits": {"operation_timeout_ms": 300_000}}
    took: list[float] = []
    over = threading.Event()
    with LocalCluster(nodes=nodes, settings=settings) as cluster:
        port = cluster.nodes[0].amqp_port
        parameters = pika.ConnectionParameters("127.0.0.1", port, heartbeat=0, socket_timeout=300)
        with pika.BlockingConnection(parameters) as client:
            channel = client.channel()
            channel.queue_declare("asked", durable=True)

            def ask() -> None:
                while not over.is_set():
                    began = time.perf_counter()
                    channel.queue_declare("asked", passive=True)
                    took.append(time.perf_counter() - began)
                    time.sleep(0.01)

            asking = threading.Thread(target=ask)
            asking.start()
            began = time.perf_counter()
            with Connection(cluster.node_address(0)) as connection:
                Admin(connection).definitions.load(json.dumps(document).encode())
            seconds = time.perf_counter() - began
            time.sleep(AFTER_S)
            over.set()
            asking.join()
    longest = ", ".join(f"{each:.2f}" for each in sorted(took, reverse=True)[:5])
    print(f"{queues} queues on {nodes} nodes in {seconds:.1f} s; longest round trips: {longest} s")


if __name__ == "__main__":
    main()
