"""Membership and progress of groups, queried from their leaders for operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from msgspec.structs import replace

from warren_broker.cluster import messages
from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.messages import GroupFacts
from warren_broker.cluster.request_timeouts import RequestTimeouts
from warren_broker.cluster.survey import Survey
from warren_machines.metadata.records import QueueRecord
from warren_raft import types as raft
from warren_raft.core.quorum import majority
from warren_raft.errors import NotLeader
from warren_raft.runtime.host import UnknownGroup
from warren_raft.types import METADATA_GROUP
from warren_wire.admin.members import MemberInfo, MemberState, QueueMembers, Role

STATUS_PATIENCE_MS = 2_000
"""A leader that does not answer within this time counts as none."""
SEEK_MS = 300
"""Leaders of groups without a known one are searched for during this time."""
UNCERTAIN_MS = 30_000
"""For this long after a node has connected, groups are scanned for members that have not answered:
later there are none, or their groups are being changed."""
IN_STEP_ENTRIES = 1_000
"""A member that lacks more entries would have to catch up before it could replace another."""
ASKED_MAX = 500
"""Groups in one question."""

Facts = dict[int, GroupFacts]
"""Facts of groups with a known leader; the others are missing."""
Led = dict[str, messages.LedAre]
"""Answers by node; those that did not answer are missing."""


@dataclass(slots=True)
class _Question:
    """parts: number of answers awaited."""

    done: Callable[[Facts], None]
    found: Facts = field(default_factory=dict)
    parts: int = 0


class LeaderQueries:
    """Queries to the leaders of groups; groups led here are answered at once.

    replicated  returns whether a group is, or could be, on more than one node
    unsettled   returns the groups led here with other members than wanted
    """

    def __init__(
        self,
        cluster: Cluster,
        replicated: Callable[[int], bool],
        unsettled: Callable[[], tuple[int, ...]],
    ) -> None:
        self._cluster = cluster
        self._replicated = replicated
        self._unsettled = unsettled
        self._timeouts = RequestTimeouts(cluster.loop, STATUS_PATIENCE_MS)
        self._survey = Survey(cluster, messages.AskLed, messages.LedAre, STATUS_PATIENCE_MS)
        self._last_up_ms = cluster.loop.now_ms
        self._questions: dict[int, _Question] = {}
        self._counted: set[int] = set()
        self._defined = -1
        cluster.handlers[messages.AskMembers] = self._on_ask_members
        cluster.handlers[messages.MembersAre] = self._on_members
        cluster.handlers[messages.AskLed] = self._on_ask_led
        cluster.on_peer_up.append(self._peer_up)

    # ------------------------------------------------------------ facts of groups

    def ask(self, groups: Iterable[int], done: Callable[[Facts], None]) -> None:
        """Call `done` with the facts of these groups, within about STATUS_PATIENCE_MS."""
        groups = list(groups)
        unknown = [group for group in groups if self._cluster.leader_of(group) is None]
        if not unknown:
            self._ask(groups, done)
            return
        for group in unknown[:ASKED_MAX]:
            self._cluster.ask_who_leads(group)
        self._cluster.loop.call_later(SEEK_MS, partial(self._ask, groups, done))

    def _ask(self, groups: list[int], done: Callable[[Facts], None]) -> None:
        host = self._cluster.host
        request = self._timeouts.add(lambda: self._finish(request))
        question = self._questions[request] = _Question(done)
        by_leader: dict[str, list[int]] = {}
        for group in groups:
            leader = self._cluster.leader_of(group)
            if leader == host.node_id:
                question.found.update(self._here([group]))
            elif leader is not None:
                by_leader.setdefault(leader, []).append(group)
        for leader, some in by_leader.items():
            for first in range(0, len(some), ASKED_MAX):
                asked = messages.AskMembers(request, tuple(some[first : first + ASKED_MAX]))
                question.parts += host.send(leader, messages.encode(asked))
        if not question.parts:
            self._finish(request)

    def _finish(self, request: int) -> None:
        question = self._questions.pop(request, None)
        if question is not None:
            self._timeouts.answered(request)
            question.done(question.found)

    def _on_members(self, node: str, message: messages.MembersAre, rest: memoryview) -> None:
        question = self._questions.get(message.request)
        if question is None:
            return
        question.found.update({facts.group: facts for facts in message.facts})
        question.parts -= 1
        if question.parts <= 0:
            self._finish(message.request)

    # ------------------------------------------------------------ which node leads which group

    def ask_led(self, done: Callable[[Led], None], stopping: str = "", brief: bool = False) -> None:
        """Call `done` with what every reachable node leads, this one included; see AskLed."""
        own = {self._cluster.host.node_id: self._led_here(messages.AskLed(0, stopping, brief))}
        asked = stopping, brief
        self._survey.ask(self._cluster.peers(), lambda answers: done({**own, **answers}), *asked)

    def _peer_up(self, node: str) -> None:
        self._last_up_ms = self._cluster.loop.now_ms

    # ------------------------------------------------------------ answers

    def _here(self, groups: Iterable[int]) -> Facts:
        host = self._cluster.host
        found: Facts = {}
        for group in groups:
            try:
                states = host.member_states(group) if host.is_leader(group) else ()
            except (NotLeader, UnknownGroup):
                continue
            if states:
                found[group] = GroupFacts(
                    group,
                    host.term(group),
                    max(one.last for one in states),
                    host.applied_index(group),
                    tuple(map(self._as_seen, states)),
                )
        return found

    def _as_seen(self, one: raft.MemberState) -> raft.MemberState:
        """Return a member's state; one that is not connected counts as suspected."""
        if one.leader or one.suspected or self._cluster.host.connected(one.node):
            return one
        return replace(one, suspected=True)

    def _led_here(self, asked: messages.AskLed) -> messages.LedAre:
        host = self._cluster.host
        uncertain = self._cluster.loop.now_ms - self._last_up_ms < UNCERTAIN_MS
        if asked.brief and not uncertain:
            with suppress(UnknownGroup):  # it has no definitions yet
                known: tuple[int, ...] = ()
                if host.is_leader(METADATA_GROUP):
                    known = (METADATA_GROUP,)
                facts = tuple(self._here(dict.fromkeys(self._unsettled())).values())
                return messages.LedAre(asked.request, known, (), facts, self._count_led())
        led = tuple(group for group in host.groups() if host.is_leader(group))
        critical = tuple(
            group for group in led if asked.stopping and self._needs(group, asked.stopping)
        )
        unsettled = dict.fromkeys(self._unsettled())
        if uncertain:
            unsettled.update(dict.fromkeys(group for group in led if self._uncertain(group)))
        facts = tuple(self._here(unsettled).values())
        return messages.LedAre(asked.request, led, critical, facts)

    def _count_led(self) -> int:
        """Return how many replicated queues are led here; only groups that change are looked at.

        Whether a queue is replicated changes with the definitions.
        """
        host = self._cluster.host
        changed, defined = host.take_changed("led"), host.applied_index(METADATA_GROUP)
        if changed is None or defined != self._defined:
            self._defined, self._counted = defined, set()
            changed = {*host.groups()}
        for group in changed - {METADATA_GROUP}:
            self._counted.discard(group)
            with suppress(UnknownGroup):  # it has ended
                if host.is_leader(group) and self._replicated(group):
                    self._counted.add(group)
        return len(self._counted)

    def _uncertain(self, group: int) -> bool:
        """Return whether a reachable member has not reported its log yet, or has lost it."""
        states = self._cluster.host.member_states(group)
        return any((one.lost or one.probing) and not one.suspected for one in states)

    def _needs(self, group: int, node: str) -> bool:
        """Return whether the group would have no majority without the node.

        Only voters that are reachable and hold nearly everything count.
        """
        host = self._cluster.host
        members = host.members(group)
        if node not in members.voters or not self._replicated(group):
            return False
        # A connection that has just broken counts at once: suspicion allows time for a
        # reconnection, and in that time the next node would be reported as safe to stop.
        left = [
            one
            for one in host.member_states(group)
            if one.voter
            and one.node != node
            and not (one.suspected or one.lost or one.probing)
            and (one.leader or host.connected(one.node))
            and one.last - one.match <= IN_STEP_ENTRIES
        ]
        return len(left) < majority(len(members.voters))

    def _on_ask_members(self, node: str, message: messages.AskMembers, rest: memoryview) -> None:
        facts = tuple(self._here(message.groups).values())
        answer = messages.MembersAre(message.request, facts)
        self._cluster.host.send(node, messages.encode(answer))

    def _on_ask_led(self, node: str, message: messages.AskLed, rest: memoryview) -> None:
        self._cluster.host.send(node, messages.encode(self._led_here(message)))


