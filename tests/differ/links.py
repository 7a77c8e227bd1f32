"""Steps over AMQP 1.0: a client that sends performatives, and records every frame that comes."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from proton import Described, symbol, ubyte, uint, ulong

from differ.script import QUIET_S, SOON_S, Script
from differ.wire10 import (
    TYPES,
    Frame,
    Wire10,
    composite,
    encoded,
    fields_of,
    section,
    sections,
    shown,
    shown_fields,
)

ENDS = ("detach", "end", "close")
UNSHOWN = {
    "open": {"container-id", "channel-max", "idle-time-out"},
    "begin": {"next-outgoing-id", "incoming-window", "outgoing-window", "handle-max"},
    "attach": {"handle"},
    "flow": {"next-incoming-id", "incoming-window", "next-outgoing-id", "outgoing-window"},
    "transfer": {"delivery-id", "delivery-tag"},
}
"""What is a broker's own affair."""
DEFAULTS = {
    "snd-settle-mode=2:ubyte",
    "rcv-settle-mode=0:ubyte",
    "max-message-size=0:ulong",
    "drain=false",
    "echo=false",
    "available=0:uint",
    "durable=0:uint",
    "timeout=0:uint",
    "dynamic=false",
    "settled=false",
    "more=false",
    "aborted=false",
    "batchable=false",
    "resume=false",
}
"""A field that has its default is not shown, as one that is absent."""
UNSETTLED, SETTLED, MIXED = ubyte(0), ubyte(1), ubyte(2)
REPLIES = "$me"
ROOM = 60_000
"""Bytes of a message in one frame."""
QUEUE_KEYS = {
    "name",
    "vhost",
    "durable",
    "auto_delete",
    "exclusive",
    "type",
    "arguments",
    "leader",
    "replicas",
    "message_count",
    "consumer_count",
}
"""What RabbitMQ tells of a queue."""


