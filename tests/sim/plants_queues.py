"""Bugs to plant in queues and in the cluster's handling of them; see `plants`."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from sim.planting import Replacement, by_name
from warren_broker.cluster import definitions
from warren_broker.cluster.client.queue_client import GroupClient
from warren_broker.cluster.queue_deletions import QueueDeletions
from warren_machines.metadata.node_registry import is_retired
from warren_machines.queue import ack, commands, machine, queue_snapshot
from warren_machines.queue.annotations import Annotations
from warren_machines.queue.apply_context import QueueContext
from warren_machines.queue.claims import claim, decision_commands
from warren_machines.queue.deduplication import NumberSet, SeenIds
from warren_machines.queue.delayed import delayed_retry
from warren_machines.queue.delayed.delayed_queue import Delayed
from warren_machines.queue.ready.ranges import LANE_SHIFT
from warren_machines.queue.ready.ready_queue import Order
from warren_machines.queue.ready.returned_runs import ReturnedRuns
from warren_machines.queue.sinks import stage


def _handler(kind: type, handler: Any) -> list[Replacement]:
    return [(machine, "HANDLERS", {**machine.HANDLERS, kind: handler})]


def requeue_order_reversed() -> list[Replacement]:
    """Returned messages come first, but in reverse order."""
    let_go = ack.let_go

    def backwards(context: QueueContext, consumer: Any, pieces: list[Any], *outcome: Any) -> None:
        let_go(context, consumer, pieces[::-1], *outcome)

    return [(ack, "let_go", backwards)]


def what_comes_back_goes_to_the_end() -> list[Replacement]:
    """Returned messages wait until all ready messages are delivered."""

    def polite(self: Order) -> Any:
        if self.mask:
            return (*self.lanes[self.mask.bit_length() - 1].head(), 0, 0)
        return self.returned.head() if self.returned else None

    def take(self: Order, count: int, marked: bool = False) -> Any:
        if self.mask:
            lane = self.mask.bit_length() - 1
            return (*self._cut(lane, count), 0, (lane + 1) << LANE_SHIFT if marked else 0)
        return taken(self, count, marked)

    taken = Order.take
    return [(Order, "head", polite), (Order, "take", take)]


def redelivered_is_not_in_the_snapshot() -> list[Replacement]:
    """A member restored from a snapshot takes returned messages for new ones."""
    load = Order.load_returned

    def forgetful(self: Order, count: int, returned: Any, back: Any) -> None:
        load(self, count, returned, back)
        runs = [(*run[:3], 0, 0) for run in self.all_returned()]
        self.returned, self.back = ReturnedRuns(), {}
        self.returned.extend(runs)

    return [(Order, "load_returned", forgetful)]


def priorities_are_not_in_the_snapshot() -> list[Replacement]:
    """A member restored from a snapshot serves the lowest priority first."""
    load = Order.load

    def confused(self: Order, lanes: Any) -> None:
        rows = list(lanes)
        numbers = [row[0] for row in rows]
        load(
            self, [(number, *row[1:]) for number, row in zip(reversed(numbers), rows, strict=True)]
        )

    return [(Order, "load", confused)]


def annotations_are_not_in_the_snapshot() -> list[Replacement]:
    """A member restored from a snapshot delivers messages as their publishers sent them."""

    def forgetful(self: Annotations, rows: Any) -> None:
        self.blocks = {}

    return [(Annotations, "load", forgetful)]


def a_return_ends_the_annotations() -> list[Replacement]:
    """What was annotated and is returned without a word has no annotations any more."""
    give_back = ack.give_back

    def plain(context: QueueContext, run: Any, failed: bool, ready_ms: int = 0) -> None:
        if not failed and not ready_ms:
            context.state.annotations.forget(*run[:3])
        give_back(context, run, failed, ready_ms)

    return [(ack, "give_back", plain)]


def the_time_that_a_consumer_said_is_ignored() -> list[Replacement]:
    """What a consumer has returned until a time waits as all others."""
    give_back = ack.give_back

    def deaf(context: QueueContext, run: Any, failed: bool, ready_ms: int = 0) -> None:
        give_back(context, run, failed)

    return [(ack, "give_back", deaf)]


def an_expired_claim_is_settled() -> list[Replacement]:
    """A settle accepts the number of an expired claim, and continues with the next."""

    def lenient(context: QueueContext, command: commands.SettleClaims) -> Any:
        reader = claim.known_reader(context, command.reader, command.epoch)
        if isinstance(reader, commands.Refused):
            return reader
        return commands.Count(claim._settle_up_to(context, reader, command.number))

    return _handler(commands.SettleClaims, lenient)


def a_missing_attempt_counts_as_empty() -> list[Replacement]:
    """A batch is published without the attempts of which nothing is staged."""
    publish = machine.HANDLERS[commands.SinkPublish]

    def lenient(context: QueueContext, command: commands.SinkPublish) -> Any:
        run = context.state.runs.get(command.sink, {}).get(command.run)
        stages = {} if run is None else run.stages
        there = [
            (partition, attempt, stages[command.batch, partition, attempt].count)
            for partition, attempt, _ in command.attempts
            if (command.batch, partition, attempt) in stages
        ]
        return publish(context, structs.replace(command, attempts=tuple(there)))

    return _handler(commands.SinkPublish, lenient)


def a_drop_takes_every_attempt() -> list[Replacement]:
    """An aborted batch is dropped whole, with the stages of all drivers."""

    def careless(context: QueueContext, command: commands.SinkDrop) -> Any:
        for run in context.state.runs.get(command.sink, {}).values():
            for key in [key for key in run.stages if key[0] == command.batch]:
                stage._forget(context.state, run.stages.pop(key))
        return stage.DONE

    return _handler(commands.SinkDrop, careless)


def a_repeated_batch_is_published_again() -> list[Replacement]:
    """A batch that another driver published is not recognised by its content."""
    publish = machine.HANDLERS[commands.SinkPublish]
    staged = machine.HANDLERS[commands.SinkStage]

    def forget(context: QueueContext, command: Any) -> None:
        run = context.state.runs.get(command.sink, {}).get(command.run)
        if run is not None and run.find(command.batch) is not None and command.epoch > run.epoch:
            run.published = [one for one in run.published if one.batch != command.batch]
            run.last_batch = command.batch - 1

    def naive(context: QueueContext, command: Any) -> Any:
        forget(context, command)
        return publish(context, command)

    def naive_stage(context: QueueContext, command: Any) -> Any:
        forget(context, command)
        return staged(context, command)

    handlers = {commands.SinkPublish: naive, commands.SinkStage: naive_stage}
    return [(machine, "HANDLERS", {**machine.HANDLERS, **handlers})]


def a_bound_claim_is_given_back() -> list[Replacement]:
    """A claim is released without asking whether its batch was published."""
    release = machine.HANDLERS[commands.ReleaseClaim]

    def hasty(context: QueueContext, command: commands.ReleaseClaim) -> Any:
        reader = context.state.readers.get(command.reader)
        for held in reader.claims.values() if reader is not None else ():
            held.binding = None
        return release(context, command)

    return _handler(commands.ReleaseClaim, hasty)


def an_expired_reader_takes_its_claims_along() -> list[Replacement]:
    """A reader that was silent for its time is forgotten with the messages in its claims."""

    def careless(context: QueueContext) -> None:
        for _, reader in sorted(context.state.readers.items()):
            if reader.expires_ms and reader.heard_ms + reader.expires_ms <= context.now:
                del context.state.readers[reader.name]

    return [(claim, "expire_readers", careless)]


def a_request_that_is_repeated_is_another_start() -> list[Replacement]:
    """A reader's starts count how often its driver has asked, not how often it has started."""
    register = machine.HANDLERS[commands.RegisterReader]

    def eager(context: QueueContext, command: commands.RegisterReader) -> Any:
        known = context.state.readers.get(command.reader)
        if known is not None and command.call in dict(known.calls):
            known.starts += 1
        return register(context, command)

    return _handler(commands.RegisterReader, eager)


