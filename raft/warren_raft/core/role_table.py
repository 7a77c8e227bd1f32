"""The handlers of messages of the member's own term, by role."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warren_raft.core import candidate, follower, leader
from warren_raft.core.ready import ReadState
from warren_raft.core.state import NodeState
from warren_raft.messages import (
    Append,
    AppendReply,
    PreVote,
    PreVoteReply,
    ReadIndex,
    ReadIndexHeartbeat,
    ReadIndexHeartbeatReply,
    ReadIndexReply,
    SnapshotChunk,
    SnapshotWanted,
    TimeoutNow,
    Vote,
    VoteReply,
)

Handler = Callable[[NodeState, Any], None]

EVERY_ROLE: dict[type, Handler] = {
    Append: follower.on_append,
    SnapshotChunk: follower.on_snapshot_chunk,
    ReadIndexHeartbeat: follower.on_confirm,
    Vote: follower.on_vote,
    PreVote: follower.on_pre_vote,
    TimeoutNow: follower.on_timeout_now,
    ReadIndexReply: lambda node, message: node.reads.append(
        ReadState(message.context, message.index)
    ),
}

HANDLERS: tuple[dict[type, Handler], ...] = (
    EVERY_ROLE,
    EVERY_ROLE | {PreVoteReply: candidate.on_pre_vote_reply},
    EVERY_ROLE | {VoteReply: candidate.on_vote_reply},
    {
        # Append and Confirm of its own term cannot arrive: one leader per term. They are here so
        # that `follow` detects a second leader.
        Append: follower.on_append,
        SnapshotChunk: follower.on_snapshot_chunk,
        ReadIndexHeartbeat: follower.on_confirm,
        Vote: follower.on_vote,
        PreVote: leader.on_pre_vote,
        AppendReply: leader.on_append_reply,
        SnapshotWanted: leader.on_snapshot_wanted,
        ReadIndexHeartbeatReply: leader.on_confirm_reply,
        ReadIndex: leader.on_read_index,
    },
)
"""By role and message type; a message that is missing here is ignored."""
