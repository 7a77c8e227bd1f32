"""`warren queues`: the members of queues."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from warren.cli import output
from warren.cli.long_command import WAIT_S, LongCall, long_command
from warren.cli.queues import queues
from warren.cli.requests import NEEDED
from warren.cli.target import Json, Queue, Uri
from warren_wire.admin.members import (
    GetMembersRequest,
    MembersChanged,
    QueueMembers,
    RecoverQueueRequest,
    Resizing,
    TransferLeadershipRequest,
)

__all__ = ["queues"]

EXIT_PARTLY = 1
"""Exit code when some queues, which are named, could not be changed."""

Node = Annotated[str, typer.Argument(help="the node's name, as `warren nodes list` shows it")]
FromNode = Annotated[
    str, typer.Option("--from", metavar="NODE", help="the node of which the member continues it")
]
VhostPattern = Annotated[
    str, typer.Option("--vhost-pattern", help="regular expression to match virtual host names")
]
QueuePattern = Annotated[
    str, typer.Option("--queue-pattern", help="regular expression to match queue names")
]
ErrorsOnly = Annotated[
    bool, typer.Option("--errors-only", help="list only queues that could not be changed")
]


def _show_members(found: QueueMembers) -> None:
    rows: list[tuple[Any, ...]] = [
        (
            member.node,
            member.role,
            member.state.replace("_", " "),
            member.voter,
            member.lag,
            f"{member.sent_bytes:,} of {member.total_bytes:,} bytes" if member.total_bytes else "",
        )
        for member in found.members
    ]
    title = (
        f"{found.name}: {found.leader or 'no node'} leads, term {found.term}, "
        f"committed {found.commit_index:,} of {found.last_index:,}"
    )
    output.table(title, ("node", "role", "state", "votes", "behind", "snapshot sent"), rows)
    if found.following:
        output.say(f"members follow {found.following}")
    if found.leader is not None:
        output.say(
            f"{len(found.online)} of {len(found.members)} online, "
            f"{len(found.synchronised)} synchronised"
        )
    if not found.settled:
        output.say(f"changing to members on {', '.join(found.wanted)}")


queues.shows("members", GetMembersRequest, _show_members)


@queues.command()
def sync(
    queue: Queue,
    uri: Uri = None,
    json: Json = False,
    timeout: Annotated[float, typer.Option(min=0.001, help="at most that many seconds")] = WAIT_S,
) -> None:
    """Wait until all members of a queue hold everything; they synchronise by themselves."""
    with LongCall(uri, json, timeout).begin(f"waiting for {queue}") as admin:
        found = admin.members.await_synchronised(queue)
    if json:
        output.as_json(found)
    else:
        output.say(f"{found.name}: synchronised on {', '.join(found.synchronised)}")


@long_command(queues)
def add_member(queue: Queue, node: Node, call: LongCall) -> None:
    """Add a member of a queue on a node: it catches up, then counts for the majority."""
    with call.begin(f"adding {node} to {queue}") as admin:
        changed = admin.members.add(queue, node)
    _show_change(changed, call, f"{node} is a member already")


@long_command(queues)
def delete_member(queue: Queue, node: Node, call: LongCall) -> None:
    """Remove a queue's member from a node; a leader transfers its leadership first."""
    with call.begin(f"deleting {node} from {queue}") as admin:
        changed = admin.members.delete(queue, node)
    _show_change(changed, call, f"{node} is no member")


queues.shows(
    "recover",
    RecoverQueueRequest,
    lambda done: output.say(
        f"{done.name}: {done.node} alone continues it, with what it has up to entry {done.last:,}; "
        f"given up: {', '.join(done.given_up)}"
    ),
    takes={"node": (FromNode, NEEDED)},
)


queues.shows(
    "transfer-leader",
    TransferLeadershipRequest,
    lambda moved: output.say(
        f"{moved.name}: {moved.leader} leads{'' if moved.moved else ' already'}"
    ),
)


@long_command(queues)
def grow(
    node: Node,
    strategy: Annotated[
        Literal["all", "even"],
        typer.Argument(help="all matching queues, or those with an even number of members"),
    ],
    call: LongCall,
    vhost_pattern: VhostPattern = ".*",
    queue_pattern: QueuePattern = ".*",
    errors_only: ErrorsOnly = False,
) -> None:
    """Add a member on a node to all matching quorum queues of all vhosts."""
    with call.begin(f"growing {node}") as admin:
        found = admin.nodes.grow(
            node, strategy, vhost_pattern=vhost_pattern, queue_pattern=queue_pattern
        )
    _show_resizing(found, call.json, errors_only, "grown")


@long_command(queues)
def shrink(node: Node, call: LongCall, errors_only: ErrorsOnly = False) -> None:
    """Remove the members of all quorum queues, of all vhosts, from a node."""
    with call.begin(f"shrinking {node}") as admin:
        found = admin.nodes.shrink(node, errors_only=errors_only)
    _show_resizing(found, call.json, errors_only, "shrunk")


@long_command(queues)
def rebalance(
    call: LongCall, vhost_pattern: VhostPattern = ".*", queue_pattern: QueuePattern = ".*"
) -> None:
    """Move leaders until no node leads more of the matching quorum queues than it must."""
    with call.begin("rebalancing") as admin:
        found = admin.members.rebalance(vhost_pattern=vhost_pattern, queue_pattern=queue_pattern)
    if call.json:
        output.as_json(found)
        return
    rows = [(move.vhost, move.name, move.source, move.target) for move in found.moves]
    if rows:
        title = "leaders moved" if call.waits else "leaders move"
        output.table(title, ("vhost", "queue", "from", "to"), rows)
    if len(rows) < found.count:
        output.say(f"({found.count - len(rows):,} more moves are not shown)")
    output.table(
        "leaders then", ("node", "queues"), [(each.node, each.queues) for each in found.leaders]
    )


def _show_change(changed: MembersChanged, call: LongCall, unchanged: str) -> None:
    if call.json:
        output.as_json(changed)
    elif not changed.changed:
        output.say(f"{changed.name}: {unchanged}")
    else:
        how = "has its members on" if call.waits else "is changing to members on"
        output.say(f"{changed.name} {how} {', '.join(changed.wanted)}")
        if changed.remark:
            output.note(changed.remark)
        if not call.waits:
            output.say(f"`warren queues members {changed.name}` shows the progress")


def _show_resizing(found: Resizing, json: bool, errors_only: bool, done: str) -> None:
    failed = [each for each in found.queues if each.error]
    shown = failed if errors_only else list(found.queues)
    if json:
        output.as_json(
            {"node": found.node, "queues": shown, "count": found.count, "failed": found.failed}
        )
    else:
        if shown:
            output.table(
                "",
                ("vhost", "queue", "size", "result"),
                [
                    (
                        each.vhost,
                        each.name,
                        each.size,
                        f"error: {each.error}" if each.error else each.remark or "ok",
                    )
                    for each in shown
                ],
            )
        if len(found.queues) < found.count:
            output.say(f"({found.count - len(found.queues):,} more queues are not shown)")
        output.say(f"{found.node}: {found.count - found.failed:,} of {found.count:,} queues {done}")
    if found.failed:
        raise typer.Exit(EXIT_PARTLY)