def starts_are_not_in_the_snapshot() -> list[Replacement]:
    """A member restored from a snapshot counts a reader's starts from there."""
    read = queue_snapshot.restore

    def forgetful(data: bytes) -> Any:
        state = read(data)
        for reader in state.readers.values():
            reader.starts = 0
        return state

    return [(queue_snapshot, "restore", forgetful)]


def a_closed_batch_is_published() -> list[Replacement]:
    """A batch that was not published when its queue was asked may be published later."""
    ask = machine.HANDLERS[decision_commands.AskBatch]

    def forgetful(context: QueueContext, command: decision_commands.AskBatch) -> Any:
        run = context.state.runs.get(command.sink, {}).get(command.run)
        if run is None or run.find(command.batch) is None:
            return decision_commands.BatchFate("closed")
        return ask(context, command)

    return _handler(decision_commands.AskBatch, forgetful)


def a_claim_is_bound_to_the_newest_batch() -> list[Replacement]:
    """A bind does not answer that another batch may have settled it."""
    bind = machine.HANDLERS[decision_commands.BindClaim]

    def greedy(context: QueueContext, command: decision_commands.BindClaim) -> Any:
        reader = context.state.readers.get(command.reader)
        held = reader.claims.get(command.number) if reader is not None else None
        if held is not None:
            held.binding = None
        return bind(context, command)

    return _handler(decision_commands.BindClaim, greedy)


def an_older_driver_is_not_fenced() -> list[Replacement]:
    """A sink's drivers have no epochs."""
    current = stage._current

    def open_to_all(context: QueueContext, command: Any) -> Any:
        run = context.state.runs.get(command.sink, {}).get(command.run)
        if run is not None:
            command = structs.replace(command, epoch=run.epoch)
        return current(context, command)

    return [(stage, "_current", open_to_all)]


