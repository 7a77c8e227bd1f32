"""The cluster's definitions on this node: local lookups, changes through the log.

A change is answered after this node has applied it, so that the requesting client finds it here. A
node is `ready` once its own `NodeStarted` was answered: it has applied everything answered
before.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

from warren_broker.access.requests import ExchangeFacts
from warren_broker.cluster import messages
from warren_broker.cluster.client.uplink import COMMANDS_MAX, InFlight, Uplink
from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.membership.local_members import LocalMembers
from warren_broker.cluster.request_timeouts import RequestTimeouts
from warren_broker.cluster.survey import DefinitionBarrier
from warren_machines.metadata import commands, passwords
from warren_machines.metadata.changes import (
    DefinitionEvent,
    NodeRenewed,
    NodesChanged,
    PoliciesChanged,
    QueueChanged,
    UserDeleted,
    VhostDeleted,
)
from warren_machines.metadata.codec import decode_reply, encode_reply, encode_submission
from warren_machines.metadata.machine import MetadataMachine
from warren_machines.metadata.node_registry import is_over
from warren_machines.metadata.permissions import Permissions
from warren_machines.metadata.policy_index import NO_POLICY, EffectivePolicy, PolicyIndex
from warren_machines.metadata.records import QueueRecord, User, Vhost
from warren_machines.metadata.state import REPLIES_KEPT_MAX, MetadataState
from warren_machines.routing.surroundings import AbsentNodes, RoutingNode
from warren_machines.routing.topology import Topology
from warren_raft.errors import NotLeader
from warren_raft.machine import Applied, GroupSpec, Meta
from warren_raft.runtime.bootstrap import BootstrapPlan
from warren_raft.runtime.host import Host, UnknownGroup
from warren_raft.runtime.loop import LoopStage
from warren_raft.types import METADATA_GROUP
from warren_wire import errors
from warren_wire.arguments import Kind
from warren_wire.queue_values.config import QueueConfig

log = logging.getLogger(__name__)
SUBMISSIONS_MAX = 16
"""Maximum number of unanswered submissions to the metadata group."""
GROUPS_AT_ONCE = 100
"""Changed groups that are started or stopped at once; the others wait until these have leaders."""
LEADERS_PATIENCE_MS = 2_000
"""How long they wait at most: a majority may be away."""
LEADERS_POLL_MS = 5
REFUSED_RETRY_MS = 5_000
"""Interval in which a node refused by its cluster tries again: an operator may change that."""
NUMBERS_PER_ENTRY = 2 * COMMANDS_MAX
"""Numbers reserved for one entry of group 0; see `Definitions.number`."""
Done: TypeAlias = errors.Answer[Any]
"""Called once with a reply of `metadata.commands`, or with a Refusal."""
Load = Callable[[Callable[[], None]], None]
"""Loads definitions at a start, then calls back, see `cluster.boot_definitions`."""


class Definitions:
    """This node's side of the metadata group.

    The lists `on_…` hold functions that are called with what happens:
    on_deleted   called with each deleted queue, after its group was stopped here
    on_members   called with each group of which the wanted members changed
    on_nodes     called when the registry of nodes changes: with the node that joined or left, or ""
    on_access    called with users and vhosts that were deleted, even if others of these names
                 exist; without any when they are not known: the receiver compares
    on_policies  called with the vhosts of which policies changed; None: any may have
    on_ready     called once, when this node knows the definitions
    on_event     called with changes of the definitions, on the leader of the group alone and while
                 this node is ready: what it applies at its start is long known
    incarnation  the number of this node's incarnation; 0 until it is ready
    absent       the nodes that this one suspects (`cluster.membership.absences`)
    """

    def __init__(self, cluster: Cluster, timeout_ms: int, bootstrap: tuple[str, str, str]) -> None:
        self._cluster = cluster
        self._timeouts = RequestTimeouts(cluster.loop, timeout_ms)
        self._bootstrap = bootstrap
        self._machine = MetadataMachine(cluster.host.versions.newest)
        self._state = self._machine.init()
        self._arrived: deque[tuple[int, Done, Any]] = deque()
        self._begun = False
        self._dirty: dict[int, None] = {}
        self._all_dirty = False
        self._gone_users: dict[str, None] = {}
        self._gone_vhosts: dict[str, None] = {}
        self._nodes_changed: dict[str, None] = {}
        self._changed_policies: dict[str, None] = {}
        self._barrier = DefinitionBarrier(cluster, self._applied_index)
        self._asked = False
        self._awaits_leaders = False
        self._drawn = (0, 0)
        self._when_ready: list[Callable[[], None]] = []
        self.ready = False
        self._started = False
        self.incarnation = 0
        self.on_deleted: list[Callable[[QueueRecord], None]] = []
        self.on_members: list[Callable[[int], None]] = []
        self.on_nodes: list[Callable[[str], None]] = []
        self.on_access: list[Callable[[tuple[str, ...], tuple[str, ...]], None]] = []
        self.on_policies: list[Callable[[tuple[str, ...] | None], None]] = []
        self.on_ready: list[Callable[[], None]] = []
        self.on_event: list[Callable[[Meta, DefinitionEvent], None]] = []
        self._load: Load | None = None
        self._local_members = LocalMembers(cluster, self._deleted)
        self.absent = AbsentNodes()
        # Chance is this process's own: equal messages may go to different queues on every node.
        draw = Random(cluster.host.boot_id).randrange
        self._routing_node = RoutingNode(cluster.host.node_id, self.absent, draw)
        self.topology = Topology(self._state.scopes, self._routing_node)
        cluster.handlers[messages.MetadataReplied] = self._on_replied

    def start(
        self,
        peers: tuple[str, ...],
        address: str,
        load: Load | None = None,
        ports: tuple[int, ...] = (),
    ) -> None:
        """Find out how to take part in the group, and join it; the host has been started.

        peers    nodes that may know the leader; address: where they reach this one
        load     loads definitions before this node is ready; None: there are none to load
        ports    on which this one listens for clients
        """
        self._load = load
        host = self._cluster.host
        node, boot_id = host.node_id, host.boot_id
        uplink = metadata_uplink(host, self._cluster.in_flight)
        self._cluster.open_client(METADATA_GROUP, peers, uplink)
        versions = host.versions
        self._say_started(commands.NodeStarted(node, boot_id, host.disk, address, ports, versions))
        host.formation(self._formed)

    def _formed(self, formation: BootstrapPlan) -> None:
        self._begun = True
        spec = GroupSpec(METADATA_GROUP, formation.voters, joining=formation.joining)
        self._cluster.host.start_group(spec, self._machine)
        self.restored()  # no callback has reported the state of a snapshot on disk
        if formation.joining:
            log.info("this node joins a cluster that exists: %s", ", ".join(formation.voters))

    def _say_started(self, command: commands.NodeStarted) -> None:
        def started(reply: object) -> None:
            if isinstance(reply, errors.Refusal):
                log.error("the cluster refuses this node: %s", reply.detail)
                self._cluster.loop.call_later(REFUSED_RETRY_MS, lambda: self._say_started(command))
                return
            if self._load is None:
                self._loaded()
            else:
                self._load(self._loaded)

        self.submit(command, started, forever=True)

    def _loaded(self) -> None:
        self._started = True
        self._look_ready()

    def _look_ready(self) -> None:
        # 1. A new cluster's leader has not proposed the first user yet.  2. This node's own start
        # is answered before that.  3. A client that logs in now would be told that its password is
        # wrong: it waits instead. Replayed by test_a_login_before_the_first_user_waits.
        if self._started and self.state.bootstrapped and not self.ready:
            self._is_ready()

    def _is_ready(self) -> None:
        self.ready = True
        self.incarnation = self.state.numbers.get(self._cluster.host.node_id, 0)
        waiting, self._when_ready = self._when_ready, []
        for call in (*self.on_ready, *waiting):
            call()

    def call_at_ready(self, call: Callable[[], None]) -> None:
        """Call now, or when this node knows the definitions, however long that takes."""
        if self.ready:
            call()
        else:
            self.on_ready.append(call)

    def kept_out(self) -> str:
        """Return which peers refuse this node, and why, when it does not know the definitions.

        returns  "" when it does, when no peer refuses it, or when one is connected: it may yet join
        """
        host = self._cluster.host
        refusals = {} if self.ready else host.peer_port.refusals
        if any(host.connected(node) for node in self._cluster.peers()):
            return ""
        return "; ".join(f"{node}: {why}" for node, why in sorted(refusals.items()))

    def call_when_ready(self, call: Callable[[], None], too_late: Callable[[], None]) -> None:
        """Call now, or when this node knows the definitions; call `too_late` after the timeout.

        While the other nodes do not let it join, `too_late` is called at once.
        """
        if self.ready:
            call()
            return
        if self.kept_out():
            too_late()
            return
        number = self._timeouts.add(too_late)

        def now() -> None:
            if self._timeouts.answered(number):
                call()

        self._when_ready.append(now)

    # ------------------------------------------------------------ changing

    def submit(self, command: commands.AnyCommand, done: Done, forever: bool = False) -> None:
        """Change the definitions; call `done` with the reply, or Unavailable after the timeout."""
        client = self._cluster.clients[METADATA_GROUP]
        number = 0 if forever else self._timeouts.add(lambda: done(self._unavailable()))

        def answer(result: object) -> None:
            if forever or self._timeouts.answered(number):
                done(result)

        def replied(reply: object, index: int) -> None:
            result = (
                commands.to_refusal(reply) if isinstance(reply, commands.MetadataRefused) else reply
            )
            if reply is None:
                result = errors.InternalError(
                    f"{type(command).__name__} was applied, but its result is no longer kept: "
                    "check the definitions, then try again"
                )
            self._arrived.append((index, answer, result))
            self._ask_settle()

        client.command(command, replied)

    def number(self, done: errors.Answer[int]) -> None:
        """Draw a number above every number drawn before in this cluster, on any node.

        done  called with it, or with Unavailable after the timeout; then the number drawn is never
              used
        """
        deadline = self._timeouts.add(lambda: done(self._unavailable()))

        def replied(reply: object, index: int) -> None:
            # A log entry is from one node and holds at most COMMANDS_MAX commands.
            if index != self._drawn[0]:
                self._drawn = (index, 0)
            self._drawn = (index, self._drawn[1] + 1)
            if self._timeouts.answered(deadline):
                done(index * NUMBERS_PER_ENTRY + self._drawn[1])

        self._cluster.clients[METADATA_GROUP].command(commands.Barrier(), replied)

    def when_seen_by(self, node: str, call: Callable[[int], None]) -> None:
        """Call back when a node has applied what this one has now, and settled its members by it.

        call  with the index of that; 0: it has not answered
        """
        index = self._applied_index()
        self._barrier.call_when_seen(
            (node,), index, lambda answers: call(index if node in answers else 0)
        )

    def lost_majority(self) -> str:
        """Return which nodes this one does not reach, see `Cluster.lost_majority`."""
        return self._cluster.lost_majority(self.nodes())

    def _unavailable(self) -> errors.Unavailable:
        return errors.Unavailable(
            f"the metadata store did not answer within {self._timeouts.timeout_ms} ms: "
            f"{self.lost_majority()}{self._cluster.remark}"
        )

    def _on_replied(self, node: str, message: messages.MetadataReplied, rest: memoryview) -> None:
        self._replied(decode_reply(message.reply), message.index)

    def _replied(self, reply: commands.MetadataSubmissionReply, index: int) -> None:
        host = self._cluster.host
        if reply.uplink != host.boot_id:
            return
        if reply.retired:
            raise RuntimeError(
                f"node {host.node_id!r} was started a second time under the same name; "
                "this older process ends"
            )
        client = self._cluster.clients[METADATA_GROUP]
        client.replied(reply.seq, reply.replies, index, reply.expected_seq)

    def applied(self, meta: Meta, data: bytes, applied: Applied, leading: bool) -> None:
        """Pass on what a command of the metadata group has changed, see `ClusterCallbacks`."""
        reply = applied.reply
        if leading and isinstance(reply, commands.MetadataSubmissionReply) and reply.uplink:
            if reply.uplink == self._cluster.host.boot_id:
                self._replied(reply, meta.index)
            else:
                node = self._cluster.node_of(reply.uplink)
                if node is not None:
                    answer = messages.MetadataReplied(meta.index, encode_reply(reply))
                    self._cluster.host.send(node, messages.encode(answer))
        self._cluster.host.raise_version(self.state.version)
        told = self.on_event if leading and self.ready else ()
        for effect in applied.effects:
            if not isinstance(effect, DefinitionEvent):
                self._note(effect)
            else:
                for call in told:
                    call(meta, effect)
        self._ask_settle()

    def _note(self, change: Any) -> None:
        match change:
            case QueueChanged(queue):
                self._dirty[queue.group] = None
            case VhostDeleted(name):
                self._gone_vhosts[name] = None
            case UserDeleted(name):
                self._gone_users[name] = None
            case PoliciesChanged(vhost):
                self._changed_policies[vhost] = None
            case NodesChanged(joined, left):
                self._nodes_changed[joined or left] = None
            case NodeRenewed(node, uplink, _):
                self._cluster.effects.node_renewed(node)
                if uplink == self._cluster.host.boot_id:
                    self._all_dirty = True

    def restored(self) -> None:
        """Compare everything with the definitions: a snapshot has replaced them."""
        # 1. A node is away; user ann is deleted, and another person gets that name.  2. The node is
        # sent a snapshot, which has an ann.  3. What was open as the first ann would continue as
        # the second. A user's password hash has a salt of its own, so equal ones are of one user. A
        # new password gives another hash, too: it cannot be told from a new user here.
        before, after = self._state.users, self.state
        users = after.users
        for name in sorted(before.keys() & users.keys()):
            if before[name].password_hash != users[name].password_hash:
                self._gone_users[name] = None
        self._cluster.host.raise_version(after.version)
        self._all_dirty = True
        self._nodes_changed[""] = None
        self._cluster.effects.definitions_replaced()
        self._ask_settle()

    def is_over(self, node: str, uplink: int, number: int) -> bool:
        """Return whether an incarnation of a node is known to have ended."""
        return is_over(self.state, self._applied_index(), node, uplink, number)

    def leads(self) -> None:
        """Propose the first vhost and user where there are none: this node leads the group."""
        if self.state.bootstrapped or self._load is not None:
            return  # as in RabbitMQ, the definitions that are loaded replace the first user
        vhost, user, password = self._bootstrap
        command = commands.Bootstrap(
            Vhost(vhost),
            User(
                user,
                passwords.hash_password(password, os.urandom(passwords.SALT_BYTES)),
                ("administrator",),
            ),
        )
        host = self._cluster.host
        try:
            host.propose(
                METADATA_GROUP, encode_submission(0, host.node_id, 0, (command,), host.version)
            )
        except (NotLeader, UnknownGroup):
            return  # the next leader does it

    def _ask_settle(self) -> None:
        if not self._asked:
            self._asked = True
            self._cluster.loop.at_turn_end(LoopStage.GATHER, self._settle)

    def _applied_index(self) -> int:
        return self._cluster.host.applied_index(METADATA_GROUP) if self._begun else 0

    def _settle(self) -> None:
        """Start and stop groups as defined, then answer the requests that wait for that."""
        self._asked = False
        if not self._begun:
            return
        if self._awaits_leaders and not self._all_dirty:
            return
        begun = self._carry_on()
        if self._dirty:
            # What was asked for is answered, here and to other nodes, when all groups are there.
            self._awaits_leaders = True
            now_ms = self._cluster.loop.clock.monotonic_ms()
            self._await_leaders(begun, now_ms + LEADERS_PATIENCE_MS)
            return
        self._look_ready()
        self._barrier.answer()
        applied_index = self._applied_index()
        arrived, seen_here = self._arrived, []
        while arrived and arrived[0][0] <= applied_index:
            seen_here.append(arrived.popleft())
        if not seen_here:
            return

        def tell(_: object) -> None:
            for _, answer, result in seen_here:
                answer(result)

        others = self.within_reach()
        if others and self.ready:
            self._barrier.call_when_seen(others, max(item[0] for item in seen_here), tell)
        else:
            tell(None)

    def _await_leaders(self, groups: list[int], until_ms: int) -> None:
        """Continue with the next changed groups when these have leaders, or at that time.

        1. An import creates 10,000 queues.  2. Every node starts all of its members at once, and
        each of them wants an election.  3. The nodes are silent for seconds, suspect each other,
        and elect again.
        """
        loop, host, known = self._cluster.loop, self._cluster.host, self.state.groups
        missing = [
            group
            for group in groups
            if group in known and host.node_id in known[group].nodes and host.leader(group) is None
        ]
        if missing and loop.clock.monotonic_ms() < until_ms:
            loop.call_later(LEADERS_POLL_MS, lambda: self._await_leaders(missing, until_ms))
            return
        self._awaits_leaders = False
        self._ask_settle()

    def _carry_on(self) -> list[int]:
        """Update this node's members to the definitions, then notify the callbacks.

        returns  the groups that were looked at; more may wait in `_dirty`
        """
        state = self.state
        nodes, self._nodes_changed = self._nodes_changed, {}
        compare = self._all_dirty
        if compare:
            self._all_dirty = False
            self._dirty.clear()
            dirty = dict.fromkeys(state.groups)
            self._local_members.settle_all(state)
        else:
            dirty = dict.fromkeys(itertools.islice(self._dirty, GROUPS_AT_ONCE))
            for group in dirty:
                del self._dirty[group]
            self._local_members.settle(state, dirty)
        for name in nodes:
            for told in self.on_nodes:
                told(name)
        for group in dirty:
            for call in self.on_members:
                call(group)
        changed, self._changed_policies = tuple(self._changed_policies), {}
        if changed or compare:
            for report in self.on_policies:
                report(None if compare else changed)
        if self._gone_users or self._gone_vhosts or compare:
            users, self._gone_users = self._gone_users, {}
            vhosts, self._gone_vhosts = self._gone_vhosts, {}
            for report_access in self.on_access:
                report_access(tuple(users), tuple(vhosts))
        return list(dirty)

    def _deleted(self, queue: QueueRecord) -> None:
        for call in self.on_deleted:
            call(queue)

    # ------------------------------------------------------------ looking up

    def nodes(self) -> tuple[str, ...]:
        """Return every node that is not leaving the cluster, sorted.

        These are the registered ones and the founders that have never connected.
        """
        known = {name for name, one in self.state.nodes.items() if not one.forgetting}
        if not self._begun:
            return tuple(sorted(known))
        members = self._cluster.host.members(METADATA_GROUP)
        unheard = {
            name for name in (*members.voters, *members.learners) if name not in self.state.nodes
        }
        return tuple(sorted(known | unheard))

    def others(self) -> tuple[str, ...]:
        """Return every other node of the cluster, sorted."""
        return tuple(node for node in self.nodes() if node != self._cluster.host.node_id)

    def within_reach(self) -> list[str]:
        """Return every other node that is connected and not suspected."""
        host = self._cluster.host
        return [node for node in self.others() if host.connected(node) and not host.suspected(node)]

    @property
    def state(self) -> MetadataState:
        """The definitions as applied on this node."""
        if not self._begun:
            return self._state
        state: MetadataState = self._cluster.host.state(METADATA_GROUP)
        if state is not self._state:
            self._state = state
            self.topology = Topology(state.scopes, self._routing_node)
        return state

    def authenticate(self, user: str, password: str) -> bool:
        """Return whether that is the user's password."""
        known = self.state.users.get(user)
        return known is not None and passwords.matches(password, known.password_hash)

    def exchange(self, vhost: str, name: str) -> ExchangeFacts | None:
        """See `BrokerView`."""
        found = self.state.exchange(vhost, name)
        return ExchangeFacts(found.kind, found.internal) if found is not None else None

    def policies(self, vhost: str) -> PolicyIndex:
        """Return the policies of a vhost; none when the vhost does not exist."""
        scope = self.state.scopes.get(vhost)
        return scope.policies if scope is not None else PolicyIndex()

    def policy(self, queue: QueueRecord) -> EffectivePolicy:
        """Return the policies that a queue follows."""
        if queue.store_of:
            return NO_POLICY
        return self.policies(queue.vhost).of_queue(queue.name, queue.config.followed_as)

    def config(self, queue: QueueRecord) -> QueueConfig:
        """Return a queue's settings under the policies that are known here."""
        return self.policies(queue.vhost).config_of(queue)

    def permissions(self, vhost: str, user: str) -> Permissions | None:
        """See `BrokerView`."""
        grant = self.state.grants.get((vhost, user, None))
        return Permissions(grant.configure, grant.write, grant.read) if grant else None

    def topic_permissions(self, vhost: str, user: str, exchange: str) -> Permissions | None:
        """See `BrokerView`."""
        grant = self.state.grants.get((vhost, user, exchange))
        return Permissions(grant.configure, grant.write, grant.read) if grant else None

    def tags(self, user: str) -> tuple[str, ...]:
        """See `BrokerView`."""
        found = self.state.users.get(user)
        return found.tags if found is not None else ()

    def queue_type(self, vhost: str, queue: str) -> Kind | None:
        """See `BrokerView`."""
        found = self.state.queue(vhost, queue)
        if found is None:
            return None
        return "quorum" if found.arguments.get("x-queue-type") == "quorum" else "classic"


def metadata_uplink(host: Host, in_flight: InFlight) -> Uplink:
    """Return the uplink of an incarnation's submissions to the metadata group.

    It never has more commands unanswered than the group remembers replies for. 1. Two submissions
    of a thousand commands are under way.  2. Both are applied; their leader dies before it answers.
    3. Sent again, the first one is known to have been applied, but its answers are forgotten.
    """
    submissions = min(SUBMISSIONS_MAX, REPLIES_KEPT_MAX)
    boot_id, node = host.boot_id, host.node_id
    return Uplink(
        lambda seq, given, block, answered: encode_submission(
            boot_id, node, seq, given, host.version
        ),
        _no_blocks,
        None,
        in_flight,
        commands_max=REPLIES_KEPT_MAX // submissions,
        unanswered_max=submissions,
    )


def _no_blocks(parts: object, head: bytes) -> bytes:
    raise AssertionError(f"definitions have no blocks: {parts!r}")
