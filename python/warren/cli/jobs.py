"""`warren letters` and `warren jobs`: groups of messages, and work on those that are meant."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any

import typer

from warren.admin import Admin
from warren.cli import output
from warren.cli.requests import RequestGroup
from warren.cli.selecting import selecting
from warren.cli.target import Json, Queue, Uri, connect
from warren.errors import UsageError
from warren_wire.admin.jobs import UNDO_MS, BeginJobRequest, JobInfo, ListJobsRequest
from warren_wire.admin.jobs import SteerJobRequest as Steer
from warren_wire.admin.letters import GroupLettersRequest, LetterGroup
from warren_wire.admin.requests import summary_of, texts_of

_TEXTS = texts_of(BeginJobRequest) | texts_of(GroupLettersRequest)
_STEERED = texts_of(Steer)
_ASK_AGAIN_S = 0.3
_ENDED = ("cancelled", "done", "undone")
jobs = RequestGroup(
    no_args_is_help=True,
    help="Move, copy, delete, requeue or redrive messages that match, and undo that.",
)


@selecting
def letters(
    selection: dict[str, Any],
    queue: Queue,
    by: Annotated[str, typer.Option(help=_TEXTS["by"])] = "reason,origin",
    state: Annotated[str, typer.Option(help=_TEXTS["states"])] = "ready",
    looked_max: Annotated[int, typer.Option(help="messages to look at")] = 1_000_000,
    uri: Uri = None,
    json: Json = False,
) -> None:
    """Group the messages of a queue, such as dead letters by reason: nothing changes."""
    with connect(uri) as connection:
        found = Admin(connection).letters.groups(
            queue,
            by=by,
            states=state,
            looked_max=looked_max,
            **selection,
        )
    keys = by.split(",") if by else []
    columns: dict[str, output.Column] = {key: _value(key) for key in keys}
    columns |= {"messages": "messages", "bytes": "body_bytes"}
    columns["one of them"] = lambda one: f"{one.index}.{one.ordinal}"
    output.listing(found.groups, json, columns)
    if found.next:
        output.note(f"{found.looked:,} messages were looked at; there are more: --looked-max")


def _value(key: str) -> output.Column:
    def shown(one: LetterGroup) -> str:
        return one.values.get(key, "")

    return shown


@jobs.command(help=summary_of(BeginJobRequest))
@selecting
def start(
    selection: dict[str, Any],
    queue: Queue,
    action: Annotated[str, typer.Argument(help=_TEXTS["action"])],
    to: Annotated[str, typer.Option("--to", help="the queue to move or copy to")] = "",
    to_exchange: Annotated[str, typer.Option(help=_TEXTS["to_exchange"])] = "",
    routing_key: Annotated[str | None, typer.Option(help="with --to-exchange")] = None,
    to_vhost: Annotated[str | None, typer.Option(help=_TEXTS["to_vhost"])] = None,
    rate: Annotated[int, typer.Option(help=_TEXTS["rate"])] = 0,
    undo_ms: Annotated[int, typer.Option(help=_TEXTS["undo_ms"])] = UNDO_MS,
    message: Annotated[str, typer.Option(help="one message: INDEX.ORDINAL, as browse shows")] = "",
    set_header: Annotated[
        list[str] | None, typer.Option(help="NAME=TEXT, of what is published; NAME: none")
    ] = None,
    body: Annotated[str | None, typer.Option(help="instead of each body; -: of stdin")] = None,
    dry_run: Annotated[bool, typer.Option(help="say only how many messages are meant")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="wait until the job has ended")] = False,
    uri: Uri = None,
    json: Json = False,
) -> None:
    """Begin a job."""
    index, ordinal = _place(message)
    with connect(uri) as connection:
        admin = Admin(connection)
        if dry_run:
            found = 1 if index else _counted(admin, queue, selection)
            output.say(f"{found:,} messages of queue {queue} are meant; nothing was done")
            return
        job = admin.jobs.begin(
            queue,
            action=action,  # type: ignore[arg-type]
            to_queue=to,
            to_exchange=to_exchange,
            routing_key=routing_key,
            to_vhost=to_vhost,
            rate=rate,
            undo_ms=undo_ms,
            index=index,
            ordinal=ordinal,
            headers=_headers(set_header or ()),
            body=sys.stdin.read() if body == "-" else body,
            **selection,
        )
        if wait:
            job = _ended(admin, job)
    output.one(job, json, _say)


@jobs.command(help="Undo a job: bring back what its targets still have of it.")
def undo(
    queue: Queue,
    job: Annotated[int, typer.Argument(help=_STEERED["job"])],
    wait: Annotated[bool, typer.Option("--wait", help="wait until it is undone")] = False,
    uri: Uri = None,
    json: Json = False,
) -> None:
    """Undo a job."""
    with connect(uri) as connection:
        admin = Admin(connection)
        undone = admin.jobs.steer(queue, job, "undo")
        if wait:
            undone = _ended(admin, undone)
    output.one(undone, json, _say)


def _ended(admin: Admin, job: JobInfo) -> JobInfo:
    while job.state not in _ENDED:
        time.sleep(_ASK_AGAIN_S)
        job = admin.jobs.get(job.queue, job.job)
    return job


def _counted(admin: Admin, queue: str, selection: dict[str, Any]) -> int:
    found = admin.letters.groups(queue, looked_max=sys.maxsize, **selection)
    return sum(one.messages for one in found.groups)


def _place(message: str) -> tuple[int, int]:
    if not message:
        return 0, 0
    index, _, ordinal = message.partition(".")
    if not (index.isdigit() and ordinal.isdigit() and int(index)):
        raise UsageError(
            f"--message {message[:40]!r}: INDEX.ORDINAL, as `warren browse` shows them"
        )
    return int(index), int(ordinal)


def _headers(given: list[str] | tuple[str, ...]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for one in given:
        name, said, value = one.partition("=")
        found[name] = value if said else None
    return found


def _say(job: JobInfo) -> None:
    text = f"job {job.job} of queue {job.queue} is {job.state}: {job.done:,} done"
    if job.state == "undone":
        text += f", {job.back:,} of them brought back"
    if job.consumed:
        text += f", {job.consumed:,} were consumed at the target and not brought back"
    if job.left:
        text += f", {job.left:,} left where they are"
    if job.why:
        text += f"; it waits: {job.why}"
    output.say(text)


jobs.lists("list", ListJobsRequest, options=("queue",))
for _action in ("pause", "resume", "cancel", "forget"):
    jobs.does(
        _action,
        Steer,
        "job {job} of queue {queue} is {answer.state}",
        text=f"{_action.capitalize()} a job.",
        action=_action,
    )
