"""An import in the making: its commands, what is left out of it, what is wrong with the file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from warren_machines.definition_files.document import WHOLE_CLUSTER, Document, FileObject
from warren_machines.metadata.commands import AnyImported, DeclareQueue
from warren_machines.metadata.policy_index import PolicyIndex
from warren_machines.metadata.records import Limits, Parameter, Policy, User, Vhost
from warren_machines.metadata.state import MetadataState
from warren_wire import errors
from warren_wire.admin.definitions import NotHonoured
from warren_wire.arguments import NAME_BYTES_MAX, QueueDeclaration, QueueDefaults
from warren_wire.errors import InvalidArgument, Refusal, named

PROBLEMS_SHOWN_MAX: Final = 20


class FileRefused(errors.PreconditionFailed):
    """Definitions that cannot be imported: nothing was changed."""

    http_status = 400


class ImportSurroundings(Protocol):
    """What the node that imports knows beside the file and the definitions."""

    nodes_count: int
    """Number of the cluster's nodes."""
    defaults: QueueDefaults
    """What holds for a queue where its vhost and arguments do not say otherwise."""
    own_exchanges: Collection[tuple[str, str]]
    """Vhosts and names of exchanges that nodes declare for themselves; they may not exist yet."""

    def queue_command(self, checked: QueueDeclaration, policies: PolicyIndex) -> DeclareQueue:
        """Return the command that declares a queue under these policies."""

    def place_store(self) -> tuple[tuple[str, ...], str]:
        """Return the nodes and the first leader of an exchange's store."""

    def hash_password(self, password: str) -> str:
        """Return a new hash of a password."""

    @property
    def sealed(self) -> Callable[[Parameter], Parameter]:
        """What seals the passwords in a link's URIs, see `shovel.sealed_uris`."""


@dataclass(frozen=True, slots=True)
class Step:
    """A command with the kind and the name of its object."""

    kind: str
    name: str
    command: AnyImported


