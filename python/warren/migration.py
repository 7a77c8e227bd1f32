"""Migration of queues from RabbitMQ: definitions first, then a shovel for each queue, then counts.

The state is in the two brokers: what is left in a source queue is still to be moved, and a shovel's
name tells its queue. So a migration that was interrupted is run again, and does what is left. Only
the counts from before it began are kept here, in `Counts`, for the comparison at the end.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from warren.admin import Admin
from warren.admin.shovels import MOVED_AT_ONCE, queue_to_queue, shovel_name
from warren.errors import NotFound, UsageError
from warren_wire.admin.shovels import RUNNING, TERMINATED, ShovelInfo
from warren_wire.whole_file import write_whole

SHOVEL_PREFIX = "migrate "
"""Beginning of the names of a migration's shovels."""
AT_ONCE = 8
STREAM = "stream"
SINGLE_ACTIVE = "x-single-active-consumer"
SERVER_NAMED = "amq."
QUIET_S = 4.0
"""How long a source must stay empty, with nothing under way: a shovel's state is known half a
second late, and one that was removed holds what is not confirmed for two seconds more."""
GIVE_UP_S = 120.0
OF_A_VHOST = ("parameters", "policies", "queues", "exchanges", "bindings")
"""Kinds of definitions that belong to a vhost."""
MOVERS = ("shovel", "federation-upstream", "federation-upstream-set")
"""Components of parameters that move messages by themselves, as a second broker with them would."""


class MigrationSource(Protocol):
    """The broker that messages are taken from."""

    def ready(self, queue: str) -> int | None:
        """Return the number of ready messages of a queue; None: there is no such queue."""


# ---------------------------------------------------------------------- what is migrated


@dataclass(frozen=True, slots=True)
class SourceQueue:
    """What the source's HTTP API says of a queue.

    unacknowledged  delivered to consumers there
    """

    name: str
    exclusive: bool = False
    auto_delete: bool = False
    unacknowledged: int = 0
    consumers: int = 0


@dataclass(frozen=True, slots=True)
class Chosen:
    """What of a broker's definitions is migrated.

    document  definitions of one vhost, to be imported into a vhost
    queues    names of the queues with messages to be moved
    left_out  (object, reason)
    """

    document: dict[str, Any]
    queues: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]


