"""Handlers of the requests for queues."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from warren_broker.admin.caller import Answer, Asker, counted, made_from
from warren_broker.broker.declaring import Declared, declare_and_count
from warren_broker.cluster.client.direct_replies import node_of
from warren_broker.cluster.client.reads import ReadFailed
from warren_broker.cluster.messages import NumbersOfQueue, SinksAre
from warren_broker.cluster.turns import filtered
from warren_machines.metadata import commands as metadata
from warren_machines.metadata.records import QueueRecord
from warren_machines.metadata.view import MetadataView
from warren_machines.queue import commands
from warren_machines.queue.relays.relay_commands import ReleaseRelay
from warren_machines.queue.relays.relays import KEPT_MS
from warren_wire import errors
from warren_wire.admin import queues as requests
from warren_wire.admin.queues import (
    VOLATILE_TYPE,
    BoundInfo,
    ForgottenSink,
    QueueInfo,
    ReadByInfo,
    ReaderInfo,
    RelayInfo,
    SinkInfo,
    SinksInfo,
    left_ms,
)
from warren_wire.admin.requests import Listed, MessagesCounted, said_of
from warren_wire.admin.statistics import QueueStatistics
from warren_wire.name_patterns import NameMatcher, Pattern
from warren_wire.queue_values.config import QueueConfig
from warren_wire.quoting import quoted

log = logging.getLogger(__name__)
LIST_PATIENCE_MS = 1_000
RELAYS_SHOWN_MAX = 20
"""Relays shown of a queue, those with most messages: a client may name as many as it likes."""
QUEUES_LISTED_MAX = 500
"""Queues in one answer: Proton's values hold 65,535 parts, a queue has 40 to 120."""
COUNTED = frozenset(said_of(QueueInfo)).intersection(commands.StatReply.__struct_fields__)
"""Fields of a queue that its machine counts by the same name."""


def info_of(asker: Asker, queue: QueueRecord, stat: commands.StatReply | None) -> QueueInfo:
    """Return what is shown of a queue; stat: its counts, None: they are not known."""
    config = queue.config
    leader = asker.broker.cluster.leader_of(queue.group)
    fields: dict[str, Any] = {}
    if stat is not None:
        held = stat.messages_unacknowledged + stat.messages_claimed
        fields = {
            **{name: getattr(stat, name) for name in COUNTED},
            "messages": stat.messages_ready + held + stat.messages_delayed + stat.messages_dlx,
            "next_delayed_at": stat.next_delayed_ms,
            "last_delayed_at": stat.last_delayed_ms,
            "message_bytes": stat.bytes_ready
            + stat.bytes_unacknowledged
            + stat.bytes_kept
            + stat.message_bytes_dlx,
            "messages_ready_returned": stat.returned,
            "consumer_count": stat.consumers,
            "by_priority": dict(stat.by_priority),
            "messages_set_aside": asker.broker.cluster.set_aside.count(queue.group),
            "readers": tuple([_reader(of, stat.now_ms) for of in stat.readers]),
            "relays": _with_most(stat),
        }
    followed = asker.broker.definitions.policy(queue)
    effective = asker.broker.definitions.config(queue)
    return QueueInfo(
        queue.name,
        queue.vhost,
        config.kind,
        durable=config.durable,
        exclusive=config.exclusive,
        auto_delete=config.auto_delete,
        arguments=queue.arguments,
        leader=leader or "",
        replicas=queue.nodes,
        policy=followed.policy,
        operator_policy=followed.operator_policy,
        effective_policy_definition=dict(followed.definition),
        delayed_retry=_shown_retry(effective),
        delivery_limit=effective.delivery_limit,
        **fields,
    )


def _reader(of: commands.ReaderStat, now_ms: int) -> ReaderInfo:
    bound = [made_from(BoundInfo, batch, number=number) for number, batch in of.bound]
    read_by = None
    if of.described is not None:
        number, batch = of.described
        read_by = made_from(ReadByInfo, batch, number=number)
    return made_from(
        ReaderInfo,
        of,
        last_heard_ms=of.heard_ms,
        expires_at=of.forgotten_ms,
        bound=tuple(bound),
        read_by=read_by,
        heard_ago_ms=left_ms(now_ms, of.heard_ms),
        expires_in_ms=left_ms(of.forgotten_ms, now_ms),
    )


def _with_most(stat: commands.StatReply) -> tuple[RelayInfo, ...]:
    """Return those relays of a queue that are shown."""
    found = []
    for name, messages, away_ms in sorted(stat.relays, key=lambda each: (-each[1], each[0])):
        again_ms = away_ms and away_ms + KEPT_MS
        found.append(RelayInfo(name, messages, away_ms, again_ms, left_ms(again_ms, stat.now_ms)))
    return tuple(found[:RELAYS_SHOWN_MAX])


