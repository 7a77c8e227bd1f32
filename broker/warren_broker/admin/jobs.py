"""Handlers of the requests for jobs; every change is logged with its user."""

from __future__ import annotations

from typing import Final

import msgspec

from warren_broker.access.access import Access
from warren_broker.admin.caller import Answer, Asker
from warren_broker.cluster.client.relayed import draw_origin
from warren_broker.cluster.leader.job_runners import LedJob
from warren_broker.cluster.message_match import MessageMatch
from warren_machines.metadata.cluster_version import check_needed
from warren_machines.metadata.records import QueueRecord
from warren_machines.queue.jobs.job_commands import (
    JOBS_VERSION,
    BeginJob,
    JobStat,
    JobWay,
    SteerJob,
)
from warren_wire import errors
from warren_wire.admin import jobs as m
from warren_wire.job_spec import JobSpec, Wanted, decode_spec, encode_spec
from warren_wire.quoting import quoted
from warren_wire.undecodable import UNDECODABLE

_WAYS: Final[dict[str, JobWay]] = {"copy": "copy", "delete": "drop"}
"""What the queue does for an action; others move."""


def _list(asker: Asker, request: m.ListJobsRequest, answer: Answer) -> None:
    only = None if request.queue is None else asker.queue(request.queue, store=True).group

    def listed(found: list[LedJob]) -> None:
        jobs = [
            _info(one.queue, one.stat)
            for one in found
            if (one.queue.group == only if only is not None else _may_read(asker, one.queue))
        ]
        answer(asker.listed(jobs, m.JOBS_LISTED_MAX, "jobs", "those of one queue"))

    asker.broker.jobs.survey(asker.guard(listed))


def _may_read(asker: Asker, queue: QueueRecord) -> bool:
    """Return whether the user may see a queue's jobs; one that is in no vhost asks about all."""
    if asker.vhost not in ("", queue.vhost):
        return False
    try:
        Access(asker.broker, queue.vhost, asker.user, asker.rights).read_queue(queue.name)
    except errors.AccessRefused:
        return False
    return True


def _begin(asker: Asker, request: m.BeginJobRequest, answer: Answer) -> None:
    queue = asker.queue(request.name)
    check_needed(asker.state, JOBS_VERSION, "a job over the messages of a queue")
    spec = _spec(asker, request)
    MessageMatch(spec.wanted)  # raises InvalidArgument
    way = _WAYS.get(request.action, "move")
    _check_target(asker, queue, spec, way)
    asker.log(f"begin job: {request.action} messages of queue {quoted(queue.name)}")
    data = encode_spec(spec)
    command = BeginJob(request.call, way, draw_origin(), request.undo_ms, data)
    asker.ask(queue, command, answer, lambda reply: _info(queue, reply.job))


def _spec(asker: Asker, request: m.BeginJobRequest) -> JobSpec:
    wanted = request.wanted(asker.broker.cluster.loop.clock.epoch_ms())
    if request.index:
        wanted = msgspec.structs.replace(wanted, index=request.index, ordinal=request.ordinal)
    key: str | None = request.routing_key
    if request.action == "requeue":
        key = request.name
    elif request.to_queue:
        key = request.to_queue
    return JobSpec(
        wanted,
        asker.user,
        asker.rights is not None,
        asker.vhost if request.to_vhost is None else request.to_vhost,
        "origin" if request.action == "redrive" else "exchange",
        request.to_exchange,
        key,
        request.rate,
        request.headers,
        None if request.body is None else request.body.encode("utf-8", "surrogatepass"),
    )


def _check_target(asker: Asker, queue: QueueRecord, spec: JobSpec, way: JobWay) -> None:
    """Raise a Refusal where the user may not publish, or there is nothing to publish to."""
    if way == "drop":
        return
    access = Access(asker.broker, spec.vhost, asker.user, asker.rights)
    access.stay()
    key = spec.routing_key
    access.publish(spec.exchange, () if key is None else (key,))
    if spec.exchange or key is None:
        return
    target = asker.broker.queues.find(spec.vhost, key, asker.connection)
    if target.group == queue.group and way == "copy":
        raise errors.InvalidArgument(f"copy: queue '{queue.name}' is its own target")


def _steer(asker: Asker, request: m.SteerJobRequest, answer: Answer) -> None:
    queue = asker.queue(request.name)
    check_needed(asker.state, JOBS_VERSION, "a job over the messages of a queue")
    asker.log(f"{request.action} job {request.job} of queue {quoted(queue.name)}")
    command = SteerJob(request.job, request.action)
    if request.action != "undo":
        asker.ask(queue, command, answer, lambda reply: _info(queue, reply.job))
        return

    def surveyed(found: list[LedJob]) -> None:
        mine = (queue.group, request.job)
        stat = next((s for of, s in found if (of.group, s.number) == mine), None)
        for name in stat.targets if stat is not None else ():
            spec = _spec_of(stat) if stat is not None else JobSpec()
            access = Access(asker.broker, spec.vhost, asker.user, asker.rights)
            try:
                access.read_queue(name)
            except errors.AccessRefused as refusal:
                answer(refusal)
                return
        asker.ask(queue, command, answer, lambda reply: _info(queue, reply.job))

    asker.broker.jobs.survey(asker.guard(surveyed))


def _spec_of(stat: JobStat) -> JobSpec:
    try:
        return decode_spec(stat.spec)
    except UNDECODABLE:
        return JobSpec()


def _info(queue: QueueRecord, stat: JobStat) -> m.JobInfo:
    """Return a job as it is shown."""
    spec = _spec_of(stat)
    to = spec.exchange or spec.routing_key or ""
    action = {"drop": "delete"}.get(stat.way, stat.way)
    if spec.aim == "origin":
        action, to = "redrive", ""
    elif action == "move" and not spec.exchange and to == queue.name and spec.vhost == queue.vhost:
        action = "requeue"
    elif stat.way == "drop":
        to = ""
    return m.JobInfo(
        vhost=queue.vhost,
        queue=queue.name,
        job=stat.number,
        action=action,
        to=to,
        selection=_said(spec.wanted),
        state=stat.state,
        why=stat.why,
        matched=stat.matched,
        done=stat.done,
        left=stat.left,
        held=stat.held,
        kept=stat.kept,
        looked=stat.looked,
        rate=spec.rate,
        began_at=stat.began_ms,
        ended_at=stat.ended_ms,
        undo_until=stat.kept_ms,
        targets=stat.targets,
        back=stat.back,
        consumed=stat.consumed,
        user=spec.user,
    )


def _said(wanted: Wanted) -> str:
    """Return which messages are meant, as one line; "": all."""
    default = Wanted()
    return ", ".join(
        f"{name}={getattr(wanted, name)}"
        for name in Wanted.__struct_fields__
        if getattr(wanted, name) != getattr(default, name)
    )
