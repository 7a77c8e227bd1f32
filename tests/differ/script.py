"""What a scenario is written in: every call is a step, and what the client observes is recorded."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pamqp.commands as spec

from differ import normal
from differ.brokers import Broker, Policy
from differ.wire import ANSWER_S, Event, NoAnswer, Wire
from tests.patience import PATIENCE_S

SOON_S = PATIENCE_S
"""How long a state may take to be reached that a step waits for."""
QUIET_S = 0.4
"""How long nothing must arrive for a step to record that nothing arrives."""
POLL_S = 0.05
Table: TypeAlias = Mapping[str, Any]
Run: TypeAlias = Callable[["Script"], None]
QUORUM = {"x-queue-type": "quorum"}
CLASSIC = {"x-queue-type": "classic"}
KINDS = (QUORUM, CLASSIC)
SCENARIOS: dict[str, Run] = {}


def scenario(run: Run) -> Run:
    """Register a scenario under its module's and its own name."""
    name = f"{run.__module__.rpartition('.')[2]}.{run.__name__}"
    assert name not in SCENARIOS, name
    SCENARIOS[name] = run
    return run


def both(c: Channel, arguments: Mapping[str, Any] | None = None) -> Iterator[str]:
    """Declare a quorum queue, and after the loop's first turn a classic one; yield their names."""
    for kind in KINDS:
        name = kind["x-queue-type"]
        c.declare(name, {**kind, **(arguments or {})})
        yield name


def specification(*quoted: str) -> Callable[[Run], Run]:
    """Name the sentences that a scenario holds Warren to, see `specification.page`."""
    return lambda run: run


@dataclass
class Step:
    """One call of a scenario, and what was observed.

    title     number and call; unique within the scenario
    observed  one line per frame, in their order
    """

    title: str
    observed: list[str] = field(default_factory=list)


class Script:
    """One scenario on one broker, in a vhost of its own.

    waited  it has let time pass: what it observes depends on when its steps were made
    """

    def __init__(self, broker: Broker, name: str) -> None:
        self.broker = broker
        self.vhost = name
        self.steps: list[Step] = []
        self.waited = False
        self._endings: list[Callable[[], None]] = []

    def run(self) -> list[Step]:
        """Run the scenario; return its steps."""
        self.broker.add_vhost(self.vhost)
        try:
            SCENARIOS[self.vhost](self)
        finally:
            for hang_up in self._endings:
                hang_up()
            self.broker.delete_vhost(self.vhost)
        return self.steps

    def step(self, title: str, *observed: str) -> None:
        """Record a step."""
        lines = [normal.text(line.replace(self.broker.node, "NODE")) for line in observed]
        self.steps.append(Step(normal.text(f"{len(self.steps) + 1}. {title}"), lines))

    def channel(
        self,
        name: str = "",
        *,
        confirm: bool = True,
        capabilities: dict[str, bool] | None = None,
        beside: Channel | None = None,
    ) -> Channel:
        """Open a channel: on a new connection, or on that of `beside`.

        name  prefix of its steps
        """
        made = Channel(self, name, confirm, capabilities, beside)
        self.ends_with(made.hang_up)
        return made

    def ends_with(self, hang_up: Callable[[], None]) -> None:
        """Have this done at the scenario's end: a client's connection is ended."""
        self._endings.append(hang_up)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.waited = True
        time.sleep(seconds)

    def trace(self, on: bool) -> None:
        """Turn tracing on or off in the scenario's vhost."""
        self.broker.trace(self.vhost, on)
        self.step(f"trace {'on' if on else 'off'}")

    def policy(
        self,
        name: str,
        pattern: str,
        definition: Table,
        *,
        apply_to: str = "all",
        priority: int = 0,
        operator: bool = False,
    ) -> None:
        """Set a policy or an operator policy."""
        said = Policy(pattern, dict(definition), apply_to, priority)
        answer = self.broker.set_policy(self.vhost, name, said, operator)
        kind = "operator policy" if operator else "policy"
        shown = f"{pattern} {normal.value(definition)} {apply_to} priority {priority}"
        self.step(f"{kind} {name} {shown}", answer)

    def clear_policy(self, name: str, *, operator: bool = False) -> None:
        """Clear a policy or an operator policy."""
        answer = self.broker.clear_policy(self.vhost, name, operator)
        self.step(f"clear {'operator ' if operator else ''}policy {name}", answer)

    def effective(self, queue: str, policy: str | None = None) -> None:
        """Record a queue's policies and their merged definition, as management shows them.

        policy  wait until this policy applies ("": none)
        """
        deadline = time.monotonic() + SOON_S
        while True:
            shown = self.broker.policies_of(self.vhost, queue)
            if policy in (None, shown["policy"] or "") or time.monotonic() > deadline:
                break
            time.sleep(POLL_S)
        self.step(f"policies of {queue}", normal.value(shown))


