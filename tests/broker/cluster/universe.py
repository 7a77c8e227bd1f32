"""Whole brokers of a cluster in one process, over a Raft that is a model: a few rules, no network.

What is modelled is what the parts about membership rest on: entries that are held by some and lost
with others, a majority of the right identities, members that are on a disk or not, replays that
pass through every older state, nodes that die in the middle of a call (`dies_at`). `Violation` is
raised when what was committed is lost, or when a member begins a second time as a founder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

from broker.cluster.model_log import Died, Log, Member, Stored, Violation
from warren_broker.broker.broker import Broker
from warren_broker.config import NodeConfig
from warren_raft.core import membership as changes
from warren_raft.core.quorum import majority
from warren_raft.errors import MembershipRefused, NotLeader, UsageError
from warren_raft.machine import GroupSpec, Meta
from warren_raft.runtime.bootstrap import BootstrapPlan
from warren_raft.runtime.host import MessageHandler, UnknownGroup
from warren_raft.runtime.loop import Loop
from warren_raft.runtime.net.handshake import Hello, NodeRemoved
from warren_raft.runtime.observer import Observer
from warren_raft.types import EntryKind, Membership, MemberState
from warren_raft.versions import OWN, Versions

STEP_MS = 20
APPLIED_AT_ONCE = 3
"""Entries that a member applies in a step: a replay passes through the states in between."""
CONNECTED_AFTER_STEPS = 3
CALM_STEPS = 4_000


class ModelHost:
    """What a node's broker takes for its Raft host."""

    def __init__(self, universe: Universe, name: str, disk: int, boot_id: int) -> None:
        self.universe = universe
        self.node_id = name
        self.disk = disk
        self.boot_id = boot_id
        self.started: dict[int, Member] = {}
        self.peers: set[str] = set()
        self.hanging: set[str] = set()
        self.address = ("10.0.0.1", 1)
        self.cluster_id = "of the model"
        self.peer_port = SimpleNamespace(refusals={})
        self.dead = False
        self.versions = universe.programs.get(name, OWN)
        self.version = OWN.oldest

    def raise_version(self, version: int) -> None:
        self.version = max(self.version, version)

    def link_version(self, node: str) -> int:
        return min(self.versions.newest, self.universe.programs.get(node, OWN).newest)

    # ------------------------------------------------------------ dying

    def act(self, what: str) -> None:
        """Something that lasts is about to be done: perhaps it is the last thing."""
        self.universe.acted(self, what)

    # ------------------------------------------------------------ groups

    def formation(self, callback: Callable[[BootstrapPlan], None]) -> None:
        others = sorted(set(self.universe.founders) - {self.node_id})
        if self.stored(0) or not self.universe.formed:
            callback(BootstrapPlan(False, tuple(self.universe.founders), self.stored(0)))
        else:
            callback(BootstrapPlan(True, tuple(others)))

    def start_group(self, spec: GroupSpec, machine: Any) -> None:
        if spec.group in self.started:
            return
        universe, key = self.universe, (spec.group, self.node_id)
        member = universe.disks[self.node_id].get(spec.group)
        if member is None:
            self.act("start_group")
            member = Member(universe.new_identity() if spec.joining else 0)
            if not spec.joining:
                if key in universe.founded:
                    raise Violation(f"{key} begins again as a founder")
                universe.founded.add(key)
            if not spec.volatile:
                universe.disks[self.node_id][spec.group] = member
        if spec.group not in universe.logs and not spec.joining:
            universe.logs[spec.group] = Log(spec.group, Membership(tuple(sorted(spec.voters))))
        member.machine, member.state, member.applied = machine, machine.init(), 0
        member.leading, member.told = False, (None, 0)
        self.started[spec.group] = member

    def delete_group(self, group: int) -> None:
        if group in self.started or self.stored(group):
            self.act("delete_group")
        self.started.pop(group, None)
        self.universe.disks[self.node_id].pop(group, None)

    def stored(self, group: int) -> bool:
        return group in self.universe.disks[self.node_id]

    def stored_groups(self) -> tuple[int, ...]:
        return tuple(sorted(self.universe.disks[self.node_id]))

    def groups(self) -> tuple[int, ...]:
        return tuple(sorted(self.started))

    def log_end(self, group: int) -> tuple[int, int]:
        return 0, 0

    def log_position(self, group: int) -> Any:
        raise UnknownGroup(group, self.node_id)  # members here have no log

    def _member(self, group: int) -> Member:
        if group not in self.started:
            raise UnknownGroup(group, self.node_id)
        return self.started[group]

    def leader(self, group: int) -> str | None:
        return self.started[group].told[0] if group in self.started else None

    def term(self, group: int) -> int:
        return self.started[group].told[1] if group in self.started else 0

    def is_leader(self, group: int) -> bool:
        log = self.universe.logs.get(group)
        return (
            group in self.started
            and log is not None
            and log.leader == self.node_id
            and (self.started[group].leading)
        )

    def hands_over(self, group: int) -> bool:
        return False

    def leader_denied(self, group: int, node: str) -> None:
        """The model's members know the leader."""

    def state(self, group: int) -> Any:
        return self._member(group).state

    def time_ms(self, group: int) -> int:
        return self.universe.now

    def applied_index(self, group: int) -> int:
        return self._member(group).applied

    def members(self, group: int) -> Membership:
        log = self.universe.logs.get(group)
        return log.membership(self._member(group).held) if log else Membership(())

    def propose(self, group: int, data: bytes) -> int:
        self._lead(group)
        self.act(f"propose {group}")
        return self.universe.append(group, EntryKind.COMMAND, bytes(data))

    def _lead(self, group: int) -> Log:
        self._member(group)
        if not self.is_leader(group):
            raise NotLeader(group, self.node_id, None)
        return self.universe.logs[group]

    def change_members(self, group: int, change: Any) -> int:
        log = self._lead(group)
        if any(kind is EntryKind.CONFIG for kind, _ in log.entries[log.committed :]):
            raise MembershipRefused("cannot change", change.node, "a change is under way")
        after = changes.changed(log.membership(), change)
        heard = [node for node in after.voters if self.universe.counts(log, node)]
        if len(heard) < majority(len(after.voters)):
            raise MembershipRefused("cannot change", change.node, "the majority would be lost")
        assert self.node_id in after.voters, "a leader never removes itself here"
        self.act(f"change_members {group}")
        return self.universe.append(group, EntryKind.CONFIG, after)

    def transfer(self, group: int, to: str) -> None:
        log = self._lead(group)
        if to not in log.membership().voters:
            raise UsageError(f"{to} is no voter")
        self.act(f"transfer {group}")
        if self.universe.counts(log, to):
            self.universe.handed_over.append((log, to))

    def member_states(self, group: int) -> tuple[MemberState, ...]:
        log = self._lead(group)
        last, members = len(log.entries), log.membership()
        under_way = any(kind is EntryKind.CONFIG for kind, _ in log.entries[log.committed :])
        found = []
        for node in sorted((*members.voters, *members.learners)):
            there = self.universe.member(node, group)
            voter = node in members.voters
            lost = voter and there is not None and there.identity != members.id_of(node)
            match = there.held if there is not None and not lost else 0
            suspected = node != self.node_id and not self.connected(node)
            found.append(
                MemberState(
                    node,
                    voter,
                    node == self.node_id,
                    match,
                    last,
                    suspected,
                    False,
                    lost,
                    under_way,
                )
            )
        return tuple(found)

    # ------------------------------------------------------------ peers

    def add_peer(self, node: str, address: Any) -> None:
        self.peers.add(node)

    def remove_peer(self, node: str) -> None:
        self.peers.discard(node)
        self.universe.disconnect(self.node_id, node)

    def peer_hello(self, node: str) -> Hello | None:
        running = self.universe.running.get(node)
        return running.hello() if running else None

    def connected(self, node: str) -> bool:
        return frozenset((self.node_id, node)) in self.universe.connections

    def silent_since_ms(self, node: str) -> int | None:
        return 0 if self.suspected(node) else None

    def suspected(self, node: str) -> bool:
        return node in self.hanging or (node != self.node_id and not self.connected(node))

    def disk_slow(self, node: str) -> bool:
        return False

    def gone(self, node: str) -> bool:
        return self.suspected(node) and node not in self.universe.running

    def send(self, node: str, buffers: Any) -> bool:
        if self.dead or not self.connected(node):
            return False
        data = b"".join(bytes(part) for part in buffers)
        self.universe.mail.append((self.node_id, node, data))
        return True

    def read_entry(self, group: int, index: int) -> Stored:
        if index > self._member(group).held:
            raise KeyError(index)
        return Stored(self.universe.logs[group].entries[index - 1][1])

    def read_data(self, group: int, indexes: Iterable[int]) -> Iterator[bytes]:
        return (self.read_entry(group, index).data for index in indexes)

    def sent_term(self, group: int, node: str, index: int) -> int:
        return 0


