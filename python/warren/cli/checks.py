"""What is wrong with a cluster, or may become so: the checks of `warren health` and `doctor`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from warren.admin import Admin, Queue
from warren.connection import Connection
from warren.errors import WarrenError
from warren.uri import Address
from warren_wire.admin.connections import ConsumerInfo
from warren_wire.admin.node_facts import NodeCondition
from warren_wire.admin.queues import NO_DELIVERY_LIMIT

Level: TypeAlias = Literal["error", "warning", "not checked"]
DAY_MS: Final = 86_400_000
CERTIFICATE_DAYS: Final = 14
CLOCK_OFF_MS: Final = 500
SYNCS_MIN: Final = 100
SLOW_SYNCS_PER_HUNDRED: Final = 1
CONSUMER_TIMEOUT_MS: Final = 60_000
READER_LEASE_MS: Final = 600_000
FOUND_MAX: Final = 20
"""Objects that one check names; further ones are counted."""


class Finding(NamedTuple):
    """What a check has found, and what to do about it."""

    level: Level
    check: str
    object: str
    text: str
    remedy: str


@dataclass
class Facts:
    """What the checks look at; each part is asked for once.

    address  of the cluster, for the vhosts that are not the connection's
    deep     counts of queues are wanted, for which their leaders are asked
    """

    admin: Admin
    address: Address
    deep: bool
    now_ms: int = field(default_factory=lambda: int(time.time() * 1000))

    @cached_property
    def conditions(self) -> tuple[NodeCondition, ...]:
        """What the nodes say of themselves."""
        return self.admin.cluster.conditions()

    @cached_property
    def consumers(self) -> list[ConsumerInfo]:
        """All consumers."""
        return self.admin.consumers.list()

    @cached_property
    def queues(self) -> list[Queue]:
        """All queues of the vhosts that the user may enter."""
        found: list[Queue] = []
        for vhost in self.admin.vhosts.list():
            with Connection(replace(self.address, vhost=vhost.name), name="warren doctor") as there:
                found += Admin(there).queues.list(counts=self.deep)
        return found


Check: TypeAlias = Callable[[Facts], Iterator[Finding]]
HEALTH: dict[str, Check] = {}
DOCTOR: dict[str, Check] = {}
"""Checks by name: of what is wrong now, and of what may become so."""


def _check(name: str, of: dict[str, Check]) -> Callable[[Check], Check]:
    def add(check: Check) -> Check:
        of[name] = check
        return check

    return add


def findings(facts: Facts, checks: Mapping[str, Check]) -> list[Finding]:
    """Return what these checks find; one that cannot be made says so."""
    found: list[Finding] = []
    for name, check in checks.items():
        try:
            each = list(check(facts))
        except WarrenError as error:
            each = [Finding("not checked", name, "", str(error), "see the text")]
        found += each[:FOUND_MAX]
        if len(each) > FOUND_MAX:
            more = each[FOUND_MAX]
            text = f"{len(each) - FOUND_MAX:,} more of this kind are not shown"
            found.append(Finding(more.level, name, "", text, more.remedy))
    return found


# ------------------------------------------------------------------ health


@_check("nodes", HEALTH)
def _nodes(facts: Facts) -> Iterator[Finding]:
    for node in facts.admin.nodes.list():
        if not node.running:
            remedy = "start it, or `warren nodes forget` it if it does not come back"
            yield Finding("error", "nodes", node.name, "it is down, or not in reach", remedy)
        elif node.drained:
            text = "it is in maintenance: it has no clients and no leaders"
            yield Finding("warning", "nodes", node.name, text, f"warren nodes revive {node.name}")


@_check("alarms", HEALTH)
def _alarms(facts: Facts) -> Iterator[Finding]:
    for one in facts.admin.cluster.alarms():
        text = f"it is low on {one.resource}: publishers of the whole cluster are blocked"
        remedy = "consume, purge, or give the node more; docs/how-to/full-disk.md"
        yield Finding("error", "alarms", one.node, text, remedy)


@_check("leaders", HEALTH)
def _leaders(facts: Facts) -> Iterator[Finding]:
    for queue in facts.queues:
        if not queue.leader:
            text = f"it has no leader; members on {', '.join(queue.replicas)}"
            remedy = "start these nodes; for good without a majority: docs/how-to/lost-majority.md"
            yield Finding("error", "leaders", _named(queue), text, remedy)


@_check("certificates", HEALTH)
def _certificates(facts: Facts) -> Iterator[Finding]:
    for node in facts.conditions:
        for one in node.certificates:
            days = (one.ends_at - facts.now_ms) // DAY_MS
            if days >= CERTIFICATE_DAYS:
                continue
            text = "it has ended" if days < 0 else f"it ends in {days} days"
            named, level = f"{node.node}: {one.file}", "error" if days < 0 else "warning"
            remedy = "replace the file; the node reads it again by itself"
            yield Finding(level, "certificates", named, text, remedy)  # type: ignore[arg-type]


@_check("versions", HEALTH)
def _versions(facts: Facts) -> Iterator[Finding]:
    version = facts.admin.cluster.version()
    for name in version.held_back_by:
        text = f"its release keeps the cluster at version {version.version}"
        yield Finding("warning", "versions", name, text, "upgrade it: docs/how-to/upgrade.md")
    if version.attainable > version.version:
        text = f"every node has version {version.attainable}, the cluster {version.version}"
        yield Finding("warning", "versions", "", text, "warren cluster finish-upgrade")


@_check("audit", HEALTH)
def _audit(facts: Facts) -> Iterator[Finding]:
    for node in facts.conditions:
        if node.audit_lost:
            text = f"{node.audit_lost:,} records of the audit log could not be written"
            remedy = "make space where its log says; lost records do not come back"
            yield Finding("warning", "audit", node.node, text, remedy)


# ------------------------------------------------------------------ doctor


def _named(queue: Queue) -> str:
    return f"{queue.name} in {queue.vhost}"


@_check("clocks", DOCTOR)
def _clocks(facts: Facts) -> Iterator[Finding]:
    for node in facts.conditions:
        sure_ms = abs(node.clock_off_ms) - node.round_trip_ms // 2
        if sure_ms > CLOCK_OFF_MS:
            text = f"its clock is {node.clock_off_ms:+,} ms off that of the node that was asked"
            remedy = "run chrony or another NTP client: expiry and schedules follow the leader"
            yield Finding("warning", "clocks", node.node, text, remedy)


@_check("disks", DOCTOR)
def _disks(facts: Facts) -> Iterator[Finding]:
    for node in facts.conditions:
        if node.syncs < SYNCS_MIN:
            continue
        if node.slow_syncs * 100 > node.syncs * SLOW_SYNCS_PER_HUNDRED:
            text = (
                f"{node.slow_syncs:,} of {node.syncs:,} syncs of its log took over 100 ms: each "
                "confirm waits for one on a majority"
            )
            remedy = "a faster or less shared disk; warren_raft_sync_seconds shows the times"
            yield Finding("warning", "disks", node.node, text, remedy)


@_check("prefetch", DOCTOR)
def _prefetch(facts: Facts) -> Iterator[Finding]:
    limits = {(one.vhost, one.name): one.delivery_limit for one in facts.queues}
    for one in facts.consumers:
        if not one.ack_required:
            continue
        name, limit = f"{one.consumer_tag} of {one.queue} in {one.vhost}", 0
        if not one.prefetch_count:
            text = "its prefetch is unlimited: one slow consumer gets the whole queue"
            yield Finding("warning", "prefetch", name, text, "set basic.qos, to 100 or so")
            continue
        limit = limits.get((one.vhost, one.queue), NO_DELIVERY_LIMIT)
        if 0 <= limit < one.prefetch_count:
            text = (
                f"its prefetch of {one.prefetch_count} is above the queue's delivery limit of "
                f"{limit}: a consumer that crashes as often with one bad message has the others "
                "dropped, too"
            )
            remedy = "a prefetch below the limit, or a higher x-delivery-limit"
            yield Finding("warning", "prefetch", name, text, remedy)


@_check("timeouts", DOCTOR)
def _timeouts(facts: Facts) -> Iterator[Finding]:
    for one in facts.consumers:
        timeout_ms = one.consumer_timeout
        if timeout_ms is not None and timeout_ms < CONSUMER_TIMEOUT_MS and one.ack_required:
            name = f"{one.consumer_tag} of {one.queue} in {one.vhost}"
            text = f"what it holds for {timeout_ms:,} ms returns: a batch may take longer"
            yield Finding("warning", "timeouts", name, text, "a longer x-consumer-timeout")
    for queue in facts.queues:
        for reader in queue.readers:
            if reader.heard_ago_ms is None or reader.expires_in_ms is None:
                continue
            lease_ms = reader.heard_ago_ms + reader.expires_in_ms
            if lease_ms < READER_LEASE_MS:
                name = f"reader {reader.name} of {_named(queue)}"
                text = f"it is forgotten after {lease_ms:,} ms: a batch or a restart may be longer"
                yield Finding("warning", "timeouts", name, text, "a longer readerExpires")


@_check("members", DOCTOR)
def _members(facts: Facts) -> Iterator[Finding]:
    nodes = len(facts.admin.nodes.list())
    for queue in facts.queues:
        if queue.type != "quorum":
            continue
        if len(queue.replicas) == 2:
            text = "it has two members: when either is down it has no majority"
            remedy = "a third member (`warren queues add-member`), or one"
            yield Finding("warning", "members", _named(queue), text, remedy)
        elif len(queue.replicas) == 1 and nodes > 2:
            text = f"it is on {queue.replicas[0]} alone, of {nodes} nodes: it is lost with its disk"
            yield Finding("warning", "members", _named(queue), text, "warren queues add-member")


@_check("dead letters", DOCTOR)
def _dead_letters(facts: Facts) -> Iterator[Finding]:
    for queue in facts.queues:
        said = {**queue.effective_policy_definition, **_without_x(queue.arguments)}
        yield from dead_letter_findings(_named(queue), queue.type == "quorum", said)


def _without_x(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {key.removeprefix("x-"): value for key, value in arguments.items()}


def dead_letter_findings(name: str, is_quorum: bool, said: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield what is found of a queue's settings about dead letters.

    said  arguments and keys of policies, without `x-`
    """
    if not is_quorum or said.get("dead-letter-exchange") is None:
        return
    if said.get("dead-letter-strategy") != "at-least-once":
        text = "dead letters are published at most once: they are lost while their target is away"
        remedy = "dead-letter-strategy at-least-once, with overflow reject-publish"
        yield Finding("warning", "dead letters", name, text, remedy)
    elif said.get("overflow") != "reject-publish":
        text = "at-least-once has no effect without overflow reject-publish"
        yield Finding("warning", "dead letters", name, text, "set overflow to reject-publish")
