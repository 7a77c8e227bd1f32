"""A follower's replication progress, as the leader knows it."""

from __future__ import annotations

from collections import deque

from warren_raft.types import Index, MemberId


class Progress:
    """A follower's place in the log, and the messages in flight to it.

    member        the id under which it answered last; until then, of a voter, the one that is
                  expected, of a learner None
    heard         it has answered under that id since its node's process started
    leaving       it is no longer a member: the index of that CONFIG; dropped when it
                  knows that to be committed. 0: it is a member
    match         the follower holds everything up to here on disk
    next          the next entry to send
    probing       `next` is a guess, or it stopped answering: one message at a time
    snapshotting  it needs entries that the log no longer has: only a snapshot helps
    lacks         it cannot read that entry, which the log no longer has: it is sent a snapshot
                  beside the appends; 0: none
    paused        its node is suspected: nothing is sent
    unanswered      a probe is in flight
    inflight      (last index, bytes) of every Append with entries that was not answered
    commit_sent   the highest commit index sent; commit_known: the highest that it acknowledged
    asked         a learner: the round in which it was asked to confirm its id; 0: not yet.
                  vouched: it did
    round_end     a learner has completed a round when it holds everything up to here
    round_began_ms
    waiting_since when it last answered, or when the oldest unanswered message left; milliseconds

    Invariants: match < next;  commit_known <= commit_sent;  inflight ascends and lies in
    (match, next);  inflight_bytes is the sum of its bytes.
    """

    __slots__ = (
        "asked",
        "commit_known",
        "commit_sent",
        "heard",
        "inflight",
        "inflight_bytes",
        "lacks",
        "leaving",
        "match",
        "member",
        "next",
        "paused",
        "probing",
        "round_began_ms",
        "round_end",
        "snapshotting",
        "unanswered",
        "vouched",
        "waiting_since",
    )

    def __init__(self, next_index: Index, paused: bool, now_ms: int) -> None:
        self.member: MemberId | None = None
        self.heard = False
        self.leaving: Index = 0
        self.asked = 0
        self.vouched = False
        self.match: Index = 0
        self.next: Index = next_index
        self.probing = True
        self.paused = paused
        self.snapshotting = False
        self.lacks: Index = 0
        self.unanswered = False
        self.inflight: deque[tuple[Index, int]] = deque()
        self.inflight_bytes = 0
        self.commit_sent: Index = 0
        self.commit_known: Index = 0
        self.waiting_since = now_ms
        self.begin_round(next_index - 1, now_ms)

    def begin_round(self, end: Index, now_ms: int) -> None:
        """Begin a round of a learner's catching up, which ends where the log ends now.

        See membership_change.caught_up.
        """
        self.round_end = end
        self.round_began_ms = now_ms

    def become_probe(self) -> None:
        """Forget what is under way and ask where the follower stands.

        A guess that was not answered yet stays: after `match` 0 the whole log would be sent.
        """
        if not self.probing:
            self.probing = True
            self.next = self.match + 1
        self.unanswered = False
        self.inflight.clear()
        self.inflight_bytes = 0
        self.commit_sent = self.commit_known

    def pause(self) -> None:
        """Send nothing: its node is suspected; `resume` ends that."""
        self.become_probe()
        self.asked, self.vouched = 0, False
        self.snapshotting = False
        self.lacks = 0
        self.paused = True

    def resume(self, restarted: bool = False) -> None:
        """Send again: its node is reachable. A restarted one has forgotten what is committed."""
        self.heard = self.heard and not restarted
        self.become_probe()
        self.asked, self.vouched = 0, False
        self.snapshotting = False
        self.lacks = 0
        self.paused = False
        self.commit_known = self.commit_sent = 0

    def become_snapshotting(self) -> None:
        """Append nothing until it reports that it holds more."""
        self.become_probe()
        self.snapshotting = True

    def sent(self, last: Index, size: int, commit: Index, now_ms: int) -> None:
        """Record an Append that was sent: entries next … last (last < next: none), `size` bytes.

        A probe does not move `next`: it may have to be repeated from the same place.
        """
        assert not self.paused
        if not self.waiting:
            self.waiting_since = now_ms
        if self.probing:
            self.unanswered = True
        elif last >= self.next:
            self.inflight.append((last, size))
            self.inflight_bytes += size
            self.next = last + 1
        if commit > self.commit_sent:
            self.commit_sent = commit

    def accepted(self, index: Index, commit: Index, now_ms: int) -> bool:
        """Record that the follower holds everything up to `index`; return whether that is new."""
        self.waiting_since = now_ms
        self.unanswered = False
        self.snapshotting = False
        if commit > self.commit_known:
            self.commit_known = commit
            self.commit_sent = max(self.commit_sent, commit)
        while self.inflight and self.inflight[0][0] <= index:
            self.inflight_bytes -= self.inflight.popleft()[1]
        news = index > self.match
        if news:
            self.match = index
            self.next = max(self.next, index + 1)
        if self.probing:
            self.probing = False
            self.next = self.match + 1
        return news

    def rejected(self, index: Index) -> bool:
        """Record that the follower has no such entry at `index`; return whether that is new.

        Not new: it was accepted meanwhile, or it answers a message that no longer counts.
        """
        if index <= self.match or index >= self.next:
            return False
        return not self.probing or index == self.next - 1

    def back_up_to(self, next_index: Index) -> None:
        """Probe from `next_index`, or from the first entry that it is not known to hold."""
        self.become_probe()
        self.next = max(self.match + 1, next_index)

    @property
    def vouching(self) -> bool:
        """Whether it was asked to confirm its id and has not answered yet."""
        return self.asked > 0 and not self.vouched

    @property
    def waiting(self) -> bool:
        """Whether an answer is expected."""
        return self.unanswered or bool(self.inflight) or self.commit_known < self.commit_sent

    def check(self) -> None:
        """Assert the class's invariants."""
        assert self.match < self.next, (self.match, self.next)
        assert self.commit_known <= self.commit_sent, (self.commit_known, self.commit_sent)
        assert self.inflight_bytes == sum(size for _, size in self.inflight), self.inflight_bytes
        places = [last for last, _ in self.inflight]
        assert places == sorted(set(places)), places
        assert not places or self.match < places[0], (self.match, places)
        assert not places or places[-1] < self.next, (self.next, places)
        assert not self.paused or not self.waiting, "paused and waiting"
