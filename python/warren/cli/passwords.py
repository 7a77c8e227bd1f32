"""A password that a command needs."""

from __future__ import annotations

import sys

import typer

from warren.errors import UsageError


def asked_password(user: str, given: str | None, *, twice: bool) -> str:
    """Return the password from the option, the terminal or standard input; raises UsageError."""
    if given is None and sys.stdin.isatty():
        given = str(
            typer.prompt(
                f"password of {user}", hide_input=True, confirmation_prompt=twice, err=True
            )
        )
    elif given is None:
        given = sys.stdin.readline().rstrip("\r\n")
    if not given:
        raise UsageError("the password is empty; give one")
    return given
