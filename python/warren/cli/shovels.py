"""`warren shovel` and `warren federation`: states of shovels and links, restart, pause, removal."""

from __future__ import annotations

from warren.cli import output
from warren.cli.requests import RequestGroup
from warren_wire.admin import shovels as m

shovel = RequestGroup(
    no_args_is_help=True,
    help="Shovels, which move messages to another queue or broker; `warren parameters set shovel` "
    "makes one.",
)
federation = RequestGroup(
    no_args_is_help=True,
    help="Federated queues, exchanges: `warren parameters set federation-upstream` and policies.",
)


@federation.callback()
def _group() -> None:
    """Keep `status` a command of its own."""


def _reason(one: m.ShovelInfo) -> str:
    """Return the last error, or why the destination takes no messages; "": it does."""
    held_up = {
        "blocked": "the destination accepts no publishes: a resource alarm",
        "refused": "the destination refuses messages; they are published again",
    }
    return one.reason or held_up.get(one.blocked_status, "")


_SHOVEL: dict[str, output.Column] = {
    **{each: each for each in ("vhost", "name", "node", "state")},
    "from": lambda one: f"{one.src_uri} {one.src_queue or one.src_exchange or one.src_address}",
    "to": lambda one: f"{one.dest_uri} {one.dest_queue or one.dest_exchange or one.dest_address}",
    "forwarded": "forwarded",
    "remaining": lambda one: "" if one.remaining is None else one.remaining,
    "reason": _reason,
}
_LINK: dict[str, output.Column] = {
    "vhost": "vhost",
    "name": lambda one: one.dest_queue or f"exchange {one.dest_exchange}",
    "upstream": "name",
    "node": "node",
    "state": "state",
    "from": lambda one: f"{one.src_uri} {one.src_exchange or one.src_queue}",
    "fetched": "forwarded",
    "reason": _reason,
}
_ONE_SHOVEL = "shovel {name} in vhost {vhost}"

shovel.lists("status", m.ListShovelsRequest, columns=_SHOVEL, options=("vhost",))
federation.lists("status", m.ListLinksRequest, columns=_LINK, options=("vhost",))
shovel.does("restart", m.RestartShovelRequest, f"{_ONE_SHOVEL} is restarted")
shovel.does(
    "pause",
    m.PauseShovelRequest,
    f"{_ONE_SHOVEL} is paused",
    text="Have a shovel move nothing until it is resumed.",
    paused=True,
)
shovel.does(
    "resume",
    m.PauseShovelRequest,
    f"{_ONE_SHOVEL} is resumed",
    text="Have a paused shovel run again.",
    paused=False,
)
shovel.does("delete", m.DeleteShovelRequest, f"{_ONE_SHOVEL} deleted")
