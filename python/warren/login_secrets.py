"""Passwords that change while a connection exists, such as OAuth 2 tokens."""

from __future__ import annotations

from typing import Protocol


class LoginSecrets(Protocol):
    """Where a connection gets its passwords; called with the connection's lock held."""

    def current(self) -> str:
        """Return the password for a login; may wait for it.

        raises  Unavailable: not now, try again; whatever else it raises ends the operation
        """

    def following(self, before: str) -> str | None:
        """Return the password that the node is to be given after `before`; None: there is none.

        Does not wait. A node that takes tokens ends the connection with the token that it has.
        """

    def refused(self, password: str) -> None:
        """Note that a node refused a login with this password; does not wait."""

    def over(self, password: str) -> bool:
        """Return whether a node takes this password no longer: its refusal says nothing else."""