class Running:
    """One life of a node."""

    def __init__(self, universe: Universe, name: str, boot_id: int) -> None:
        self.universe, self.name = universe, name
        self.loop = Loop(universe)
        self.host = ModelHost(universe, name, universe.disk_ids[name], boot_id)
        known = dict.fromkeys({*universe.founders, name}, "10.0.0.1:1")
        self.host.peers = set(known) - {name}
        limits = {"queue_in_flight_bytes_max": 1 << 20, "node_in_flight_bytes_max": 8 << 20}
        self.broker = Broker(
            self.loop,
            self._host,
            NodeConfig.model_validate(
                {"node": name, "peers": known, "limits": limits, **universe.settings}
            ),
        )
        self.cluster = self.broker.cluster

    def _host(self, observer: Observer, on_message: MessageHandler) -> Any:
        return self.host

    def hello(self) -> Hello:
        """What it says of itself."""
        return Hello(OWN, "model", self.name, self.host.boot_id, b"", self.host.disk)

    def turn(self) -> None:
        """Turns until there is nothing to do now."""
        for _ in range(100):
            self.loop.run_turn(0)
            if self.loop._wait_ms(None) != 0 and not self.loop._posted:
                return
        raise AssertionError(f"{self.name} turns without end")


class Universe:
    """Every node, every disk, every group; also the clock.

    programs  versions of the nodes that have others than this program
    dies_at  the node that makes the lasting change of that number dies before it, and is back
             some time later; 0: none does
    """

    def __init__(
        self,
        founders: str = "abc",
        settings: dict[str, Any] | None = None,
        versions: Versions | None = None,
    ) -> None:
        self.founders = list(founders)
        self.settings = settings or {}
        self.now = 1_000_000
        self.logs: dict[int, Log] = {}
        self.disks: dict[str, dict[int, Member]] = {}
        self.disk_ids: dict[str, int] = {}
        self.running: dict[str, Running] = {}
        self.connections: set[frozenset[str]] = set()
        self.cut: set[frozenset[str]] = set()
        self.refusals: dict[str, str] = {}
        self.mail: list[tuple[str, str, bytes]] = []
        self.handed_over: list[tuple[Log, str]] = []
        self.founded: set[tuple[int, str]] = set()
        self.identities = 1_000
        self.boots = 0
        self.steps = 0
        self.programs = {} if versions is None else dict.fromkeys(founders, versions)
        self.dies_at = 0
        self.acts: list[tuple[str, str]] = []
        self.died: str | None = None
        self.back_at = 0
        for name in founders:
            self.start(name)

    @property
    def formed(self) -> bool:
        """The definitions have an entry that is committed."""
        return 0 in self.logs and self.logs[0].committed > 0

    # ------------------------------------------------------------ time (a Clock)

    def monotonic_ms(self) -> int:
        return self.now

    def epoch_ms(self) -> int:
        return self.now

    # ------------------------------------------------------------ nodes

    def start(self, name: str) -> None:
        """A process begins, on the disk that the node has."""
        assert name not in self.running
        if name not in self.disks:
            self.wipe(name)
        self.boots += 1
        self.running[name] = one = Running(self, name, self.boots << 16)
        self._do(one, one.broker.start)

    def wipe(self, name: str) -> None:
        """The node, which is down, gets another disk."""
        assert name not in self.running
        self.disks[name] = {}
        self.disk_ids[name] = self.new_identity()

    def kill(self, name: str) -> None:
        """The process ends; its disk stays."""
        one = self.running.pop(name)
        one.host.dead = True
        one.loop.close()
        for log in self.logs.values():
            if log.leader == name:
                log.leader = None
        for pair in sorted(self.connections, key=sorted):
            if name in pair:
                self.connections.discard(pair)
                (other,) = pair - {name}
                if other in self.running:
                    self._do(self.running[other], lambda one=other: self._down(one, name))

    def _down(self, one: str, name: str) -> None:
        cluster = self.running[one].cluster
        cluster.peer_down(name)
        cluster.peer_suspected(name)
        if name not in self.running:
            cluster.peer_gone(name)

    def restart(self, names: str) -> None:
        """Kill these nodes, then start them, and wait until they are ready."""
        for name in names:
            self.kill(name)
        for name in names:
            self.start(name)
        self.until(self.ready, "all are back")

    def cut_off(self, name: str) -> None:
        """Its process continues, but no node hears it until `cut` is empty again."""
        for other in sorted(self.running.keys() - {name}):
            self.cut.add(frozenset((name, other)))
            self.disconnect(name, other)

    def new_identity(self) -> int:
        self.identities += 1
        return self.identities

    def acted(self, host: ModelHost, what: str) -> None:
        """See dies_at."""
        self.acts.append((host.node_id, what))
        if self.dies_at and len(self.acts) == self.dies_at:
            self.died = host.node_id
            self.back_at = self.steps + 5 + 17 * self.dies_at % 40
            raise Died

    def arm(self, dies_at: int) -> None:
        """Count from here."""
        self.acts.clear()
        self.dies_at, self.died = dies_at, None

    def _do(self, one: Running, call: Callable[[], None]) -> None:
        try:
            call()
        except Died:
            self.kill(one.name)

    # ------------------------------------------------------------ Raft, in a few rules

    def member(self, node: str, group: int) -> Member | None:
        """A member of a process that runs."""
        one = self.running.get(node)
        return one.host.started.get(group) if one else None

    def counts(self, log: Log, node: str) -> bool:
        """It runs, and is a voter under its own identity."""
        there, members = self.member(node, log.group), log.membership()
        return (
            there is not None and node in members.voters and (there.identity == members.id_of(node))
        )

    def append(self, group: int, kind: EntryKind, data: Any) -> int:
        """On the leader's disk, nowhere else yet."""
        log = self.logs[group]
        log.entries.append((kind, data))
        assert log.leader is not None
        there = self.member(log.leader, group)
        assert there is not None
        there.held = len(log.entries)
        return there.held

    def _elect(self, log: Log, wanted: str | None = None) -> None:
        able = [node for node in log.membership().voters if self.counts(log, node)]
        if len(able) < majority(len(log.membership().voters)):
            return
        held = {node: self._held(node, log) for node in able}
        best = max(held.values())
        first = [node for node in able if held[node] == best]
        new = wanted if wanted in first else first[log.term % len(first)]
        if best < log.committed:
            raise Violation(f"group {log.group}: of {log.committed} entries {best} are left")
        del log.entries[best:]
        for disk in self.disks.values():
            if log.group in disk:
                disk[log.group].held = min(disk[log.group].held, best)
        log.leader, log.term = new, log.term + 1
        for one in self.running.values():
            if log.group in one.host.started:
                one.host.started[log.group].leading = False
        self.append(log.group, EntryKind.NOOP, log.term)

    def _held(self, node: str, log: Log) -> int:
        there = self.member(node, log.group)
        assert there is not None
        return there.held

    def _replicate(self, log: Log) -> None:
        members, last = log.membership(), len(log.entries)
        for node in (*members.voters, *members.learners):
            there = self.member(node, log.group)
            if there is not None:
                there.held = last
        if sum(self.counts(log, node) for node in members.voters) >= majority(len(members.voters)):
            log.committed = last
        if log.committed < last or log.leader is None:
            return
        for node in members.voters:
            there = self.member(node, log.group)
            if there is not None and not self.counts(log, node):
                self.acted(self.running[log.leader].host, f"demote {log.group}")
                self.append(log.group, EntryKind.CONFIG, changes.demote(members, node))
                return
        for node in members.learners:
            there = self.member(node, log.group)
            if there is not None:
                self.acted(self.running[log.leader].host, f"promote {log.group}")
                after = changes.promote(members, node, there.identity)
                self.append(log.group, EntryKind.CONFIG, after)
                return

    def _apply(self, one: Running, log: Log) -> None:
        group, there = log.group, one.host.started.get(log.group)
        if there is None:
            return
        if there.told != (log.leader, log.term):
            there.told = (log.leader, log.term)
            one.cluster.leader_changed(group, log.leader, log.term, log.leader == one.name)
        end = min(there.held, log.committed, there.applied + APPLIED_AT_ONCE)
        while log.leader is not None and there.applied < end and group in one.host.started:
            kind, data = log.entries[there.applied]
            there.applied += 1
            if kind is EntryKind.COMMAND:
                meta = Meta(there.applied, log.term, self.now)
                applied = there.machine.apply(meta, data, there.state)
                one.cluster.applied(group, meta, data, applied, there.leading)
            elif kind is EntryKind.CONFIG:
                one.cluster.members_changed(group, data)
            elif data == log.term and log.leader == one.name:
                there.leading = True
                one.cluster.became_leader(group, there.machine.leader_effects(there.state))

    # ------------------------------------------------------------ connections

    def disconnect(self, one: str, other: str) -> None:
        """They part."""
        pair = frozenset((one, other))
        if pair in self.connections:
            self.connections.discard(pair)
            for name, gone in ((one, other), (other, one)):
                if name in self.running:
                    self.running[name].loop.call_soon(lambda n=name, g=gone: self._down(n, g))

    def _connect(self) -> None:
        for name, one in sorted(self.running.items()):
            for other in sorted(one.host.peers & self.running.keys()):
                pair = frozenset((name, other))
                peer = self.running[other]
                if pair in self.connections or pair in self.cut:
                    continue
                judged = {far.name: _judged(near, far) for near, far in ((one, peer), (peer, one))}
                self.refusals.update({at: why for at, why in judged.items() if why})
                if any(judged.values()):
                    continue
                self.connections.add(pair)
                for near, far in ((one, peer), (peer, one)):
                    near.loop.call_soon(
                        lambda n=near, f=far: n.cluster.peer_up(f.name, f.host.boot_id)
                    )
                    near.loop.call_soon(lambda n=near, f=far: n.cluster.peer_back(f.name))

    # ------------------------------------------------------------ running

    def step(self) -> None:
        """A little later."""
        self.now += STEP_MS
        self.steps += 1
        if self.died and self.steps == self.back_at:
            self.start(self.died)
        if self.steps % CONNECTED_AFTER_STEPS == 0:
            self._connect()
        mail, self.mail = self.mail, []
        for sender, to, data in mail:
            if to in self.running and frozenset((sender, to)) in self.connections:
                one = self.running[to]
                one.loop.call_soon(
                    lambda c=one.cluster, s=sender, d=data: c.on_message(s, memoryview(d))
                )
        handed, self.handed_over = self.handed_over, []
        for log, to in handed:
            if log.leader is not None and self.counts(log, to):
                self._do(self.running[log.leader], lambda g=log: self._replicate(g))
                self._elect(log, to)
        for log in list(self.logs.values()):
            if log.leader is None:
                self._elect(log)
            if log.leader is not None:
                self._do(self.running[log.leader], lambda g=log: self._replicate(g))
            for one in list(self.running.values()):
                self._do(one, lambda o=one, g=log: self._apply(o, g))
        for one in list(self.running.values()):
            self._do(one, one.turn)

    def until(self, holds: Callable[[], Any], what: str) -> Any:
        """Steps until it holds; its first true value."""
        for _ in range(CALM_STEPS):
            found = holds()
            if found:
                return found
            self.step()
        raise AssertionError(f"never: {what}; {self.describe()}")

    def describe(self) -> str:
        """Return the state of every node, for a failure's text."""
        return (
            "; ".join(
                f"group {log.group}: led by {log.leader} in {log.term}, {log.membership()}, "
                f"{log.committed}/{len(log.entries)}"
                for log in self.logs.values()
            )
            + f"; running {sorted(self.running)}; last acts {self.acts[-6:]}"
        )

    def call(self, name: str, call: Callable[[Broker, Callable[[Any], None]], None]) -> Any:
        """Ask that node something; the answer, or None when it died before it gave one."""
        answers: list[Any] = []
        one = self.running[name]
        one.loop.call_soon(lambda: call(one.broker, answers.append))
        self.until(lambda: answers or self.running.get(name) is not one, "an answer")
        return answers[0] if answers else None

    def ready(self) -> bool:
        """Every running node knows the definitions."""
        return all(one.broker.definitions.ready for one in self.running.values())

    def close(self) -> None:
        """Release the loops."""
        for name in list(self.running):
            self.running.pop(name).loop.close()


def _judged(near: Running, far: Running) -> str | None:
    """Why the one refuses the other; a node that is told of its removal is modelled to wait."""
    try:
        return near.cluster.judge_peer(far.hello())
    except NodeRemoved as removed:
        return str(removed)
