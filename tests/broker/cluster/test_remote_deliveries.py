"""What is on its way from a queue's leader to a consumer on another node is bounded in bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.line_steps import lines
from warren_broker.cluster import messages
from warren_broker.cluster.client.queue_client import GroupClient, LocalConsumer
from warren_broker.cluster.client.uplink import InFlight, Sent, Uplink
from warren_broker.cluster.remote_deliveries import (
    NODE_WINDOW_BYTES,
    PIECE_BYTES,
    DeliveryWindows,
    RemoteDeliveries,
)
from warren_machines.queue.commands import Delivery, Resume, Resumed
from warren_machines.queue.effects import CancelConsumer, Deliver
from warren_raft.storage.errors import EntryDamaged
from warren_wire.block.block import Block, encode

GROUP, BOOT = 7, 1001
QUARTER = PIECE_BYTES // 4
BLOCK = Block.decode(encode([bytes(QUARTER)] * 8, [b""] * 8, (b"", b"q")))
RUN = 8
"""Messages of each entry, which are two pieces."""


class Side:
    """One of two nodes; what it sends arrives when the test says so."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.wire: list[tuple[Any, memoryview]] = []
        self.handlers: dict[type, Callable[[str, Any, memoryview], None]] = {}
        self.on_peer_up: list[Callable[[str], None]] = []
        self.on_peer_down: list[Callable[[str], None]] = []
        self.damaged: set[int] = set()
        self.released: set[int] = set()
        self.waiting: list[Callable[[], None]] = []
        self.host: Any = SimpleNamespace(
            boot_id=BOOT,
            send=self.send,
            sent_term=lambda group, node, index: 0,
            repair=SimpleNamespace(when=lambda group, index, call: self.waiting.append(call)),
        )
        self.stored: Any = SimpleNamespace(for_delivery=self.read)
        self.clients: dict[int, GroupClient] = {}
        self.commands: list[Any] = []

    def client(self, group: int) -> GroupClient | None:
        return self.clients.get(group)

    def read(self, group: int, index: int, last: int) -> Block:
        if index in self.damaged:
            raise EntryDamaged(Path("file"), 0, "unreadable", group, index, 1, 0)
        if index in self.released:
            raise KeyError(index)
        return BLOCK

    def send(self, node: str, buffers: list[Any]) -> bool:
        self.wire.append(messages.decode(b"".join(map(bytes, buffers))))
        return True

    # what a group's client asks of its node

    def leader_of(self, group: int) -> str:
        return "leader"

    def submit(self, leader: str, group: int, sent: Sent) -> bool:
        return True

    def touch(self, client: GroupClient) -> None:
        pass

    call_later = touch_later = seek = answered = touch

    def now_ms(self) -> int:
        return 0


