"""The process of one shovel: `python -m warren_broker.transfers.shovel.worker FD`.

FD is a socket to the node that started it. The first line is the job. Later lines from the node are
the demand of a federation link; those to it are the status. The end of the stream is the order to
stop, and comes by itself when the node dies.
"""

from __future__ import annotations

import base64
import gc
import json
import logging
import os
import socket
import sys
from dataclasses import replace
from typing import Any, Final

import msgspec
from pika.adapters.select_connection import IOLoop

from warren_broker.transfers.federation.exchange_rules import Bound, ClusterExchange, ExchangeLink
from warren_broker.transfers.shovel.process import BINDINGS, FETCH, REMOVE, WorkerStatus
from warren_broker.transfers.shovel.transfer import LinkOptions, ShovelProgress, Transfer
from warren_wire.admin.shovels import DONE, RUNNING, STARTING, TERMINATED
from warren_wire.errors import Refusal
from warren_wire.links.definition import ShovelDefinition, ShovelEnd, parse_shovel
from warren_wire.links.uris import ShovelUri
from warren_wire.sessions import pika_properties
from warren_wire.sessions.locate import OwnNode

REPORT_S: Final = 0.5
DRAIN_S: Final = 2.0
"""How long a shovel that stops waits for confirms."""
CLOSING_S: Final = 1.0
"""How long it then may take to close its connections."""
DELAY_S_MAX: Final = 60.0
"""Delay after repeated failures, unless reconnect-delay is longer."""
STEADY_S: Final = 30.0
"""After a run of that length the next delay is reconnect-delay again."""
UNCONFIRMED_S: Final = 10.0
"""A destination that has confirmed none of several messages for so long counts as blocked."""
NICENESS: Final = 5
NODE_READ_BYTES: Final = 4096


def delay_after(configured_s: float, rounds: int) -> float:
    """Return the delay after a failure, in seconds.

    configured_s  reconnect-delay, above 0
    rounds        how often each address has failed before, since a run was steady
    """
    return max(configured_s, min(configured_s * 2.0 ** min(rounds, 16), DELAY_S_MAX))