def members_of(
    queue: QueueRecord, facts: GroupFacts | None, running: Callable[[str], bool]
) -> QueueMembers:
    """Return a queue's members; facts None: it has no reachable leader."""
    if facts is None:
        members = tuple(_unknown(node, running) for node in sorted(queue.carriers))
        return QueueMembers(
            queue.vhost, queue.name, queue.config.kind, None, 0, 0, 0, members, queue.nodes, False
        )
    here = {one.node: one for one in facts.members}
    nodes = sorted({*here, *queue.carriers})
    voters = sorted(one.node for one in facts.members if one.voter)
    return QueueMembers(
        vhost=queue.vhost,
        name=queue.name,
        kind=queue.config.kind,
        leader=next((one.node for one in facts.members if one.leader), None),
        term=facts.term,
        last_index=facts.last,
        commit_index=facts.commit,
        members=tuple(member(node, here.get(node), queue, facts, running) for node in nodes),
        wanted=queue.nodes,
        settled=voters == sorted(queue.nodes)
        and len(here) == len(voters)
        and not any(one.lost or one.probing for one in facts.members),
        online=tuple(sorted(one.node for one in facts.members if not one.suspected)),
        synchronised=tuple(sorted(one.node for one in facts.members if _synchronised(one))),
    )


def _synchronised(member: raft.MemberState) -> bool:
    """Return whether a reachable member holds everything, but for what is on its way to it."""
    return member.voter and not (member.suspected or member.lost or member.probing)