class World:
    """A leader, and a node without a copy that has consumers."""

    def __init__(self, consumers: int = 1) -> None:
        self.leader, self.node = Side("leader"), Side("node")
        self.windows = DeliveryWindows(self.leader)
        RemoteDeliveries(self.node)
        uplink = Uplink(self.encode, lambda parts, head: head, "ENQ", InFlight())
        carrier: Any = self.node
        self.client = self.node.clients[GROUP] = GroupClient(carrier, GROUP, ("leader",), uplink)
        self.got: dict[int, list[int]] = {}
        self.told: list[str] = []
        self.room = True
        self.most = 0
        receiver: Any = self
        for consumer in range(consumers):
            self.got[consumer] = []
            self.client.consumers[consumer] = LocalConsumer(
                consumer, receiver, False, has_room=lambda consumer: self.room
            )

    def encode(self, seq: int, commands: Any, block: Any, answered: int) -> bytes:
        self.node.commands += commands
        return b""

    def deliver(self, consumer: int, delivery: Delivery, block: Block) -> None:
        count = delivery.last - delivery.first + 1
        assert block.size_bytes(delivery.first, delivery.last + 1) == count * QUARTER
        self.got[consumer] += range(delivery.first_msg_id, delivery.first_msg_id + count)

    def cancelled(self, consumer: int, reason: str, timeout_ms: int | None) -> None:
        self.told.append(f"{consumer} {len(self.got[consumer])}")

    def hand_out(self, consumer: int, first: int, entries: int) -> None:
        """The queue gives a consumer some entries, from that delivery on."""
        deliveries = tuple(
            Delivery(first + RUN * at, first // RUN + at, 0, RUN - 1, 0, 0) for at in range(entries)
        )
        self.windows.deliver("node", GROUP, Deliver(BOOT, consumer, deliveries))

    @property
    def under_way(self) -> int:
        return sum(
            sum(message.lengths)
            for message, _ in self.leader.wire
            if isinstance(message, messages.Delivered)
        )

    def arrive(self, count: int = 1 << 30) -> None:
        """What is under way arrives at the node, and its reports at the leader."""
        while self.leader.wire and count:
            count -= 1
            self.most = max(self.most, self.under_way)
            message, rest = self.leader.wire.pop(0)
            if isinstance(message, messages.Delivered):
                self.node.handlers[messages.Delivered]("leader", message, rest)
            else:
                self.client.cancelled(message.effect.consumer, message.effect.reason)
            while self.node.wire:
                back, rest = self.node.wire.pop(0)
                self.leader.handlers[type(back)]("node", back, rest)

    def asked(self) -> list[Any]:
        self.client.uplink.take()
        asked, self.node.commands = self.node.commands, []
        return asked


def test_a_window_is_under_way_and_all_comes_in_order() -> None:
    """Before: all of it at once, in one message."""
    world = World()
    world.hand_out(0, 0, 100)
    assert NODE_WINDOW_BYTES <= world.under_way <= NODE_WINDOW_BYTES + PIECE_BYTES + 1024
    world.arrive()
    assert world.got[0] == list(range(800)) and world.asked() == []
    assert world.most <= NODE_WINDOW_BYTES + PIECE_BYTES + 1024


def test_consumers_share_the_window_in_turn() -> None:
    """The second would have its first message after all of the first one's."""
    world = World(3)
    for consumer in range(3):
        world.hand_out(consumer, 0, 50)
    world.arrive(40)
    assert min(map(len, world.got.values())) > 30
    world.arrive()
    assert all(got == list(range(400)) for got in world.got.values())
    assert world.most <= NODE_WINDOW_BYTES + PIECE_BYTES + 1024


def test_what_a_consumer_has_no_room_for_is_not_sent() -> None:
    world = World(2)
    world.hand_out(0, 0, 100)
    world.arrive(3)
    had = len(world.got[0])
    world.room = False
    world.arrive()
    assert world.most <= NODE_WINDOW_BYTES + PIECE_BYTES + 1024
    assert len(world.got[0]) == had and not world.leader.wire
    world.room = True
    world.client.resume(world.client.consumers[0])
    assert world.asked() == [Resume(0, had)]
    first = world.got[0][-1] + 1
    world.client.replied(1, (Resumed(first),), 5, 0)
    world.hand_out(0, first - first % RUN, 100)
    world.hand_out(1, 0, 10)
    world.arrive()
    assert world.got[0] == list(range(len(world.got[0]))) and len(world.got[0]) >= 800
    assert world.got[1] == list(range(80))


def test_an_answer_to_a_resume_takes_the_place_of_what_waits() -> None:
    world = World()
    world.hand_out(0, 0, 100)
    world.hand_out(0, 0, 100)
    world.hand_out(0, 800, 1)
    sent = 0
    while world.leader.wire:
        sent += sum(world.leader.wire[0][0].lengths)
        world.arrive(1)
    assert world.got[0] == list(range(808))
    assert sent <= 808 * QUARTER + 2 * NODE_WINDOW_BYTES


def test_a_cancellation_comes_behind_what_waits() -> None:
    world = World()
    world.hand_out(0, 0, 20)
    effect = CancelConsumer(BOOT, 0, "timeout")
    world.windows.follow("node", GROUP, effect)
    world.arrive()
    assert world.told == ["0 160"]
    world.windows.follow("node", GROUP, effect)
    world.arrive()
    assert len(world.told) == 2


def test_a_cancellation_comes_although_the_deliveries_were_refused() -> None:
    world = World()
    world.hand_out(0, 0, 20)
    effect = CancelConsumer(BOOT, 0, "deleted")
    world.windows.follow("node", GROUP, effect)
    world.room = False
    world.arrive()
    assert world.told == ["0 0"]


def test_an_entry_that_has_left_is_passed_over_and_the_gap_is_asked_about() -> None:
    """It was taken back, and settled by another consumer, while it waited for the window."""
    world = World()
    world.hand_out(0, 0, 20)
    world.leader.released = {15}
    world.arrive()
    assert world.got[0] == list(range(120))
    assert world.asked() == [Resume(0, 120)]


def test_a_damaged_entry_holds_up_its_consumer_only() -> None:
    world = World(2)
    world.hand_out(0, 0, 20)
    world.hand_out(1, 0, 14)
    world.leader.damaged = {15}
    world.arrive()
    assert world.got == {0: list(range(120)), 1: list(range(112))}
    world.leader.damaged = set()
    world.leader.waiting.pop()()
    world.arrive()
    assert world.got[0] == list(range(160))


def test_a_damaged_entry_that_need_not_wait_is_the_effect_order_s() -> None:
    world = World()
    world.leader.damaged = {1}
    with pytest.raises(EntryDamaged):
        world.hand_out(0, 0, 3)
    world.leader.damaged = set()
    world.hand_out(0, 0, 3)
    world.arrive()
    assert world.got[0] == list(range(24))


@pytest.mark.parametrize("how", ["on_peer_up", "on_peer_down"])
def test_a_connection_that_ends_takes_all_with_it(how: str) -> None:
    world = World()
    world.hand_out(0, 0, 100)
    world.arrive(2)
    for side, other in ((world.leader, "node"), (world.node, "leader")):
        side.wire.clear()
        for call in getattr(side, how):
            call(other)
    world.hand_out(0, 0, 100)
    assert world.under_way >= NODE_WINDOW_BYTES
    world.arrive()
    assert world.got[0] == list(range(800))
    assert world.most <= NODE_WINDOW_BYTES + PIECE_BYTES + 1024


def test_a_leader_that_leads_no_longer_sends_nothing_more() -> None:
    world = World()
    world.hand_out(0, 0, 100)
    world.windows.stop(GROUP)
    world.arrive()
    assert len(world.got[0]) < 100


def test_a_message_larger_than_the_window_is_sent() -> None:
    large = Block.decode(encode([bytes(NODE_WINDOW_BYTES * 2)] * 2, [b""] * 2, (b"", b"q")))
    world = World()
    world.leader.stored = SimpleNamespace(for_delivery=lambda group, index, last: large)
    world.deliver = lambda consumer, delivery, block: world.got[0].append(  # type: ignore
        delivery.first_msg_id
    )
    effect = Deliver(BOOT, 0, (Delivery(0, 1, 0, 1, 0, 0), Delivery(2, 2, 0, 1, 0, 0)))
    world.windows.deliver("node", GROUP, effect)
    assert len(world.leader.wire) == 1
    world.arrive()
    assert world.got[0] == [0, 1, 2, 3]


def test_a_group_stops_without_a_look_at_others() -> None:
    """Before: at all that waited for a node, for each of the groups that stop in a turn."""

    def stopping(consumers: int) -> int:
        leader = Side("leader")
        windows = DeliveryWindows(leader)
        for at in range(NODE_WINDOW_BYTES // (RUN * QUARTER) + 1 + consumers):
            windows.deliver("node", at, Deliver(BOOT, 0, (Delivery(0, 1, 0, RUN - 1, 0, 0),)))
        waiting = windows._nodes["node"]
        assert len(waiting.lanes) == len(waiting.of_group) >= consumers
        last = max(waiting.of_group)
        taken = lines(lambda: windows.stop(last))
        assert last not in waiting.of_group and not any(key[0] == last for key in waiting.lanes)
        return taken

    assert stopping(10) == stopping(200)
