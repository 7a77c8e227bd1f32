"""The handler of each command.

A change of what one does is a new `commands.VERSION`. The old behaviour stays, and is chosen by
`QueueContext.version`: a log is applied by the version under which it was written, on every member.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from warren_machines.queue import ack, attach, commands, disconnects, enqueue, timers, whole_queue
from warren_machines.queue.apply_context import QueueContext
from warren_machines.queue.claims import claim, decision_commands, give_up
from warren_machines.queue.commands import AnyReply
from warren_machines.queue.delayed import delay_commands, delayed_publish, delayed_retry
from warren_machines.queue.filters import filtered_service
from warren_machines.queue.filters.filter_commands import Judge
from warren_machines.queue.letters import dead_letter
from warren_machines.queue.modify_command import Modify
from warren_machines.queue.relays import relay_release
from warren_machines.queue.relays.relay_commands import EnqueueRelayed, ReleaseRelay
from warren_machines.queue.sinks import stage
from warren_machines.queue.sinks.forget_command import ForgetSink
from warren_wire.queue_values.describe_command import DescribeClaim
from warren_wire.queue_values.give_up_command import GiveUpClaim

Handler: TypeAlias = Callable[[QueueContext, Any], AnyReply]

HANDLERS: Final[Mapping[type, Handler]] = {
    commands.Enqueue: enqueue.enqueue,
    EnqueueRelayed: enqueue.enqueue_relayed,
    ReleaseRelay: relay_release.release,
    commands.Checkout: attach.checkout,
    commands.Credit: attach.credit,
    commands.Cancel: attach.cancel,
    commands.Resume: attach.resume,
    commands.Get: attach.get,
    commands.SessionDown: disconnects.session_down,
    commands.NodeDown: disconnects.node_down,
    commands.NodeSuspected: disconnects.node_suspected,
    commands.NodeBack: disconnects.node_back,
    commands.Settle: ack.settle,
    commands.Return: ack.return_,
    commands.Discard: ack.discard,
    Modify: ack.modify,
    commands.Purge: whole_queue.purge,
    commands.RetryDelayed: delayed_retry.retry_delayed,
    commands.SettleLetters: dead_letter.settle_letters,
    delay_commands.EnqueueDelayed: delayed_publish.enqueue_delayed,
    delay_commands.EndDelay: delayed_publish.end_delay,
    commands.Delete: whole_queue.delete,
    commands.Stat: whole_queue.stat,
    commands.Configure: whole_queue.configure,
    commands.Timer: timers.timer,
    commands.RegisterReader: claim.register,
    commands.OpenClaim: claim.open_claim,
    commands.RenewClaims: claim.renew,
    commands.SettleClaims: claim.settle,
    commands.ReleaseClaim: claim.release,
    DescribeClaim: claim.describe,
    GiveUpClaim: give_up.give_up,
    commands.SinkStage: stage.stage,
    commands.SinkPublish: stage.publish,
    commands.SinkDrop: stage.drop,
    decision_commands.BindClaim: claim.bind,
    decision_commands.ResolveClaim: claim.resolve,
    decision_commands.AskBatch: stage.ask,
    ForgetSink: stage.forget,
    Judge: filtered_service.judge,
}

AFTER_DELETE: Final[frozenset[type]] = frozenset(
    {
        commands.Cancel,
        commands.Credit,
        commands.Resume,
        commands.SessionDown,
        commands.NodeDown,
        commands.NodeSuspected,
        commands.NodeBack,
        commands.Settle,
        commands.Return,
        commands.Discard,
        Modify,
        commands.SettleLetters,
        commands.Timer,
        Judge,
    }
)
"""Commands accepted without error by a deleted queue: they have nothing left to do."""