def choose(
    definitions: Mapping[str, Any],
    vhost: str,
    pattern: str,
    known: Mapping[str, SourceQueue] | None = None,
) -> Chosen:
    """Choose the definitions of a vhost, with the queues that have the pattern in their names.

    definitions  RabbitMQ's, of one vhost or of all
    known        its queues as the HTTP API lists them, which has exclusive ones, too; None: not
                 asked
    raises       UsageError: they are no definitions, the pattern is no regular expression
    """
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--queues {pattern!r} is not a regular expression: {error}") from error
    of_vhost: dict[str, list[dict[str, Any]]] = {}
    for kind in OF_A_VHOST:
        rows = definitions.get(kind, [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise UsageError(f"these are no definitions of RabbitMQ: {kind} is no list of objects")
        of_vhost[kind] = [
            {key: value for key, value in row.items() if key != "vhost"}
            for row in rows
            if row.get("vhost", vhost) == vhost
        ]
    left: list[tuple[str, str]] = []
    queues = list(_queues(of_vhost["queues"], wanted, known or {}, left))
    chosen = {queue["name"] for queue in queues}
    document: dict[str, Any] = {kind: of_vhost[kind] for kind in OF_A_VHOST}
    document["queues"] = queues
    document["bindings"] = [
        row
        for row in of_vhost["bindings"]
        if row.get("destination_type") != "queue" or row.get("destination") in chosen
    ]
    document["parameters"] = []
    for row in of_vhost["parameters"]:
        if row.get("component") in MOVERS:
            reason = "it would move messages here, too: set it when RabbitMQ's is gone"
            left.append((f"{row['component']} {row.get('name')}", reason))
        else:
            document["parameters"].append(row)
    return Chosen(document, tuple(sorted(chosen)), tuple(left))


def _queues(
    rows: Sequence[dict[str, Any]],
    wanted: re.Pattern[str],
    known: Mapping[str, SourceQueue],
    left: list[tuple[str, str]],
) -> Iterator[dict[str, Any]]:
    exported = set()
    for row in rows:
        name = row.get("name")
        if not isinstance(name, str):
            raise UsageError("these are no definitions of RabbitMQ: a queue has no name")
        exported.add(name)
        if not wanted.search(name):
            continue
        reason = _obstacle(row, known.get(name, SourceQueue(name)))
        if reason:
            left.append((f"queue {name}", reason))
        else:
            yield row
    for name in sorted(known.keys() - exported):
        if wanted.search(name):
            reason = _obstacle({"name": name}, known[name])
            left.append((f"queue {name}", reason or "the definitions do not have it"))


def _obstacle(row: Mapping[str, object], seen: SourceQueue) -> str:
    """Return why a queue cannot be moved; "": it can."""
    given = row.get("arguments")
    arguments = given if isinstance(given, dict) else {}
    if STREAM in (arguments.get("x-queue-type"), row.get("type")):
        return "it is a stream, which a shovel cannot empty"
    if seen.exclusive or row.get("exclusive"):
        return "it is exclusive: it belongs to the connection that declared it"
    if seen.auto_delete or row.get("auto_delete"):
        return (
            "it is auto-delete: RabbitMQ would delete it, with its messages, when the shovel's "
            "connection ends; consume it to its end"
        )
    if str(row["name"]).startswith(SERVER_NAMED):
        return "the broker has named it for a client, which will have another one here"
    if arguments.get(SINGLE_ACTIVE) and seen.consumers:
        return (
            "it has a single active consumer, for which a shovel would wait: stop its consumers, "
            "and run this again"
        )
    return ""


# ---------------------------------------------------------------------- counts


class MigratedCounts(msgspec.Struct):
    """Ready messages of a queue when its migration began: at the source, all here."""

    source_before: int
    target_before: int


class _Report(msgspec.Struct):
    """The file of `Counts`; source: which broker the queues are of."""

    source: str
    queues: dict[str, MigratedCounts]


class Counts:
    """The counts from before the migration, in a file if they are to outlive the process.

    path  a JSON file that is written at each change; None: memory only
    """

    def __init__(self, path: Path | None, source: str) -> None:
        """Read the file if it is there; UsageError when it is of another source, or damaged."""
        self._path = path
        self._source = source
        self.queues: dict[str, MigratedCounts] = {}
        if path is None or not path.exists():
            return
        try:
            found = msgspec.json.decode(path.read_bytes(), type=_Report)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"--report {path} cannot be read: {error}; name another file"
            ) from None
        if found.source != source:
            raise UsageError(
                f"--report {path} is of {found.source}, not of {source}; name another file"
            )
        self.queues = found.queues

    def begin(self, queue: str, source: int, target: int) -> None:
        """Keep the counts of a queue, the first time."""
        if queue in self.queues:
            return
        self.queues[queue] = MigratedCounts(source, target)
        if self._path is None:
            return
        report = msgspec.json.encode(_Report(self._source, self.queues))
        try:
            write_whole(self._path, msgspec.json.format(report, indent=1), mode=0o666)
        except OSError as error:
            raise UsageError(f"--report {self._path} cannot be written: {error.strerror}") from None


# ---------------------------------------------------------------------- moving


WAITS, MOVES, MOVED, FAILED = "waits", "moves", "moved", "failed"


@dataclass(slots=True)
class QueueMigration:
    """One queue's progress.

    state    waits, moves, moved; failed: it cannot be moved, see `reason`
    reason   of the shovel's last error, or of the failure
    left     ready messages at the source, as last seen
    arrived  messages here now, above those from before
    held     messages with consumers of the source before the migration; None: not known
    compared  "": the counts are equal; else how they differ, and what may have caused it
    """

    name: str
    state: str = WAITS
    reason: str = ""
    before: int = 0
    left: int = 0
    arrived: int = 0
    compared: str = ""
    short: bool = False
    held: int | None = None


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """Where from, where to, how.

    source_uri, target_uri  of the shovels, with passwords
    vhost     of the shovels and queues here
    prefetch  messages that a shovel has under way; so many may come twice after a failure
    at_once   shovels at a time
    follow    the shovels stay, for what is still published at the source
    give_up_s  a queue of which nothing moves for so long fails
    """

    source_uri: str = field(repr=False)
    target_uri: str = field(repr=False)
    vhost: str
    prefetch: int = MOVED_AT_ONCE
    at_once: int = AT_ONCE
    follow: bool = False
    give_up_s: float = GIVE_UP_S

    def shovel(self, queue: str) -> dict[str, Any]:
        """Return the parameter of a queue's shovel."""
        return queue_to_queue(
            self.source_uri,
            queue,
            self.target_uri,
            queue,
            prefetch=self.prefetch,
            stays=self.follow,
        )


def own_shovel(queue: str) -> str:
    """Return the name of the shovel that migrates a queue."""
    return shovel_name(SHOVEL_PREFIX, queue)


class Migration:
    """Moves the messages of queues, `at_once` at a time; `step` is called until `done`."""

    def __init__(
        self,
        plan: MigrationPlan,
        queues: Sequence[str],
        source: MigrationSource,
        target: Admin,
        counts: Counts,
        known: Mapping[str, SourceQueue] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if plan.follow and len(queues) > plan.at_once:
            raise UsageError(
                f"--follow keeps a shovel for each of {len(queues)} queues, and --at-once is "
                f"{plan.at_once}: raise it (a node runs 100 shovels), or choose fewer --queues"
            )
        self._plan = plan
        self._source = source
        self._target = target
        self._counts = counts
        self._clock = clock
        self._seen: dict[str, tuple[object, float]] = {}
        self._removed: dict[str, float] = {}
        self._empty_since: dict[str, float] = {}
        self.queues = [QueueMigration(name) for name in queues]
        for one in self.queues:
            if known is not None and one.name in known:
                one.held = known[one.name].unacknowledged

    @property
    def done(self) -> bool:
        """Whether no queue waits or moves."""
        return all(one.state in (MOVED, FAILED) for one in self.queues)

    def step(self) -> None:
        """Look at the shovels; begin what may begin, end what is empty."""
        shovels = {one.name: one for one in self._target.shovels.list(self._plan.vhost)}
        moving = 0
        for one in self.queues:
            if one.state == MOVES:
                self._look(one, shovels.get(own_shovel(one.name)))
            moving += one.state == MOVES
        for one in self.queues:
            if one.state == WAITS and moving < self._plan.at_once:
                self._begin(one, shovels.get(own_shovel(one.name)))
                moving += one.state == MOVES

    def _begin(self, one: QueueMigration, shovel: ShovelInfo | None) -> None:
        left = self._source.ready(one.name)
        if left is None:
            self._fail(one, "there is no such queue at the source any more")
            return
        try:
            here = self._target.queues.get(one.name)
        except NotFound:
            self._fail(one, "there is no such queue here: import the definitions, or declare it")
            return
        self._counts.begin(one.name, left, here.messages)
        one.before, one.left = self._counts.queues[one.name].source_before, left
        if not left and not self._plan.follow:
            # 1. A shovel is removed, by hand or by a run that gave up.  2. This run begins while it
            # still holds messages, which are not ready.  3. They come back.
            since = self._empty_since.setdefault(one.name, self._clock())
            if shovel is not None or self._clock() - since >= QUIET_S:
                self._finish(one, shovel)
            return
        self._empty_since.pop(one.name, None)
        # An interrupted migration's shovel counts from where it is: replaced, it begins to count.
        self._target.parameters.put(
            "shovel", self._plan.vhost, own_shovel(one.name), self._plan.shovel(one.name)
        )
        one.state = MOVES
        self._seen.pop(one.name, None)

    def _look(self, one: QueueMigration, shovel: ShovelInfo | None) -> None:
        left = self._source.ready(one.name)
        if left is None:
            self._fail(one, "the queue at the source was deleted meanwhile")
            return
        one.left = left
        one.reason = shovel.reason if shovel is not None and shovel.state == TERMINATED else ""
        if shovel is not None and shovel.blocked_status != RUNNING:
            one.reason = f"the destination is {shovel.blocked_status}"
        if shovel is None:
            # It has removed itself; what was published or came back since is another round.
            if self._clock() - self._removed.get(one.name, -QUIET_S) < QUIET_S and not left:
                return
            one.state = WAITS
            if not left:
                self._finish(one, None)
            return
        if shovel.state == TERMINATED and shovel.access_refused:
            self._remove(one)
            self._fail(
                one,
                f"{one.reason}. What is left is at the source: correct user, password or "
                "permissions in --from or --uri, and run this again",
            )
            return
        quiet_s = self._quiet_s(one, (left, shovel.node, shovel.forwarded, shovel.pending))
        if left or shovel.pending or shovel.state != RUNNING:
            if quiet_s >= self._plan.give_up_s:
                self._give_up(one, shovel)
        elif self._plan.follow:
            self._finish(one, None)
        elif quiet_s >= QUIET_S:
            # Consumers of the source have taken what the shovel still waits for.
            self._remove(one)

    def _quiet_s(self, one: QueueMigration, seen: object) -> float:
        """Return for how long this has been seen of a queue."""
        now = self._clock()
        before, since = self._seen.get(one.name, (None, now))
        if before != seen:
            since = now
        self._seen[one.name] = seen, since
        return now - since

    def _give_up(self, one: QueueMigration, shovel: ShovelInfo) -> None:
        why = one.reason or f"the shovel is {shovel.state}"
        if shovel.blocked_status != RUNNING:
            why += (
                ", see its length limit and overflow"
                if shovel.blocked_status == "refused"
                else ", see the alarms of the nodes"
            )
        self._remove(one)
        self._fail(
            one,
            f"nothing has moved for {self._plan.give_up_s:g} s: {why}. What is left is at the "
            "source: correct it, and run this again",
        )

    def _remove(self, one: QueueMigration) -> None:
        self._removed[one.name] = self._clock()
        with suppress(NotFound):  # it has removed itself
            self._target.shovels.delete(self._plan.vhost, own_shovel(one.name))

    def _finish(self, one: QueueMigration, shovel: ShovelInfo | None) -> None:
        """Compare the counts; a shovel that is still there, of --follow, is removed."""
        if shovel is not None:
            if shovel.pending:
                one.state, one.reason = MOVES, "confirms of the last messages are awaited"
                return
            self._remove(one)
        here = self._target.queues.get(one.name)
        kept = self._counts.queues[one.name]
        one.state, one.reason = MOVED, ""
        one.arrived = here.messages - kept.target_before
        more = one.arrived - kept.source_before
        if here.consumer_count:
            one.compared = "not compared: the queue here has consumers"
        elif more > 0:
            one.compared = f"{more:,} more: published meanwhile, or came twice after a failure"
        elif more < 0:
            one.short = True
            one.compared = (
                f"{-more:,} fewer: taken by consumers of the source, expired, or dropped by a "
                "limit of the queue"
            )

    def _fail(self, one: QueueMigration, reason: str) -> None:
        one.state, one.reason = FAILED, reason
