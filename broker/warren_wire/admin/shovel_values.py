"""Shovels as `/management` shows them."""

from __future__ import annotations

from typing import Final

import msgspec

STARTING: Final = "starting"
RUNNING: Final = "running"
TERMINATED: Final = "terminated"
PAUSED: Final = "paused"
DYNAMIC: Final = "dynamic"
STATIC: Final = "static"
"""Type of a shovel of the nodes' configurations, which has no vhost."""
FEDERATION: Final = "federation"
"""Type of a federation link, which is shown by itself: name is its upstream."""
DONE: Final = "done"
"""Said by a shovel's process: everything that it was to move has been moved. Not shown."""


class ShovelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A shovel of a vhost; the URIs have no passwords.

    vhost           "": it is static
    type            dynamic, static, federation
    node            that runs it, or is to run it
    state           starting, running; terminated: it failed, and is started again after a delay
                    unless the reason says otherwise; paused: by an operator, until it is resumed
    reason          the last error; "": there was none since it runs
    blocked_status  running; blocked: the destination accepts no publishes (resource alarm);
                    refused: it refuses messages, which are published again
    forwarded       messages confirmed by the destination since the process was started
    pending         messages received and not confirmed
    remaining       messages until it deletes itself; None: it does not
    access_refused  `reason` is that an end has refused user, password, vhost or permission
    """

    vhost: str
    name: str
    node: str
    type: str = DYNAMIC
    state: str = STARTING
    reason: str = ""
    src_protocol: str = ""
    src_uri: str = ""
    src_queue: str = ""
    src_exchange: str = ""
    src_address: str = ""
    dest_protocol: str = ""
    dest_uri: str = ""
    dest_queue: str = ""
    dest_exchange: str = ""
    dest_address: str = ""
    blocked_status: str = RUNNING
    forwarded: int = 0
    pending: int = 0
    remaining: int | None = None
    access_refused: bool = False