@dataclass(slots=True)
class ImportPlan:
    """The commands for the objects of a file.

    An object that this broker cannot have, or a part of one, is left out and named. When
    objects contradict each other, or those of the cluster, that is a problem, and the whole file is
    refused.

    vhost   to import all objects into, whatever vhost they name; None: the one that they name
    importer  the user that imports, see `records.Parameter`
    window  the places of the objects that `each` returns now
    seen    the objects met, by kind and identity
    vhosts, users  those of the file
    limits  those of vhosts and users met, by kind and name
    """

    document: Document
    state: MetadataState
    around: ImportSurroundings
    vhost: str | None = None
    importer: str | None = None
    window: slice = field(default_factory=lambda: slice(0, None))
    steps: list[Step] = field(default_factory=list)
    not_honoured: list[NotHonoured] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seen: dict[tuple[Any, ...], FileObject] = field(default_factory=dict)
    vhosts: dict[str, Vhost] = field(default_factory=dict)
    users: dict[str, User] = field(default_factory=dict)
    limits: dict[tuple[str, str], Limits] = field(default_factory=dict)
    _policies: dict[str, PolicyIndex] = field(default_factory=dict)

    def add(self, kind: str, name: str, command: AnyImported) -> None:
        """Add the command for an object."""
        self.steps.append(Step(kind, name, command))

    def note(self, name: str, key: str, reason: str) -> None:
        """Note an object, or a key of one, that is not honoured."""
        self.not_honoured.append(NotHonoured(name, key, reason))

    def refuse(self, name: str, refusal: Refusal) -> None:
        """Note what is wrong with an object."""
        detail = refusal.detail
        self.problems.append(detail if name in detail else f"{name}: {detail}")

    @contextmanager
    def refusing(self, name: str) -> Iterator[None]:
        """Note what is wrong with an object when its check or its command is refused."""
        try:
            yield
        except Refusal as refusal:
            self.refuse(name, refusal)

    def finish(self) -> None:
        """Raise FileRefused, with the first of the problems, if there are any."""
        if not self.problems:
            return
        shown = self.problems[:PROBLEMS_SHOWN_MAX]
        if len(self.problems) > len(shown):
            shown.append(f"… and {len(self.problems) - len(shown):,} more")
        raise FileRefused(f"nothing is imported: {'; '.join(shown)}")

    def each(self, kind: str) -> Iterator[tuple[int, Any]]:
        """Iterate over the objects of a kind with their places; into one vhost go only its own."""
        found = getattr(self.document, kind)
        if self.vhost is None or kind not in WHOLE_CLUSTER:
            yield from enumerate(found[self.window], self.window.start)
        elif found and not self.window.start:
            reason = f"left out: the import is into vhost '{self.vhost}' alone"
            self.note(f"{len(found):,} {kind}", "", reason)

    def each_once(self, kind: str, word: str) -> Iterator[tuple[str, Any]]:
        """Iterate over the objects of the whole cluster, without repeats.

        word   what the texts call one: `user`
        yields its name in the texts, and the object
        """
        for _, entry in self.each(kind):
            name = f"{word} '{entry.name}'"
            if self.is_first((word, entry.name), name, entry):
                yield name, entry

    def each_in_vhost(self, kind: str, word: str) -> Iterator[tuple[str, str, Any]]:
        """Iterate over the objects of known vhosts, without repeats.

        word   what the texts call one: `queue`
        yields its vhost, its name in the texts, and the object
        """
        for number, entry in self.each(kind):
            vhost = self.vhost_of(kind, number, entry)
            if vhost is None:
                continue
            name = named(word, entry.name, vhost)
            if self.is_first((word, vhost, entry.name), name, entry):
                yield vhost, name, entry

    def vhost_of(self, kind: str, number: int, entry: Any) -> str | None:
        """Return an object's vhost; None, and a problem, for an unknown one."""
        name = self.vhost if self.vhost is not None else entry.vhost
        if name is None:
            self.problems.append(
                f"{kind}[{number}] names no vhost: for a file of one vhost, name the vhost to "
                "import it into"
            )
        elif name not in self.vhosts and name not in self.state.scopes:
            self.problems.append(
                f"{kind}[{number}]: no vhost '{name}' in the file or in the cluster; create it "
                "first"
            )
            name = None
        return name

    def is_first(self, identity: tuple[Any, ...], name: str, entry: FileObject) -> bool:
        """Return whether an object is met for the first time; a repeat that differs is a problem.

        identity  its kind and what no other of that kind has
        """
        known = self.seen.setdefault(identity, entry)
        if known is not entry and known != entry:
            self.problems.append(f"{name} is in the file twice, and the two differ")
        return known is entry

    def vhost_record(self, name: str) -> Vhost:
        """Return a vhost as it will be."""
        found = self.vhosts.get(name)
        return found if found is not None else self.state.scopes[name].vhost

    def policies(self, vhost: str) -> PolicyIndex:
        """Return the policies that a vhost will have."""
        found = self._policies.get(vhost)
        if found is None:
            scope = self.state.scopes.get(vhost)
            index = scope.policies if scope is not None else PolicyIndex()
            found = self._policies[vhost] = PolicyIndex(dict(index.user), dict(index.operator))
        return found

    def add_policy(self, policy: Policy) -> None:
        """Note a policy that its vhost will have."""
        index = self.policies(policy.vhost)
        index.of(policy.operator)[policy.name] = policy
        index.changed()


def checked_size(what: str, name: str) -> None:
    """Raise InvalidArgument for an empty name or one of more than 255 bytes."""
    size = len(name.encode())
    if not 1 <= size <= NAME_BYTES_MAX:
        raise InvalidArgument(
            f"{what} '{name[:40]}' has a name of {size} bytes; 1 to {NAME_BYTES_MAX} are allowed"
        )