class ShovelWorker:
    """Runs the shovel again and again, over its URIs in turn, until it is done or is to stop."""

    def __init__(
        self,
        shovel: ShovelDefinition,
        own: OwnNode,
        cluster: str,
        node: socket.socket,
        link: LinkOptions | None = None,
        relay: str = "",
    ) -> None:
        self._relay = relay
        self._shovel = shovel
        self._link = link
        self._wanted = link is None or link.exchange is not None
        self._bindings: list[Bound] | None = None
        self._removing = False
        self._said = b""
        self._own = own
        self._cluster = cluster
        self._node = node
        self._ioloop = IOLoop()
        self._progress = ShovelProgress()
        self._transfer: Transfer | None = None
        self._failures = self._attempts = 0
        self._ran = self._suspects = 0
        self._still, self._forwarded = 0, 0
        self._state, self._reason, self._final = STARTING, "", False
        self._access_refused = False
        self._told: WorkerStatus | None = None
        self._ending = False

    def run(self) -> None:
        """Work until the node says stop, or nothing is left to do."""
        self._ioloop.add_handler(self._node.fileno(), self._node_spoke, IOLoop.READ)
        self._ioloop.call_later(REPORT_S, self._tick)
        self._begin()
        self._ioloop.start()
        self._tell()

    # ------------------------------------------------------------ runs

    def _begin(self) -> None:
        if self._ending:
            return
        # The run before is a few objects in cycles, which may hold prefetches of large messages.
        gc.collect()
        self._state = STARTING
        self._tell()
        number, self._attempts = self._attempts, self._attempts + 1
        self._transfer = Transfer(
            self._shovel,
            _chosen(self._shovel.source.uris, number),
            _chosen(self._shovel.destination.uris, number),
            self._own,
            self._ioloop,
            self._progress,
            self,
            self._cluster,
            self._link,
            self._wanted,
            self._suspects,
            self._relay,
        )
        if self._bindings is not None:
            self._transfer.bind(self._bindings)
        self._transfer.begin()

    def running(self) -> None:
        """See TransferObserver."""
        self._state, self._reason, self._ran = RUNNING, "", 0
        self._access_refused = False
        self._tell()

    def failed(self, words: str, final: bool, access_refused: bool) -> None:
        """See TransferObserver."""
        if self._transfer is not None:
            self._suspects = self._transfer.suspects
        self._transfer = None
        # What a message is called may be no text: half of a surrogate pair would be no JSON.
        told = words.encode("utf-8", "backslashreplace").decode()
        self._state, self._reason = TERMINATED, told
        self._access_refused = access_refused
        configured_s = self._shovel.reconnect_delay_s
        self._final = final or not configured_s
        if self._final:
            self._end()
            return
        if self._ran * REPORT_S > STEADY_S:
            self._failures = 0
        self._ran = 0
        uris = max(len(self._shovel.source.uris), len(self._shovel.destination.uris))
        delay_s = delay_after(configured_s, self._failures // uris)
        self._failures += 1
        self._tell()
        self._ioloop.call_later(delay_s, self._begin)

    def done(self) -> None:
        """See TransferObserver."""
        self._state = DONE
        self._end()

    # ------------------------------------------------------------ the node

    def _node_spoke(self, fd: int, events: int) -> None:
        """Take note of the demand of a link; stop at the end of the stream."""
        try:
            said = self._node.recv(NODE_READ_BYTES)
        except ConnectionError:
            said = b""
        if said:
            *lines, self._said = (self._said + said).split(b"\n")
            for line in lines:
                self._told_line(line + b"\n")
            return
        self._ioloop.remove_handler(fd)
        self._ending = True
        if self._transfer is None:
            self._end()
            return
        self._ioloop.call_later(DRAIN_S, self._give_up)
        self._transfer.stop(self._end, self._removing)

    def _give_up(self) -> None:
        """Close without the confirms: what is held goes back as what was not delivered."""
        self._ioloop.call_later(CLOSING_S, self._end)
        if self._transfer is not None:
            self._transfer.give_up(self._end)

    def _told_line(self, line: bytes) -> None:
        """Take note of a link's demand, or of the bindings of a federated exchange."""
        if line.startswith(BINDINGS):
            packed = base64.b64decode(line[len(BINDINGS) :])
            self._bindings = msgspec.msgpack.decode(packed, type=list[Bound])
            if self._transfer is not None:
                self._transfer.bind(self._bindings)
        elif line == REMOVE:
            self._removing = True
        else:
            self._wanted = line == FETCH
            if self._transfer is not None:
                self._transfer.fetch(self._wanted)

    def _end(self) -> None:
        self._ending = True
        self._ioloop.stop()

    def _tick(self) -> None:
        if self._state == RUNNING:
            self._ran += 1
        waits = self._transfer is not None and bool(self._transfer.pending)
        still = waits and self._progress.forwarded == self._forwarded
        self._still, self._forwarded = self._still + 1 if still else 0, self._progress.forwarded
        self._tell()
        self._ioloop.call_later(REPORT_S, self._tick)

    def _tell(self) -> None:
        transfer = self._transfer
        told = WorkerStatus(
            self._state,
            self._reason,
            self._final,
            self._progress.forwarded,
            self._progress.remaining,
            0 if transfer is None else transfer.pending,
            _blocked(transfer, self._still * REPORT_S >= UNCONFIRMED_S),
            self._access_refused,
        )
        if told != self._told:
            self._told = told
            try:
                self._node.sendall(msgspec.json.encode(told) + b"\n")
            except OSError:
                self._ending = True  # the node has ended; the loop finds the end of the stream


def _chosen(uris: tuple[ShovelUri, ...], number: int) -> ShovelUri:
    return uris[number % len(uris)]


def _blocked(transfer: Transfer | None, unconfirmed: bool) -> str:
    if transfer is None:
        return RUNNING
    if transfer.refused and not transfer.blocked:
        return "refused"
    return "blocked" if transfer.blocked or unconfirmed else RUNNING


def _with_logins(
    shovel: ShovelDefinition, source: list[list[str]], destination: list[list[str]]
) -> ShovelDefinition:
    """Return the shovel with the logins of its URIs, for those that lead to the node's cluster."""

    def filled(end: ShovelEnd, logins: list[list[str]]) -> ShovelEnd:
        uris = zip(end.uris, logins, strict=True)
        return replace(
            end, uris=tuple(replace(uri, inside=(one[0], one[1], one[2])) for uri, one in uris)
        )

    return replace(
        shovel,
        source=filled(shovel.source, source),
        destination=filled(shovel.destination, destination),
    )


def _link(job: dict[str, Any]) -> LinkOptions:
    exchange = None
    if "exchange" in job:
        told = dict(job["exchange"])
        exchange = ExchangeLink(here=ClusterExchange(**told.pop("here")), **told)
    return LinkOptions(**job["link"], exchange=exchange)


def main(arguments: list[str]) -> int:
    """Read the job and do it."""
    logging.disable()  # pika's lines; what failed is in the status
    pika_properties.install()
    os.nice(NICENESS)
    node = socket.socket(fileno=int(arguments[0]))
    with node.makefile("rb", buffering=0) as lines:
        line = lines.readline()
    if not line.endswith(b"\n"):
        return 0  # the node has ended
    job = json.loads(line)
    try:
        shovel = parse_shovel(job["vhost"], job["name"], job["value"])
    except Refusal as refusal:
        raise AssertionError(f"the node has checked it: {refusal.detail}") from None
    shovel = _with_logins(shovel, *job["logins"])
    own = OwnNode(**job["own"])
    link = _link(job) if "link" in job else None
    ShovelWorker(shovel, own, job["cluster"], node, link, job["relay"]).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
