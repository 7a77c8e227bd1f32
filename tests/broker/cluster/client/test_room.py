"""A consumer that has no room is given nothing; its queue is asked again when there is some."""

from __future__ import annotations

from tests.broker.cluster.client.test_late_acks import CONSUMER, Node
from warren_machines.queue.commands import Resume, Resumed


class Watched(Node):
    """A node with a consumer that may have no room."""

    def __init__(self) -> None:
        super().__init__()
        self.room = True
        self.asked = 0
        self.local.has_room = self.has_room

    def has_room(self, consumer: int) -> bool:
        assert consumer == CONSUMER
        self.asked += 1
        return self.room


def test_what_has_no_room_comes_with_the_answer_to_resume() -> None:
    """A delivery after the first that was dropped is dropped, too, whatever room there is."""
    node = Watched()
    node.delivered(5)
    assert node.local.next_msg_id == 5
    node.room = False
    node.delivered(3)
    assert node.local.next_msg_id == 5 and not node.client.takes(CONSUMER)
    node.room = True
    asked = node.asked
    node.delivered(2)
    assert node.local.next_msg_id == 5 and node.asked == asked, "it was told once"
    node.client.resume(node.local)
    (sent,) = node.turn()
    assert sent == [Resume(CONSUMER, 5)]
    node.next_id = 5
    node.delivered(5)
    assert node.local.next_msg_id == 10 and node.local.unsettled == 10


def test_a_new_leader_is_asked_in_any_case() -> None:
    node = Watched()
    node.room = False
    node.delivered(1)
    node.client.leader_found("a", 2)
    assert Resume(CONSUMER, 0) in node.turn()[0]
    node.delivered(1)
    assert node.local.next_msg_id == 0 and not node.client.takes(CONSUMER), "there is no room yet"


def test_a_consumer_without_acknowledgements_waits_for_room_like_any_other() -> None:
    """Its queue holds what it was not told to have left.

    Before, it was given everything, and what came after a gap was taken instead of what is in it.
    """
    node = Watched()
    node.local.no_ack = True
    node.delivered(5)
    node.room = False
    node.delivered(5)
    assert node.local.next_msg_id == 5
    node.room = True
    node.client.resume(node.local)
    assert node.turn() == [[Resume(CONSUMER, 5)]]
    node.delivered(1)  # it was on its way
    assert node.local.next_msg_id == 5
    node.next_id = 5
    node.delivered(6)
    assert node.local.next_msg_id == 11


def test_what_is_missing_is_asked_for_once() -> None:
    node = Node()
    node.delivered(2)
    node.next_id = 4
    node.delivered(2)
    node.delivered(2)
    assert node.turn() == [[Resume(CONSUMER, 2)]]
    node.client.replied(1, (Resumed(4),), 5, 0)
    node.next_id = 6
    node.delivered(1)
    assert node.turn() == [[Resume(CONSUMER, 4)]]
    node.next_id = 4
    node.delivered(3)
    assert node.local.next_msg_id == 7 and node.turn() == []


def test_what_asks_for_a_consumer_that_ends_is_answered() -> None:
    """Before: it took one of its connection's turns (`RefusedConsumers`) for good."""
    node = Watched()
    node.local.no_ack = True
    node.room = False
    node.delivered(1)
    answers: list[str] = []
    assert node.client.give_back_unsent(CONSUMER)
    node.client.resume(node.local, lambda: answers.append("answered"))
    assert answers == ["answered"]
