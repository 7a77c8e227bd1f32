"""The shovels that run on this node.

Every node looks at the definitions, and runs those shovels for which `shovel_owner` names it. A
node without a leader of the metadata group stops its shovels after a while: it may be cut off, and
another node has them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from warren_broker.cluster import messages
from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.definitions import Definitions
from warren_broker.cluster.survey import Answers, Survey
from warren_broker.errors import Refusal
from warren_broker.management.shovel_values import (
    DONE,
    RUNNING,
    STARTING,
    TERMINATED,
    ShovelInfo,
)
from warren_broker.metadata.commands import DeleteParameter
from warren_broker.metadata.records import Parameter
from warren_broker.parameter_values import SHOVEL
from warren_broker.shovel.definition import SHOVEL_PROTOCOL, parse_shovel
from warren_broker.shovel.owner import shovel_owner
from warren_broker.shovel.process import ShovelProcess, WorkerStatus
from warren_raft.quoting import quoted
from warren_raft.types import METADATA_GROUP

log = logging.getLogger(__name__)
LOOK_MS: Final = 500
STARTS_PER_LOOK: Final = 4
"""Processes started before the loop does other work: many shovels start one after the other."""
RUNNING_MAX: Final = 100
"""Processes of a node."""
WITHOUT_LEADER_MS: Final = 10_000
"""An election must not stop shovels."""
RESTART_MS: Final = 1_000
RESTART_MS_MAX: Final = 60_000

Key = tuple[str, str]
"""Vhost and name of a shovel."""


@dataclass(slots=True)
class _Shovel:
    """A shovel of this node.

    process   None: it has ended; the next one is due at restart_ms, None: not by itself
    finished  its parameter is being removed
    """

    parameter: Parameter
    info: ShovelInfo
    process: ShovelProcess | None = None
    restart_ms: int | None = 0
    failures: int = 0
    finished: bool = False


class Shovels:
    """Starts and stops the processes of this node's shovels, and knows the states of all."""

    def __init__(self, cluster: Cluster, definitions: Definitions, cluster_name: str) -> None:
        self._cluster = cluster
        self._definitions = definitions
        self._cluster_name = cluster_name
        self._own: dict[str, Any] | None = None
        self._here: dict[Key, _Shovel] = {}
        self._leader_ms = 0
        self._survey = Survey(cluster, messages.AskShovels, messages.ShovelsAre)
        cluster.handlers[messages.AskShovels] = self._on_ask

    def start(self, scheme: str, host: str, port: int) -> None:
        """Begin; the address is that of this node, for URIs without a host."""
        self._own = {"scheme": scheme, "host": host, "port": port}
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
        if self._own is None:
            return
        wanted = self._wanted()
        for key in [key for key in self._here if key not in wanted]:
            self._drop(key, "moved to another node, or removed")
        starts = STARTS_PER_LOOK
        for key, parameter in wanted.items():
            known = self._here.get(key)
            if known is not None and known.parameter.value != parameter.value:
                self._drop(key, "changed")
                known = None
            if known is None:
                known = self._here[key] = self._described(parameter)
            if self._is_due(known):
                if not starts:
                    break
                starts -= 1
                self._run(known)
        self._cluster.loop.call_later(LOOK_MS, self._look)

    def _wanted(self) -> dict[Key, Parameter]:
        now_ms, host = self._now_ms(), self._cluster.host
        if self._definitions.ready and host.leader(METADATA_GROUP) is not None:
            self._leader_ms = now_ms
        elif now_ms - self._leader_ms > WITHOUT_LEADER_MS or not self._definitions.ready:
            return {}
        own, nodes = host.node_id, self._candidates()
        return {
            key: parameter for key, parameter in self._all(None) if shovel_owner(*key, nodes) == own
        }

    def _candidates(self) -> list[str]:
        """Return the nodes that may run shovels, as far as this one knows."""
        known = self._definitions.state.nodes
        every = [self._cluster.host.node_id, *self._definitions.within_reach()]
        return [node for node in every if node not in known or not known[node].drained]

    def _all(self, vhost: str | None) -> Iterator[tuple[Key, Parameter]]:
        for name, scope in self._definitions.state.scopes.items():
            if scope.parameters and vhost in (None, name):
                for (component, shovel), parameter in scope.parameters.items():
                    if component == SHOVEL:
                        yield (name, shovel), parameter

    # ------------------------------------------------------------ running one

    def _described(self, parameter: Parameter) -> _Shovel:
        runs, info = described(parameter, self._cluster.host.node_id)
        if not runs:
            log.error("%s cannot run: %s", _named(parameter), info.reason)
        return _Shovel(parameter, info, restart_ms=0 if runs else None)

    def _is_due(self, shovel: _Shovel) -> bool:
        if shovel.process is not None or shovel.restart_ms is None or shovel.finished:
            return False
        return shovel.restart_ms <= self._now_ms()

    def _run(self, shovel: _Shovel) -> None:
        if sum(1 for one in self._here.values() if one.process is not None) >= RUNNING_MAX:
            self._failed(shovel, f"this node runs {RUNNING_MAX} shovels, which is the most")
            return
        parameter = shovel.parameter
        job = {
            "vhost": parameter.vhost,
            "name": parameter.name,
            "value": parameter.value,
            "own": self._own,
            "cluster": self._cluster_name,
        }
        try:
            shovel.process = ShovelProcess(
                self._cluster.loop,
                job,
                lambda status: self._told(shovel, status),
                lambda why: self._failed(shovel, why),
            )
        except OSError as error:
            self._failed(shovel, f"its process cannot be started: {error.strerror}")

    def _told(self, shovel: _Shovel, status: WorkerStatus) -> None:
        before, parameter = shovel.info, shovel.parameter
        if status.state == RUNNING:
            shovel.failures = 0
        shovel.info = msgspec.structs.replace(
            before,
            state=RUNNING if status.state == DONE else status.state,
            reason=status.reason,
            forwarded=status.forwarded,
            remaining=status.remaining,
            pending=status.pending,
            blocked_status=status.blocked_status,
        )
        if status.state == DONE:
            self._done(shovel)
        elif status.reason and status.reason != before.reason:
            then = "" if status.final else "; it will be started again"
            log.warning("%s has failed: %s%s", _named(parameter), status.reason, then)
        elif status.state == RUNNING and before.state != RUNNING:
            log.info("%s runs", _named(parameter))
        if status.final:
            self._end(shovel)

    def _end(self, shovel: _Shovel) -> None:
        shovel.restart_ms = None
        if shovel.process is not None:
            shovel.process.stop()
            shovel.process = None

    def _failed(self, shovel: _Shovel, why: str) -> None:
        """Start another process later: this one has ended by itself, or there was none."""
        shovel.process = None
        delay_ms = min(RESTART_MS << min(shovel.failures, 10), RESTART_MS_MAX)
        shovel.failures += 1
        shovel.restart_ms = self._now_ms() + delay_ms
        if why != shovel.info.reason:
            log.error("%s: %s; again in %d ms", _named(shovel.parameter), why, delay_ms)
        shovel.info = msgspec.structs.replace(shovel.info, state=TERMINATED, reason=why)

    def _done(self, shovel: _Shovel) -> None:
        """Remove the parameter of a shovel that has moved what it was to move."""
        self._end(shovel)
        given = shovel.parameter
        shovel.finished = True
        current = self._definitions.state.parameters(given.vhost).get((SHOVEL, given.name))
        if current is None or current.value != given.value:
            return  # it has been set again, and begins again
        log.info("%s has moved %d messages and ends", _named(given), shovel.info.forwarded)

        def removed(reply: Any) -> None:
            if isinstance(reply, Refusal) and self._here.get((given.vhost, given.name)) is shovel:
                log.warning("%s cannot be removed: %s", _named(given), reply.detail)

        command = DeleteParameter(given.vhost, SHOVEL, given.name)
        self._definitions.submit(command, removed, forever=True)

    def _drop(self, key: Key, why: str) -> None:
        shovel = self._here.pop(key)
        if shovel.process is not None:
            log.info("%s is stopped: %s", _named(shovel.parameter), why)
            shovel.process.stop()

    # ------------------------------------------------------------ asking

    def survey(self, vhosts: list[str], answer: Callable[[list[ShovelInfo]], None]) -> None:
        """Answer the shovels of these vhosts, by vhost and name, wherever they run."""

        def told(answers: Answers) -> None:
            answer(self._merged(vhosts, answers))

        self._survey.ask(self._definitions.within_reach(), told, "", "")

    def _merged(self, vhosts: list[str], answers: Answers) -> list[ShovelInfo]:
        heard: dict[Key, ShovelInfo] = {}
        told = [*self._infos(), *(one for of in answers.values() for one in of.shovels)]
        for one in told:
            other = heard.get((one.vhost, one.name))
            if other is None or _liveliness(one) > _liveliness(other):
                heard[one.vhost, one.name] = one
        nodes = self._candidates()
        found = []
        for name in sorted(vhosts):
            for key, parameter in sorted(self._all(name), key=lambda each: each[0]):
                info = heard.get(key)
                if info is None:
                    _, info = described(parameter, shovel_owner(*key, nodes) or "")
                found.append(info)
        return found

    def restart(self, vhost: str, name: str, answer: Callable[[], None]) -> None:
        """Have the node that runs a shovel stop its process and start another one."""
        self._restart(vhost, name)
        self._survey.ask(self._definitions.within_reach(), lambda answers: answer(), vhost, name)

    def _restart(self, vhost: str, name: str) -> None:
        shovel = self._here.get((vhost, name))
        if shovel is not None and not shovel.finished:
            self._drop((vhost, name), "to be restarted")
            self._here[vhost, name] = self._described(shovel.parameter)

    def _infos(self) -> tuple[ShovelInfo, ...]:
        return tuple(shovel.info for shovel in self._here.values())

    def _on_ask(self, node: str, message: messages.AskShovels, rest: Any) -> None:
        if message.name:
            self._restart(message.vhost, message.name)
        told = messages.ShovelsAre(message.request, self._infos())
        self._cluster.host.send(node, messages.encode(told))


