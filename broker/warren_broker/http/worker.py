"""The process of a node's HTTP API: `python -m warren_broker.http.worker FD`.

FD is a socket to the node that started it. The first frame is the job; the end of the stream is the
order to stop, and comes by itself when the node dies.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import sys
from typing import Final

from warren_broker.http.application import HttpApplication
from warren_broker.http.bounded_connection import doors_of
from warren_broker.http.doors import HttpDoors, stranger_shares
from warren_broker.http.node_link import NodeLink, end
from warren_broker.settings.http_settings import HttpSsl, ManagementSettings
from warren_wire.errors import FrameError
from warren_wire.sessions import pika_properties
from warren_wire.tls.certificates import WatchedFiles
from warren_wire.tls.contexts import CertificatesUnusable, server_context

log = logging.getLogger("warren_broker.http")
API_NICENESS: Final = 5
API_REPORT_S: Final = 1.0


async def serve(node: socket.socket) -> None:
    """Serve until the node ends."""
    try:
        link = await NodeLink.opened(node)
    except (EOFError, ConnectionError, FrameError):
        return
    application = HttpApplication(link, link.job)
    settings = ManagementSettings.model_validate(link.job.settings)
    shares = stranger_shares(settings.http.unauthenticated_per_address_max)
    doors = doors_of(application, "HTTP connections before their login", shares)
    reporting = asyncio.ensure_future(_report(link, doors, application))
    for port, fd in zip(settings.ports(), link.job.sockets, strict=True):
        certificates = None
        if isinstance(port, HttpSsl):
            certificates = WatchedFiles(port.files(), server_context, "management.ssl")
            certificates.start()
        doors.listen(socket.socket(fileno=fd), certificates)
    gc.freeze()
    await link.run()
    reporting.cancel()


async def _report(link: NodeLink, doors: HttpDoors, application: HttpApplication) -> None:
    """Tell the node, for its metrics, what clients without a login take here."""
    told: dict[str, tuple[int, int, int, int]] = {}
    while True:
        now = {
            "http_connections": doors.turns.counts(),
            "http_logins": application.logins.turns.counts(),
        }
        if now != told:
            link.report(now)
            told = now
        await asyncio.sleep(API_REPORT_S)


def main(arguments: list[str]) -> int:
    """Serve with the node at the other end of a socket."""
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("pika").setLevel(logging.CRITICAL)  # lines that any client could provoke
    pika_properties.install()
    os.nice(API_NICENESS)
    asyncio.run(_until_the_end(socket.socket(fileno=int(arguments[0]))))
    return 0


async def _until_the_end(node: socket.socket) -> None:
    try:
        await serve(node)
    except (OSError, CertificatesUnusable) as error:
        log.error("the HTTP API cannot be served: %s", error)
        os._exit(1)
    end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
