"""The cluster's definitions with the indexes that make looking them up cheap."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

from warren_machines.metadata.commands import AnyReply
from warren_machines.metadata.policy_index import PolicyIndex
from warren_machines.metadata.records import (
    Binding,
    BindingChange,
    BindingKey,
    ClusterNode,
    Exchange,
    Grant,
    Parameter,
    QueueRecord,
    User,
    Vhost,
)
from warren_machines.queue.commands import Incarnation, UplinkId
from warren_raft.versions import OLDEST

REPLIES_KEPT_MAX = 1024
"""Replies remembered per uplink, to answer repeats; no node has more commands pending."""
RETIRED_KEPT_MAX = 16
"""Ended incarnations remembered per node, to refuse what they left in flight."""
JOURNAL_MAX = 4096
"""Changes of a vhost's bindings kept for the indexes that follow them."""
REMOVED_KEPT_MAX = 256
"""Data directories of removed nodes that are remembered, to refuse their return."""

DEFAULT_EXCHANGES = (
    ("", "direct", False),
    ("amq.direct", "direct", False),
    ("amq.fanout", "fanout", False),
    ("amq.headers", "headers", False),
    ("amq.match", "headers", False),
    ("amq.rabbitmq.trace", "topic", True),
    ("amq.topic", "topic", False),
)
"""(name, kind, internal) of the exchanges of every vhost."""

GrantKey: TypeAlias = tuple[str, str, str | None]
"""(vhost, user, exchange) of topic permissions; without an exchange of the others."""
K = TypeVar("K")
L = TypeVar("L")
V = TypeVar("V")


def _nested(found: dict[K, dict[L, V]]) -> dict[K, dict[L, V]]:
    return {key: dict(inner) for key, inner in found.items()}


@dataclass(slots=True)
class UplinkState:
    """One incarnation of a node, as a submitter.

    Invariant: `answers` holds the latest submissions, ascending, the last one being last_seq.
    """

    node: str
    last_seq: int = 0
    answers: deque[tuple[int, tuple[AnyReply, ...]]] = field(default_factory=deque)
    kept: int = 0

    def remember(self, seq: int, replies: tuple[AnyReply, ...]) -> None:
        """Keep an answer; forget the oldest beyond REPLIES_KEPT_MAX replies."""
        assert seq == self.last_seq + 1, (seq, self.last_seq)
        self.last_seq = seq
        self.answers.append((seq, replies))
        self.kept += max(1, len(replies))
        while self.kept > REPLIES_KEPT_MAX and len(self.answers) > 1:
            self.kept -= max(1, len(self.answers.popleft()[1]))

    def answer(self, seq: int) -> tuple[AnyReply, ...]:
        """Return the replies given to that submission; empty when they are forgotten."""
        first = self.answers[0][0] if self.answers else seq + 1
        return self.answers[seq - first][1] if seq >= first else ()


