"""The versions of the machine's behaviour.

A log is applied by the version under which it was written, on every member. A change of behaviour
gets a new number here, and the handlers of the old version stay.

1   the first
2   a named call to register a reader is answered once (`claim.register`); the calls of version 1
    have no name, and behave as before. Its snapshots are packed (`snapshot`), which a member of
    version 1 cannot read
3   sinks have runs, epochs and a memory of content (`stage`: SinkStage, SinkPublish, SinkDrop; the
    commands without a run are in `stage1`); settling a claim that was lost is refused
    (SettleClaims.strict); readers are forgotten (RegisterReader.idle_ms) and their numbers not
    used again (ReleaseClaim.lasting). Incarnations of nodes are numbered: what one that has
    ended still has on its way is refused (Submission.incarnation, NodeDown.incarnation). A
    suspected node's single active consumer makes way (NodeSuspected.hand_over, gone). A claim
    is a use of its queue (OpenClaim.uses), and may be empty (OpenClaim.keep_empty). Commands of
    version 2 lack these fields, and behave as before
4   submissions say their version (Submission.version); of older ones it is 0, and they behave as
    before. In classic queues with priorities messages go back to their old place in their lane; a
    run that was taken under an older version goes ahead of all lanes. A message with a ttl of 0
    that no consumer took is gone before a get, a count, a purge, a delete or a second delivery
5   settings follow policies (Configure.restarts). No log of an older version has the command
6   messages that come back may be delayed (`delayed_retry`; QueueConfig.delayed_retry_type,
    RetryDelayed). The settings in an older log lack these fields: nothing is delayed
7   dead letters may stay until they have been forwarded (`letter_queue`, SettleLetters;
    QueueConfig.dead_letter_strategy). The settings in an older log lack this field: none stays
8   messages may be published with a delay (`delayed_publish`). No log of an older version has
    EnqueueDelayed or EndDelay
9   duplicates of publishers are dropped (`deduplication`; QueueConfig.deduplication). The settings
    in an older log lack these fields: every message is taken
10  dead letters keep their delivery counts (Discard.failed, DeadLetter, `letter_queue`); under an
    older version they are 0. A purge drops letters, too
11  consumers annotate messages that they return, and say when these are ready (Modify,
    `annotations`). No log of an older version has the command. A drain has a reply (Credit)
12  a batch decides about claims (BindClaim, ResolveClaim, AskBatch). No log of an older version has
    these commands
13  an operator has a queue forget a sink (ForgetSink). No log of an older version has the command
14  readers and runs of sinks that say so are forgotten after silence (RegisterReader.expires_ms,
    SinkPublish.expires_ms). Commands of an older version lack these fields: none is
15  the batch that reads a claim is noted (DescribeClaim). No log of an older version has it
16  a batch that fails is given up (GiveUpClaim): its claim is emptied, and its messages may be the
    reader's next claims (`parts`). No log of an older version has the command
17  relays (`relays`; Checkout.relay, Return.unseen), and what they bring (`origins`;
    EnqueueRelayed). Commands of an older version lack these fields: there are no relays
18  consumers may have filters (Checkout.filter, Judge, `filtered_service`); a drain of such a
    consumer may be answered with NotYet. No log of an older version has a filter
19  the registrations of each reader are counted (RegisterReader.counted). Commands of an older
    version lack the field, and are not
20  links are told whether their consumers are the single active ones (ActiveIs), and dead letters
    have the annotations of their messages (DeadLetter). Logs of older versions have neither effect
21  a claim may be opened while the one before it is open (OpenClaim.ahead), and taken back
    (GiveUpClaim, way "withdraw"). Commands of an older version lack the field, and that way
22  an operator has what is kept for a relay released (ReleaseRelay). No log of an older version has
    the command
23  classic queues may have members without a policy (QueueConfig.replicated) and keep dead letters
    then; what is refused may be dead-lettered (overflow reject-publish-dlx). The settings in an
    older log have neither. The single active consumer of a classic queue does not make way for one
    of higher priority, and a get takes messages beside it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from warren_machines.queue import (
    ack,
    attach,
    claim,
    commands,
    dead_letter,
    decision_commands,
    delay_commands,
    delayed_publish,
    delayed_retry,
    disconnects,
    enqueue,
    filtered_service,
    give_up,
    relay_release,
    stage,
    stage1,
    stage1_commands,
    timers,
    whole_queue,
)
from warren_machines.queue.apply_context import QueueContext
from warren_machines.queue.commands import AnyReply
from warren_machines.queue.filter_commands import Judge
from warren_machines.queue.forget_command import ForgetSink
from warren_machines.queue.modify_command import Modify
from warren_machines.queue.relay_commands import EnqueueRelayed, ReleaseRelay
from warren_wire.queue_values.describe_command import DescribeClaim
from warren_wire.queue_values.give_up_command import GiveUpClaim

Handler: TypeAlias = Callable[[QueueContext, Any], AnyReply]

VERSION: Final = 23

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
    stage1_commands.Stage: stage1.stage,
    stage1_commands.PublishBatch: stage1.publish,
    stage1_commands.DropStages: stage1.drop,
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