def _shown_retry(config: QueueConfig) -> str:
    """Return the settings of delayed retry as RabbitMQ shows them."""
    least, most = config.delayed_retry_min_ms, config.delayed_retry_max_ms
    if config.delayed_retry_type == "disabled":
        return "disabled"
    return f"{config.delayed_retry_type} (min: {least}ms, max: {most or least}ms)"


def _declare_queue(asker: Asker, request: requests.DeclareQueueRequest, answer: Answer) -> None:
    asker.access.declare_queue(request.name, request.arguments)

    def declared(result: Declared) -> requests.DeclaredQueue:
        known = result.counts if isinstance(result.counts, commands.StatReply) else None
        info = info_of(asker, result.queue, known)
        if result.created and not info.leader:
            # RabbitMQ's clients compare this answer with later ones; the election is under way.
            info = msgspec.structs.replace(info, leader=result.queue.leader)
        return requests.DeclaredQueue(result.created, info)

    done = asker.then(answer, declared)
    declare_and_count(asker.broker, asker.vhost, request, asker.connection, done)


def _get_queue(asker: Asker, request: requests.GetQueueRequest, answer: Answer) -> None:
    if asker.broker.reply_queue_exists(request.name):
        answer(_reply_queue(asker, request.name))
        return
    asker.access.read_queue(request.name)
    queue = asker.broker.queues.find(asker.vhost, request.name)  # another connection's, too

    def counted(stat: commands.StatReply) -> None:
        if (stat.readers or stat.relays) and not stat.now_ms:
            # It came by way of the queue's log, behind what this node had sent, and says no time.
            asker.broker.reading.counts(queue.group, asker.guard(lambda read: timed(stat, read)))
        else:
            answer(info_of(asker, queue, stat))

    def timed(stat: commands.StatReply, read: commands.StatReply | ReadFailed) -> None:
        answer(info_of(asker, queue, stat if isinstance(read, ReadFailed) else read))

    asker.broker.queue_counts(queue, False, asker.guard(errors.continued(answer, counted)))


def _reply_queue(asker: Asker, name: str) -> QueueInfo:
    """Return what clients are told of a name for replies: it is no queue of the definitions."""
    return QueueInfo(
        name,
        asker.vhost,
        type=VOLATILE_TYPE,
        durable=False,
        exclusive=False,
        auto_delete=True,
        leader=node_of(name) or "",
        replicas=(),
        consumer_count=1,
    )


def _list_queues(asker: Asker, request: requests.ListQueuesRequest, answer: Answer) -> None:
    """Answer the queues by name; without counts if no leader answers within LIST_PATIENCE_MS.

    Without a tag of management they are those that the user may read: a client that is no more than
    that finds its queues by their names.
    """
    every = asker.access.has_tag("management")

    def listed(queues: list[QueueRecord]) -> None:
        if len(queues) > QUEUES_LISTED_MAX:
            answer(_too_many())
        elif request.counts:
            count_queues(asker, queues, lambda found, _: answer(Listed(tuple(found))))
        else:
            answer(Listed(tuple(info_of(asker, queue, None) for queue in queues)))

    if request.name:
        if not every:
            asker.access.read_queue(request.name)
        found = asker.state.queue(asker.vhost, request.name)
        listed([] if found is None else [found])
        return
    if request.count > QUEUES_LISTED_MAX:
        raise _too_many()
    queues = MetadataView(asker.state).queues(asker.vhost)
    if request.after:
        queues = queues[bisect_right(queues, request.after, key=lambda queue: queue.name) :]
    most = request.count or QUEUES_LISTED_MAX + 1
    if not request.pattern and every:
        listed(queues[:most])
        return
    matcher = NameMatcher([Pattern(request.pattern)])
    held = None if every else asker.access.held_in(asker.vhost)

    def is_listed(queue: QueueRecord) -> bool:
        may = every or (held is not None and held.allows("read", queue.name))
        return may and matcher.first(queue.name) is not None

    # A permission's pattern takes steps in proportion to the name, too.
    looks = 1 if every else 2
    work = filtered(queues, is_listed, lambda queue: looks * matcher.cost(queue.name), most)
    asker.divide(work, listed, answer)


def _too_many() -> errors.InvalidArgument:
    return errors.InvalidArgument(
        f"more than {QUEUES_LISTED_MAX} queues in one answer: ask for "
        f"/queues?count={QUEUES_LISTED_MAX}, then with &after= and the last name"
    )


