"""The shovels that run on this node.

Every node looks at the definitions, and runs those shovels for which `shovel_owner` names it. A
node without a leader of the metadata group stops its shovels after a while: it may be cut off, and
another node has them. Static shovels, of the nodes' configurations, have the empty vhost here.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from warren_broker.cluster import messages
from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.definitions import Definitions
from warren_broker.cluster.link_logins import LinkLogins
from warren_broker.cluster.survey import Answers, Survey
from warren_broker.settings.static_shovels import STATIC_VHOST
from warren_broker.transfers.shovel.sealed_uris import UriSeal
from warren_broker.transfers.shovel.supervisor import Key, ManagedShovel, Supervisor, Wanted
from warren_machines.metadata.commands import DeleteParameter
from warren_machines.metadata.records import Parameter
from warren_wire.admin.shovels import (
    FEDERATION,
    PAUSED,
    RUNNING,
    STARTING,
    STATIC,
    TERMINATED,
    ShovelInfo,
)
from warren_wire.checksum import crc32
from warren_wire.errors import Refusal
from warren_wire.links.definition import parse_shovel
from warren_wire.parameter_values import SHOVEL
from warren_wire.quoting import SHOWN_CHARACTERS_MAX, quoted

log = logging.getLogger(__name__)
ASK_STATIC_MS: Final = 2_000
"""How often a node with static shovels asks the others for theirs."""


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()


class StaticShovels:
    """The shovels of this node's configuration, and the names that others have.

    A static shovel is one by its name in the whole cluster, and runs on one of the nodes that have
    it. Each node with static shovels asks the others for theirs. Where two definitions of a name
    differ, that of the node that runs it counts, and both nodes say so in their logs.

    own      name -> definition, as a parameter of no vhost
    digests  name -> digest of the definition: what other nodes are told
    known    whether the others have been asked; before, nothing runs
    """

    def __init__(self, values: Mapping[str, object]) -> None:
        self.own = {
            name: Parameter("", SHOVEL, name, value, user="") for name, value in values.items()
        }
        self.digests = {name: _digest(value) for name, value in values.items()}
        self.known = False
        self._elsewhere: dict[str, Mapping[str, str]] = {}

    def told(self, node: str, digests: Mapping[str, str]) -> list[str]:
        """Take note of another node's; return the names that it defines otherwise now."""
        before = self._elsewhere.get(node, {})
        self._elsewhere[node] = digests
        return [
            name
            for name, digest in sorted(digests.items())
            if name in self.digests and digest not in (self.digests[name], before.get(name))
        ]

    def owner(self, name: str, own: str, nodes: Iterable[str]) -> str | None:
        """Return which of these nodes runs one; None: none of them has it."""
        having = [
            node
            for node in nodes
            if (name in self.own if node == own else name in self._elsewhere.get(node, {}))
        ]
        return shovel_owner("", name, having)


def shovel_owner(vhost: str, name: str, nodes: Iterable[str]) -> str | None:
    """Return the node that runs a shovel, by rendezvous hashing; None without nodes.

    Every node decides by those nodes that it reaches. 1. Nodes A, B and C are connected but for A
    and B.  2. A chooses among A and C, B among B and C.  3. The node with the highest rank of all
    that run is a choice of itself, so the shovel runs, whatever the others see. Perhaps another
    node runs it, too: then two consumers share the source.
    """
    return max(nodes, key=lambda node: (_rank(vhost, name, node), node), default=None)


def _rank(vhost: str, name: str, node: str) -> int:
    return crc32("\0".join((node, vhost, name, node)).encode("utf-8", "replace"))


