"""This node's side of one group: submissions to its leader, replies and deliveries from it.

1. Commands and messages gather in the uplink during a pass of the loop.  2. `pump` sends what is
new to the leader, or keeps it while there is none.  Acknowledgements wait for what else is sent, or
for ACK_WAIT_MS: no client waits for them, and each submission is an entry that a majority syncs.
3. A new leader is sent everything unanswered
again, then asked to resume each consumer after the last delivery received.  The machine applies
each submission once and numbers deliveries consecutively, so neither step loses or doubles
anything.
4. A consumer that settles its window faster than settled messages are replaced is given more than
that (`ReadAhead`), which waits here until its client has settled what it was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from warren_broker.cluster.client.read_ahead import AHEAD_LOOK_MS, MSG_ID_MAX, ReadAhead
from warren_broker.cluster.client.uplink import OnReply, Sent, Uplink
from warren_machines.queue.commands import (
    Acknowledgement,
    Cancel,
    Count,
    Credit,
    Delivery,
    Modify,
    MsgIds,
    Resume,
    Resumed,
    Return,
    rest_of,
)
from warren_machines.queue.effects import ActiveIs, CancelConsumer
from warren_machines.queue.ready.limits import UNLIMITED_WINDOW, WINDOW_BYTES
from warren_raft.versions import READ_AHEAD
from warren_wire.block.block import Block

SEEK_INTERVAL_MS = 100
SEEK_INTERVAL_MS_MAX = 2_000
ACK_WAIT_MS = 10
"""How long an acknowledgement may wait while its consumer has credit left."""


class Carrier(Protocol):
    """The part of the node that a group client needs."""

    def leader_of(self, group: int) -> str | None:
        """Return the node to send to, if one is known."""

    def submit(self, leader: str, group: int, sent: Sent) -> bool:
        """Send a submission to the leader; return False when it could not be sent."""

    def touch(self, client: GroupClient) -> None:
        """Call `client.pump()` at the end of this pass."""

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call something in so many milliseconds."""

    def touch_later(self, client: GroupClient, delay_ms: int) -> None:
        """Call `client.ack_wait_over()` in so many milliseconds, if acknowledgements wait then."""

    def now_ms(self) -> int:
        """Return the time of this pass, on a clock that never moves backwards."""

    @property
    def version(self) -> int:
        """The cluster's version."""

    def seek(self, client: GroupClient) -> None:
        """Find the unknown leader, then touch the client."""

    def answered(self, client: GroupClient) -> None:
        """Note that bytes in flight decreased."""


class Receiver(Protocol):
    """The receiver of a consumer's messages."""

    def deliver(self, consumer: int, delivery: Delivery, block: Block) -> None:
        """Take messages delivery.first … delivery.last of this block."""

    def cancelled(self, consumer: int, reason: str, timeout_ms: int | None) -> None:
        """Note the consumer's cancellation; timeout_ms: how long it may hold a message."""


@dataclass(slots=True)
class LocalConsumer:
    """A consumer of one of this node's clients.

    next_msg_id  deliveries below it have been passed to the receiver
    timeout_ms   how long it may hold a message; None: no limit
    ends         it is to be cancelled when another node begins to lead the queue
    led_by       the node that led when it was first known; "": none was. Only with `ends`
    limit        unsettled messages that the queue gives it at most
    window       the same, or less where its messages are large
    unsettled    messages delivered to it of which no settlement has been sent
    ack_waits    messages of these that it has acknowledged
    missed       told the next msg_id when deliveries before it will never come; None: not wanted
    timed_out    told what it held for too long, and timeout_ms, instead of `Receiver.cancelled`:
                 ranges of msg_ids, none when they are not known. None: not wanted
    activity     told whether it is the queue's single active one. None: not wanted
    has_room     asked before each delivery; False: `Consumers.resume` is called when there is room.
                 None: there is always room
    needs_acks   told with each delivery and acknowledgement while half of its credit is used.
                 None: not wanted
    left_out     it had no room, and deliveries were dropped that the queue holds for it
    resuming     how often the queue was asked to send deliveries again, and has not answered
    given_back   it ends: what has not arrived goes back to the queue, and is not taken any more
    active_index of the entry of which `activity` was told last
    ahead        what it is given beyond its window; None: it is not
    """

    consumer: int
    receiver: Receiver
    no_ack: bool
    next_msg_id: int = 0
    timeout_ms: int | None = None
    ends: bool = False
    led_by: str = ""
    limit: int = UNLIMITED_WINDOW
    window: int = UNLIMITED_WINDOW
    unsettled: int = 0
    ack_waits: int = 0
    missed: Callable[[int], None] | None = None
    timed_out: Callable[[MsgIds, int | None], None] | None = None
    activity: Callable[[bool], None] | None = None
    active_index: int = 0
    has_room: Callable[[int], bool] | None = None
    needs_acks: Callable[[], None] | None = None
    left_out: bool = False
    resuming: int = 0
    given_back: bool = False
    ahead: ReadAhead | None = None