def delays_are_half_as_long() -> list[Replacement]:
    """A message that comes back waits half of its delay."""
    delay_ms = delayed_retry.delay_ms

    def hasty(*given: Any) -> int:
        return delay_ms(*given) // 2

    return [(delayed_retry, "delay_ms", hasty)]


def delayed_messages_are_ready_in_the_order_of_their_arrival() -> list[Replacement]:
    """What is ready at one time comes back by the places in the log, whenever it was ready."""
    take_ready = Delayed.take_ready

    def sorted_by_place(self: Delayed, now_ms: int, runs_max: int) -> Any:
        return sorted(take_ready(self, now_ms, runs_max))

    return [(Delayed, "take_ready", sorted_by_place)]


def nothing_wakes_a_delayed_message() -> list[Replacement]:
    """A delay asks for no timer."""
    hold_back = delayed_retry.hold_back

    def silent(context: QueueContext, run: Any, wait_ms: int) -> None:
        timer_ms = context.state.timer_ms
        hold_back(context, run, wait_ms)
        context.state.timer_ms = timer_ms

    return [(delayed_retry, "hold_back", silent)]


def ids_are_not_in_the_snapshot() -> list[Replacement]:
    """A member restored from a snapshot has forgotten the ids of what its queue took."""
    return [(SeenIds, "load", lambda self, producers, order, times: None)]


def ids_are_forgotten_with_their_node() -> list[Replacement]:
    """Ids are forgotten with the process that sent them, as if they were its own."""
    node_down = machine.HANDLERS[commands.NodeDown]

    def forgetful(context: QueueContext, command: commands.NodeDown) -> Any:
        context.state.seen.clear()
        return node_down(context, command)

    return _handler(commands.NodeDown, forgetful)


def numbers_below_the_highest_are_duplicates() -> list[Replacement]:
    """Of a producer only the highest number is remembered: later ones are new, others are not."""
    overlaps = NumberSet.overlaps

    def contains(self: NumberSet, number: int) -> bool:
        return bool(self) and number <= self.ranges()[-1][1]

    def below(self: NumberSet, first: int, last: int) -> bool:
        return overlaps(self, first, last) or first in self

    return [(NumberSet, "__contains__", contains), (NumberSet, "overlaps", below)]


def lives_are_remembered_in_a_window() -> list[Replacement]:
    """A process that ended many processes ago is not known to have ended."""

    def narrow(state: Any, applied: int, node: str, uplink: int, number: int) -> bool:
        return is_retired(state, node, uplink)

    return [(definitions, "is_over", narrow)]


def acknowledgements_wait_for_company() -> list[Replacement]:
    """Acknowledgements that wait are sent with something else, or never."""

    def patient(self: GroupClient) -> None:
        self._acks_due = False

    return [(GroupClient, "ack_wait_over", patient)]


def what_a_cancelled_consumer_never_saw_stays_with_it() -> list[Replacement]:
    """Its node forgets it, and returns no delivery that is still on the way."""

    def forget(self: GroupClient, consumer: int) -> None:
        self.consumers.pop(consumer, None)

    return [(GroupClient, "leave", forget)]


def an_auto_delete_queue_expects_no_consumer() -> list[Replacement]:
    """One that has lost its last consumer with a node is deleted at once."""

    def delete(self: QueueDeletions, queue: Any) -> None:
        self._delete(queue, "auto_delete")

    return [(QueueDeletions, "_expect_consumers", delete)]


PLANTS = by_name(
    requeue_order_reversed,
    what_comes_back_goes_to_the_end,
    redelivered_is_not_in_the_snapshot,
    annotations_are_not_in_the_snapshot,
    a_return_ends_the_annotations,
    the_time_that_a_consumer_said_is_ignored,
    priorities_are_not_in_the_snapshot,
    an_expired_claim_is_settled,
    a_missing_attempt_counts_as_empty,
    a_drop_takes_every_attempt,
    a_repeated_batch_is_published_again,
    a_bound_claim_is_given_back,
    an_expired_reader_takes_its_claims_along,
    a_request_that_is_repeated_is_another_start,
    starts_are_not_in_the_snapshot,
    a_closed_batch_is_published,
    a_claim_is_bound_to_the_newest_batch,
    an_older_driver_is_not_fenced,
    delays_are_half_as_long,
    delayed_messages_are_ready_in_the_order_of_their_arrival,
    nothing_wakes_a_delayed_message,
    ids_are_not_in_the_snapshot,
    ids_are_forgotten_with_their_node,
    numbers_below_the_highest_are_duplicates,
    lives_are_remembered_in_a_window,
    acknowledgements_wait_for_company,
    what_a_cancelled_consumer_never_saw_stays_with_it,
    an_auto_delete_queue_expects_no_consumer,
)
