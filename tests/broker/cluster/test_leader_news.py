"""How a node that is no member of a group learns its leader, whichever messages are lost."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.broker.cluster import callbacks
from warren_broker.cluster import messages
from warren_broker.cluster.client.queue_client import LocalConsumer
from warren_broker.cluster.client.reads import RemoteReads
from warren_broker.cluster.client.uplink import InFlight, Uplink
from warren_broker.cluster.cluster import Cluster
from warren_machines.queue.commands import Delivery, Resumed
from warren_raft.runtime.loop import Loop
from warren_wire.block.block import Block, encode

GROUP = 7


class Host:
    """A host that is no member of the group, unless `leads` names the leader."""

    node_id = "a"
    boot_id = 1
    version = 1

    def __init__(self):
        self.up = {"b": 2, "c": 3}
        self.leads = None
        self.leading = False
        self.handing = False
        self.sent = []
        self.denied = []

    def connected(self, node):
        return node in self.up

    def leader(self, group):
        return self.leads

    def term(self, group):
        return 0

    def is_leader(self, group):
        return self.leading

    def hands_over(self, group):
        return self.handing

    def leader_denied(self, group, node):
        self.denied.append((group, node))

    def send(self, node, buffers):
        if node not in self.up:
            return False
        self.sent.append((node, messages.decode(b"".join(buffers))[0]))
        return True

    def kinds(self):
        sent, self.sent = self.sent, []
        return [(node, type(message)) for node, message in sent]


@pytest.fixture
def cluster():
    made = Cluster(Loop(), lambda observer, on_message: Host(), 1 << 20, 1 << 20, callbacks.CLUSTER)
    for node, boot_id in made.host.up.items():
        made.peer_up(node, boot_id)
    yield made
    made.loop.close()


def opened(cluster):
    uplink = Uplink(lambda seq, commands, block, answered: b"%d" % seq, None, None, InFlight())
    return cluster.open_client(GROUP, ("b", "c"), uplink)


def submit_to_c(cluster):
    """Open a client with one command, which goes to its leader c."""
    client = opened(cluster)
    client.command("asked")
    cluster._on_leader_is("c", messages.LeaderIs(GROUP, 4), memoryview(b""))
    cluster.loop.run_turn(0)
    assert cluster.host.kinds() == [("c", messages.Submit)]


def test_a_leader_that_steps_down_says_so_to_every_node(cluster):
    cluster.effects.led.add(GROUP)
    cluster.leader_changed(GROUP, None, 4, False)
    assert cluster.host.kinds() == [
        ("b", messages.LeaderIsElsewhere),
        ("c", messages.LeaderIsElsewhere),
    ]
    cluster.leader_changed(GROUP, "b", 5, False)
    assert cluster.host.kinds() == []


def test_who_waits_for_a_leader_asks_a_member_that_comes_back(cluster):
    client = opened(cluster)
    client.command("asked")
    cluster.leader_hints.learn(GROUP, "b", 3)
    cluster.loop.run_turn(0)
    assert cluster.host.kinds() == [("b", messages.Submit)]
    cluster.peer_up("c", 3)  # it was elected while it could not be heard
    assert cluster.host.kinds() == [("c", messages.WhoLeads)]
    cluster._on_leader_is("c", messages.LeaderIs(GROUP, 4), memoryview(b""))
    cluster.loop.run_turn(0)
    assert cluster.host.kinds() == [("c", messages.Submit)]


def test_what_went_to_the_old_leader_goes_to_the_new(cluster):
    """The new leader announces itself once; this node's member follows the old one for longer."""
    submit_to_c(cluster)
    cluster._on_leader_is("b", messages.LeaderIs(GROUP, 5), memoryview(b""))
    cluster.host.leads = "c"
    cluster.loop.run_turn(0)
    assert cluster.host.kinds() == [("c", messages.Submit)]  # which never answers
    cluster.host.leads = None  # the member has left
    cluster.client(GROUP).command("more")
    cluster.loop.run_turn(0)
    cluster.loop.run_turn(0)
    assert [node for node, _ in cluster.host.kinds()] == ["b", "b"]


