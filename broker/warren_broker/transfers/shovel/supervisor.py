"""Starts and stops the processes of a node: those of shovels and of federation links."""

from __future__ import annotations

import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.definitions import Definitions
from warren_broker.cluster.link_logins import BY_OPERATOR, LinkLogin, LinkLogins
from warren_broker.transfers.shovel.process import ShovelProcess, WorkerStatus
from warren_broker.transfers.shovel.sealed_uris import UriSeal
from warren_machines.metadata.records import Parameter
from warren_raft.types import METADATA_GROUP
from warren_wire.admin.shovels import DONE, PAUSED, RUNNING, STARTING, TERMINATED, ShovelInfo
from warren_wire.links.definition import parse_shovel
from warren_wire.links.uris import ShovelUri
from warren_wire.quoting import SHOWN_CHARACTERS_MAX

log = logging.getLogger(__name__)
LOOK_MS: Final = 500
STARTS_PER_LOOK: Final = 4
"""Processes started before the loop does other work: many shovels start one after the other."""
LOOK_STEPS: Final = 1_000
COLLECT_MS: Final = 20
NEW_PER_LOOK: Final = 50
"""Definitions read before the loop does other work."""
RUNNING_MAX: Final = 100
"""Processes of a node."""
WAITS: Final = f"this node runs {RUNNING_MAX} of them, which is the most"
WITHOUT_LEADER_MS: Final = 10_000
"""An election must not stop shovels."""
RESTART_MS: Final = 1_000
RESTART_MS_MAX: Final = 60_000

Key: TypeAlias = tuple[str, str]
"""Vhost and name of a shovel."""
Wanted: TypeAlias = tuple[Key, Parameter] | None
"""What should run; see `Supervisor.wanted`."""
LinkEnd = list[tuple[ShovelUri, LinkLogin]]
"""URIs of one end, with what each may do if it leads to this cluster."""


@dataclass(slots=True)
class ManagedShovel:
    """A shovel of this node.

    parameter  as it was found last, URIs are sealed
    process   None: it has ended; the next one is due at restart_ms, None: not by itself
    finished  its parameter is being removed
    ends      URIs of source and destination, with what they may do in this cluster
    basis     what that rested on at the last look
    names     with which its process logs in at this node
    told      what `watch` has told its process last; None: nothing
    """

    parameter: Parameter
    info: ShovelInfo
    process: ShovelProcess | None = None
    restart_ms: int | None = 0
    failures: int = 0
    finished: bool = False
    ends: tuple[LinkEnd, ...] = ()
    basis: Any = None
    names: tuple[str, ...] = ()
    told: object = None


def _is_another(known: ManagedShovel, parameter: Parameter) -> bool:
    """Return whether a shovel is to begin again: with another definition, or set once more.

    1. A shovel has moved what it was to move, and its parameter is removed.  2. The same one is set
    again before this node looks.  3. Taken for the one that has ended, it would never run.
    """
    if (known.parameter.value, known.parameter.user) != (parameter.value, parameter.user):
        return True
    return known.finished and known.parameter is not parameter