@dataclass(slots=True, eq=False, repr=False)
class GroupClient:
    """The uplink of one group and this node's consumers of it.

    Invariant: whatever is sent takes along all acknowledgements that wait, in the order in which
    everything came: a Return, Cancel or SessionDown never overtakes one. While some wait there is
    a timer.
    """

    carrier: Carrier
    group: int
    members: tuple[str, ...]
    uplink: Uplink
    consumers: dict[int, LocalConsumer] = field(default_factory=dict)
    _acked_late: list[LocalConsumer] = field(default_factory=list)
    _acks_due: bool = False  # the timer runs
    _ack_since_ms: int = -1  # since when the first of those that wait does; -1: none does
    _held_back: bool = False
    touched: bool = False
    seeking: bool = False
    told: tuple[str, int] = ("", 0)
    seek_delay_ms: int = SEEK_INTERVAL_MS

    # ------------------------------------------------------------ towards the leader

    def publish(self, part: Any, size_bytes: int, on_reply: OnReply | None) -> None:
        """Add messages to this pass's block."""
        self.uplink.publish(part, size_bytes, on_reply)
        self._touch()

    def command(self, command: Any, on_reply: OnReply | None = None, ordered: bool = False) -> None:
        """Add a command to this pass's submission."""
        self.uplink.command(command, on_reply, ordered)
        self._touch()

    def acknowledge(
        self, command: Acknowledgement, late: bool = False, on_reply: OnReply | None = None
    ) -> None:
        """Add a consumer's acknowledgement; late: an acknowledgement that may wait for ACK_WAIT_MS.

        It waits while the consumer has more than half of its credit left, so that deliveries
        continue; a consumer that is not known here (basic.get) waits for no delivery.
        """
        local = self.consumers.get(command.consumer)
        urgent = not late
        if local is not None:
            count = sum([last - first + 1 for first, last in command.msg_ids])
            urgent |= 2 * local.unsettled >= local.window
            if local.ahead is not None:
                local.ahead.sent -= count
                local.ahead.settled += count
                if urgent and not local.ahead.measures:
                    on_reply = self._measuring(local, local.ahead, on_reply)
            if urgent:
                local.unsettled -= count
            else:
                if not local.ack_waits:
                    self._acked_late.append(local)
                local.ack_waits += count
        self.uplink.command(command, on_reply)
        if urgent:
            self._touch()
            if local is not None and local.needs_acks is not None:
                local.needs_acks()
        else:
            if self._ack_since_ms < 0:
                self._ack_since_ms = self.carrier.now_ms()
            if not self._acks_due:
                self._acks_due = True
                self.carrier.touch_later(self, ACK_WAIT_MS)
        if local is not None and local.ahead is not None:
            if isinstance(command, Return | Modify):
                # What comes back goes ahead of what waits, as it does where nothing is read ahead.
                self._recall(local, local.ahead)
            if local.ahead.unsent:
                self._send_ahead(local, local.ahead)

    def holds_acks(self) -> bool:
        """Return whether acknowledgements wait; else nothing has to call `ack_wait_over`."""
        self._acks_due = self._ack_since_ms >= 0
        return self._acks_due

    def ack_wait_over(self) -> None:
        """Send the acknowledgements that nothing else has taken along, when they have waited.

        1. An acknowledgement waits.  2. A publish takes it along, at 1 ms.  3. The next one comes
        at 9 ms, just before the timer: it waits for the next publish, too. At a steady pace each
        timer would cost an entry otherwise. So would each queue, where acknowledgements of many
        wait: what has waited for more than half of the time is sent with the others.
        """
        self._acks_due = False
        if not self.uplink.waiting:
            self._ack_since_ms = -1
            return
        left_ms = 0
        if self._ack_since_ms >= 0:
            left_ms = self._ack_since_ms + ACK_WAIT_MS - self.carrier.now_ms()
        if 2 * left_ms > ACK_WAIT_MS:
            self._acks_due = True
            self.carrier.touch_later(self, left_ms)
        else:
            self._touch()

    # ------------------------------------------------------------ read ahead

    def _measuring(
        self, local: LocalConsumer, ahead: ReadAhead, on_reply: OnReply | None
    ) -> OnReply:
        """Return a callback that adjusts what is given ahead to how long the reply has taken."""
        began = self.carrier.now_ms()
        ahead.measure(began)

        def replied(reply: object, index: int) -> None:
            wanted = ahead.measured(self.carrier.now_ms() - began)
            if ahead.raises(wanted) and self.carrier.version >= READ_AHEAD:
                self._grant(local, ahead, wanted)
            if on_reply is not None:
                on_reply(reply, index)

        return replied

    def _grant(self, local: LocalConsumer, ahead: ReadAhead, wanted: int) -> None:
        """Tell the queue how much it is to give ahead.

        1. It is told to give nothing ahead any more.  2. What it gave before that arrives, and is
        more than the client may be sent.  So it answers the number of the first delivery after it.
        """
        if local.given_back or self.consumers.get(local.consumer) is not local:
            return
        if ahead.recalled and wanted:
            return
        ahead.granted = wanted
        ahead.grants += 1
        ahead.strict_from = MSG_ID_MAX
        number = ahead.grants

        def granted(reply: object, index: int) -> None:
            if not wanted and number == ahead.grants and isinstance(reply, Count):
                ahead.strict_from = reply.messages
                self._send_ahead(local, ahead)

        self.command(Credit(local.consumer, 0, wanted), granted)

    def _send_ahead(self, local: LocalConsumer, ahead: ReadAhead) -> None:
        """Send a client what waits, as far as its window has room."""
        while (run := ahead.next_run()) is not None:
            local.receiver.deliver(local.consumer, *run)
        if ahead.unsent and not ahead.looks:
            ahead.looks, ahead.seen = True, ahead.settled
            self.carrier.call_later(AHEAD_LOOK_MS, partial(self._look, local, ahead))

    def _look(self, local: LocalConsumer, ahead: ReadAhead) -> None:
        """Give back what waits if its client has slowed down: other consumers may want it."""
        ahead.looks = False
        if ahead.unsent and ahead.stands():
            self._recall(local, ahead)
        elif ahead.unsent:
            self._send_ahead(local, ahead)

    def _recall(self, local: LocalConsumer, ahead: ReadAhead) -> None:
        """Return what waits, and have nothing given ahead; the consumer continues.

        1. Messages 5 to 9 wait, and go back.  2. 10 to 14, given before that, arrive.  3. Were they
        sent, the client would get 5 to 9 after them. So all that is given until 5 to 9 are back
        goes back, too, and what arrives is sent when the queue has said what that is.  4. Its
        answer may be faster than what was given before: that is dropped.  5. Nothing waits when
        the client returns its window, and 10 to 14 are under way: they are recalled as well.
        Replayed by tests/broker/cluster/client/test_read_ahead.py
        """
        under_way = local.next_msg_id < ahead.strict_from
        if not (ahead.unsent or under_way) or ahead.recalled or local.given_back:
            return

        def returned(reply: object, index: int) -> None:
            if isinstance(reply, Count):
                ahead.recalled = False
                local.next_msg_id = max(local.next_msg_id, reply.messages)
                local.unsettled -= ahead.take_back(reply.messages)
                self._send_ahead(local, ahead)

        ahead.recalled = True
        self._grant(local, ahead, 0)
        self._return_unsent(local, returned)

    def with_block(
        self, command: object, block: bytes | memoryview, on_reply: OnReply | None
    ) -> None:
        """Add a command with a block of its own."""
        self.uplink.with_block(command, block, on_reply)
        self._touch()

    def with_messages(self, command: object, part: object, on_reply: OnReply | None) -> None:
        """Add a command with messages that become a block of its own."""
        self.uplink.with_messages(command, part, on_reply)
        self._touch()

    @property
    def busy(self) -> bool:
        """Whether something waits for the leader, or may come from it."""
        return bool(self.consumers or self.uplink.unanswered or self.uplink.waiting)

    @property
    def all_answered(self) -> bool:
        """Whether all that was sent, or is about to be, has been applied and answered."""
        return not (self.uplink.unanswered or self.uplink.waiting)

    def _touch(self) -> None:
        if not self.touched:
            self.touched = True
            self.carrier.touch(self)

    def pump(self) -> None:
        """Send what has not been sent."""
        self.touched = False
        self._held_back = False
        self._ack_since_ms = -1
        if self._acked_late:
            for local in self._acked_late:
                local.unsettled -= local.ack_waits
                local.ack_waits = 0
            self._acked_late = []
        leader = self.carrier.leader_of(self.group)
        if leader is None:
            self.carrier.seek(self)
            return
        if leader != self.told[0]:
            # 1. A new leader announces itself.  2. This node's member follows the old one for a
            # moment more, so what is sent now goes there.  3. It is refused, and by then the
            # member follows the new one, which everything seems to have been sent to. So what
            # counts is where it went; in no term, so that the leader's next news is news.
            # Replayed by tests/broker/cluster/test_leader_news.py
            if self.told[0]:
                self.leader_found(leader, 0)
                return
            self.told = (leader, 0)
        for sent in self.uplink.take():
            if not self.carrier.submit(leader, self.group, sent):
                self.uplink.rewind(sent.seq)
                self.carrier.seek(self)
                return
        self._held_back = self.uplink.waiting

    def leader_found(self, leader: str, term: int, reconnected: bool = False) -> None:
        """Resume with a leader that is new or reachable again: send it all that it may have missed.

        The event arrives in several ways (Raft, an announcement); only the first one counts.
        """
        if (leader, term) == self.told and not self.seeking and not reconnected:
            return
        self.told = (leader, term)
        self.seeking = False
        self.seek_delay_ms = SEEK_INTERVAL_MS
        self.uplink.rewind()
        for local in self.consumers.values():
            self.resume(local)
            if local.ends:
                self._failed_over(local, leader)
        self._touch()

    def _failed_over(self, local: LocalConsumer, leader: str) -> None:
        """Cancel a consumer that asked for it, if another node leads than before.

        It is told when the queue has cancelled it, after the deliveries that it was given before:
        it could not acknowledge what it never saw.
        """
        if local.led_by in ("", leader):
            local.led_by = leader
            return
        local.ends = False
        self.give_back_unsent(local.consumer)

        def cancelled(reply: object, index: int) -> None:
            self.cancelled(local.consumer, "failover")
            self.leave(local.consumer)

        self.command(Cancel(local.consumer), cancelled)

    def leave(self, consumer: int) -> None:
        """Forget a consumer after its cancellation; what never arrived goes back to the queue.

        1. A leader gives a consumer messages and dies.  2. The next one cancels the consumer, which
        keeps what it holds.  3. The messages are sent again, to a consumer that is not known here
        any more: nothing would ever settle them while the session lasts.

        Replayed by tests/broker/cluster/client/test_cancellation.py
        """
        local = self.consumers.pop(consumer, None)
        if local is not None and not local.no_ack:
            self._return_unsent(local)

    def give_back_unsent(self, consumer: int) -> bool:
        """Give back what was not sent to a consumer that ends, with acknowledgements or without.

        Return whether there may be such: the caller's next command must be its `Cancel`. That
        settles what a consumer without acknowledgements holds, as if all of it had been sent; so
        both are of one submission, between two of which the queue could give it more.
        Replayed by tests/broker/cluster/client/test_cancellation.py
        """
        local = self.consumers.get(consumer)
        if local is None or local.given_back:
            return False
        if not local.no_ack and (local.ahead is None or not local.ahead.used):
            return False
        local.given_back = True
        self.uplink.keep_together(2)
        self._return_unsent(local)
        return True

    def _return_unsent(self, local: LocalConsumer, on_reply: OnReply | None = None) -> None:
        """Return what waits for a consumer, and what never arrived."""
        first = local.next_msg_id
        if local.ahead is not None and local.ahead.unsent:
            first = local.ahead.unsent[0][0].first_msg_id
            local.unsettled -= local.ahead.take_back()
        unseen = ((first, MSG_ID_MAX),)
        self.command(Return(local.consumer, unseen, failed=False, unseen=True), on_reply)

    def resume(self, local: LocalConsumer, answered: Callable[[], None] | None = None) -> None:
        """Ask for deliveries to this consumer that were not received.

        answered  called before they come; those taken back in the meantime never come. At once for
                  a consumer that ends, of which the queue is not asked
        """

        def resumed(reply: object, index: int) -> None:
            local.resuming -= 1
            if isinstance(reply, Resumed) and reply.first_msg_id > local.next_msg_id:
                local.next_msg_id = reply.first_msg_id
                if local.missed is not None:
                    local.missed(reply.first_msg_id)
            if answered is not None:
                answered()

        if local.given_back:
            if answered is not None:
                answered()
            return
        local.left_out = False
        local.resuming += 1
        self.command(Resume(local.consumer, local.next_msg_id), resumed)

    # ------------------------------------------------------------ back from it

    def replied(
        self,
        seq: int,
        replies: Sequence[object],
        index: int,
        expected_seq: int,
        retired: bool = False,
    ) -> None:
        """Handle the answer to a submission; with expected_seq the leader lacks earlier ones.

        Raises RuntimeError when the queue reports that this incarnation has ended.
        """
        if retired:
            # Only the start of a later process of this node, or its removal, ends an incarnation.
            raise RuntimeError(
                f"group {self.group} reports that this process was replaced by a later one of "
                "the same node, or that the node was removed; this process ends"
            )
        if expected_seq:
            if self.uplink.behind(seq, expected_seq):
                self._touch()
        elif self.uplink.answered(seq, replies, index):
            self.carrier.answered(self)
            if self._held_back:
                self._touch()

    def takes(self, consumer: int) -> bool:
        """Return whether deliveries to a consumer are looked at: it is here, and has room for more.

        1. It has no room for message 5, which is dropped.  2. It has room again when 6 comes: that
        is dropped as well, as 5 is missing.  3. Both come with the answer to its `resume`.
        """
        local = self.consumers.get(consumer)
        if local is None or local.given_back:
            return False
        if local.has_room is None:
            return True
        if not local.left_out:
            local.left_out = not local.has_room(consumer)
        return not local.left_out

    def delivered(self, consumer: int, delivery: Delivery, block: Block) -> None:
        """Pass messages on to a consumer that takes them (`takes`).

        They may be repeated, or earlier ones be missing: these come with the answer to a Resume.
        1. The leader sends 0-9 and dies.  2. The next one applies a settle and sends 20-29.
        3. 10-19 come with the answer to our Resume, and then 20-29 again: wait for those. Also
        without acknowledgements, where the queue holds what has not been reported as sent.

        block  the block to which delivery.first and delivery.last refer
        """
        local = self.consumers.get(consumer)
        if local is None:
            return  # cancelled here while it was on its way: `leave` has returned it
        first_id = delivery.first_msg_id
        end_id = first_id + delivery.last - delivery.first + 1
        if first_id > local.next_msg_id:
            if not local.resuming:
                self.resume(local)
            return
        if end_id <= local.next_msg_id:
            return
        delivery = rest_of(delivery, local.next_msg_id - first_id)
        local.next_msg_id = end_id
        if not local.no_ack:
            count = delivery.last - delivery.first + 1
            local.unsettled += count
            size_bytes = block.size_bytes(delivery.first, delivery.last + 1)
            local.window = min(local.limit, WINDOW_BYTES * count // max(1, size_bytes))
            if local.needs_acks is not None and 2 * local.unsettled >= local.window:
                local.needs_acks()
            if local.ahead is not None:
                ahead = local.ahead
                if ahead.unsent or first_id < ahead.strict_from or ahead.recalled:
                    ahead.take(delivery, block, size_bytes)
                    self._send_ahead(local, ahead)
                    return
                ahead.sent += count
                ahead.message_bytes = max(1, size_bytes // count)
        local.receiver.deliver(consumer, delivery, block)

    def hear(self, effect: CancelConsumer | ActiveIs) -> None:
        """Tell a consumer what its queue says of it."""
        if isinstance(effect, ActiveIs):
            self.tell_active(effect)
        else:
            self.cancelled(effect.consumer, effect.reason, effect.msg_ids)

    def cancelled(self, consumer: int, reason: str, msg_ids: MsgIds = ()) -> None:
        """Tell a consumer that the queue cancelled it; msg_ids: what it held for too long."""
        local = self.consumers.get(consumer)
        if local is None:
            return
        if reason == "deleted" and local.ahead is not None:
            local.ahead.take_back()
        elif local.ahead is not None:
            self.give_back_unsent(consumer)
        if reason == "timeout" and local.timed_out is not None:
            local.timed_out(msg_ids, local.timeout_ms)
        else:
            local.receiver.cancelled(consumer, reason, local.timeout_ms)

    def tell_active(self, effect: ActiveIs) -> None:
        """Tell a consumer whether it is the active one, unless something newer is known.

        1. A leader says that a consumer is active; the message is slow.  2. Another one leads, has
        another consumer active, and says so.  3. The first message arrives.
        """
        local = self.consumers.get(effect.consumer)
        if local is not None and local.activity is not None and effect.index > local.active_index:
            local.active_index = effect.index
            local.activity(effect.active)
