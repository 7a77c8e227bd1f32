"""Commands that begin something long, which continues in the cluster, and may wait for its end."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from warren.admin import Admin
from warren.cli.progress_line import ProgressLine
from warren.cli.target import Json, Uri, connect

WAIT_S = 600.0

Wait = Annotated[
    bool,
    typer.Option(
        "--wait",
        help="wait until it is done and show progress; otherwise it continues in the background",
    ),
]
Timeout = Annotated[
    float, typer.Option("--timeout", min=0.001, help="with --wait: at most that many seconds")
]


@dataclass(frozen=True, slots=True)
class LongCall:
    """The options that all of these commands have.

    wait_s  how long to wait; None: not at all
    """

    uri: str | None
    json: bool
    wait_s: float | None

    @property
    def waits(self) -> bool:
        """Whether the operation is complete when its call returns."""
        return self.wait_s is not None

    @contextmanager
    def begin(self, what: str) -> Iterator[Admin]:
        """Connect, and show the progress of `what` meanwhile."""
        with connect(self.uri) as connection, ProgressLine(what) as progress:
            admin = Admin(connection)
            yield admin if self.wait_s is None else admin.waiting(self.wait_s, progress.saw)


def _long_call(
    uri: Uri = None, json: Json = False, wait: Wait = False, timeout: Timeout = WAIT_S
) -> LongCall:
    return LongCall(uri, json, timeout if wait else None)


def long_command(group: typer.Typer) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command of the group.

    Its parameter `call`, a LongCall, stands for the options --uri, --json, --wait and --timeout,
    which are shown after its own.
    """
    options = inspect.signature(_long_call, eval_str=True).parameters

    def register(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**given: Any) -> None:
            call = _long_call(**{name: given.pop(name) for name in options})
            command(**given, call=call)

        shown = dict(inspect.signature(command, eval_str=True).parameters)
        del shown["call"]
        shown |= options
        # What typer reads of a command.
        run.__annotations__ = {name: each.annotation for name, each in shown.items()}
        vars(run)["__signature__"] = inspect.Signature(list(shown.values()))
        return group.command()(run)

    return register
