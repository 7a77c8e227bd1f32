"""Judges a history: what was lost, doubled, out of order, or never sent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from nemesis.history import Event

EXAMPLES = 5
AFTER_FAULT_S = 10.0
"""A fault explains a redelivery up to this long after its end."""
ACK_S = 5.0
"""How long an acknowledgement may be on its way to its queue, on a busy machine."""
GAP_S_MIN = 0.05

MUST_BE_NONE = (
    "lost",
    "unexpected",
    "duplicated",
    "doubled",
    "needless",
    "reordered",
    "claim changed",
    "claims overlap",
    "batch torn",
    "batch reordered",
    "problem",
)


@dataclass(slots=True)
class Verdict:
    """counts: what happened; wrong: kind to the texts of every case; gaps: by fault, seconds."""

    counts: dict[str, int] = field(default_factory=dict)
    wrong: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in MUST_BE_NONE})
    gaps: dict[str, float] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """Nothing was wrong."""
        return not any(self.wrong.values())

    def lines(self) -> list[str]:
        """For people."""
        shown = ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items()))
        lines = [shown, ", ".join(f"{len(cases)} {kind}" for kind, cases in self.wrong.items())]
        for kind, cases in self.wrong.items():
            lines += [f"  {kind}: {case}" for case in cases[:EXAMPLES]]
            if len(cases) > EXAMPLES:
                lines.append(f"  {kind}: … {len(cases) - EXAMPLES} more")
        if self.gaps:
            lines.append("longest gap without a confirm, by fault:")
            lines += [f"  {kind:<16} {gap:7.3f} s" for kind, gap in sorted(self.gaps.items())]
        return lines


@dataclass(slots=True)
class _Message:
    queue: str
    priority: int
    confirmed: bool = False
    first_deliveries: int = 0
    deliveries: int = 0
    acked_by: str | None = None
    acked_at: float = 0.0
    why_again: bool = False
    last: _Taken | None = None


@dataclass(slots=True)
class _Taken:
    """The last delivery of a message that moves between clusters; over: it came back."""

    consumer: str
    at: float
    acked_at: float | None = None
    over: bool = False


@dataclass(slots=True)
class _Fault:
    """nodes: those whose own clients it cuts off, too."""

    kind: str
    began: float
    ended: float | None = None
    nodes: list[int] = field(default_factory=list)


_Id = tuple[str, int]


class Checker:
    """Takes the events in order, then judges.

    Deliveries of the three ways to read (consumers, claims) count alike: a message belongs to one
    queue. Order is judged where it is promised: first deliveries to one consumer, of one stream and
    priority. Of queues with repeats each message has to come at least once, in any
    order.

    Messages that move between clusters may come again where a client did not acknowledge them: not
    marked redelivered, and in another cluster. It is wrong where the client has, or still holds
    the message, unless a node of the client's cluster was hit then: the acknowledgement may be
    lost.
    """

    def __init__(self) -> None:
        self._verdict = Verdict()
        self._messages: dict[_Id, _Message] = {}
        self._open: dict[str, dict[int, float]] = {}
        self._answered: dict[str, float] = {}
        self._waits: dict[str, list[tuple[float, float]]] = {}
        self._last: dict[tuple[str, str, int], int] = {}
        self._gone: dict[str, float] = {}
        self._faults: list[_Fault] = []
        self._node_of: dict[str, int] = {}
        self._at_most_once: set[str] = set()
        self._repeats: set[str] = set()
        self._moves: set[str] = set()
        self._place: dict[str, int] = {}
        self._claims: dict[tuple[str, str, int], list[_Id]] = {}
        self._claim_of: dict[_Id, tuple[str, str, int]] = {}
        self._batches: dict[tuple[str, str, int], list[_Id]] = {}
        self._batch_of: dict[_Id, tuple[str, str, int]] = {}
        self._published: set[tuple[str, str, int]] = set()
        self._last_batch: dict[tuple[str, str], int] = {}

    def check(self, events: Iterable[Event]) -> Verdict:
        """All of a history."""
        for event in events:
            kind = event["e"]
            self._verdict.counts[kind] = self._verdict.counts.get(kind, 0) + 1
            handler = getattr(self, f"_on_{kind}", None)
            if handler is not None:
                handler(event)
        self._close()
        return self._verdict

    def _wrong(self, kind: str, text: str) -> None:
        self._verdict.wrong[kind].append(text)

    # ------------------------------------------------------------ publishing

    def _on_publish(self, event: Event) -> None:
        key = (event["s"], event["n"])
        assert key not in self._messages, key  # identities are the run's own business
        self._messages[key] = _Message(event["q"], event["y"])
        self._open.setdefault(event["s"], {})[event["n"]] = event["t"]

    def _on_confirm(self, event: Event) -> None:
        self._on_nack(event)
        for first, last in event["n"]:
            for n in range(first, last + 1):
                self._messages[event["s"], n].confirmed = True

    def _on_nack(self, event: Event) -> None:
        self._heard(event)
        for first, last in event["n"]:
            for n in range(first, last + 1):
                del self._open[event["s"]][n]

    def _heard(self, event: Event) -> None:
        """How long the publisher waited: since it heard last, or since what is open was sent."""
        stream, now = event["s"], event["t"]
        oldest = next(iter(self._open[stream].values()))
        since = max(oldest, self._answered.get(stream, oldest))
        if now - since >= GAP_S_MIN:
            self._waits.setdefault(stream, []).append((since, now))
        self._answered[stream] = now

    def _on_stream(self, event: Event) -> None:
        self._node_of[event["s"]] = event["node"]

    def _on_unknown(self, event: Event) -> None:
        self._heard(event)
        self._open[event["s"]].clear()

    def _on_no_ack(self, event: Event) -> None:
        self._at_most_once.add(event["q"])

    def _on_repeats(self, event: Event) -> None:
        self._repeats.add(event["q"])

    def _on_moves(self, event: Event) -> None:
        self._moves.add(event["q"])

    def _on_place(self, event: Event) -> None:
        self._place[event["c"]] = event["cluster"]

    # ------------------------------------------------------------ consuming

    def _on_deliver(self, event: Event) -> None:
        key = (event["s"], event["n"])
        message = self._arrived(key, event["q"], f"consumer {event['c']}")
        if message is None:
            return
        if event["q"] in self._repeats:
            return
        if event["q"] in self._moves:
            self._moved(message, event)
            return
        text = f"{key} of {event['q']} to {event['c']} at {event['t']}"
        if event["r"]:
            self._again(message, event, text)
        else:
            self._first(message, event, text)
        message.acked_by = None

    def _moved(self, message: _Message, event: Event) -> None:
        last, message.last = message.last, _Taken(event["c"], event["t"])
        if last is None or last.over:
            return
        if last.acked_at is None and last.consumer in self._gone:
            return
        since, until = last.at, event["t"]
        if last.acked_at is not None:
            since, until = last.acked_at, last.acked_at + ACK_S
        place = self._place[last.consumer.partition(".")[0]]
        for fault in self._faults:
            ended = until if fault.ended is None else fault.ended
            if place in fault.nodes and fault.began <= until and since <= ended + AFTER_FAULT_S:
                return
        held = "holds it" if last.acked_at is None else f"acknowledged it at {last.acked_at}"
        self._wrong(
            "doubled",
            f"{(event['s'], event['n'])} of {event['q']} to {event['c']} at {event['t']}: "
            f"{last.consumer} got it at {last.at} and {held}, and no node there was hit",
        )

    def _arrived(self, key: _Id, queue: str, where: str) -> _Message | None:
        message = self._messages.get(key)
        if message is None or message.queue != queue:
            self._wrong("unexpected", f"{key} came from {queue} by {where}; no client published it")
            return None
        message.deliveries += 1
        return message

    def _first(self, message: _Message, event: Event, text: str) -> None:
        message.first_deliveries += 1
        if message.first_deliveries > 1:
            self._wrong("duplicated", f"{text}: delivered before, and not marked redelivered")
            return
        order = (event["c"], event["s"], message.priority)
        if event["n"] < self._last.get(order, -1):
            self._wrong("reordered", f"{text}, after {self._last[order]} of the same priority")
        self._last[order] = max(event["n"], self._last.get(order, -1))
        batch = self._batch_of.get((event["s"], event["n"]))
        if batch is not None:
            lane = (*batch[:2], event["c"])
            if batch[2] < self._last_batch.get(lane, -1):
                self._wrong("batch reordered", f"{text}: after batch {self._last_batch[lane]}")
            self._last_batch[lane] = max(batch[2], self._last_batch.get(lane, -1))

    def _again(self, message: _Message, event: Event, text: str) -> None:
        """Marked redelivered: at least once allows it where an ack can have been lost."""
        if message.acked_by is None:
            return
        if message.acked_by in self._gone:
            return  # the channel ended after the ack: it may have ended before it was applied
        self._needless(message, event, text)

    def _needless(self, message: _Message, event: Event, text: str) -> None:
        begin, end = message.acked_at, event["t"]
        for fault in self._faults:
            ended = end if fault.ended is None else fault.ended
            if fault.began <= end and begin <= ended + AFTER_FAULT_S:
                return
        self._wrong(
            "needless",
            f"{text}: {message.acked_by} acknowledged it at {begin}, "
            "its channel is open, and no fault explains it",
        )

    def _on_ack(self, event: Event) -> None:
        message = self._messages.get((event["s"], event["n"]))
        if message is not None:
            message.acked_by, message.acked_at = event["c"], event["t"]
            if message.last is not None and message.last.consumer == event["c"]:
                message.last.acked_at = event["t"]

    def _on_requeue(self, event: Event) -> None:
        message = self._messages.get((event["s"], event["n"]))
        if message is not None:
            message.acked_by = None
            if message.last is not None and message.last.consumer == event["c"]:
                message.last.over = True

    def _on_gone(self, event: Event) -> None:
        self._gone[event["c"]] = event["t"]

    def _on_stray(self, event: Event) -> None:
        self._wrong("unexpected", f"{event['q']}: {event['what']}")

    # ------------------------------------------------------------ claims

    def _on_claimed(self, event: Event) -> None:
        claim = (event["q"], event["reader"], event["number"])
        ids = [(s, n) for s, n in event["ids"]]
        known = self._claims.get(claim)
        if known is not None:
            if known != ids:
                differ = next(
                    (i for i, (a, b) in enumerate(zip(known, ids, strict=False)) if a != b),
                    min(len(known), len(ids)),
                )
                self._wrong(
                    "claim changed",
                    f"{claim}: had {len(known)} messages, now {len(ids)}; differs from {differ} on",
                )
            return
        self._claims[claim] = ids
        for key in ids:
            message = self._arrived(key, event["q"], f"claim {claim}")
            if message is None:
                continue
            other = self._claim_of.setdefault(key, claim)
            if other != claim or message.first_deliveries:
                self._wrong("claims overlap", f"{key} is in {claim} and in {other}")
            message.first_deliveries += 1

    # ------------------------------------------------------------ stages

    def _on_staged(self, event: Event) -> None:
        batch = (event["q"], event["sink"], event["batch"])
        ids = [(s, n) for s, n in event["ids"]]
        self._batches[batch] = ids
        for key in ids:
            self._messages[key] = _Message(event["q"], 4)
            self._batch_of[key] = batch

    def _on_batch(self, event: Event) -> None:
        batch = (event["q"], event["sink"], event["batch"])
        self._published.add(batch)
        for key in self._batches[batch]:
            self._messages[key].confirmed = True

    # ------------------------------------------------------------ the run

    def _on_fault(self, event: Event) -> None:
        if event["phase"] == "begin":
            self._faults.append(_Fault(event["kind"], event["t"]))
        elif event["phase"] == "hit":
            self._faults[-1].nodes.extend(event["nodes"])
        else:
            self._faults[-1].ended = event["t"]

    def _on_problem(self, event: Event) -> None:
        self._wrong("problem", event["what"])

    def _close(self) -> None:
        for key, message in self._messages.items():
            if message.confirmed and not message.deliveries:
                if message.queue in self._at_most_once:
                    self._verdict.counts["lost where acks are off"] = (
                        self._verdict.counts.get("lost where acks are off", 0) + 1
                    )
                    continue
                self._wrong("lost", f"{key} of {message.queue}: confirmed, never delivered")
        for batch, ids in self._batches.items():
            there = [self._messages[key].deliveries > 0 for key in ids]
            if any(there) and not all(there):
                self._wrong("batch torn", f"{batch}: {sum(there)} of {len(ids)} messages came")
        counts = self._verdict.counts
        messages = self._messages.values()
        counts["messages"] = len(messages)
        counts["messages confirmed"] = sum(message.confirmed for message in messages)
        may_repeat = [m for m in messages if m.queue in self._repeats | self._moves]
        counts["messages that may repeat"] = sum(message.confirmed for message in may_repeat)
        counts["repeated"] = sum(message.deliveries > 1 for message in may_repeat)
        counts["messages seen again"] = sum(message.deliveries > 1 for message in messages)
        self._measure_gaps()

    def _measure_gaps(self) -> None:
        """The longest time in which a stream waited for a confirm and got none.

        A stream whose own node was hit says only how long that node was away: it does not count.
        """
        for stream, waits in self._waits.items():
            for since, until in waits:
                for kind in self._kinds_between(since, until, self._node_of.get(stream)):
                    self._verdict.gaps[kind] = max(self._verdict.gaps.get(kind, 0.0), until - since)

    def _kinds_between(self, before: float, after: float, node: int | None) -> set[str]:
        """The faults that were on meanwhile; none when one of them hit the stream's own node."""
        on = [
            fault
            for fault in self._faults
            if fault.began <= after and (fault.ended is None or before <= fault.ended)
        ]
        if any(node in fault.nodes for fault in on):
            return set()
        return {fault.kind for fault in on} or {"none"}
