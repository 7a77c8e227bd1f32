"""Steps of an operator: counts, limits, users, definitions; and what opens within limits."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pamqp.commands as spec

from differ import normal
from differ.brokers import COUNTS
from differ.script import POLL_S, SOON_S, Script
from differ.wire import ANSWER_S, NoAnswer, Wire

HEADS = {"rabbit_version", "rabbitmq_version", "product_name", "product_version", "explanation"}
"""Keys of an export that tell the server, and change with it."""


class Operator:
    """The operator of a script's broker.

    users  that it has added; they are deleted at the end
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._broker = script.broker
        self._vhost = script.vhost
        self._wires: list[Wire] = []
        self._users: list[str] = []

    def __enter__(self) -> Operator:
        return self

    def __exit__(self, *failure: object) -> None:
        for wire in self._wires:
            wire.close()
        for user in self._users:
            self._broker.change("DELETE", f"/users/{user}", None)

    def counts(self, queue: str, *wanted: int) -> None:
        """Record COUNTS of a queue once they are as wanted, or late."""
        deadline = time.monotonic() + SOON_S
        while True:
            shown = self._broker.counts_of(self._vhost, queue)
            found = tuple(shown[key] for key in COUNTS)
            if found == wanted or time.monotonic() > deadline:
                break
            time.sleep(POLL_S)
        line = " ".join(f"{key}={shown[key]}" for key in COUNTS)
        self._script.step(f"counts of {queue}", line)

    # ------------------------------------------------------------ limits

    def limit(self, name: str, value: Any, user: str = "") -> None:
        """Set a limit of the vhost, or of a user."""
        path = f"/user-limits/{user}/{name}" if user else f"/vhost-limits/{self._vhost}/{name}"
        answer = self._broker.change("PUT", path, {"value": value})
        self._script.step(f"limit {name} {value!r} of {user or 'the vhost'}", answer)

    def clear_limit(self, name: str, user: str = "") -> None:
        """Clear a limit."""
        path = f"/user-limits/{user}/{name}" if user else f"/vhost-limits/{self._vhost}/{name}"
        answer = self._broker.change("DELETE", path, None)
        self._script.step(f"no limit {name} of {user or 'the vhost'}", answer)

    def user(self, name: str) -> None:
        """Add a user with all rights in the vhost; not a step."""
        self._broker.change("PUT", f"/users/{name}", {"password": "guest", "tags": ""})
        self._users.append(name)
        rights = {"configure": ".*", "write": ".*", "read": ".*"}
        self._broker.change("PUT", f"/permissions/{self._vhost}/{name}", rights)

    def connects(self, user: str = "guest") -> Wire | None:
        """Open a connection."""
        try:
            wire = Wire(self._broker.address, self._vhost, user=user)
        except NoAnswer as error:
            shown = normal.method(error.event) if error.event else "hung up"
            self._script.step(f"connect as {user}", shown)
            return None
        self._wires.append(wire)
        self._script.step(f"connect as {user}", "opened")
        return wire

    def opens_channel(self, wire: Wire | None, number: int) -> None:
        """Open a channel."""
        assert wire is not None
        wire.send(number, spec.Channel.Open())
        event = wire.event(ANSWER_S)
        if event is not None and isinstance(event.method, spec.Connection.Close):
            wire.send(0, spec.Connection.CloseOk())
            wire.drop()
        self._script.step(f"open channel {number}", normal.method(event) if event else "nothing")

    def closes(self, wire: Wire | None) -> None:
        """Close a connection."""
        assert wire is not None
        with contextlib.suppress(OSError):
            wire.close()
        self._script.step("close it")

    # ------------------------------------------------------------ definitions

    def exports(self, kinds: Sequence[str]) -> None:
        """Record the keys of the vhost's definitions, and the objects of these kinds."""
        found = self._broker.exported(self._vhost)
        self._script.step("keys of the export", " ".join(sorted(set(found) - HEADS)))
        for kind in kinds:
            self._script.step(f"exported {kind}", *sorted(map(normal.value, found.get(kind, []))))

    def imports(self, what: str, document: Mapping[str, Any] | Sequence[Any]) -> None:
        """Import definitions into the vhost."""
        answer = self._broker.imported(self._vhost, document)
        self._script.step(f"import {what}", answer)
