"""An operator that imports definitions: all of an import is there, on every node, or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from sim.checkers import require
from sim.whole.people import VHOST, OneAtATime
from warren_machines.definition_files.document import parse
from warren_machines.metadata.commands import DeleteExchange
from warren_machines.steps import whole
from warren_raft.types import METADATA_GROUP
from warren_wire.errors import InternalError, Refusal, Unavailable

if TYPE_CHECKING:
    from sim.whole.process import Process
    from sim.whole.world import World

SHARED = "shared"
"""An exchange of every import: two of them want it to be of different types."""


def document(number: int, kind: str) -> bytes:
    """An import; what it is refused for, SHARED, comes after most of it."""
    name = f"import-{number}"
    here = {"vhost": VHOST, "name": name}
    binding = {"vhost": VHOST, "source": name, "destination": name, "destination_type": "queue"}
    return msgspec.json.encode(
        {
            "users": [{"name": name, "password": "secret", "tags": ""}],
            "permissions": [
                {"user": name, "vhost": VHOST, "configure": "", "write": "", "read": ""}
            ],
            "global_parameters": [{"name": name, "value": number}],
            "policies": [{**here, "pattern": f"^{name}$", "definition": {"max-length": 9}}],
            "exchanges": [
                {**here, "type": "fanout"},
                {"vhost": VHOST, "name": SHARED, "type": kind},
            ],
            "queues": [{**here, "arguments": {"x-queue-type": "quorum"}}],
            "bindings": [binding],
        }
    )


class Imports:
    """What was imported, and what is there of it.

    asked    imports that were submitted; done: those that were carried out
    refused  those that were refused when they were applied
    """

    def __init__(self) -> None:
        self.asked: dict[int, bool] = {}
        self.done: dict[int, bool] = {}
        self.refused: dict[int, bool] = {}

    def look(self, process: Process, last: bool = False) -> None:
        """Compare a node's definitions with the imports."""
        if not self.asked:
            return
        state: Any = process.host.state(METADATA_GROUP)
        scope = state.scopes.get(VHOST)
        for number in self.asked:
            name = f"import-{number}"
            there = {
                "user": name in state.users,
                "permission": any(grant.user == name for grant in state.grants.values()),
                "global parameter": name in state.global_parameters,
                "policy": scope is not None and name in scope.policies.user,
                "exchange": scope is not None and name in scope.exchanges,
                "queue": scope is not None and name in scope.queues,
                "binding": scope is not None and bool(scope.bindings.get(name)),
            }
            found = sum(there.values())
            where = (process.name, number, there)
            require(found in (0, len(there)), "an import is there in part", *where)
            require(not found or number not in self.refused, "a refused import is there", *where)
            missing = last and not found and number in self.done
            require(not missing, "an import is lost", *where)


class Importer(OneAtATime):
    """Imports definitions through two nodes at once; only one of both can be carried out."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number, world.profile.queues[0])
        self.count = 0

    def act(self) -> None:
        """Import now and then."""
        self.ask_next(self.clear, wanted=not self.world.calm)
        self.again(300)

    def clear(self, process: Process) -> None:
        """In the node's turn: delete what both will declare."""
        definitions = process.broker.definitions
        if definitions.state.exchange(VHOST, SHARED) is None:
            self.begin(process)
        else:
            definitions.submit(DeleteExchange(VHOST, SHARED), lambda reply: self.begin(process))

    def begin(self, process: Process) -> None:
        """Import through that node and some other one."""
        self.busy = False
        machines = [machine.running for machine in self.world.processes.values()]
        others = [one for one in machines if one is not None and one.serves]
        for one, kind in ((process, "fanout"), (self.rng.choice(others or [process]), "direct")):
            self.count += 1
            one.inject(lambda at=(one, self.count, kind): self.put(*at))

    def put(self, process: Process, number: int, kind: str) -> None:
        """In the node's turn."""
        imports = self.world.checkers.imports
        try:
            checked = whole(process.broker.imports.check(parse(document(number, kind))))
        except Refusal:
            return  # the other one was sooner
        self.world.note("imports", process.name, number)
        imports.asked[number] = True

        def imported(reply: Any) -> None:
            if not isinstance(reply, Refusal):
                imports.done[number] = True
            elif not isinstance(reply, Unavailable | InternalError):
                imports.refused[number] = True
            imports.look(process)

        process.broker.imports.submit(checked, imported)
