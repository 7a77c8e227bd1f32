"""Connections and channels are counted over the nodes within reach, never above a limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from machines.metadata.world import World
from tests.line_steps import lines
from warren_broker.cluster import messages
from warren_broker.cluster.client_limits import ClientLimits
from warren_broker.cluster.survey import SURVEY_PATIENCE_MS
from warren_broker.counting.counters import Counters
from warren_machines.metadata.commands import ChangeLimits


class Clock:
    """A loop that only keeps time."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.timers: list[tuple[int, Callable[[], None]]] = []

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self.timers.append((self.now_ms + delay_ms, call))

    def advance(self, ms: int) -> None:
        self.now_ms += ms
        due = [timer for timer in self.timers if timer[0] <= self.now_ms]
        self.timers = [timer for timer in self.timers if timer[0] > self.now_ms]
        for _, call in due:
            call()


class CountingNode:
    """A node's part of what ClientLimits needs: definitions, messages to the others."""

    def __init__(self, net: Net, name: str) -> None:
        self.net = net
        self.node_id = name
        self.host = self
        self.loop = net.clock
        self.handlers: dict[type, Any] = {}
        self.on_peer_down: list[Callable[[str], None]] = []
        self.on_peer_suspected: list[Callable[[str], None]] = []
        self.state = net.world.state
        self.counters = Counters()
        net.nodes[name] = self
        self.limits = ClientLimits(self, self)  # type: ignore[arg-type]

    def within_reach(self) -> list[str]:
        return [name for name in self.net.nodes if name not in (self.node_id, *self.net.down)]

    def send(self, node: str, parts: list[Any]) -> bool:
        self.net.wire.append((self.node_id, node, b"".join(bytes(part) for part in parts)))
        return True

    def enter(self, number: int, vhost: str = "/", channels: int = 0) -> list[str | None]:
        """Open a connection of guest; "": permitted, nothing: not answered yet."""
        said: list[str | None] = []
        self.limits.enter(
            number,
            vhost,
            "guest",
            lambda refusal: said.append(refusal and refusal.detail),
        )
        self.limits.channels(number, channels)
        return said


class Net:
    """Nodes that know the same definitions; messages travel when they are told to."""

    def __init__(self, names: str = "abc") -> None:
        self.world = World()
        self.clock = Clock()
        self.nodes: dict[str, CountingNode] = {}
        self.wire: list[tuple[str, str, bytes]] = []
        self.down: set[str] = set()
        for name in names:
            CountingNode(self, name)

    def limit(self, of: Any, name: str, **limits: int) -> None:
        given = {key.replace("_", "-"): value for key, value in limits.items()}
        self.world.do(ChangeLimits(of, name, given))

    def carry(self) -> None:
        """Deliver every message, and those that they cause."""
        while self.wire:
            sender, to, data = self.wire.pop(0)
            if to not in self.down and sender not in self.down:
                message, rest = messages.decode(data)
                self.nodes[to].handlers[type(message)](sender, message, rest)

    def lose(self, node: str) -> None:
        """That node dies; the others notice."""
        self.down.add(node)
        for other in self.nodes.values():
            for call in other.on_peer_down:
                call(node)


REFUSED = "access to vhost '/' refused for user 'guest': connection limit ({}) is reached"


def test_without_a_limit_no_node_is_asked() -> None:
    net = Net()
    assert net.nodes["a"].enter(1) == [None] and not net.wire


def test_the_vhosts_limit_counts_over_all_nodes() -> None:
    net = Net()
    net.limit("vhost", "/", max_connections=3)
    said = [net.nodes[name].enter(1) for name in "abc"]
    net.carry()
    assert said == [[None]] * 3
    late = net.nodes["b"].enter(2)
    net.carry()
    assert late == [REFUSED.format(3)]
    net.nodes["b"].limits.leave(2)
    net.nodes["c"].limits.leave(1)
    again = net.nodes["a"].enter(3)
    net.carry()
    assert again == [None]


