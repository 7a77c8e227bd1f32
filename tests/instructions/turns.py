"""Python function calls that one message takes in a cluster: `python -m instructions.turns`.

Three whole nodes run in this process, each with its own event loop, over real sockets. One message
is published, replicated, confirmed, delivered and acknowledged, and only then the next one: every
step is a turn of a loop for a single message, as at a few hundred or thousand messages per second.
What a small load costs is such turns, and their cost is the number of functions that they call.
Calls are counted with sys.setprofile: unlike time they are the same on every machine. The clock is
made by hand, a millisecond per message, so timers and heartbeats come as at 1,000 messages/s.

The compiled kernel's functions are not seen, nor those of the interpreter and of C. With `steps` as
an argument the interpreter's instructions are counted as well, which takes ten times as long.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from types import CodeType, FrameType, SimpleNamespace
from typing import Any
from unittest import mock

import pamqp.commands as spec

from tests.live.raw_client import RawClient, method
from tests.wire.kernel import frames
from tools.environment import ROOT
from warren.ports import ReservedPorts
from warren_broker import config, node
from warren_broker.settings.http_settings import PrometheusSettings
from warren_raft.runtime.loop import Loop
from warren_raft.storage import wal
from warren_raft.storage.files import Files

NODES = ("a", "b", "c")
QUEUE = "counted"
BODY = b"x" * 100
WARM = 400
"""Messages before the first that counts: by then every cache and file is in use."""
MESSAGES = 400
TURNS_MAX = 10_000
SHOWN = 25
BUSY_MS = 10_000
DELIVER = b"\0\x3c\0\x3c"
CONFIRM = b"\0\x3c\0\x50"
Calls = Counter[CodeType]


class HandClock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000_000

    def monotonic_ms(self) -> int:
        """See Clock."""
        return self.now

    def epoch_ms(self) -> int:
        """See Clock."""
        return self.now


class Cluster:
    """Three nodes that take their turns in this thread.

    calls  by node; steps: the interpreter's instructions, by node and function, when counted
    sends  (node, calls in its turn before it) of each write to a socket, unless steps are counted
    """

    def __init__(self, root: Path, counts_steps: bool = False) -> None:
        self.clock = HandClock()
        self.calls: dict[str, Calls] = {name: Counter() for name in NODES}
        self.steps: dict[str, Calls] = {name: Counter() for name in NODES}
        self.counts_steps = counts_steps
        self.turns: Counter[str] = Counter()
        self.sends: list[tuple[str, int]] = []
        self.reserved = ReservedPorts()
        peers = {name: f"127.0.0.1:{self.reserved.take()}" for name in NODES}
        self.nodes: dict[str, node.Node] = {}
        for name in NODES:
            settings = config.NodeConfig(
                node=name,
                data_dir=root / name,
                listen=config.Listen(amqp="127.0.0.1:0", peers=peers[name]),
                peers=peers,
                prometheus=PrometheusSettings(enabled=False),
            )
            self.nodes[name] = node.Node(settings)
        for each in self.nodes.values():
            each.start()

    def close(self) -> None:
        """Stop all nodes."""
        for each in self.nodes.values():
            each.stopped()
            if each.listener is not None:
                each.listener.abandon()
            each.loop.close()

    def address(self, name: str) -> tuple[str, int]:
        """Return the address for clients."""
        host, _, port = self.nodes[name].amqp_address.rpartition(":")
        return host, int(port)

    def leader(self, queue: str) -> str | None:
        """Return the node that leads that queue; None: there is none now."""
        for name, each in self.nodes.items():
            record = each.broker.definitions.state.queue("/", queue)
            if record is not None and each.host.is_leader(record.group):
                return name
        return None

    def turn(self, name: str) -> bool:
        """Run one turn of that node if it has anything to do; return whether it had."""
        loop = self.nodes[name].loop
        if not loop._epoll.poll(0, 1) and loop._wait_ms(None) != 0:
            return False
        calls = self.calls[name]
        before = calls.total()

        def profile(frame: FrameType, event: str, what: Any) -> None:
            if event == "call":
                calls[frame.f_code] += 1
            elif event == "c_call" and what.__name__ == "sendmsg":
                self.sends.append((name, calls.total() - before))

        self.turns[name] += 1
        if self.counts_steps:
            sys.settrace(_tracer(calls, self.steps[name]))
        else:
            sys.setprofile(profile)
        loop.run_turn(0)
        sys.setprofile(None)
        sys.settrace(None)
        return True

    def settle(self) -> None:
        """Turn until no node has anything to do."""
        for _ in range(TURNS_MAX):
            if not sum(self.turn(name) for name in NODES):
                return
        raise AssertionError(f"not at rest after {TURNS_MAX} turns")

    def pass_ms(self, count: int = 1) -> None:
        """Let that much time pass."""
        for _ in range(count):
            self.clock.now += 1
            self.settle()

    def until(self, holds: Callable[[], Any]) -> Any:
        """Let time pass until it holds; return its first true value."""
        for _ in range(BUSY_MS):
            found = holds()
            if found:
                return found
            self.pass_ms()
        raise AssertionError("not in time")

    def beside(self, work: Callable[[], Any]) -> Any:
        """Do what waits for the nodes in a thread of its own; return its result."""
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(work()))
        thread.start()
        while thread.is_alive():
            self.settle()
            thread.join(0.001)
        self.settle()
        return found[0]


def _tracer(calls: Calls, steps: Calls) -> Callable[[FrameType, str, Any], Any]:
    def step(frame: FrameType, event: str, _: Any) -> Any:
        if event == "opcode":
            steps[frame.f_code] += 1
        return step

    def call(frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        calls[frame.f_code] += 1
        return step

    return call


@contextmanager
def cluster(counts_steps: bool = False) -> Iterator[Cluster]:
    """Yield a cluster on files that are not synced, in a log that is written on the loop."""
    quick = SimpleNamespace(**{**vars(os), "fdatasync": int, "fsync": int})
    with ExitStack() as held:
        root = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="warren-turns-")))
        clock = HandClock()
        for what, name, value in (
            (Files, "system", quick),
            (wal, "SYNC_MS_SHORT", BUSY_MS),
            (node, "Loop", lambda: Loop(clock)),
        ):
            held.enter_context(mock.patch.object(what, name, value))
        made = Cluster(root, counts_steps)
        made.clock = clock
        held.callback(made.close)
        made.until(lambda: all(each._knows_users for each in made.nodes.values()))
        yield made


class Traffic:
    """A publisher and a consumer of one queue, at its leader; one message at a time."""

    def __init__(self, cluster: Cluster, prefetch: int = 1_000) -> None:
        self.cluster = cluster
        self.number = 0
        self.prefetch = prefetch
        with cluster.beside(lambda: self._declare(cluster.address(NODES[0]))):
            self.leader = cluster.until(lambda: cluster.leader(QUEUE))
        address = cluster.address(self.leader)
        self.publisher, self.consumer = (
            cluster.beside(lambda: RawClient(address)) for _ in range(2)
        )
        cluster.beside(self._begin)
        for client in (self.publisher, self.consumer):
            client.socket.setblocking(False)

    @staticmethod
    def _declare(address: tuple[str, int]) -> RawClient:
        client = RawClient(address)
        arguments: Any = {"x-queue-type": "quorum"}
        client.send(method(spec.Queue.Declare(queue=QUEUE, durable=True, arguments=arguments)))
        client.expect(spec.Queue.DeclareOk)
        return client

    def _begin(self) -> None:
        self.publisher.send(method(spec.Confirm.Select()))
        self.publisher.expect(spec.Confirm.SelectOk)
        self.consumer.send(method(spec.Basic.Qos(prefetch_count=self.prefetch)))
        self.consumer.expect(spec.Basic.QosOk)
        self.consumer.send(method(spec.Basic.Consume(queue=QUEUE)))
        self.consumer.expect(spec.Basic.ConsumeOk)

    def publish(self) -> None:
        """Send one message as far as the consumer, and the confirm to the publisher."""
        self.number += 1
        self.publisher.send(frames.publish(1, b"", QUEUE.encode(), BODY))
        self.cluster.settle()
        self._received(self.publisher, CONFIRM)
        self._received(self.consumer, DELIVER)

    def message(self) -> None:
        """Send one message through; a millisecond passes."""
        self.publish()
        self.consumer.send(frames.ack(1, self.number))
        self.cluster.settle()
        self.cluster.pass_ms()

    def _received(self, client: RawClient, what: bytes) -> None:
        """Take what the node sent, which contains one method and is of this message."""
        received = client.socket.recv(65_536)
        assert received.count(what) == 1, (self.number, what, received)


class Measured:
    """Calls per message, of the queue's leader and of its followers.

    follower  the one that completes the majority
    last      the other one, which is sent several messages at a time
    turns     of the event loops, by node
    waits     calls of a turn before what is waited for leaves: a leader's append, a follower's
              answer, and the leader's confirm
    """

    def __init__(self, made: Cluster, leader: str) -> None:
        self.leader = leader
        others = [name for name in NODES if name != leader]
        self.last, self.follower = sorted(others, key=lambda name: made.calls[name].total())
        self.roles = {
            "leader": made.calls[leader],
            "follower": made.calls[self.follower],
            "last": made.calls[self.last],
        }
        self.turns = made.turns
        names = {"leader": leader, "follower": self.follower, "last": self.last}
        self.steps = {role: made.steps[name] for role, name in names.items()}
        self.waits = _waits(made.sends, leader, self.follower)

    def per_message(self, role: str) -> float:
        """Return the calls of a role per message."""
        return self.roles[role].total() / MESSAGES

    def text(self, role: str) -> str:
        """Return the functions that are called most."""
        lines = [f"{role}: {self.per_message(role):,.1f} calls per message"]
        steps = self.steps[role]
        if steps:
            lines.append(f"{steps.total() / MESSAGES:,.0f} instructions of the interpreter")
        for code, calls in (steps or self.roles[role]).most_common(SHOWN):
            where = code.co_filename.removeprefix(f"{ROOT}/")
            lines.append(
                f"{calls / MESSAGES:8.2f}  {code.co_qualname}  {where}:{code.co_firstlineno}"
            )
        return "\n".join(lines)


def _waits(sends: Sequence[tuple[str, int]], leader: str, follower: str) -> dict[str, int]:
    """Return the median of each; empty when they were not noted."""
    found: dict[str, list[int]] = {"append": [], "answer": [], "confirm": []}
    for one, answer, confirm in zip(sends, sends[1:], sends[2:], strict=False):
        if (one[0], answer[0], confirm[0]) == (leader, follower, leader):
            for counts, (_, calls) in zip(found.values(), (one, answer, confirm), strict=True):
                counts.append(calls)
    return {what: int(median(counts)) for what, counts in found.items() if counts}


def measure(counts_steps: bool = False) -> Measured:
    """Count the calls of messages that pass one by one."""
    with cluster(counts_steps) as made:
        traffic = Traffic(made)
        for _ in range(WARM):
            traffic.message()
        for calls in (*made.calls.values(), *made.steps.values()):
            calls.clear()
        made.turns.clear()
        made.sends.clear()
        gc.collect()
        for _ in range(MESSAGES):
            traffic.message()
        assert made.leader(QUEUE) == traffic.leader, "the leader has changed"
        return Measured(made, traffic.leader)


def main() -> None:
    """Print the counts."""
    found = measure("steps" in sys.argv[1:])
    print({name: turns / MESSAGES for name, turns in found.turns.items()}, "turns per message")
    print(found.waits, "calls in a turn before it leaves")
    for role in found.roles:
        print(found.text(role))


if __name__ == "__main__":
    main()