class Supervisor(ABC):
    """Compares what runs on this node with what should run, and starts what has ended again.

    watch_ms  interval of `watch`, which is called only while anything runs here: a node without
              shovels and links does not wake for them
    federates  whether the destination of what runs is a federated object of this cluster
    wanted_max  the first of what should run that are looked at
    """

    watch_ms: int | None = None
    federates = False
    wanted_max = sys.maxsize

    def __init__(
        self,
        cluster: Cluster,
        definitions: Definitions,
        cluster_name: str,
        logins: LinkLogins,
        seal: UriSeal,
    ) -> None:
        self._cluster = cluster
        self._definitions = definitions
        self._cluster_name = cluster_name
        self._logins = logins
        self._opened = seal.opened
        self._own: dict[str, Any] | None = None
        self._here: dict[Key, ManagedShovel] = {}
        self._leader_ms = 0
        self._watching = False

    @abstractmethod
    def wanted(self) -> Iterator[Wanted]:
        """Yield what this node should run now, as the definitions have it: URIs are sealed.

        None is a step without a result: the definitions may change between any two.
        """

    @abstractmethod
    def described(self, parameter: Parameter, node: str) -> tuple[bool, ShovelInfo]:
        """Return whether it can run, and what is shown of it before it has; URIs are open."""

    @abstractmethod
    def job(self, parameter: Parameter) -> dict[str, Any]:
        """Return what its process is told to do; URIs are open."""

    @abstractmethod
    def done(self, shovel: ManagedShovel) -> None:
        """Handle that it has moved what it was to move."""

    @abstractmethod
    def named(self, parameter: Parameter, limit: int = SHOWN_CHARACTERS_MAX) -> str:
        """Return its name in log lines, with at most that many characters of each object's name."""

    def leaving(self, key: Key, shovel: ManagedShovel) -> None:
        """Prepare for that it is not wanted on this node any more; its process is stopped next."""
        log.debug("%s leaves this node", self.named(shovel.parameter))

    def watch(self) -> None:
        """Tell the processes what has changed; see watch_ms."""
        raise AssertionError(f"{type(self).__name__} has nothing to watch")

    def candidates(self) -> list[str]:
        """Return the nodes that may run what has no place of its own, as far as this one knows."""
        known = self._definitions.state.nodes
        every = [self._cluster.host.node_id, *self._definitions.within_reach()]
        return [node for node in every if node not in known or not known[node].drained]

    def start(self, own: dict[str, Any]) -> None:
        """Begin; own: fields of `OwnNode`: of this node, for URIs without a host."""
        self._own = {**own, "cluster": self._cluster.host.cluster_id}
        self._leader_ms = self._now_ms()
        self._look()

    def stop(self) -> None:
        """End all processes: the node stops."""
        self._own = None
        for shovel in self._here.values():
            if shovel.process is not None:
                shovel.process.kill()
        self._here.clear()

    def _now_ms(self) -> int:
        return self._cluster.loop.clock.monotonic_ms()

    # ------------------------------------------------------------ which ones

    def _look(self) -> None:
        """Compare what runs with what should run; again after a while."""
        self._collect(self.wanted() if self._may_run() else iter(()), {})

    def _collect(self, found: Iterator[Wanted], wanted: dict[Key, Parameter]) -> None:
        """Find out what should run, some steps in each turn: links are a product."""
        if self._own is None:
            return
        for steps, one in enumerate(found, 1):
            if one is not None:
                wanted[one[0]] = one[1]
            if len(wanted) >= self.wanted_max:
                break
            if steps >= LOOK_STEPS:
                self._cluster.loop.call_later(COLLECT_MS, lambda: self._collect(found, wanted))
                return
        self._compare(wanted)

    def _compare(self, wanted: dict[Key, Parameter]) -> None:
        for key in [key for key in self._here if key not in wanted]:
            self._drop(key, "moved to another node, or removed")
        starts, new = STARTS_PER_LOOK, NEW_PER_LOOK
        running = sum(1 for one in self._here.values() if one.process is not None)
        for key, parameter in wanted.items():
            known = self._here.get(key)
            if known is not None and _is_another(known, parameter):
                running -= known.process is not None
                self._drop(key, "changed")
                known = None
            elif known is not None:
                known.parameter = parameter
            if known is None:
                if not new:
                    continue
                new -= 1
                known = self._here[key] = self._described(parameter)
            self._rest_on_rights(known)
            if not self._is_due(known):
                continue
            if running >= RUNNING_MAX:
                self._wait(known)
            elif starts:
                starts -= 1
                running += self._run(known)
        # In step with the other supervisors of this node: all of them look in one turn.
        self._cluster.loop.call_later(LOOK_MS - self._now_ms() % LOOK_MS, self._look)
        if self.watch_ms is not None and not self._watching:
            self._watch(self.watch_ms)

    def _watch(self, every_ms: int) -> None:
        self._watching = self._own is not None and bool(self._here)
        if self._watching:
            self.watch()
            self._cluster.loop.call_later(every_ms, lambda: self._watch(every_ms))

    def _may_run(self) -> bool:
        """Return whether this node is not cut off."""
        now_ms, host = self._now_ms(), self._cluster.host
        if self._definitions.ready and host.leader(METADATA_GROUP) is not None:
            self._leader_ms = now_ms
            return True
        return self._definitions.ready and now_ms - self._leader_ms <= WITHOUT_LEADER_MS

    # ------------------------------------------------------------ running one

    def _described(self, parameter: Parameter) -> ManagedShovel:
        opened = self._opened(parameter)
        runs, info = self.described(opened, self._cluster.host.node_id)
        if info.state == PAUSED:
            log.info("%s is paused", self.named(parameter))
        elif not runs:
            log.error("%s cannot run: %s", self.named(parameter), info.reason)
        ends = self._ends(opened) if runs else ()
        return ManagedShovel(parameter, info, restart_ms=0 if runs else None, ends=ends)

    def _is_due(self, shovel: ManagedShovel) -> bool:
        if shovel.process is not None or shovel.restart_ms is None or shovel.finished:
            return False
        return shovel.restart_ms <= self._now_ms()

    def _wait(self, shovel: ManagedShovel) -> None:
        """Leave it due: the first look that finds fewer processes starts it."""
        if shovel.info.reason != WAITS:
            log.warning("%s waits: %s", self.named(shovel.parameter), WAITS)
            shovel.info = msgspec.structs.replace(shovel.info, state=TERMINATED, reason=WAITS)

    # ------------------------------------------------------------ rights in this cluster

    def _ends(self, parameter: Parameter) -> tuple[LinkEnd, LinkEnd]:
        """Return the URIs of source and destination, and what each may do in this cluster."""
        value = self.job(parameter)["value"]
        shovel = parse_shovel(parameter.vhost, parameter.name, value)
        source, target = shovel.source, shovel.destination
        logins = self._logins.of(target, parameter.user)
        if self.federates:
            logins = [LinkLogin(BY_OPERATOR, parameter.vhost, federated=True)]
        return (
            list(zip(source.uris, self._logins.of(source, parameter.user), strict=True)),
            list(zip(target.uris, logins, strict=True)),
        )

    def _rest_on_rights(self, shovel: ManagedShovel) -> None:
        """Have it begin again when rights have changed since it began, or was refused."""
        now = [self._logins.basis(login) for end in shovel.ends for _, login in end]
        before, shovel.basis = shovel.basis, now
        if before in (None, now) or shovel.finished:
            return
        if shovel.process is not None:
            log.info("%s begins again: permissions have changed", self.named(shovel.parameter))
        self.end(shovel)
        shovel.restart_ms = 0

    def _refused(self, shovel: ManagedShovel) -> bool:
        """Return whether all URIs of an end lead to what its user may not enter."""
        for end in shovel.ends:
            places = self._logins.places
            why = [self._logins.refusal(login) for uri, login in end if places.has(uri)]
            if len(why) == len(end) and all(why):
                log.error("%s may not run: %s", self.named(shovel.parameter), why[0])
                self.end(shovel)
                shovel.info = msgspec.structs.replace(
                    shovel.info, state=TERMINATED, reason=why[0], access_refused=True
                )
                return True
        return False

    def _logins_of(self, shovel: ManagedShovel) -> list[list[tuple[str, str, str]]]:
        """Return new logins of its process, with their vhosts, for each URI of both ends."""
        given = [
            [(*self._logins.give(login), login.vhost) for _, login in end] for end in shovel.ends
        ]
        shovel.names = tuple(name for end in given for name, _, _ in end)
        return given

    def _run(self, shovel: ManagedShovel) -> bool:
        """Start its process; False: it may not run, or that has failed and is tried again later."""
        if self._refused(shovel):
            return False
        places = self._logins.places
        job = {
            **self.job(self._opened(shovel.parameter)),
            "own": {**(self._own or {}), "ports": places.ports, "nodes": places.nodes},
            "cluster": self._cluster_name,
            "relay": self._relay(shovel.parameter),
            "logins": self._logins_of(shovel),
        }
        shovel.told = None
        try:
            shovel.process = ShovelProcess(
                self._cluster.loop,
                job,
                lambda status: self._told(shovel, status),
                lambda why: self._failed(shovel, why),
            )
        except OSError as error:
            self._failed(shovel, f"its process cannot be started: {error.strerror}")
        return shovel.process is not None

    def _relay(self, parameter: Parameter) -> str:
        """Return its name at the source, among those of all clusters; "": there is none.

        It stays the same whatever changes of the parameter, and on whatever node it runs. Names
        are not cut, as for a log: two relays of a source with one name take from each other what is
        under way, and publish it to the destinations of both.
        """
        cluster = self._cluster.host.cluster_id
        name = self.named(parameter, sys.maxsize - 1)
        return f"{name} of {self._cluster_name} {cluster}" if cluster else ""

    def _told(self, shovel: ManagedShovel, status: WorkerStatus) -> None:
        before, parameter = shovel.info, shovel.parameter
        if status.state == RUNNING:
            shovel.failures = 0
        said = msgspec.structs.asdict(status)
        del said["final"]
        if status.state == DONE:
            said["state"] = RUNNING
        shovel.info = msgspec.structs.replace(before, **said)
        if status.state == DONE:
            self.done(shovel)
        elif status.reason and status.reason != before.reason:
            then = "" if status.final else "; it will be started again"
            log.warning("%s has failed: %s%s", self.named(parameter), status.reason, then)
        elif status.state == RUNNING and before.state != RUNNING:
            log.info("%s runs", self.named(parameter))
        if status.final:
            self.end(shovel)

    def end(self, shovel: ManagedShovel) -> None:
        """Stop its process, and start none by itself."""
        shovel.restart_ms = None
        self._logins.take_back(shovel.names)
        if shovel.process is not None:
            shovel.process.stop()
            shovel.process = None

    def _failed(self, shovel: ManagedShovel, why: str) -> None:
        """Start another process later: this one has ended by itself, or there was none."""
        shovel.process = None
        self._logins.take_back(shovel.names)
        delay_ms = min(RESTART_MS << min(shovel.failures, 10), RESTART_MS_MAX)
        shovel.failures += 1
        shovel.restart_ms = self._now_ms() + delay_ms
        if why != shovel.info.reason:
            log.error("%s: %s; again in %d ms", self.named(shovel.parameter), why, delay_ms)
        shovel.info = msgspec.structs.replace(shovel.info, state=TERMINATED, reason=why)

    def _drop(self, key: Key, why: str) -> None:
        shovel = self._here.pop(key)
        self.leaving(key, shovel)
        self._logins.take_back(shovel.names)
        if shovel.process is not None:
            log.info("%s is stopped: %s", self.named(shovel.parameter), why)
            shovel.process.stop()

    def states(self, kind: str) -> dict[str, int]:
        """Return how many of a type, of those that run here, are in each state."""
        found = dict.fromkeys((STARTING, RUNNING, TERMINATED), 0)
        for shovel in self._here.values():
            if shovel.info.type != kind:
                continue
            found[shovel.info.state] = found.get(shovel.info.state, 0) + 1
        return found

    def infos(self) -> tuple[ShovelInfo, ...]:
        """Return the states of those that run here."""
        return tuple(shovel.info for shovel in self._here.values())
