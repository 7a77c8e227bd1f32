"""Transcripts: scripted scenarios of a group, with the expected output.

A transcript is a text of blocks: commands, `----`, their output, a blank line. Lines that begin
with `#` are comments. Run the test with WARREN_REWRITE=1 to write the present output; then read the
difference before committing it.

    members a b c [learner d]   a new group; no member knows a leader
    hold                        before members: learners are not promoted automatically
    batch 1 [2]                 before members: bytes in one Append (and number of Appends
                                without an answer)
    join d 9 a b c              a log created as joining, with that id; the others are hints
    wipe c 7 a b c              c is down; its disk is replaced by an empty one, with that id
    change a add d              also: promote, remove, demote
    who a                       the membership in effect there; on a leader the members' states
    campaign a                  start an election
    elect a b …                 campaign and win with the votes of these only;
                                stops before the first Ready of the leader
    tick a 500                  tick 500 ms later
    propose a text              on the leader
    transfer a b                leadership from a to b
    suspect a b, connected a b, restarted a b
                                report of b to a
    stall a, unstall a          a's disk stalls; it answers again
    read a 1                    read index, context 1
    ready a                     take a Ready: writes begin, messages are sent
    sync a [1]                  writes begun so far (the oldest one) are on disk
    deliver a [b]               messages in flight to a (from b) arrive
    drop a [b]                  … are lost
    delay a b, release          … are delayed; delayed messages are in flight again
    crash a, start a            lose what was not synced; restart
    settle [a b …]              ready, sync, deliver among these (all) until nothing happens
    log a                       entries and cursors
    quiet                       settle prints nothing from here on; `loud` ends that
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

from sim.disk import Log
from warren_raft import messages as rpc
from warren_raft.config import RaftConfig
from warren_raft.core.membership import AddLearner, Change, Demote, Promote, Remove, decode
from warren_raft.core.raft_node import RaftNode
from warren_raft.core.ready import Ready, Role
from warren_raft.errors import RaftError
from warren_raft.types import Entry, EntryKind, HardState, Membership

SEPARATOR = "----"
CHANGES: dict[str, Callable[[str], Change]] = {
    "add": AddLearner,
    "promote": Promote,
    "remove": Remove,
    "demote": Demote,
}
MARKS = ("voter", "leader", "suspected", "snapshotting", "lost", "changing")


def as_text(message: rpc.AnyRaftMessage) -> str:
    """Name the member id of a message, unless it is a founding member's."""
    member = getattr(message, "member", 0)
    return f" as {member}" if member else ""


def members_text(membership: Membership) -> str:
    """Format voters, with their ids in brackets, then learners."""
    ids = dict(membership.ids)
    voters = [f"{voter}[{ids[voter]}]" if voter in ids else voter for voter in membership.voters]
    return "voters " + " ".join((*voters, *(f"learner {node}" for node in membership.learners)))


def entry_text(entry: Entry) -> str:
    """Format an entry: index/term, and its content."""
    what = "noop"
    if entry.kind is EntryKind.CONFIG:
        what = members_text(decode(entry.data))
    elif entry.kind is EntryKind.COMMAND:
        what = entry.data.decode()
    return f"{entry.index}/{entry.term} {what}"


def message_text(message: rpc.AnyRaftMessage) -> str:
    """Format a message in the words of the paper."""
    kind = type(message).__name__
    head = f"{message.sender} -> {message.to} {kind} term {message.term}"
    match message:
        case rpc.PreVote() | rpc.Vote():
            return f"{head} last {message.last_index}/{message.last_term}{as_text(message)}"
        case rpc.PreVoteReply() | rpc.VoteReply():
            return f"{head} {'granted' if message.granted else 'refused'}"
        case rpc.Append():
            entries = " ".join(
                entry_text(Entry(message.prev_index + 1 + at, *wire)).replace(" ", ":")
                for at, wire in enumerate(message.entries)
            )
            place = f"{message.prev_index}/{message.prev_term}"
            return f"{head} after {place} commit {message.commit} [{entries}]"
        case rpc.AppendReply():
            if message.ok:
                return f"{head} holds {message.index} commit {message.commit}{as_text(message)}"
            hint = f"{message.hint_index}/{message.hint_term}"
            return f"{head} lacks {message.index}, perhaps {hint}{as_text(message)}"
        case rpc.ReadIndexHeartbeat() | rpc.ReadIndexHeartbeatReply():
            return f"{head} round {message.round}{as_text(message)}"
        case rpc.TimeoutNow():
            return f"{head}{as_text(message)}"
        case rpc.ReadIndex():
            return f"{head} context {message.context}"
        case rpc.ReadIndexReply():
            return f"{head} context {message.context} index {message.index}"
        case _:
            return head