def test_nothing_is_permitted_by_0_and_everything_by_less() -> None:
    net = Net()
    net.limit("vhost", "/", max_connections=0)
    said = net.nodes["a"].enter(1)
    net.carry()
    assert said == [REFUSED.format(0)]
    net.limit("vhost", "/", max_connections=-1)
    assert net.nodes["a"].enter(2) == [None]


def test_the_users_limit_counts_over_vhosts_and_nodes() -> None:
    net = Net()
    net.limit("user", "guest", max_connections=2)
    said = [net.nodes["a"].enter(1, "v"), net.nodes["b"].enter(1, "w")]
    net.carry()
    assert said == [[None]] * 2
    late = net.nodes["c"].enter(1)
    net.carry()
    text = "connection refused for user 'guest': user connection limit (2) is reached"
    assert late == [text]
    assert net.nodes["c"].counters.values["connections_refused", ("user_limit",)] == 1


def test_two_nodes_at_the_last_place_never_give_it_twice() -> None:
    for order in range(6):
        net = Net("ab")
        net.limit("vhost", "/", max_connections=1)
        first = net.nodes["a"].enter(1)
        for _ in range(order):  # the other one comes when some messages have arrived
            if net.wire:
                sender, to, data = net.wire.pop(0)
                message, rest = messages.decode(data)
                net.nodes[to].handlers[type(message)](sender, message, rest)
        second = net.nodes["b"].enter(1)
        net.carry()
        assert len(first) == len(second) == 1 and (first + second).count(None) <= 1, order


def test_the_connections_of_a_dead_node_count_no_more() -> None:
    net = Net()
    net.limit("vhost", "/", max_connections=1)
    net.nodes["c"].enter(1)
    net.carry()
    said = net.nodes["a"].enter(1)
    net.lose("c")  # before it has answered
    net.carry()
    assert said == [None]
    late = net.nodes["b"].enter(1)
    net.carry()
    assert late == [REFUSED.format(1)], "node a is up"


def test_a_node_that_hangs_delays_a_connection_for_a_bounded_time() -> None:
    net = Net("ab")
    net.limit("vhost", "/", max_connections=1)
    said = net.nodes["a"].enter(1)
    assert not said
    for _ in range(4):
        net.clock.advance(SURVEY_PATIENCE_MS // 2)
    assert said == [None]


def test_channels_are_counted_with_those_of_other_nodes() -> None:
    net = Net()
    net.limit("user", "guest", max_channels=3)
    net.nodes["a"].enter(1, channels=2)
    net.nodes["b"].enter(1, channels=2)  # one of which is the one to be opened
    said: list[Any] = []
    net.nodes["b"].limits.open_channel("/", "guest", said.append)
    net.carry()
    (refusal,) = said
    assert refusal.detail == (
        "number of channels opened for user 'guest' has reached the maximum allowed user limit of 3"
    )
    assert refusal.reply_code == 530 and refusal.ends == "connection"
    net.nodes["a"].limits.leave(1)
    net.nodes["b"].limits.open_channel("/", "guest", said.append)
    net.carry()
    assert said[1:] == [None]


def test_a_channel_is_counted_without_looking_through_its_users_connections() -> None:
    """Before: all of them for each channel that is opened under a limit."""

    def opening(connections: int) -> int:
        net = Net("a")
        net.limit("user", "guest", max_channels=1 << 30)
        limits, said = net.nodes["a"].limits, list[Any]()
        for number in range(connections):
            net.nodes["a"].enter(number, channels=2)
        limits.channels(1, 1)
        assert limits.counts() == (connections, 2 * connections - 1)
        taken = lines(lambda: limits.open_channel("/", "guest", said.append))
        assert said == [None]
        return taken

    assert opening(10) == opening(200)


def test_leaving_twice_or_never_having_come_is_harmless() -> None:
    net = Net("a")
    node = net.nodes["a"]
    node.enter(1)
    node.enter(1, "v")
    for number in (1, 1, 7):
        node.limits.leave(number)
    net.limit("vhost", "/", max_connections=1)
    assert node.enter(2) == [None]
