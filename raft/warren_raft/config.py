"""Settings of one replicated group, with units and bounds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """A group's timeouts and limits; they may differ from member to member.

    election_delay_ms      (min, max): from "my leader's node is suspected" to campaigning
    election_timeout_ms    (min, max): from one attempt to the next; also how long a member that
                           knows no leader after its start waits for a message of one
    election_backoff_max   the timeout doubles per failed attempt, at most this many times
    new_group_delay_ms     in a new group the members that are not preferred wait this much longer
    commit_delay_ms        a follower that is sent no entries learns that late what is committed
    last_copy_delay_ms     followers beyond a majority are sent small appends that late; 0: at once
    retransmit_ms          the leader repeats a message that was not answered for that long
    append_bytes_max       payload of one AppendEntries; one entry is sent even if larger
    probe_bytes_max        payload of an AppendEntries that probes the follower's log
    inflight_messages_max  unanswered AppendEntries per follower
    inflight_bytes_max     unanswered payload per follower
    apply_bytes_max        payload of the committed entries of one Ready
    apply_entries_max      number of the committed entries of one Ready
    transfer_timeout_ms    a leader transfer is aborted after that long
    reads_pending_max      read-index requests that wait for their round
    promote_learners       the leader promotes learners that have caught up; else they wait for
                           `Promote`
    """

    election_delay_ms: tuple[int, int] = (10, 120)
    election_timeout_ms: tuple[int, int] = (250, 500)
    election_backoff_max: int = 4
    new_group_delay_ms: int = 1_000
    commit_delay_ms: int = 0
    last_copy_delay_ms: int = 0
    retransmit_ms: int = 1_000
    append_bytes_max: int = 1 << 20
    probe_bytes_max: int = 1 << 16
    inflight_messages_max: int = 128
    inflight_bytes_max: int = 16 << 20
    apply_bytes_max: int = 8 << 20
    apply_entries_max: int = 1_024
    transfer_timeout_ms: int = 2_000
    reads_pending_max: int = 4_096
    promote_learners: bool = True

    def __post_init__(self) -> None:
        for low, high in (self.election_delay_ms, self.election_timeout_ms):
            assert 0 <= low < high, (low, high)
        assert self.election_backoff_max >= 0, self.election_backoff_max
        assert self.new_group_delay_ms >= 0, self.new_group_delay_ms
        assert 0 <= self.commit_delay_ms < self.retransmit_ms, self.commit_delay_ms
        assert 0 <= self.last_copy_delay_ms < self.retransmit_ms, self.last_copy_delay_ms
        assert 0 < self.probe_bytes_max <= self.append_bytes_max, self.probe_bytes_max
        assert self.inflight_messages_max > 0, self.inflight_messages_max
        assert self.inflight_bytes_max >= self.append_bytes_max, self.inflight_bytes_max
        assert self.apply_bytes_max > 0, self.apply_bytes_max
        assert self.apply_entries_max > 0, self.apply_entries_max
        assert self.transfer_timeout_ms > 0, self.transfer_timeout_ms
        assert self.reads_pending_max > 0, self.reads_pending_max