def member(
    node: str,
    known: raft.MemberState | None,
    queue: QueueRecord,
    facts: GroupFacts,
    running: Callable[[str], bool],
) -> MemberInfo:
    """Return one member of a group with a leader; known None: it is not a member now."""
    if known is None:
        state: MemberState = "starting" if node in queue.nodes else "leaving"
        return MemberInfo(node, "none", state if running(node) else "down", lag=facts.last)
    role: Role = "leader" if known.leader else "follower" if known.voter else "learner"
    return MemberInfo(
        node,
        role,
        _state(known, queue),
        known.voter and not known.lost,
        known.match,
        max(0, facts.last - known.match),
        known.sent_bytes,
        known.total_bytes,
    )


def _state(known: raft.MemberState, queue: QueueRecord) -> MemberState:
    if known.suspected:
        return "down"
    if known.node not in queue.nodes:
        return "leaving"
    if known.lost:
        return "lost"
    if known.snapshotting:
        return "snapshot"
    # 1. A node comes back with an empty disk.  2. Until it has answered, its group's leader knows
    # what it held before.  A caller that waits for it must not take that for completion.
    return "running" if known.voter and not known.probing else "catching_up"


def _unknown(node: str, running: Callable[[str], bool]) -> MemberInfo:
    return MemberInfo(node, "none", "unknown" if running(node) else "down")