def count_queues(
    asker: Asker,
    queues: Sequence[QueueRecord],
    done: Callable[[list[QueueInfo], list[QueueStatistics | None]], None],
) -> None:
    """Call back with queues and what clients did with each, as the nodes within reach know them.

    The leaders answer for all of their queues at once. A queue of which none has said anything is
    asked for by itself; without an answer within LIST_PATIENCE_MS it has no counts.
    """
    stats: dict[int, commands.StatReply] = {}
    statistics: dict[int, QueueStatistics | None] = {}
    waiting: dict[int, None] = {}

    def told(numbers: dict[int, NumbersOfQueue]) -> None:
        for group, one in numbers.items():
            statistics[group] = one.statistics
            if one.stat is not None:
                stats[group] = one.stat
                asker.broker.cluster.set_aside.learn(group, one.set_aside)
        silent = [queue for queue in queues if queue.group not in stats]
        waiting.update({queue.group: None for queue in silent if not absent(queue)})
        for group in list(waiting):
            asker.broker.reading.counts(group, asker.guard(partial(counted, group)))
        if not waiting:
            finish()

    def counted(group: int, stat: commands.StatReply | ReadFailed) -> None:
        if isinstance(stat, commands.StatReply):
            stats[group] = stat
        if waiting.pop(group, group) is None and not waiting:
            finish()

    def finish() -> None:
        # 1. A node dies that alone had a queue.  2. A client lists the queues.  3. The list would
        # wait for that queue's counts as long as for any answer, and then time out as a whole.
        patience.cancel()
        waiting.clear()
        infos = [info_of(asker, queue, stats.get(queue.group)) for queue in queues]
        done(infos, [statistics.get(queue.group) for queue in queues])

    absent = asker.broker.queues.absent
    patience = asker.broker.cluster.loop.call_later(LIST_PATIENCE_MS, asker.guard(finish))
    groups = tuple([queue.group for queue in queues])
    asker.broker.connections.numbers(groups, asker.guard(told))


def _delete_queue(asker: Asker, request: requests.DeleteQueueRequest, answer: Answer) -> None:
    asker.access.delete_queue(request.name)
    if request.force:
        _delete_unasked(asker, request.name, answer)
        return
    asker.broker.delete_queue(
        asker.vhost,
        request.name,
        request.if_unused,
        request.if_empty,
        asker.connection,
        asker.then(answer, counted),
    )


def _delete_unasked(asker: Asker, name: str, answer: Answer) -> None:
    """Delete a queue that has lost its majority for good: it could neither be used nor be deleted.

    Its name is free at once; remaining members delete their logs when they learn of it.
    """
    asker.access.must_be("administrator", f"delete queue {name!r} without asking it")
    queue = asker.state.queue(asker.vhost, name)
    if queue is None:
        answer(MessagesCounted(0))
        return
    log.warning(
        "user %r deletes %s without asking it",
        asker.user,
        errors.named("queue", queue.name, queue.vhost),
    )
    command = metadata.DeleteQueue(queue.vhost, queue.name, queue.group)
    asker.define(command, answer, MessagesCounted(0))


def _purge_queue(asker: Asker, request: requests.PurgeQueueRequest, answer: Answer) -> None:
    asker.access.read_queue(request.name)
    done = asker.then(answer, counted)
    asker.broker.purge_queue(asker.vhost, request.name, asker.connection, done, store=True)


def _retry_delayed(asker: Asker, request: requests.RetryDelayedRequest, answer: Answer) -> None:
    queue = asker.queue(request.name, store=True)
    asker.ask(queue, commands.RetryDelayed(), answer, counted)


def _release_relay(asker: Asker, request: requests.ReleaseRelayRequest, answer: Answer) -> None:
    queue = asker.queue(request.name)

    def released(reply: commands.Count) -> MessagesCounted:
        kept = f"queue {quoted(request.name)} that were kept for relay {quoted(request.relay)}"
        asker.log(f"{reply.messages} messages of {kept} are ready again")
        return counted(reply)

    asker.ask(queue, ReleaseRelay(request.relay), answer, released)


def _list_sinks(asker: Asker, request: requests.ListSinksRequest, answer: Answer) -> None:
    queue = asker.queue(request.name)

    def found(result: SinksAre) -> SinksInfo:
        runs = tuple(SinkInfo(*row, left_ms(row[-1], result.now_ms)) for row in result.rows)
        return SinksInfo(result.total, runs)

    done = asker.then(answer, found)
    asker.broker.reading.sinks(queue.group, request.sink, request.run, request.count, done)


def _forget_sink(asker: Asker, request: requests.ForgetSinkRequest, answer: Answer) -> None:
    # What a sink may do to its queue is a publisher's right, and so is what undoes its memory.
    asker.access.publish_stages(request.name)
    queue = asker.queue(request.name)
    run = f", run {quoted(request.run)}" if request.run else ""
    asker.log(f"forget sink {quoted(request.sink)}{run} of queue {quoted(request.name)}")
    command = made_from(commands.ForgetSink, request, forced=request.force)
    asker.ask(queue, command, answer, partial(made_from, ForgottenSink))