def described(parameter: Parameter, node: str) -> tuple[bool, ShovelInfo]:
    """Return whether a shovel can run, and what is shown of it before it has."""
    plain = ShovelInfo(vhost=parameter.vhost, name=parameter.name, node=node)
    try:
        made = parse_shovel(parameter.vhost, parameter.name, parameter.value)
    except Refusal as refusal:
        reason = " ".join(refusal.detail.split())
        return False, msgspec.structs.replace(plain, state=TERMINATED, reason=reason)
    source, target = made.source, made.destination
    return True, msgspec.structs.replace(
        plain,
        src_protocol=SHOVEL_PROTOCOL,
        src_uri=", ".join(map(str, source.uris)),
        src_queue=source.queue or "",
        src_exchange=source.exchange or "",
        dest_protocol=SHOVEL_PROTOCOL,
        dest_uri=", ".join(map(str, target.uris)),
        dest_queue=target.queue or "",
        dest_exchange=target.exchange or "",
    )


def _liveliness(info: ShovelInfo) -> int:
    """Return which of two nodes that both know a shovel tells more about it."""
    return (TERMINATED, STARTING, RUNNING).index(info.state)


def _named(parameter: Parameter) -> str:
    return f"shovel {quoted(parameter.name)} in vhost {quoted(parameter.vhost)}"