class Channel:
    """A channel; opened when first used, and again after the broker has closed it.

    confirm  publishes are confirmed, and a publish waits for it
    tag      of the last delivery
    empty    the last get found nothing
    """

    def __init__(
        self,
        script: Script,
        name: str,
        confirm: bool,
        capabilities: dict[str, bool] | None,
        beside: Channel | None,
    ) -> None:
        self.script = script
        self.name = name
        self._confirm = confirm
        self._capabilities = capabilities
        self._shared: dict[str, Any] = beside._shared if beside else {"wire": None, "last": 0}
        self._shared["last"] += 1
        self.number: int = self._shared["last"]
        self._open = False
        self._inbox: list[Event] = []
        self._published = 0
        self._unconfirmed: set[int] = set()
        self.tag = 0
        self.empty = False

    # ------------------------------------------------------------ connection

    def hang_up(self) -> None:
        """End the connection in good order; not a step."""
        if self._wire is not None:
            self._wire.close()
            self._shared["wire"] = None

    def lose(self) -> None:
        """Lose the connection: the socket is closed without a word."""
        self._ready()
        assert self._wire is not None
        self._wire.drop()
        self._shared["wire"] = None
        self._record("lose the connection")

    def close(self) -> None:
        """Close the channel."""
        self._call("close", spec.Channel.Close(200, "", 0, 0), spec.Channel.CloseOk)
        self._open = False

    @property
    def _wire(self) -> Wire | None:
        wire: Wire | None = self._shared["wire"]
        return wire

    def _ready(self) -> Wire:
        wire = self._wire
        if wire is None or wire.closed:
            wire = Wire(self.script.broker.address, self.script.vhost, self._capabilities)
            self._shared["wire"] = wire
            self._open = False
        if not self._open:
            self._open = True
            self._inbox.clear()
            self._published, self._unconfirmed, self.tag = 0, set(), 0
            wire.send(self.number, spec.Channel.Open())
            self._answer(spec.Channel.OpenOk)
            if self._confirm:
                wire.send(self.number, spec.Confirm.Select())
                self._answer(spec.Confirm.SelectOk)
        return wire

    def _read(self, within_s: float) -> Event | None:
        """Take the next event for this channel; closes are answered."""
        wire = self._wire
        assert wire is not None
        event = wire.event(within_s)
        if event is None:
            return None
        if isinstance(event.method, spec.Connection.Close):
            wire.send(0, spec.Connection.CloseOk())
            wire.drop()
            self._shared["wire"] = None
            self._open = False
        elif isinstance(event.method, spec.Channel.Close):
            wire.send(event.channel, spec.Channel.CloseOk())
            self._open = False
        elif isinstance(event.method, spec.Basic.Ack | spec.Basic.Nack):
            tag = event.method.delivery_tag
            if event.method.multiple:
                covered = {one for one in self._unconfirmed if one <= tag}
            else:
                covered = {tag}
            self._unconfirmed -= covered
            kind = type(event.method)  # how many one answer covers is chance
            event.method = kind(0)
        return event

    def _answer(self, *kinds: type) -> Event:
        """Return the next event of these kinds, or the close; others go to the inbox."""
        deadline = time.monotonic() + ANSWER_S
        while True:
            event = self._read(deadline - time.monotonic())
            if event is None:
                ended = self._wire is None or self._wire.closed
                raise NoAnswer("the connection has ended" if ended else f"none of {kinds}")
            if isinstance(event.method, (*kinds, spec.Channel.Close, spec.Connection.Close)):
                return event
            self._inbox.append(event)

    def _record(self, title: str, *observed: str) -> None:
        self.script.step(f"{self.name}: {title}" if self.name else title, *observed)

    def _call(self, title: str, method: Any, *kinds: type) -> Event | None:
        """Send a method; record its answer."""
        wire = self._ready()
        wire.send(self.number, method)
        try:
            event = self._answer(*kinds)
        except NoAnswer as error:
            self._open = False
            self._shared["wire"] = None
            self._record(title, f"no answer: {error}")
            return None
        self._record(title, normal.method(event))
        return event

    # ------------------------------------------------------------ queues

    def declare(self, queue: str, arguments: Table | None = None, **flags: bool) -> None:
        """Declare a queue, durable unless said otherwise."""
        given = {"durable": True, **flags}
        title = f"declare {queue}{_flags(flags)}{_table(arguments)}"
        method = spec.Queue.Declare(queue=queue, arguments=dict(arguments or {}), **given)
        self._call(title, method, spec.Queue.DeclareOk)

    def count(self, queue: str, messages: int | None = None) -> None:
        """Declare passively; with `messages`, again until the queue has so many.

        Consumers are not recorded: RabbitMQ counts messages of basic.get as some, for a while.
        """
        deadline = time.monotonic() + SOON_S
        while True:
            self._ready().send(self.number, spec.Queue.Declare(queue=queue, passive=True))
            event = self._answer(spec.Queue.DeclareOk)
            found = getattr(event.method, "message_count", messages)
            if messages is None or found == messages or time.monotonic() > deadline:
                break
            time.sleep(POLL_S)
        self._record(f"count {queue}", re.sub(" consumer_count=.*", "", normal.method(event)))

    def gone(self, queue: str) -> None:
        """Declare passively until the queue is not there."""
        deadline = time.monotonic() + SOON_S
        while True:
            self._ready().send(self.number, spec.Queue.Declare(queue=queue, passive=True))
            event = self._answer(spec.Queue.DeclareOk)
            if not self._open or time.monotonic() > deadline:
                break
            time.sleep(POLL_S)
        self._record(f"{queue} is gone", normal.method(event))

    def delete(self, queue: str, **flags: bool) -> None:
        """Delete a queue."""
        title = f"delete {queue}{_flags(flags)}"
        self._call(title, spec.Queue.Delete(queue=queue, **flags), spec.Queue.DeleteOk)

    def reject_one(self, queue: str, body: str) -> None:
        """Publish a message to a queue, get it and reject it, to be requeued."""
        self.publish("", queue, body)
        self.get(queue)
        self.reject()

    def purge(self, queue: str) -> None:
        """Purge a queue."""
        self._call(f"purge {queue}", spec.Queue.Purge(queue=queue), spec.Queue.PurgeOk)

    def bind(
        self, queue: str, exchange: str, key: str = "", arguments: Table | None = None
    ) -> None:
        """Bind a queue."""
        title = f"bind {queue} to {exchange}"
        self._binding(title, spec.Queue.Bind, queue, exchange, key, arguments)

    def unbind(
        self, queue: str, exchange: str, key: str = "", arguments: Table | None = None
    ) -> None:
        """Unbind a queue."""
        title = f"unbind {queue} from {exchange}"
        self._binding(title, spec.Queue.Unbind, queue, exchange, key, arguments)

    def _binding(
        self,
        title: str,
        method: type[spec.Queue.Bind | spec.Queue.Unbind],
        queue: str,
        exchange: str,
        key: str,
        arguments: Table | None,
    ) -> None:
        asked = method(
            queue=queue, exchange=exchange, routing_key=key, arguments=dict(arguments or {})
        )
        answer = spec.Queue.BindOk if method is spec.Queue.Bind else spec.Queue.UnbindOk
        self._call(f"{title} key {key!r}{_table(arguments)}", asked, answer)

    # ------------------------------------------------------------ exchanges

    def exchange(self, name: str, kind: str, arguments: Table | None = None, **flags: bool) -> None:
        """Declare an exchange."""
        title = f"exchange {name} {kind}{_flags(flags)}{_table(arguments)}"
        method = spec.Exchange.Declare(
            exchange=name, exchange_type=kind, arguments=dict(arguments or {}), **flags
        )
        self._call(title, method, spec.Exchange.DeclareOk)

    def delete_exchange(self, name: str, **flags: bool) -> None:
        """Delete an exchange."""
        method = spec.Exchange.Delete(exchange=name, **flags)
        self._call(f"delete exchange {name}{_flags(flags)}", method, spec.Exchange.DeleteOk)

    def link(self, destination: str, source: str, key: str = "") -> None:
        """Bind an exchange to an exchange."""
        title = f"bind exchange {destination} to {source} key {key!r}"
        method = spec.Exchange.Bind(destination=destination, source=source, routing_key=key)
        self._call(title, method, spec.Exchange.BindOk)

    def unlink(self, destination: str, source: str, key: str = "") -> None:
        """Unbind an exchange from an exchange."""
        title = f"unbind exchange {destination} from {source} key {key!r}"
        method = spec.Exchange.Unbind(destination=destination, source=source, routing_key=key)
        self._call(title, method, spec.Exchange.UnbindOk)

    # ------------------------------------------------------------ publishing

    def publish(
        self,
        exchange: str,
        key: str,
        body: str,
        *,
        mandatory: bool = False,
        immediate: bool = False,
        **properties: Any,
    ) -> None:
        """Publish; with confirms, wait for this one and record what came before it."""
        wire = self._ready()
        method = spec.Basic.Publish(
            exchange=exchange, routing_key=key, mandatory=mandatory, immediate=immediate
        )
        wire.send(self.number, method, body.encode(), spec.Basic.Properties(**properties))
        shown = f" {normal.value(properties)}" if properties else ""
        flags = _flags({"mandatory": mandatory, "immediate": immediate})
        title = f"publish {body!r} to {exchange!r} key {key!r}{flags}{shown}"
        if not self._confirm:
            self._record(title)
            return
        self._published += 1
        self._unconfirmed.add(self._published)
        self._record(title, *self._until_confirmed())

    def _until_confirmed(self) -> list[str]:
        lines = []
        deadline = time.monotonic() + ANSWER_S
        while self._unconfirmed and self._open:
            event = self._read(deadline - time.monotonic())
            if event is None:
                return [*lines, "not confirmed"]
            if isinstance(event.method, spec.Basic.Deliver | spec.Basic.Cancel):
                self._inbox.append(event)
            else:
                lines.append(normal.method(event))
        return lines

    def published(self) -> None:
        """Record what a publish without confirms has led to, up to a following answer."""
        self._call("what came of it", spec.Basic.Qos(0, 0, False), spec.Basic.QosOk)

    def transaction(self, act: str) -> None:
        """Select, commit or roll back."""
        methods = {
            "select": (spec.Tx.Select, spec.Tx.SelectOk),
            "commit": (spec.Tx.Commit, spec.Tx.CommitOk),
            "rollback": (spec.Tx.Rollback, spec.Tx.RollbackOk),
        }
        method, answer = methods[act]
        self._call(f"tx.{act}", method(), answer)

    def select_confirms(self) -> None:
        """Send confirm.select."""
        self._call("confirm.select", spec.Confirm.Select(), spec.Confirm.SelectOk)

    # ------------------------------------------------------------ consuming

    def get(self, queue: str, *, no_ack: bool = False) -> None:
        """Get a message; `tag` is then its delivery tag."""
        method = spec.Basic.Get(queue=queue, no_ack=no_ack)
        title = f"get {queue}{_flags({'no_ack': no_ack})}"
        event = self._call(title, method, spec.Basic.GetOk, spec.Basic.GetEmpty)
        self.tag = getattr(event and event.method, "delivery_tag", self.tag)
        self.empty = event is not None and isinstance(event.method, spec.Basic.GetEmpty)

    def get_soon(self, queue: str, *, no_ack: bool = False) -> None:
        """Get until there is a message."""
        deadline = time.monotonic() + SOON_S
        while True:
            self._ready().send(self.number, spec.Basic.Get(queue=queue, no_ack=no_ack))
            event = self._answer(spec.Basic.GetOk, spec.Basic.GetEmpty)
            if not isinstance(event.method, spec.Basic.GetEmpty) or time.monotonic() > deadline:
                break
            time.sleep(POLL_S)
        self.tag = getattr(event.method, "delivery_tag", self.tag)
        title = f"get {queue} soon{_flags({'no_ack': no_ack})}"
        self._record(title, normal.method(event))

    def drain(self, queue: str) -> None:
        """Get everything, without acknowledgements; record the bodies in their order."""
        bodies = []
        while True:
            self._ready().send(self.number, spec.Basic.Get(queue=queue, no_ack=True))
            event = self._answer(spec.Basic.GetOk, spec.Basic.GetEmpty)
            if not isinstance(event.method, spec.Basic.GetOk):
                break
            bodies.append(event.body.decode())
        self._record(f"drain {queue}", " ".join(bodies) or "nothing", normal.method(event))

    def consume(
        self,
        queue: str,
        tag: str,
        arguments: Table | None = None,
        *,
        no_ack: bool = False,
        exclusive: bool = False,
    ) -> None:
        """Consume."""
        method = spec.Basic.Consume(
            queue=queue,
            consumer_tag=tag,
            no_ack=no_ack,
            exclusive=exclusive,
            arguments=dict(arguments or {}),
        )
        flags = _flags({"no_ack": no_ack, "exclusive": exclusive})
        title = f"consume {queue} as {tag}{flags}{_table(arguments)}"
        self._call(title, method, spec.Basic.ConsumeOk)

    def cancel(self, tag: str) -> None:
        """Cancel a consumer."""
        self._call(f"cancel {tag}", spec.Basic.Cancel(tag), spec.Basic.CancelOk)

    def qos(self, count: int, *, shared: bool = False, size: int = 0) -> None:
        """Set the prefetch."""
        title = f"qos {count}{_flags({'global': shared})}{f' size {size}' if size else ''}"
        self._call(title, spec.Basic.Qos(size, count, shared), spec.Basic.QosOk)

    def deliveries(self, count: int) -> None:
        """Wait for so many deliveries; record them and what came between."""
        lines: list[str] = []
        found = 0
        deadline = time.monotonic() + SOON_S
        while found < count and self._open:
            event = self._next(deadline - time.monotonic())
            if event is None:
                lines.append("nothing more")
                break
            if isinstance(event.method, spec.Basic.Deliver):
                self.tag = event.method.delivery_tag
                found += 1
            lines.append(normal.method(event))
        self._record(f"{count} deliveries", *lines)

    def arrives(self) -> None:
        """Record the next frame, whatever it is."""
        event = self._next(SOON_S)
        self._record("what arrives", normal.method(event) if event else "nothing")

    def quiet(self, for_s: float = QUIET_S) -> None:
        """Record what arrives within a moment: nothing, as a rule."""
        lines = []
        deadline = time.monotonic() + for_s
        while self._open and (event := self._next(deadline - time.monotonic())) is not None:
            lines.append(normal.method(event))
        self._record("then", *(lines or ["nothing"]))

    def _next(self, within_s: float) -> Event | None:
        if self._inbox:
            return self._inbox.pop(0)
        self._ready()
        return self._read(max(0.001, within_s))

    def ack(self, tag: int | None = None, *, multiple: bool = False) -> None:
        """Acknowledge the last delivery, or the one named."""
        number = self.tag if tag is None else tag
        method = spec.Basic.Ack(number, multiple)
        self._settle(f"ack {number}{_flags({'multiple': multiple})}", method)

    def nack(self, tag: int | None = None, *, multiple: bool = False, requeue: bool = True) -> None:
        """Send basic.nack for the last delivery, or the one named."""
        number = self.tag if tag is None else tag
        flags = _flags({"multiple": multiple, "requeue": requeue})
        self._settle(f"nack {number}{flags}", spec.Basic.Nack(number, multiple, requeue))

    def reject(self, tag: int | None = None, *, requeue: bool = True) -> None:
        """Send basic.reject for the last delivery, or the one named."""
        number = self.tag if tag is None else tag
        method = spec.Basic.Reject(number, requeue)
        self._settle(f"reject {number}{_flags({'requeue': requeue})}", method)

    def recover(self, *, requeue: bool = True) -> None:
        """Send basic.recover."""
        title = f"recover{_flags({'requeue': requeue})}"
        self._call(title, spec.Basic.Recover(requeue), spec.Basic.RecoverOk)

    def _settle(self, title: str, method: Any) -> None:
        """Send a method without an answer, and one with: an error comes before its answer."""
        self._ready().send(self.number, method)
        probe = spec.Exchange.Declare(exchange="amq.direct", passive=True)
        self._ready().send(self.number, probe)
        event = self._answer(spec.Exchange.DeclareOk)
        refused = not isinstance(event.method, spec.Exchange.DeclareOk)
        self._record(title, *([normal.method(event)] if refused else []))


def _flags(flags: Mapping[str, bool]) -> str:
    return "".join(f" {name if on else 'not ' + name}" for name, on in flags.items() if on)


def _table(arguments: Table | None) -> str:
    return f" {normal.value(arguments)}" if arguments else ""
