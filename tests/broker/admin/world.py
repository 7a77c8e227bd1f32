"""A user's connection to `/management` over real definitions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from machines.definition_files.around import SEAL
from machines.metadata.world import World as Metadata
from warren_broker.admin.answers import rendered
from warren_broker.admin.caller import Asker
from warren_broker.admin.resources import HANDLERS
from warren_machines.metadata import commands
from warren_machines.metadata.permissions import Permissions
from warren_machines.metadata.records import Grant, User, Vhost
from warren_wire import errors
from warren_wire.admin.requests import AdminRequest
from warren_wire.admin.resources import find_route


class ManagementWorld:
    """The connection of `user`; beside guest there are `users`, and the vhost a/b.

    users   tags by name
    grants  of permissions that match nothing: (vhost, user)
    """

    users: dict[str, tuple[str, ...]]
    grants: tuple[tuple[str, str], ...]

    def __init__(self, user: str = "guest") -> None:
        self.user = user
        self.made = Metadata()
        for name, tags in self.users.items():
            self.made.do(commands.PutUser(User(name, "", tags)))
        self.made.do(commands.AddVhost(Vhost("a/b", "theirs")))
        for vhost, name in self.grants:
            self.made.do(commands.PutGrant(Grant(vhost, name, "", "", "")))
        self.traced: set[str] = set()

    def tags(self, user: str) -> tuple[str, ...]:
        found = self.made.state.users.get(user)
        return found.tags if found else ()

    def permissions(self, vhost: str, user: str) -> Permissions | None:
        return Permissions() if (vhost, user, None) in self.made.state.grants else None

    def default_queue_type(self, vhost: str) -> str:
        return self.made.state.scopes[vhost].vhost.default_queue_type or "quorum"

    def submit(self, command: Any, done: Any) -> None:
        try:
            done(self.made.do(command))
        except errors.Refusal as refusal:
            done(refusal)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and body."""
        answers: list[Any] = []
        broker: Any = SimpleNamespace(
            definitions=SimpleNamespace(state=self.made.state, submit=self.submit),
            tags=self.tags,
            permissions=self.permissions,
            default_queue_type=self.default_queue_type,
            traced_vhosts=self.traced,
            seal=SEAL,
            firehose=SimpleNamespace(start=self.traced.add, stop=self.traced.discard),
        )
        request: Any = AdminRequest()
        try:
            asker = Asker(broker, "/", self.user, 1, lambda call: call)
            found = find_route(method, path)
            found.route.check(asker.access.must_be, 0)
            request = found.request(body)
            HANDLERS[type(request)](asker, request, answers.append)
        except errors.Refusal as refusal:
            answers.append(refusal)
        (answer,) = answers
        return rendered(request, answer)