@dataclass(slots=True)
class Scope:
    """One vhost's exchanges, queues and bindings.

    stores   how many of the queues are an exchange's
    journal  the latest bindings added (True) or removed, each with its version: an index that
             follows them need not read all bindings again. It is not part of the state: a snapshot
             has none, and a restored scope starts a new one

    Invariants: every binding is filed under its source and under its destination, both of which
    exist; `version` rises with every change, `source_versions[x]` with every change to x's
    bindings.
    """

    vhost: Vhost
    exchanges: dict[str, Exchange] = field(default_factory=dict)
    queues: dict[str, QueueRecord] = field(default_factory=dict)
    bindings: dict[str, dict[BindingKey, Binding]] = field(default_factory=dict)
    to_queues: dict[str, dict[tuple[str, BindingKey], Binding]] = field(default_factory=dict)
    to_exchanges: dict[str, dict[tuple[str, BindingKey], Binding]] = field(default_factory=dict)
    version: int = 1
    source_versions: dict[str, int] = field(default_factory=dict)
    policies: PolicyIndex = field(default_factory=PolicyIndex)
    parameters: dict[tuple[str, str], Parameter] = field(default_factory=dict)
    stores: int = 0
    journal: deque[BindingChange] = field(
        default_factory=lambda: deque(maxlen=JOURNAL_MAX), compare=False, repr=False
    )

    def arriving(self, to_queue: bool) -> dict[str, dict[tuple[str, BindingKey], Binding]]:
        """Return the bindings by destination."""
        return self.to_queues if to_queue else self.to_exchanges

    def add_binding(self, binding: Binding) -> None:
        """Add a binding; a repeat changes no index."""
        key = binding.key
        self.bindings.setdefault(binding.source, {})[key] = binding
        into = self.arriving(binding.to_queue).setdefault(binding.destination, {})
        into[(binding.source, key)] = binding
        self.touch(binding.source)
        self.journal.append((self.version, key, binding, True))

    def remove_binding(self, binding: Binding) -> bool:
        """Remove a binding; return whether it existed."""
        key = binding.key
        leaving = self.bindings.get(binding.source, {})
        if leaving.pop(key, None) is None:
            return False
        if not leaving:
            del self.bindings[binding.source]
        index = self.arriving(binding.to_queue)
        arriving = index[binding.destination]
        del arriving[(binding.source, key)]
        if not arriving:
            del index[binding.destination]
        self.touch(binding.source)
        self.journal.append((self.version, key, binding, False))
        return True

    def copied(self) -> Scope:
        """Return a scope that changes apart from this one; a new journal begins."""
        return replace(
            self,
            exchanges=dict(self.exchanges),
            queues=dict(self.queues),
            bindings=_nested(self.bindings),
            to_queues=_nested(self.to_queues),
            to_exchanges=_nested(self.to_exchanges),
            source_versions=dict(self.source_versions),
            policies=PolicyIndex(dict(self.policies.user), dict(self.policies.operator)),
            parameters=dict(self.parameters),
            journal=deque(maxlen=JOURNAL_MAX),
        )

    def alternate(self, exchange: Exchange) -> str | None:
        """Return the exchange that gets what this one cannot route, by argument or policy."""
        if exchange.alternate is not None:
            return exchange.alternate
        return self.policies.of_exchange(exchange.name).definition.get("alternate-exchange")

    def touch(self, source: str | None = None) -> None:
        """Record a change; with `source`, of that exchange or its bindings."""
        self.version += 1
        if source is not None:
            self.source_versions[source] = self.version

    def check(self) -> None:
        """Assert the invariants."""
        count = 0
        for source, leaving in self.bindings.items():
            assert source in self.exchanges and leaving, source
            for key, binding in leaving.items():
                assert binding.key == key and binding.source == source, (source, key)
                there = self.queues if binding.to_queue else self.exchanges
                assert binding.destination in there, binding
                index = self.arriving(binding.to_queue)
                assert index[binding.destination][(source, key)] == binding, binding
                count += 1
        both = (self.to_queues, self.to_exchanges)
        arriving = sum(len(some) for index in both for some in index.values())
        assert count == arriving, (count, arriving)
        assert all(version <= self.version for version in self.source_versions.values())
        self.policies.check(self.vhost.name)
        for (component, name), one in self.parameters.items():
            assert (one.vhost, one.component, one.name) == (self.vhost.name, component, name), one