def test_a_leader_that_takes_nothing_for_now_does_not_ask_for_it(cluster):
    cluster.host.leading = cluster.host.handing = True
    question = messages.WhoLeads(GROUP)
    cluster._on_who_leads("b", question, memoryview(b""))
    assert cluster.host.kinds() == []
    cluster.host.handing = False
    cluster._on_who_leads("b", question, memoryview(b""))
    assert cluster.host.kinds() == [("b", messages.LeaderIs)]


def test_nobody_asks_for_a_group_that_nothing_is_wanted_of(cluster):
    opened(cluster)
    cluster.peer_up("c", 3)
    assert cluster.host.kinds() == []


def test_an_old_leaders_farewell_does_not_send_everything_to_the_new_one_again(cluster):
    submit_to_c(cluster)
    cluster._on_not_leader("b", messages.LeaderIsElsewhere(GROUP, None, 4), memoryview(b""))
    cluster.loop.run_turn(0)
    assert cluster.host.kinds() == []


def test_the_current_leaders_farewell_starts_a_search(cluster):
    submit_to_c(cluster)
    cluster._on_not_leader("c", messages.LeaderIsElsewhere(GROUP, None, 5), memoryview(b""))
    assert {kind for _, kind in cluster.host.kinds()} == {messages.WhoLeads}
    cluster._on_leader_is("b", messages.LeaderIs(GROUP, 6), memoryview(b""))
    cluster.loop.run_turn(0)
    assert ("b", messages.Submit) in cluster.host.kinds()


def test_a_leader_that_was_out_of_reach_for_a_while_is_told_everything_again(cluster):
    """It led all the time, in one term; what it sent to our consumers meanwhile is lost."""
    client = opened(cluster)
    client.consumers[5] = LocalConsumer(5, None, no_ack=False, next_msg_id=12)
    cluster.host.leads = "b"
    cluster.leader_changed(GROUP, "b", 4, False)
    cluster.loop.run_turn(0)
    assert cluster.host.kinds() == [("b", messages.Submit)]
    cluster.host.up.pop("b")
    cluster.host.leads = None
    cluster.peer_down("b")
    cluster.host.up["b"] = 2
    cluster.peer_up("b", 2)  # connected, but this member has not heard from its leader yet
    cluster.loop.run_turn(0)
    cluster.host.kinds()
    cluster.host.leads = "b"
    cluster.leader_changed(GROUP, "b", 4, False)
    cluster.loop.run_turn(0)
    assert ("b", messages.Submit) in cluster.host.kinds()
    assert not client.seeking


@pytest.mark.parametrize("refused_first", [True, False])
def test_what_went_to_the_old_leader_after_the_new_ones_announcement_is_sent_again(
    cluster, refused_first
):
    """Found by build.py sim --whole --seed 463: a node never knew the definitions."""
    client = opened(cluster)
    cluster.host.leads = "b"
    cluster.leader_changed(GROUP, "b", 3, False)
    client.command("asked")
    cluster.loop.run_turn(0)
    assert cluster.host.kinds() == [("b", messages.Submit)]
    cluster._on_leader_is("c", messages.LeaderIs(GROUP, 4), memoryview(b""))
    cluster.loop.run_turn(0)  # this member has not heard from it yet
    assert cluster.host.kinds() == [("b", messages.Submit)]
    cluster.host.leads = "c"
    if refused_first:
        answer = messages.LeaderIsElsewhere(GROUP, "c", 4)
        cluster._on_not_leader("b", answer, memoryview(b""))
    else:
        cluster.leader_changed(GROUP, "c", 4, False)
    for _ in range(100):
        cluster.loop.run_turn(20)
        if ("c", messages.Submit) in cluster.host.kinds():
            break
    else:
        raise AssertionError("the new leader was never asked")


def test_a_leader_that_only_was_heard_of_ends_and_another_is_looked_for(cluster):
    client = opened(cluster)
    cluster.leader_hints.learn(GROUP, "b", 3)
    client.command("asked")
    cluster.loop.run_turn(0)
    assert cluster.host.kinds() == [("b", messages.Submit)]
    cluster.host.up.pop("b")
    cluster.peer_down("b")
    assert cluster.host.kinds() == [("c", messages.WhoLeads)]


class Defined:
    """Definitions that have these groups."""

    def __init__(self):
        self.on_deleted = []
        self.state = SimpleNamespace(groups={GROUP, *range(1, 6)})