class Place:
    """A member, its disk and its pending messages."""

    def __init__(self, name: str, membership: Membership, member_id: int = 0) -> None:
        self.name = name
        self.membership = membership
        self.member_id = member_id
        self.disk = Log()
        self.hard_state = HardState()
        self.writes: list[Ready] = []
        self.held: list[Ready] = []
        self.node: RaftNode | None = None


class Transcript:
    """A group that executes the commands and prints the results."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.places: dict[str, Place] = {}
        self.wire: list[rpc.AnyRaftMessage] = []
        self.delayed: list[rpc.AnyRaftMessage] = []
        self.lines: list[str] = []
        self.quietly = False
        self.config = RaftConfig()

    def say(self, line: str) -> None:
        """Print a line."""
        if not self.quietly:
            self.lines.append(line)

    def run(self, command: str) -> None:
        """One command."""
        verb, *words = command.split()
        try:
            getattr(self, "do_" + verb)(*words)
        except RaftError as error:
            self.say(f"{type(error).__name__}: {error}")

    def node(self, name: str) -> RaftNode:
        """Return a member that is up."""
        node = self.places[name].node
        assert node is not None, f"{name} is down"
        return node

    # ------------------------------------------------------------------ commands

    def do_members(self, *words: str) -> None:
        voters = tuple(words[: words.index("learner")] if "learner" in words else words)
        learners = tuple(words[len(voters) + 1 :])
        membership = Membership(voters, learners)
        for name in voters + learners:
            self.places[name] = Place(name, membership)
            self.do_start(name)

    def do_batch(self, size: str, inflight: str = "128") -> None:
        self.config = replace(
            self.config,
            append_bytes_max=int(size),
            probe_bytes_max=int(size),
            inflight_messages_max=int(inflight),
        )

    def do_hold(self) -> None:
        self.config = replace(self.config, promote_learners=False)

    def do_start(self, name: str) -> None:
        place = self.places[name]
        assert place.node is None
        place.node = RaftNode(
            1,
            name,
            place.membership,
            place.hard_state,
            place.disk,
            self.config,
            Random(name),
            self.now_ms,
            member_id=place.member_id,
            configs=place.disk.configs(),
        )
        self.say(f"{name} starts: term {place.node.term} last {place.node.last_index}")

    def do_join(self, name: str, member_id: str, *hints: str) -> None:
        self.places[name] = Place(name, Membership(tuple(sorted(hints))), int(member_id))
        self.do_start(name)

    def do_wipe(self, name: str, member_id: str, *hints: str) -> None:
        assert self.places[name].node is None
        self.do_join(name, member_id, *hints)

    def do_change(self, name: str, what: str, other: str) -> None:
        self.node(name).propose_change(CHANGES[what](other), self.now_ms)

    def do_who(self, name: str) -> None:
        node = self.node(name)
        known = "" if node.configs.known else ", as it was told when it was created"
        votes = "" if node.is_voter else "; it does not vote"
        self.say(f"{name}: {members_text(node.membership)}{known}{votes}")
        if node.role is Role.LEADER:
            for state in node.member_states():
                marks = [mark for mark in MARKS if getattr(state, mark)]
                self.say(f"  {state.node} {state.match}/{state.last} {' '.join(marks)}".rstrip())

    def do_crash(self, name: str) -> None:
        place = self.places[name]
        lost = sum(len(write.entries) for write in place.writes)
        self.say(f"{name} crashes: {len(place.writes)} writes with {lost} entries lost")
        place.node = None
        place.writes.clear()
        place.held.clear()

    def do_campaign(self, name: str) -> None:
        self.node(name).campaign(self.now_ms)

    def do_elect(self, name: str, *voters: str) -> None:
        was_quiet, self.quietly = self.quietly, True
        among = (name, *voters)
        before = len(self.wire)
        for _ in range(10):
            self.do_campaign(name)
            for _ in range(4):
                for member in among:
                    if self.node(name).role is not Role.LEADER:
                        for sender in among:
                            self.do_deliver(member, sender)
                    if self.node(name).role is not Role.LEADER:
                        self.do_ready(member)
                        self.do_sync(member)
        assert self.node(name).role is Role.LEADER, f"{name} is not elected"
        self.wire = [m for m in self.wire[:before] if m.to not in among]
        self.quietly = was_quiet
        self.say(f"{name} leads term {self.node(name).term}, elected by {' '.join(among)}")

    def do_tick(self, name: str, later_ms: str) -> None:
        self.now_ms += int(later_ms)
        self.node(name).tick(self.now_ms)

    def do_propose(self, name: str, text: str) -> None:
        self.node(name).propose(text.encode(), self.now_ms)

    def do_transfer(self, name: str, to: str) -> None:
        self.node(name).transfer_leader(to, self.now_ms)

    def do_suspect(self, name: str, other: str) -> None:
        self.node(name).peer_suspected(other, self.now_ms)

    def do_connected(self, name: str, other: str) -> None:
        self.node(name).peer_connected(other, self.now_ms)

    def do_stall(self, name: str) -> None:
        self.node(name).disk_stalled(True, self.now_ms)

    def do_unstall(self, name: str) -> None:
        self.node(name).disk_stalled(False, self.now_ms)

    def do_restarted(self, name: str, other: str) -> None:
        self.node(name).peer_restarted(other, self.now_ms)

    def do_read(self, name: str, context: str) -> None:
        self.node(name).read_index(int(context), self.now_ms)

    def do_quiet(self) -> None:
        self.quietly = True

    def do_loud(self) -> None:
        self.quietly = False

    def do_ready(self, name: str) -> bool:
        ready = self.node(name).ready()
        if ready is None:
            return False
        place = self.places[name]
        if ready.soft_state is not None:
            soft = ready.soft_state
            self.say(f"{name} {soft.role.name} term {soft.term} leader {soft.leader}")
        if ready.writes:
            hard = ready.hard_state
            vote = f" term {hard.term} vote {hard.vote}" if hard else ""
            entries = "".join(f" {entry_text(entry)}," for entry in ready.entries).rstrip(",")
            self.say(f"{name} writes #{ready.sequence}:{vote}{entries}")
            place.writes.append(ready)
        self.leave(ready.messages)
        if ready.messages_after_sync:
            if ready.sequence <= self.node(name).synced:
                self.leave(ready.messages_after_sync)
            else:
                place.held.append(ready)
        for entry in ready.committed:
            self.say(f"{name} applies {entry_text(entry)}")
        if ready.committed:
            self.node(name).applied_to(ready.committed[-1].index)
        for read in ready.reads:
            self.say(f"{name} reads context {read.context} at {read.index}")
        self.node(name).check()
        return True

    def do_sync(self, name: str, count: str = "0") -> bool:
        place = self.places[name]
        if not place.writes:
            return False
        stop = int(count) or len(place.writes)
        writes, place.writes = place.writes[:stop], place.writes[stop:]
        for write in writes:
            if write.hard_state is not None:
                place.hard_state = write.hard_state
            if write.entries:
                place.disk.put(write.entries)
        done = writes[-1].sequence
        self.node(name).durable(done)
        self.say(f"{name} synced #{done}: durable {self.node(name).log.durable}")
        while place.held and place.held[0].sequence <= done:
            self.leave(place.held.pop(0).messages_after_sync)
        return True

    def leave(self, sent: tuple[rpc.AnyRaftMessage, ...]) -> None:
        """Put messages in flight."""
        for message in sent:
            self.say(message_text(message))
            self.wire.append(message)

    def take(self, to: str, sender: str | None) -> list[rpc.AnyRaftMessage]:
        """Remove and return the messages in flight to a member."""
        taken = [m for m in self.wire if m.to == to and sender in (None, m.sender)]
        self.wire = [m for m in self.wire if m not in taken]
        return taken

    def do_deliver(self, to: str, sender: str | None = None) -> bool:
        taken = self.take(to, sender)
        for message in taken:
            self.node(to).step(message, self.now_ms)
        return bool(taken)

    def do_drop(self, to: str, sender: str | None = None) -> None:
        for message in self.take(to, sender):
            self.say(f"lost: {message_text(message)}")

    def do_delay(self, to: str, sender: str) -> None:
        self.delayed += self.take(to, sender)

    def do_release(self) -> None:
        self.wire += self.delayed
        self.delayed = []

    def do_settle(self, *names: str) -> None:
        among = names or tuple(name for name, p in self.places.items() if p.node is not None)
        busy = True
        while busy:
            busy = False
            for name in among:
                for sender in among:
                    busy |= self.do_deliver(name, sender)
                while self.do_ready(name):
                    busy = True
                busy |= self.do_sync(name)

    def do_log(self, name: str) -> None:
        log = self.node(name).log
        held = [log.slice(at, at, 0)[0] for at in range(1, log.last + 1)]
        self.say(f"{name} log: {', '.join(entry_text(entry) for entry in held)}")
        self.say(
            f"{name} durable {log.durable} writing {log.writing} "
            f"committed {log.committed} applied {log.applied}"
        )


def play(text: str) -> str:
    """Return the transcript with the present output of its commands."""
    transcript = Transcript()
    played = []
    for block in text.strip().split("\n\n"):
        said, _, _ = block.partition(f"\n{SEPARATOR}")
        for line in said.splitlines():
            if line and not line.startswith("#"):
                transcript.run(line)
        out = said
        if any(line and not line.startswith("#") for line in said.splitlines()):
            out += f"\n{SEPARATOR}" + "".join(f"\n{line}" for line in transcript.lines)
        transcript.lines.clear()
        played.append(out)
    return "\n\n".join(played) + "\n"


def transcripts() -> list[Path]:
    """Return all transcripts."""
    return sorted((Path(__file__).parents[1] / "raft" / "transcripts").glob("*.txt"))