class Links:
    """A connection with its sessions and links; every call is a step.

    name     prefix of its steps
    address  of the source that the broker named last
    """

    def __init__(
        self, script: Script, name: str = "", user: str = "guest", password: str = "guest"
    ) -> None:
        self.script = script
        self.name = name
        self._login = (user, password)
        self._wire: Wire10 | None = None
        self._names: dict[tuple[int, int], str] = {}  # the broker's handles
        self._handles: dict[tuple[int, str], int] = {}  # this client's
        self._deliveries: dict[str, int] = {}
        self._next_id = 0
        self._requests = 0
        self.address = ""
        self._steps_off = False
        script.ends_with(self.hang_up)

    # ------------------------------------------------------------ connection

    def start(self) -> None:
        """Log in, open and begin a session; not a step."""
        self.open(quiet=True)
        self.begin(quiet=True)

    def open(self, hostname: str | None = None, *, quiet: bool = False, **fields: Any) -> None:
        """Log in and open, in the scenario's vhost unless told otherwise; quiet: it is no step."""
        self._wire = Wire10(self.script.broker.address, *self._login)
        host = f"vhost:{self.script.vhost}" if hostname is None else hostname
        performative = composite("open", container_id="differ", hostname=host, **fields)
        said = "" if hostname is None else f" {hostname}"
        self._send(f"open{said}", 0, performative, until=("open",), quiet=quiet)

    def hang_up(self) -> None:
        """End the socket; not a step."""
        if self._wire is not None:
            self._wire.drop()

    def lose(self) -> None:
        """Lose the connection: the socket is closed without a word."""
        self.hang_up()
        self._record("lose the connection")

    def close(self) -> None:
        """Close the connection."""
        self._send("close", 0, composite("close"), until=("close",))

    def begin(self, channel: int = 0, *, quiet: bool = False) -> None:
        """Begin a session; quiet: it is no step."""
        performative = composite(
            "begin",
            next_outgoing_id=uint(0),
            incoming_window=uint(1000),
            outgoing_window=uint(1000),
            handle_max=uint(255),
        )
        self._send(f"begin {channel}", channel, performative, until=("begin",), quiet=quiet)

    def end(self, channel: int = 0) -> None:
        """End a session."""
        self._send(f"end {channel}", channel, composite("end"), until=("end",))

    # ------------------------------------------------------------ links

    def attach(
        self,
        name: str,
        *,
        source: Any = None,
        target: Any = None,
        receives: bool = False,
        until: tuple[str, ...] = ("attach",),
        channel: int = 0,
        handle: int | None = None,
        named: str | None = None,
        **fields: Any,
    ) -> None:
        """Attach a link: to consume from `source`, else to publish to `target`.

        source, target  an address, or the fields of a terminus
        until           the last frame that is expected
        named           the link's name, if other steps call it by another one
        """
        number = handle if handle is not None else len(self._handles)
        self._handles[channel, name] = number
        performative = composite(
            "attach",
            name=name if named is None else named,
            handle=uint(number),
            role=receives,
            source=_terminus("source", source),
            target=_terminus("target", target),
            initial_delivery_count=None if receives else uint(0),
            **fields,
        )
        said = _said({"source": source, "target": target, **fields})
        self._send(f"attach {name}{said}", channel, performative, until=until)

    def consume(self, name: str, queue: str, *, until: str = "attach", **fields: Any) -> None:
        """Attach a link that consumes from a queue."""
        given = {"source": f"/queues/{queue}", "target": f"/{name}", **fields}
        self.attach(name, receives=True, until=(until,), **given)

    def publish_to(self, name: str, address: Any, *, until: str = "flow", **fields: Any) -> None:
        """Attach a link that publishes to an address."""
        given = {"source": f"/{name}", "target": address, **fields}
        self.attach(name, until=(until,), **given)

    def credit(
        self,
        name: str,
        credit: int,
        *,
        count: int = 0,
        drain: bool = False,
        until: tuple[str, ...] = (),
        channel: int = 0,
        handle: int | None = None,
    ) -> None:
        """Give a link credit, from `count` deliveries on."""
        performative = composite(
            "flow",
            next_incoming_id=uint(0),
            incoming_window=uint(1000),
            next_outgoing_id=uint(self._next_id),
            outgoing_window=uint(1000),
            handle=uint(self._handles[channel, name] if handle is None else handle),
            delivery_count=uint(count),
            link_credit=uint(credit),
            drain=drain,
        )
        title = f"{name}: credit {credit} from {count}{' drain' if drain else ''}"
        self._send(title, channel, performative, until=until)

    def publish(
        self,
        name: str,
        body: bytes = b"m",
        *,
        head: bytes = b"",
        settled: bool = False,
        until: tuple[str, ...] = ("disposition",),
        channel: int = 0,
        **properties: Any,
    ) -> None:
        """Publish a message.

        head        sections before the properties
        properties  fields of that section
        """
        payload = head
        if properties:
            payload += encoded(composite("properties", **properties))
        payload += section("data", body)
        shown_body = repr(body) if len(body) < 40 else f"{len(body)} bytes"
        self._transfer(name, payload, settled, channel)
        self._record(f"{name}: publish {shown_body}{_said(properties)}", *self._hear(until))

    def _transfer(self, name: str, payload: bytes, settled: bool, channel: int = 0) -> None:
        """Send a message, in pieces if need be."""
        pieces = [payload[at : at + ROOM] for at in range(0, max(1, len(payload)), ROOM)]
        for at, piece in enumerate(pieces):
            performative = composite(
                "transfer",
                handle=uint(self._handles[channel, name]),
                delivery_id=uint(self._next_id),
                delivery_tag=b"%d" % self._next_id,
                message_format=uint(0),
                settled=settled,
                more=at + 1 < len(pieces),
            )
            self._connected().send(channel, performative, piece)
        self._next_id += 1

    def publish_raw(self, name: str, payload: bytes) -> None:
        """Publish a message that may be none."""
        self._transfer(name, payload, False)
        self._record(f"{name}: publish raw {payload!r}", *self._hear(("disposition",)))

    def settle(
        self,
        name: str,
        state: str,
        *,
        settled: bool = True,
        until: tuple[str, ...] = (),
        channel: int = 0,
        **fields: Any,
    ) -> None:
        """Tell the outcome of a link's last delivery."""
        number = uint(self._deliveries[name])
        outcome = composite(state, **fields)
        performative = composite(
            "disposition", role=True, first=number, last=number, settled=settled, state=outcome
        )
        self._send(
            f"{name}: {state}{'' if settled else ' not settled'}{_said(fields)}",
            channel,
            performative,
            until=until,
        )

    def detach(self, name: str, *, closed: bool = True, channel: int = 0) -> None:
        """Detach a link."""
        performative = composite("detach", handle=uint(self._handles[channel, name]), closed=closed)
        self._send(f"detach {name}", channel, performative, until=("detach",))

    # ------------------------------------------------------------ what comes

    def arrives(self, *until: str) -> None:
        """Record what comes until one of these."""
        self._record(f"until {' or '.join(until)}", *self._hear(until))

    def quiet(self, for_s: float = QUIET_S) -> None:
        """Record what comes within a moment: nothing, as a rule."""
        found = self._hear((), for_s)
        self._record("then", *(found or ["nothing"]))

    # ------------------------------------------------------------ management

    def manage(self) -> None:
        """Log in, open, begin, and attach the pair of links to the management node; not a step."""
        self.start()
        self._steps_off = True
        pair = {"named": "pair", "properties": {symbol("paired"): True}, "snd_settle_mode": SETTLED}
        self.attach("requests", target="/management", source=REPLIES, until=("flow",), **pair)
        self.attach("answers", target=REPLIES, source="/management", receives=True, **pair)
        self.credit("answers", 100)
        self._steps_off = False

    def request(self, method: str, path: str, body: Any = None) -> None:
        """Make a request of the management node; record the status and body of the answer."""
        self._requests += 1
        payload = encoded(
            composite(
                "properties",
                message_id=ulong(self._requests),
                to=path,
                subject=method,
                reply_to=REPLIES,
            )
        )
        payload += section("amqp-value", body)
        said = "" if body is None else f" {shown(body)}"
        self._transfer("requests", payload, True)
        frame = self._connected().frame(SOON_S)
        while frame is not None and frame.name not in ("transfer", *ENDS):
            frame = self._connected().frame(SOON_S)
        line = "no answer" if frame is None else self._line(frame)
        if frame is not None and frame.name == "transfer":
            line = _answered(sections(frame.payload))
        self._record(f"{method} {path}{said}", line)

    # ------------------------------------------------------------ inside

    def _connected(self) -> Wire10:
        assert self._wire is not None, "open it first"
        return self._wire

    def _send(
        self,
        title: str,
        channel: int,
        performative: Described,
        *,
        until: tuple[str, ...],
        quiet: bool = False,
    ) -> None:
        self._connected().send(channel, performative)
        lines = self._hear(until)
        if not quiet:
            self._record(title, *lines)

    def _hear(self, until: tuple[str, ...], for_s: float = 0.0) -> list[str]:
        """Return what comes until one of these frames, or the end; else within `for_s`."""
        wire = self._connected()
        lines: list[str] = []
        deadline = time.monotonic() + (SOON_S if until else for_s)
        while (frame := wire.frame(deadline - time.monotonic())) is not None:
            if frame.name == "flow" and "handle" not in frame.fields:
                continue  # of the session's window alone
            lines.append(self._line(frame))
            if until and (frame.name in until or frame.name in ENDS):
                return lines
        if wire.closed:
            lines.append("the broker hangs up")
        elif until:
            lines.append(f"no {' or '.join(until)}")
        return lines

    def _line(self, frame: Frame) -> str:
        fields = frame.fields
        hidden = UNSHOWN.get(frame.name, set())
        if frame.name == "attach":
            self._names[frame.channel, int(fields["handle"])] = str(fields["name"])
            if "source" in fields:
                self.address = str(fields_of(fields["source"])[1].get("address", ""))
        parts = {name: each for name, each in fields.items() if name not in hidden}
        if frame.name == "attach" and fields["role"]:
            parts.pop("initial-delivery-count", None)  # a sender's field
        if frame.name == "disposition" and fields["first"] == fields.get("last"):
            parts.pop("last")  # as one that is absent
        line = frame.name
        if "handle" in parts:
            handle = int(parts.pop("handle"))
            line += f" {self._names.get((frame.channel, handle), 'of no link')}"
            if frame.name == "transfer":
                self._deliveries[line.partition(" ")[2]] = int(fields.get("delivery-id", 0))
        line = f"{line} {without_defaults(shown_fields(parts))}"
        if frame.payload:
            line += f" {' '.join(map(shown, sections(frame.payload)))}"
        return line

    def _record(self, title: str, *observed: str) -> None:
        if self._steps_off:
            return
        self.script.step(f"{self.name}: {title}" if self.name else title, *observed)


def _terminus(kind: str, given: Any) -> Any:
    if given is None or isinstance(given, Described):
        return given
    if isinstance(given, dict):
        return composite(kind, **given)
    return composite(kind, address=given)


def _said(fields: dict[str, Any]) -> str:
    return "".join(f" {name}={shown(value)}" for name, value in fields.items() if value is not None)


def without_defaults(text: str) -> str:
    """Return shown fields without those that have their default."""
    for each in DEFAULTS:
        text = re.sub(rf"(?<![\w-]){each}(?:, |(?=[)]|$))", "", text)
    return text.replace(", )", ")").rstrip(", ")


def _answered(answer: Sequence[Described]) -> str:
    """Return the status and body of an answer of the management node."""
    found = {TYPES[int(each.descriptor)][0]: each for each in answer}
    status = fields_of(found["properties"])[1]["subject"]
    body = found["amqp-value"].value if "amqp-value" in found else None
    if isinstance(body, dict) and "message_count" in body and "leader" in body:
        body = {key: each for key, each in body.items() if key in QUEUE_KEYS}
    return f"{status} {shown(body)}"