@dataclass(slots=True)
class MetadataState:
    """All definitions of the cluster.

    Invariants: `groups` names each queue of each vhost once; no group is above `last_group`; every
    grant's user and vhost exist; `lives[n]` is the uplink of node n, and no other uplink is kept;
    only nodes in `lives` have a number (`numbers`), each its own; a queue's members are on nodes,
    each once; no node has a removed disk, and none that is being forgotten is in a queue's nodes.

    granted  ("vhost" or "user", its name) to the keys of its grants
    removed  disk to the name of the node that had it, the latest last
    loaded   digest of the file of definitions that was loaded last; "": none was
    version  of the cluster; every node has it that is not being forgotten (`cluster_version`)
    """

    bootstrapped: bool = False
    last_group: int = 0
    scopes: dict[str, Scope] = field(default_factory=dict)
    users: dict[str, User] = field(default_factory=dict)
    grants: dict[GrantKey, Grant] = field(default_factory=dict)
    granted: dict[tuple[str, str], dict[GrantKey, None]] = field(default_factory=dict, repr=False)
    groups: dict[int, QueueRecord] = field(default_factory=dict)
    owned: dict[tuple[UplinkId, int], dict[int, None]] = field(default_factory=dict)
    lives: dict[str, UplinkId] = field(default_factory=dict)
    retired: dict[str, tuple[UplinkId, ...]] = field(default_factory=dict)
    uplinks: dict[UplinkId, UplinkState] = field(default_factory=dict)
    nodes: dict[str, ClusterNode] = field(default_factory=dict)
    removed: dict[int, str] = field(default_factory=dict)
    numbers: dict[str, Incarnation] = field(default_factory=dict)
    global_parameters: dict[str, Parameter] = field(default_factory=dict)
    loaded: str = ""
    version: int = OLDEST

    def copied(self) -> MetadataState:
        """Return definitions that change apart from these; uplinks and nodes are shared.

        Records do not change, so 100,000 objects are copied in milliseconds.
        """
        return replace(
            self,
            scopes={name: scope.copied() for name, scope in self.scopes.items()},
            users=dict(self.users),
            grants=dict(self.grants),
            granted=_nested(self.granted),
            groups=dict(self.groups),
            owned=_nested(self.owned),
            global_parameters=dict(self.global_parameters),
        )

    def put_grant(self, grant: Grant) -> None:
        """Add or replace a grant."""
        key = (grant.vhost, grant.user, grant.exchange)
        self.grants[key] = grant
        for index in (("vhost", grant.vhost), ("user", grant.user)):
            self.granted.setdefault(index, {})[key] = None

    def drop_grant(self, key: GrantKey) -> Grant:
        """Remove a grant, and return it."""
        for index in (("vhost", key[0]), ("user", key[1])):
            del self.granted[index][key]
            if not self.granted[index]:
                del self.granted[index]
        return self.grants.pop(key)

    def queue(self, vhost: str, name: str) -> QueueRecord | None:
        """Return the queue of that name."""
        scope = self.scopes.get(vhost)
        return scope.queues.get(name) if scope else None

    def exchange(self, vhost: str, name: str) -> Exchange | None:
        """Return the exchange of that name; "" is the default one."""
        scope = self.scopes.get(vhost)
        return scope.exchanges.get(name) if scope else None

    def queues(self) -> Iterator[QueueRecord]:
        """Iterate over all queues in the order in which they were declared."""
        return iter(self.groups.values())

    def parameters(self, vhost: str) -> dict[tuple[str, str], Parameter]:
        """Return a vhost's parameters by component and name."""
        scope = self.scopes.get(vhost)
        return scope.parameters if scope else {}

    def add_queue(self, queue: QueueRecord) -> None:
        """Add a new queue to the indexes."""
        assert queue.group not in self.groups, queue.group
        scope = self.scopes[queue.vhost]
        scope.queues[queue.name] = queue
        scope.stores += bool(queue.store_of)
        self.groups[queue.group] = queue
        if queue.owner_uplink:
            owner = (queue.owner_uplink, queue.owner_connection)
            self.owned.setdefault(owner, {})[queue.group] = None
        scope.touch()

    def replace_queue(self, queue: QueueRecord) -> None:
        """Replace a queue by itself with other members."""
        old = self.groups[queue.group]
        assert (old.vhost, old.name, old.owner_uplink) == (
            queue.vhost,
            queue.name,
            queue.owner_uplink,
        ), (old, queue)
        self.scopes[queue.vhost].queues[queue.name] = queue
        self.groups[queue.group] = queue

    def renew_queue(self, old: QueueRecord, queue: QueueRecord) -> None:
        """Replace a queue by one of the same name and bindings with a new group."""
        assert (old.vhost, old.name) == (queue.vhost, queue.name), (old, queue)
        assert not old.owner_uplink and queue.group not in self.groups, (old, queue)
        scope = self.scopes[queue.vhost]
        del scope.queues[old.name]  # keeps the order of groups, as a restored state has it
        scope.queues[queue.name] = queue
        del self.groups[old.group]
        self.groups[queue.group] = queue
        scope.touch()

    def drop_queue(self, queue: QueueRecord) -> None:
        """Remove a queue from the indexes; its bindings were removed before."""
        scope = self.scopes[queue.vhost]
        assert queue.name not in scope.to_queues, queue.name
        del scope.queues[queue.name]
        scope.stores -= bool(queue.store_of)
        del self.groups[queue.group]
        owner = (queue.owner_uplink, queue.owner_connection)
        if queue.owner_uplink:
            del self.owned[owner][queue.group]
            if not self.owned[owner]:
                del self.owned[owner]
        scope.touch()

    def check(self) -> None:
        """Assert the invariants, and those of the parts."""
        seen = 0
        for name, scope in self.scopes.items():
            assert scope.vhost.name == name, name
            scope.check()
            stores = sum(bool(queue.store_of) for queue in scope.queues.values())
            assert scope.stores == stores, (name, scope.stores, stores)
            for queue in scope.queues.values():
                assert self.groups[queue.group] is queue, queue.group
                assert 0 < queue.group <= self.last_group, (queue.group, self.last_group)
                self._check_members(queue)
                seen += 1
        assert seen == len(self.groups), (seen, len(self.groups))
        owned = sum(1 for queue in self.groups.values() if queue.owner_uplink)
        assert owned == sum(len(groups) for groups in self.owned.values()), owned
        for key in self.grants:
            vhost, user, _ = key
            assert vhost in self.scopes and user in self.users, key
            assert all(key in self.granted[of] for of in (("vhost", vhost), ("user", user))), key
        assert sum(map(len, self.granted.values())) == 2 * len(self.grants), len(self.grants)
        assert sorted(self.lives.values()) == sorted(self.uplinks), self.lives
        for node, uplink in self.lives.items():
            assert self.uplinks[uplink].node == node, (node, uplink)
            assert uplink not in self.retired.get(node, ()), (node, uplink)
        assert self.numbers.keys() == self.lives.keys(), (self.numbers, self.lives)
        assert len(set(self.numbers.values())) == len(self.numbers), self.numbers
        for name, one in self.nodes.items():
            assert one.name == name and one.disk not in self.removed, one
            assert one.since_group <= self.last_group, (one, self.last_group)
            assert one.forgetting or self.version in one.versions, (one, self.version)
        assert len(self.removed) <= REMOVED_KEPT_MAX, len(self.removed)

    def _check_members(self, queue: QueueRecord) -> None:
        carriers = queue.carriers
        assert queue.nodes and len(set(carriers)) == len(carriers), queue
        assert queue.leader in queue.nodes, queue
        assert queue.founders is None or set(queue.founders) <= set(queue.nodes), queue
        assert queue.replicated or (len(queue.nodes) == 1 and not queue.leaving), queue
        for name in queue.nodes:
            known = self.nodes.get(name)
            assert known is None or not known.forgetting, (queue, known)


def new_scope(vhost: Vhost) -> Scope:
    """Return a vhost with the exchanges that every vhost has."""
    scope = Scope(vhost)
    for name, kind, internal in DEFAULT_EXCHANGES:
        scope.exchanges[name] = Exchange(vhost.name, name, kind, internal=internal)
    return scope