class Shovels(Supervisor):
    """Starts and stops the processes of this node's shovels, and knows the states of all."""

    def __init__(
        self,
        cluster: Cluster,
        definitions: Definitions,
        cluster_name: str,
        logins: LinkLogins,
        seal: UriSeal,
        static: Mapping[str, object],
        *links: Supervisor,
    ) -> None:
        """Make it; nothing runs before `start`.

        static  shovels of this node's configuration: name -> what a parameter would be
        links   of federation, which are told about in the same answer as shovels
        """
        super().__init__(cluster, definitions, cluster_name, logins, seal)
        self._links = links
        self._static = StaticShovels(static)
        self._survey = Survey(cluster, messages.AskShovels, messages.ShovelsAre)
        cluster.handlers[messages.AskShovels] = self._on_ask

    def start(self, own: dict[str, Any]) -> None:
        """See Supervisor."""
        super().start(own)
        if self._static.own:
            self._ask_static()

    def _ask_static(self) -> None:
        """Ask the other nodes for their static shovels; again after a while."""
        if self._own is None:
            return

        def told(answers: Answers) -> None:
            self._static.known = True
            for node, answer in answers.items():
                for name in self._static.told(node, answer.static):
                    log.warning(
                        "static shovel %s is defined differently on node %s: it runs as the node "
                        "that runs it has it",
                        quoted(name),
                        node,
                    )
            self._cluster.loop.call_later(ASK_STATIC_MS, self._ask_static)

        self._survey.ask(self._definitions.within_reach(), told, "", "")

    def wanted(self) -> Iterator[Wanted]:
        """See Supervisor; they are a sum: looked at in one step."""
        own, nodes = self._cluster.host.node_id, self.candidates()
        yield from [
            (key, parameter)
            for key, parameter in self._all(None)
            if self._owner(key, nodes) == own and (key[0] != STATIC_VHOST or self._static.known)
        ]

    def _owner(self, key: Key, nodes: list[str]) -> str | None:
        if key[0] == STATIC_VHOST:
            return self._static.owner(key[1], self._cluster.host.node_id, nodes)
        return shovel_owner(*key, nodes)

    def described(self, parameter: Parameter, node: str) -> tuple[bool, ShovelInfo]:
        """See Supervisor."""
        plain = ShovelInfo(vhost=parameter.vhost, name=parameter.name, node=node)
        if parameter.vhost == STATIC_VHOST:
            plain = msgspec.structs.replace(plain, type=STATIC)
        try:
            made = parse_shovel(parameter.vhost, parameter.name, parameter.value)
        except Refusal as refusal:
            reason = " ".join(refusal.detail.split())
            return False, msgspec.structs.replace(plain, state=TERMINATED, reason=reason)
        source, target = made.source, made.destination
        return not made.paused, msgspec.structs.replace(
            plain,
            state=PAUSED if made.paused else STARTING,
            src_protocol=source.protocol,
            src_uri=", ".join(uri.given for uri in source.uris),
            src_queue=source.queue or "",
            src_exchange=source.exchange or "",
            src_address=source.address,
            dest_protocol=target.protocol,
            dest_uri=", ".join(uri.given for uri in target.uris),
            dest_queue=target.queue or "",
            dest_exchange=target.exchange or "",
            dest_address=target.address,
        )

    def job(self, parameter: Parameter) -> dict[str, Any]:
        """See Supervisor."""
        return {"vhost": parameter.vhost, "name": parameter.name, "value": parameter.value}

    def named(self, parameter: Parameter, limit: int = SHOWN_CHARACTERS_MAX) -> str:
        """See Supervisor."""
        name = quoted(parameter.name, limit)
        if parameter.vhost == STATIC_VHOST:
            return f"static shovel {name}"
        return f"shovel {name} in vhost {quoted(parameter.vhost, limit)}"

    def _all(self, vhost: str | None) -> Iterator[tuple[Key, Parameter]]:
        if vhost in (None, STATIC_VHOST):
            for name, parameter in self._static.own.items():
                yield (STATIC_VHOST, name), parameter
        for name, scope in self._definitions.state.scopes.items():
            if scope.parameters and vhost in (None, name):
                for (component, shovel), parameter in scope.parameters.items():
                    if component == SHOVEL:
                        yield (name, shovel), parameter

    def done(self, shovel: ManagedShovel) -> None:
        """Remove the parameter of a shovel that has moved what it was to move."""
        self.end(shovel)
        given = shovel.parameter
        shovel.finished = True
        current = self._definitions.state.parameters(given.vhost).get((SHOVEL, given.name))
        if current is None or current.value != given.value:
            return  # it has been set again, and begins again
        log.info("%s has moved %d messages and ends", self.named(given), shovel.info.forwarded)

        def removed(reply: object) -> None:
            if isinstance(reply, Refusal) and self._here.get((given.vhost, given.name)) is shovel:
                log.warning("%s cannot be removed: %s", self.named(given), reply.detail)

        command = DeleteParameter(given.vhost, SHOVEL, given.name)
        self._definitions.submit(command, removed, forever=True)

    # ------------------------------------------------------------ asking

    def survey(self, vhosts: list[str], answer: Callable[[list[ShovelInfo]], None]) -> None:
        """Answer the shovels of these vhosts, by vhost and name, wherever they run.

        vhosts  STATIC_VHOST for the static ones
        """

        def told(answers: Answers) -> None:
            answer(self._merged(vhosts, answers))

        self._survey.ask(self._definitions.within_reach(), told, "", "")

    def survey_links(self, vhosts: list[str], answer: Callable[[list[ShovelInfo]], None]) -> None:
        """Answer the federation links of these vhosts, by vhost, queue, exchange and upstream."""

        def told(answers: Answers) -> None:
            found: dict[tuple[str, str, str, str], ShovelInfo] = {}
            for one in self._all_told(answers):
                key = (one.vhost, one.dest_queue, one.dest_exchange, one.name)
                if one.type != FEDERATION or one.vhost not in vhosts:
                    continue
                if key not in found or _liveliness(one) > _liveliness(found[key]):
                    found[key] = one
            answer([found[key] for key in sorted(found)])

        self._survey.ask(self._definitions.within_reach(), told, "", "")

    def _every_info(self) -> tuple[ShovelInfo, ...]:
        return self.infos() + tuple(one for each in self._links for one in each.infos())

    def _all_told(self, answers: Answers) -> list[ShovelInfo]:
        return [*self._every_info(), *(one for of in answers.values() for one in of.shovels)]

    def _merged(self, vhosts: list[str], answers: Answers) -> list[ShovelInfo]:
        heard: dict[Key, ShovelInfo] = {}
        for one in self._all_told(answers):
            if one.type == FEDERATION:
                continue
            other = heard.get((one.vhost, one.name))
            if other is None or _liveliness(one) > _liveliness(other):
                heard[one.vhost, one.name] = one
        nodes = self.candidates()
        found = []
        for name in sorted(vhosts):
            for key, parameter in sorted(self._all(name), key=lambda each: each[0]):
                info = heard.get(key)
                if info is None:
                    given = self._opened(parameter)
                    _, info = self.described(given, self._owner(key, nodes) or "")
                found.append(info)
        if STATIC_VHOST in vhosts:  # some may be of other nodes' configurations alone
            named = {one.name for one in found if one.vhost == STATIC_VHOST}
            others = (one for key, one in heard.items() if key[0] == STATIC_VHOST)
            found += [one for one in others if one.name not in named]
        return found

    def find_static(self, name: str, answer: Callable[[bool], None]) -> None:
        """Answer whether the configuration of any node has that shovel."""
        if name in self._static.own:
            answer(True)
            return

        def told(answers: Answers) -> None:
            answer(any(name in of.static for of in answers.values()))

        self._survey.ask(self._definitions.within_reach(), told, "", "")

    def restart(self, vhost: str, name: str, answer: Callable[[], None]) -> None:
        """Have the node that runs a shovel stop its process and start another one."""
        self._restart(vhost, name)
        self._survey.ask(self._definitions.within_reach(), lambda answers: answer(), vhost, name)

    def _restart(self, vhost: str, name: str) -> None:
        shovel = self._here.get((vhost, name))
        if shovel is not None and not shovel.finished:
            self._drop((vhost, name), "to be restarted")
            self._here[vhost, name] = self._described(shovel.parameter)

    def _on_ask(self, node: str, message: messages.AskShovels, rest: object) -> None:
        if message.name:
            self._restart(message.vhost, message.name)
        told = messages.ShovelsAre(message.request, self._every_info(), self._static.digests)
        self._cluster.host.send(node, messages.encode(told))


def _liveliness(info: ShovelInfo) -> int:
    """Return which of two nodes that both know a shovel tells more about it."""
    return (PAUSED, TERMINATED, STARTING, RUNNING).index(info.state)