def test_a_read_that_a_paused_leader_holds_goes_to_the_next_one(cluster):
    reading = RemoteReads(cluster, Defined(), 30_000)
    answers = []
    cluster.leader_hints.learn(GROUP, "b", 3)
    reading.counts(GROUP, answers.append)
    assert cluster.host.kinds() == [("b", messages.QueueCounts)]
    cluster._on_leader_is("c", messages.LeaderIs(GROUP, 4), memoryview(b""))
    for _ in range(100):
        cluster.loop.run_turn(20)
        if cluster.host.sent:
            break
    assert cluster.host.kinds() == [("c", messages.QueueCounts)]


def test_a_started_node_finds_the_leader_for_a_mere_look(cluster):
    """It is no member, has no client of that queue, and heard no announcement."""
    reading = RemoteReads(cluster, Defined(), 30_000)
    reading.counts(GROUP, [].append)
    assert cluster.host.kinds() == [("b", messages.WhoLeads), ("c", messages.WhoLeads)]
    cluster._on_leader_is("c", messages.LeaderIs(GROUP, 4), memoryview(b""))
    for _ in range(100):
        cluster.loop.run_turn(20)
        if cluster.host.sent:
            break
    assert ("c", messages.QueueCounts) in cluster.host.kinds()


TEN = Block.decode(encode([b""] * 10, [b"body"] * 10, (b"", b"q")))


class Receiver:
    def __init__(self):
        self.ids = []

    def deliver(self, consumer, delivery, block):
        count = delivery.last - delivery.first + 1
        self.ids += range(delivery.first_msg_id, delivery.first_msg_id + count)


def test_deliveries_that_were_lost_and_taken_back_are_not_waited_for(cluster):
    """Its node was suspected: 12-19 were lost with a connection, taken back, and 20-29 follow."""
    client = opened(cluster)
    receiver = Receiver()
    client.consumers[5] = LocalConsumer(5, receiver, no_ack=False, next_msg_id=12)
    cluster._on_leader_is("b", messages.LeaderIs(GROUP, 4), memoryview(b""))
    cluster.loop.run_turn(0)
    follows = Delivery(20, 1, 0, 9, 0, 0)
    client.delivered(5, follows, TEN)
    assert receiver.ids == []  # they may still come with the answer to Resume
    client.replied(1, (Resumed(20),), 9, 0)
    client.delivered(5, follows, TEN)
    assert receiver.ids == list(range(20, 30))


def test_a_new_leader_costs_the_reads_of_its_own_queue_only(cluster):
    reading = RemoteReads(cluster, Defined(), 10_000)
    for group in range(1, 6):
        cluster.leader_hints.learn(group, "b", 3)
        reading.counts(group, lambda result: None)
    assert len(cluster.host.kinds()) == 5
    looked_at = []
    reading._again = lambda request, pending: looked_at.append(pending.group)
    cluster.leader_changed(4, "c", 4, False)
    assert looked_at == [4]
    reading.finish(4, None)
    assert sorted(reading._of_group) == [1, 2, 3, 5]


def test_a_member_that_follows_who_left_the_group_finds_out(cluster):
    """`b` handed over, left, and lives; its successor died before this member knew of it."""
    cluster.host.leads = "b"
    cluster._on_who_leads("c", messages.WhoLeads(GROUP), memoryview(b""))
    assert cluster.host.sent == [("b", messages.WhoLeads(GROUP, passed_on=True))]
    cluster._on_not_leader("b", messages.LeaderIsElsewhere(GROUP, None, 0), memoryview(b""))
    assert cluster.host.denied == [(GROUP, "b")]


def test_who_is_taken_for_the_leader_denies_it_and_asks_nobody(cluster):
    cluster.host.leads = "c"
    cluster._on_who_leads("b", messages.WhoLeads(GROUP, passed_on=True), memoryview(b""))
    assert cluster.host.sent == [("b", messages.LeaderIsElsewhere(GROUP, "c", 0))]


def test_a_leader_that_takes_nothing_just_now_is_one_all_the_same(cluster):
    cluster._on_not_leader("b", messages.LeaderIsElsewhere(GROUP, "b", 3), memoryview(b""))
    assert cluster.host.denied == []
