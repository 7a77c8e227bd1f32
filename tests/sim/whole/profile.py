"""What kind of world a seed makes: its nodes, its queues, its people, its faults."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Literal

from sim.profile import with_delays
from sim.whole import swarm, waiting, windows
from warren_raft.config import RaftConfig

DEAD = "dead"
"""The queue that dead letters go to."""
TARGET = "target"
"""The queue that dead letters go to that are kept until then, by way of LETTERS."""
LETTERS = "letters"
"""An exchange, which comes and goes."""
GOVERNED = "governed"
"""The queue that policies set limits to."""
LATER = "later"
"""An exchange that delays what is published to it, see STORE; both of DUE are bound to it."""
STORE = "amq.delayed.later"
MADE = "made"
"""The queue of what is made of claims, which are settled by its publishing."""
SIFTED = "sifted"
"""The queue of which most consumers have filters."""
DUE = ("due", "narrow")
"""The queues that get what is due; the second one is soon full, and refuses more."""
Kind = Literal["ack", "no-ack", "mixed"]


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """A queue, and what its people may do to it.

    group_size  how many members it begins with
    volatile    it ends with its node: nothing is promised
    forgets     messages may leave it unread, but only for these reasons of `dead_letter_or_drop`
    takes_back  what was delivered may be taken back although no consumer lost it (timeouts)
    no_ack      some consumers take without acknowledging: what they got and lost is lost
    refuses     a publish may be refused
    swept       operators purge it, delete it, declare it again
    """

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    group_size: int = 3
    durable: bool = True
    volatile: bool = False
    forgets: tuple[str, ...] = ()
    takes_back: bool = False
    no_ack: bool = False
    refuses: bool = False
    swept: bool = False
    ttl_ms: int | None = None

    @property
    def delays(self) -> bool:
        """Its messages wait when they come back."""
        return "x-delayed-retry-type" in self.arguments

    @property
    def trouble(self) -> float:
        """How often a consumer rejects or returns one of its messages."""
        return 0.5 if self.delays or self.keeps else 0.15

    @property
    def keeps(self) -> bool:
        """Its dead letters stay until their targets have confirmed them."""
        return "x-dead-letter-strategy" in self.arguments

    @property
    def letters(self) -> bool:
        """It keeps dead letters, or gets those that were kept."""
        return self.keeps or self.name == TARGET

    @property
    def fed(self) -> bool:
        """No client publishes to it: what comes may come twice, and in any order."""
        return self.name in (DEAD, TARGET, *DUE)

    @property
    def once(self) -> bool:
        """It drops what was published before."""
        return "x-deduplication" in self.arguments

    @property
    def alone(self) -> bool:
        """It lives on one node: while that is out of reach, publishes are refused."""
        return not self.durable or self.arguments.get("x-queue-type") == "classic"


@dataclass(frozen=True, slots=True)
class Profile:
    """How bad the world is; times in milliseconds, (min, max) where there are two.

    nodes        that form the cluster; joiners: nodes that come later
    faults       which kinds strike, each as often as it is named
    surely       this one strikes once, whatever the others do
    skew_ms      clocks differ by up to so much, and jump
    windows      bounds of the product that are smaller than its own
    bad          of the unlucky ones: these never become well again, also when all is calm
    write_here   the log writes small batches itself, without a thread, as on a quick disk
    unlucky      nodes whose disks may be lost or damaged: too few for any majority
    claim_ttl_ms claims expire, 0: they do not
    changes      operators change the members of queues, and drain nodes
    policies     operators set, change and clear policies
    malformed    some messages have unreadable properties
    fanout       publishers use an exchange that feeds every queue now and then
    later        there is an exchange that delays messages, with its store
    imports      an operator imports definitions
    sifts        there is a queue of which consumers have filters, see SIFTED
    awaiters     clients with auto-delete queues
    vanishing    the target of dead letters is purged, deleted, declared again
    rolls        nodes run programs of two versions, see `programs`
    """

    nodes: int
    joiners: int
    safety_ms: int
    latency_ms: tuple[int, int]
    sync_ms: tuple[int, int]
    sector_bytes: int
    fault_every_ms: int
    faults: tuple[str, ...]
    surely: str
    skew_ms: int
    unlucky: tuple[str, ...]
    bad: tuple[str, ...]
    queues: tuple[QueuePlan, ...]
    messages: int
    publishers: int
    consumers: int
    getters: int
    readers: int
    rivals: bool
    claim_ttl_ms: int
    sinks: int
    loners: int
    changes: bool
    window: int
    pace_ms: int
    work_ms: int
    message_ttl: bool
    malformed: bool
    fanout: bool
    heartbeat_ms: int
    wal_file_bytes: int
    snapshot_entries_min: int
    retained_bytes_max: int
    memtable_bytes: int
    write_here: bool
    windows: windows.Windows
    config: RaftConfig
    policies: bool = False
    later: bool = False
    settlers: int = 0
    carriers: int = 0
    imports: bool = False
    sifts: bool = False
    awaiters: int = 0
    vanishing: bool = False
    rolls: bool = False


BRIEF_SHARE = 0.7
"""Most worlds are over soon: there can be the more of them."""
JOINERS = (0, 0, 0, 1, 2)
UNLUCKY_SHARE, BAD_SHARE = 0.55, 0.4
POLICIES_SHARE, POLICIES_MS = 0.25, 1_500
"""Worlds in which policies change, and for how long at least."""
DELAYS_SHARE = 0.25
"""Worlds that have a queue with delayed retry beside the others."""
LETTERS_SHARE = 0.2
"""Worlds that have a queue that keeps its dead letters, and one that they go to."""
VANISHING_SHARE, VANISHING_AT, VANISHING_MS, BOTH_VANISH = 0.5, 886, 2_500, 0.2
"""Of those: worlds in which the latter vanishes, and is declared again; for how long at least; the
share of these in which the former does, too. The number that decides is so late that no recorded
world became one."""
RELAYS_SHARE, RELAYS_AT = 0.1, 62
"""Worlds with a relay; the number that decides is chosen as that of SETTLERS_AT."""
CARRIED = "carried"
"""The queue to which relays carry messages."""
ONCE_SHARE = 0.2
"""Worlds that have a queue that drops duplicates."""
LATER_SHARE, LATER_MS, LATER_RETRY_MS = 0.5, 1_200, 300
"""Of the worlds with none of these: those with an exchange that delays messages; for how long at
least; and how long what a queue has refused waits in its store."""
IMPORTS_SHARE = 0.5
"""Of the worlds that have none of those either: those in which definitions are imported."""
SETTLERS_SHARE, SETTLERS_AT = 0.25, 41
"""Of worlds in which claims do not expire: those with drivers that publish batches which settle
their claims; the number that decides is so late that no recorded world became one."""
ROLLS_SHARE, ROLLS_AT, ROLLS_MS = 0.12, 976, 1_500
"""Worlds in which nodes are upgraded, and for how long at least; the number that decides is chosen
as that of SETTLERS_AT."""
SIFTED_SHARE, SIFTED_AT = 0.8, 215
"""Of the worlds with none of all these: those with a queue of which consumers have filters; drawn
so late that no recorded world became one."""


def draw(rng: Random) -> Profile:
    """A profile; the same generator state gives the same one."""
    brief = rng.random() < BRIEF_SHARE
    nodes = rng.choice((3, 3, 3, 3, 3, 1, 2, 4, 5) if brief else (3, 3, 3, 3, 1, 2, 4, 5, 5, 7))
    unlucky: tuple[str, ...] = (f"n{1 + rng.randrange(nodes)}",)
    if nodes < 3 or rng.random() >= UNLUCKY_SHARE:
        unlucky = ()
    drawn, changes = swarm.draw(rng, nodes, bool(unlucky)), rng.random() < 0.4
    consumers, readers = rng.choice(((1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (0, 1), (0, 2)))
    safety = (150, 250, 400) if brief or nodes == 7 else (600, 1_000, 1_500, 2_500, 5_000)
    pace = (10, 30) if brief else (20, 60)
    others = rng.choice((0, 0, 1) if brief else (0, 1, 1, 2))
    often = (0, 40, 40, 80) if brief else (0, 80, 150, 150, 300, 600)
    if drawn.older:
        safety, often = (900, 1_200, 1_500), (150, 300, 600)
    if drawn.lives:
        safety, often, pace = (2_500, 4_000), (600, 1_000), (200, 400)
    queues = _queues(rng, nodes, drawn.lives, bool(unlucky), others)
    profile = Profile(
        nodes=nodes,
        # A node that comes later does not know the log of which an older copy is put back.
        joiners=rng.choice(JOINERS) if nodes < 7 and not drawn.older else 0,
        safety_ms=rng.choice(safety),
        latency_ms=rng.choice(((0, 2), (0, 2), (1, 10), (5, 40), (0, 120))),
        sync_ms=rng.choice(((1, 3), (2, 20), (2, 20), (5, 80))),
        sector_bytes=rng.choice((64, 512, 512, 4096)),
        fault_every_ms=rng.choice(often),
        faults=drawn.faults,
        surely=drawn.surely,
        skew_ms=rng.choice((0, 0, 800, 5_000)),
        unlucky=unlucky,
        bad=unlucky if rng.random() < BAD_SHARE else (),
        queues=queues,
        messages=rng.choice((4, 8, 12) if brief else (10, 20, 40)),
        publishers=rng.choice((1, 2)),
        consumers=consumers,
        getters=rng.choice((0, 0, 0, 1)),
        readers=readers,
        rivals=rng.random() < 0.5,
        claim_ttl_ms=rng.choice((0, 0, 150, 500)),
        sinks=rng.choice((0, 0, 1) if brief else (0, 1, 2)),
        loners=rng.choice((0, 0, 0, 1)),
        changes=changes,
        window=rng.choice((1, 4, 16)),
        pace_ms=rng.choice(pace),
        work_ms=rng.choice((5, 60) if brief else (5, 60, 400)),
        message_ttl=rng.random() < 0.1,
        malformed=rng.random() < (0.6 if _dies(queues) else 0.1),
        fanout=rng.random() < 0.2,
        heartbeat_ms=rng.choice((100, 200)),
        wal_file_bytes=rng.choice((2_000, 2_000, 6_000, 1 << 20)),
        snapshot_entries_min=rng.choice((1, 6, 64)),
        retained_bytes_max=rng.choice((0, 1_000, 1 << 20)),
        memtable_bytes=rng.choice((500, 1 << 20)),
        write_here=rng.random() < 0.25,
        windows=windows.draw(rng, drawn.lives),
        config=_config(rng),
    )
    return _behind(profile) if drawn.behind else _more(profile, rng, drawn.lives)


def _more(profile: Profile, rng: Random, lives: bool) -> Profile:
    """Add what only some worlds have, by generators that leave the others as they are."""
    kept = _vanishing(_keeping(_delaying(profile, rng), rng), rng)
    more = _once(_governed(kept, rng, lives), rng)
    if more is profile and not lives:
        more = _later(more, rng)
    if more is profile and not lives:
        more = _importing(more, rng)
    if not lives:
        more = _settling(_relaying(more, rng), rng)
    if more is profile and not lives:
        more = _sifting(more, rng)
    full = _full(replace(more, awaiters=0 if more.bad else waiting.awaiters(rng)))
    return _rolling(full, rng)


def _delaying(profile: Profile, rng: Random) -> Profile:
    """Add a queue with delayed retry to some worlds.

    Drawn by a generator of its own, so that all other worlds stay as they are.
    """
    aside = Random()
    aside.setstate(rng.getstate())
    if aside.random() >= DELAYS_SHARE:
        return profile
    plain, *others = profile.queues
    retrying = _retrying(aside, plain.group_size)
    return replace(profile, queues=(plain, retrying, *others), messages=2 * profile.messages)


def _keeping(profile: Profile, rng: Random) -> Profile:
    """Add a queue that keeps its dead letters to some worlds; all others stay as they are."""
    aside = Random()
    aside.setstate(rng.getstate())
    aside.random()
    if aside.random() >= LETTERS_SHARE:
        return profile
    size = profile.queues[0].group_size
    target = {
        "x-queue-type": "quorum",
        "x-delivery-limit": -1,
        "x-overflow": "reject-publish",
        "x-max-length": aside.choice((1, 3)),
    }
    plans = (*profile.queues, _source(aside, size), QueuePlan(TARGET, target, size))
    messages, window = 40 + profile.messages, max(4, profile.window)
    return replace(profile, queues=plans, messages=messages, window=window)


def _vanishing(profile: Profile, rng: Random) -> Profile:
    """Let the target of kept dead letters vanish, sometimes their source; like `_delaying`."""
    aside = Random()
    aside.setstate(rng.getstate())
    share = [aside.random() for _ in range(VANISHING_AT)][-1]
    if share >= VANISHING_SHARE or not any(plan.keeps for plan in profile.queues):
        return profile
    both = aside.random() < BOTH_VANISH
    plans = [replace(plan, swept=plan.swept or (plan.keeps and both)) for plan in profile.queues]
    safety_ms = max(profile.safety_ms, VANISHING_MS)
    return replace(profile, queues=tuple(plans), safety_ms=safety_ms, vanishing=True)


def _source(rng: Random, size: int) -> QueuePlan:
    ttl_ms = rng.choice((None, None, 100))
    arguments = {
        "x-queue-type": "quorum",
        "x-delivery-limit": rng.choice((0, 1)),
        "x-overflow": "reject-publish",
        "x-dead-letter-exchange": LETTERS,
        "x-dead-letter-strategy": "at-least-once",
    }
    if ttl_ms is not None:
        arguments["x-message-ttl"] = ttl_ms
    reasons = ("rejected", "delivery_limit", *(("expired",) if ttl_ms is not None else ()))
    refuses = rng.random() < 0.3
    if refuses:
        arguments["x-max-length"] = 6
    return QueuePlan("source", arguments, size, forgets=reasons, refuses=refuses, ttl_ms=ttl_ms)


def _governed(profile: Profile, rng: Random, lives: bool) -> Profile:
    """Add operators that change policies to some worlds, and a queue that may be limited.

    Drawn as in `_delaying`. Not where nodes never become well: a policy may name them, and then its
    members never come; nor where a node begins life after life, for which queues have a size.
    """
    aside = Random()
    aside.setstate(rng.getstate())
    aside.random()
    aside.random()
    if aside.random() >= POLICIES_SHARE or profile.bad or lives:
        return profile
    plain, *others = profile.queues
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": -1}
    reasons = ("maxlen", "expired", "delivery_limit")
    plan = QueuePlan(GOVERNED, arguments, plain.group_size, forgets=reasons, ttl_ms=300)
    return replace(
        profile,
        queues=(plain, plan, *others),
        messages=3 * profile.messages,
        policies=True,
        safety_ms=max(profile.safety_ms, POLICIES_MS),
    )


def _once(profile: Profile, rng: Random) -> Profile:
    """Add a queue that drops duplicates to some worlds; drawn like `_delaying`."""
    aside = Random()
    aside.setstate(rng.getstate())
    if [aside.random() for _ in range(9)][-1] >= ONCE_SHARE:
        return profile
    plain, *others = profile.queues
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": -1, "x-deduplication": True}
    once = QueuePlan("once", arguments, plain.group_size)
    return replace(profile, queues=(plain, once, *others))


def _later(profile: Profile, rng: Random) -> Profile:
    """Add an exchange that delays messages to some worlds; drawn like `_delaying`.

    Not where nodes never become well: its store has as many members as nodes are known when it is
    declared, which may be too few for that.
    """
    aside = Random()
    aside.setstate(rng.getstate())
    if [aside.random() for _ in range(17)][-1] >= LATER_SHARE or profile.bad:
        return profile
    plain, *others = profile.queues
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": -1}
    limit = {"x-overflow": "reject-publish", "x-max-length": aside.choice((1, 3))}
    due = QueuePlan(DUE[0], arguments, plain.group_size)
    narrow = QueuePlan(DUE[1], {**arguments, **limit}, plain.group_size)
    retries = (("REFUSED_RETRY_MS_MIN", 1), ("REFUSED_RETRY_MS_MAX", 3))
    bounds = [("metadata.stores", name, times * LATER_RETRY_MS) for name, times in retries]
    return replace(
        profile,
        queues=(plain, due, narrow, *others),
        messages=2 * profile.messages,
        later=True,
        safety_ms=max(profile.safety_ms, LATER_MS),
        windows=(*profile.windows, *bounds),
    )


def _settling(profile: Profile, rng: Random) -> Profile:
    """Add drivers that publish batches which settle their claims; drawn like `_delaying`."""
    aside = Random()
    aside.setstate(rng.getstate())
    share = [aside.random() for _ in range(SETTLERS_AT)][-1]
    if share >= SETTLERS_SHARE or profile.claim_ttl_ms or profile.bad or profile.later:
        return profile
    plain, *others = profile.queues
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": -1}
    made = QueuePlan(MADE, arguments, plain.group_size)
    return replace(
        profile,
        queues=(plain, made, *others),
        settlers=1 + (share < SETTLERS_SHARE / 2),
        consumers=0,
        readers=0,
        messages=2 * profile.messages,
    )


def _relaying(profile: Profile, rng: Random) -> Profile:
    """Add a queue, and a relay that carries messages to it, to some worlds; like `_delaying`."""
    aside = Random()
    aside.setstate(rng.getstate())
    if [aside.random() for _ in range(RELAYS_AT)][-1] >= RELAYS_SHARE or profile.bad:
        return profile
    plain, *others = profile.queues
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": -1}
    carried = QueuePlan(CARRIED, arguments, plain.group_size)
    plans, messages = (plain, carried, *others), 2 * profile.messages
    return replace(profile, queues=plans, carriers=2, messages=messages)


def _importing(profile: Profile, rng: Random) -> Profile:
    """Add an operator that imports definitions to some worlds; drawn like `_delaying`."""
    aside = Random()
    aside.setstate(rng.getstate())
    if [aside.random() for _ in range(35)][-1] >= IMPORTS_SHARE or profile.bad:
        return profile
    return replace(profile, imports=True)


def _sifting(profile: Profile, rng: Random) -> Profile:
    """Add a queue of which consumers have filters to some worlds; drawn like `_delaying`."""
    aside = Random()
    aside.setstate(rng.getstate())
    if [aside.random() for _ in range(SIFTED_AT)][-1] >= SIFTED_SHARE or profile.bad:
        return profile
    plain, *others = profile.queues
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": -1}
    sifted = QueuePlan(SIFTED, arguments, plain.group_size)
    return replace(
        profile,
        queues=(plain, sifted, *others),
        sifts=True,
        malformed=False,
        messages=3 * profile.messages,
        consumers=max(2, profile.consumers),
    )


def _rolling(profile: Profile, rng: Random) -> Profile:
    """Let nodes be upgraded, and go back, in some worlds; drawn like `_delaying`."""
    aside = Random()
    aside.setstate(rng.getstate())
    rolls = profile.nodes > 1 and [aside.random() for _ in range(ROLLS_AT)][-1] < ROLLS_SHARE
    safety_ms = max(profile.safety_ms, ROLLS_MS) if rolls else profile.safety_ms
    return replace(profile, rolls=rolls, safety_ms=safety_ms)


def _full(profile: Profile) -> Profile:
    """A queue that refuses what is too much gets too much."""
    if not any(plan.refuses for plan in profile.queues if not plan.keeps):
        return profile
    return replace(profile, messages=80, publishers=2, window=16, pace_ms=10)


def _behind(profile: Profile) -> Profile:
    """One in which a disk lacks what its node has applied, and snapshots are taken meanwhile.

    Much is published for as long as that, on quick ways: then a majority continues without it.
    """
    return replace(
        profile,
        safety_ms=2_000,
        fault_every_ms=100,
        latency_ms=(0, 2),
        sync_ms=(2, 20),
        messages=300,
        publishers=2,
        window=16,
        pace_ms=10,
        wal_file_bytes=2_000,
        snapshot_entries_min=1,
        write_here=False,
    )


def _dies(queues: tuple[QueuePlan, ...]) -> bool:
    return any("x-dead-letter-exchange" in plan.arguments for plan in queues)


def _config(rng: Random) -> RaftConfig:
    small = rng.random() < 0.3
    config = with_delays(
        RaftConfig(
            append_bytes_max=300 if small else 1 << 20,
            probe_bytes_max=100 if small else 1 << 16,
            inflight_messages_max=rng.choice((1, 4)) if small else 128,
            inflight_bytes_max=600 if small else 16 << 20,
            retransmit_ms=rng.choice((300, 1_000)),
            new_group_delay_ms=rng.choice((200, 1_000)),
        )
    )
    # The others stay the worlds in which rare planted bugs were found.
    return config if config.inflight_messages_max == 1 else replace(config, last_copy_delay_ms=0)


def _queues(
    rng: Random, nodes: int, lives: bool, unlucky: bool, others: int
) -> tuple[QueuePlan, ...]:
    """A plain queue, which forgets nothing, and so many of the others.

    Where a disk may be lost, every queue has members enough to outlive that. Where a node begins
    life after life, it has so few that it has no leader while the cluster has one.
    """
    sizes = tuple(size for size in (3, 3, 3, 5, 2, 1) if size <= nodes)
    if unlucky:
        sizes = tuple(size for size in sizes if size >= 3)
    if lives:
        sizes = tuple(size for size in sizes if 2 * (nodes - (size + 1) // 2) > nodes)
    plain: dict[str, Any] = {"x-queue-type": "quorum", "x-delivery-limit": -1}
    if rng.random() < 0.2:
        plain["x-single-active-consumer"] = True
    plans = [QueuePlan("plain", plain, rng.choice(sizes))]
    kinds = [kind for kind in SPECIAL if not (unlucky and kind in ALONE)]
    for _ in range(others):
        kind = kinds.pop(rng.randrange(len(kinds)))
        plans.append(SPECIAL[kind](rng, rng.choice(sizes)))
    if any("x-dead-letter-exchange" in plan.arguments for plan in plans):
        plans.append(QueuePlan(DEAD, {"x-queue-type": "quorum", "x-delivery-limit": -1}, sizes[0]))
    return tuple(plans)


ALONE = ("classic", "fleeting")
"""These live on one node."""


def _letters(rng: Random) -> dict[str, Any]:
    """Dead letters go to the queue for them, or nowhere."""
    if rng.random() < 0.5:
        return {}
    return {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}


def _short(rng: Random, size: int) -> QueuePlan:
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": -1, "x-max-length": 6}
    return QueuePlan("short", {**arguments, **_letters(rng)}, size, forgets=("maxlen",))


def _refusing(rng: Random, size: int) -> QueuePlan:
    limit = rng.choice(({"x-max-length": 5}, {"x-max-length-bytes": 60}))
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": -1, "x-overflow": "reject-publish"}
    return QueuePlan("refusing", {**arguments, **limit}, size, refuses=True)


def _ageing(rng: Random, size: int) -> QueuePlan:
    ttl_ms = rng.choice((0, 50, 400))
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": -1, "x-message-ttl": ttl_ms}
    return QueuePlan(
        "ageing", {**arguments, **_letters(rng)}, size, forgets=("expired",), ttl_ms=ttl_ms
    )


def _limited(rng: Random, size: int) -> QueuePlan:
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": rng.choice((0, 2))}
    reasons = ("delivery_limit", "rejected")
    return QueuePlan("limited", {**arguments, **_letters(rng)}, size, forgets=reasons)


def _impatient(rng: Random, size: int) -> QueuePlan:
    arguments = {
        "x-queue-type": "quorum",
        "x-delivery-limit": -1,
        "x-consumer-timeout": 500,
        "x-consumer-disconnected-timeout": 200,
    }
    return QueuePlan("impatient", arguments, size, takes_back=True)


def _careless(rng: Random, size: int) -> QueuePlan:
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": -1}
    return QueuePlan("careless", arguments, size, no_ack=True)


def _swept(rng: Random, size: int) -> QueuePlan:
    return QueuePlan("swept", {"x-queue-type": "quorum", "x-delivery-limit": -1}, size, swept=True)


def _retrying(rng: Random, size: int) -> QueuePlan:
    arguments = {
        "x-queue-type": "quorum",
        "x-delivery-limit": -1,
        "x-delayed-retry-type": rng.choice(("all", "all", "failed", "returned")),
        "x-delayed-retry-min": rng.choice((20, 150, 600)),
    }
    if rng.random() < 0.6:
        arguments["x-delayed-retry-max"] = rng.choice((100, 1_500))
    return QueuePlan("retrying", arguments, size)


def _classic(rng: Random, size: int) -> QueuePlan:
    return QueuePlan("classic", {"x-queue-type": "classic"}, 1)


def _fleeting(rng: Random, size: int) -> QueuePlan:
    return QueuePlan("fleeting", {"x-queue-type": "classic"}, 1, durable=False, volatile=True)


SPECIAL = {
    "short": _short,
    "refusing": _refusing,
    "ageing": _ageing,
    "limited": _limited,
    "impatient": _impatient,
    "careless": _careless,
    "swept": _swept,
    "classic": _classic,
    "fleeting": _fleeting,
}
