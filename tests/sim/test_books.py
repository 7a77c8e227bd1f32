"""What the books of a simulated queue allow and what they find, where replies come late."""

from __future__ import annotations

import pytest

from sim.checkers import Violation
from sim.run import Kind, run_seed
from sim.whole.ledger import Book, Ledger
from sim.whole.profile import QueuePlan

BODY, INDEX = b"1/1/1", 7
ONE, OTHER = (1, 1), (1, 2)
"""Two consumers of one process."""
LATE_CLAIM_SEED = 4928


def books(claims_expire: bool = True) -> Book:
    book = Ledger(claims_expire).of(1, QueuePlan("plain"))
    book.publish([BODY])
    return book


def claim(book: Book, number: int, acquired: int, reader: str = "reader") -> None:
    book.claim(reader, number, ((INDEX, 0, 0, 0, acquired),), [(BODY, INDEX, acquired)])


def deliver_and_settle(book: Book, acquired: int) -> None:
    book.deliver(BODY, INDEX, acquired, ONE)
    book.settle(BODY, acquired)


def test_a_claim_that_expired_may_be_answered_after_its_messages_were_settled() -> None:
    book = books()
    deliver_and_settle(book, 1)
    claim(book, 1, 0)
    with pytest.raises(Violation, match="an expired claim was settled"):
        book.settle_claim(("reader", 1))


def test_a_world_in_which_a_claim_is_answered_after_its_messages_were_settled() -> None:
    assert run_seed(LATE_CLAIM_SEED, Kind(whole=True)).failure is None


@pytest.mark.parametrize("acquired", [1, 2])
def test_a_claim_that_was_opened_after_a_settle_is_found(acquired: int) -> None:
    book = books()
    deliver_and_settle(book, 1)
    with pytest.raises(Violation, match="claimed after its settle was answered"):
        claim(book, 2, acquired)


@pytest.mark.parametrize("settled", [False, True])
def test_a_late_claim_that_was_never_given_back_is_found(settled: bool) -> None:
    book = books(claims_expire=False)
    book.deliver(BODY, INDEX, 1, ONE)
    if settled:
        book.settle(BODY, 1)
    with pytest.raises(Violation, match="delivered while claimed"):
        claim(book, 1, 0)


def test_a_late_claim_that_its_reader_has_released_is_allowed() -> None:
    book = books(claims_expire=False)
    book.released["reader", 1] = True
    deliver_and_settle(book, 1)
    claim(book, 1, 0)


def test_a_message_given_to_a_consumer_and_a_claim_at_once_is_found() -> None:
    book = books()
    book.deliver(BODY, INDEX, 0, ONE)
    with pytest.raises(Violation, match="delivered and claimed at once"):
        claim(book, 1, 0)


def test_a_late_claim_takes_nothing_from_a_newer_one() -> None:
    book = books()
    claim(book, 1, 1, "newer")
    claim(book, 1, 0, "older")
    book.settle_claim(("newer", 1))
    with pytest.raises(Violation, match="delivered while claimed"):
        book.deliver(BODY, INDEX, 2, ONE)


def test_a_newer_claim_may_be_settled_before_an_older_one_is_answered() -> None:
    book = books()
    claim(book, 1, 1, "newer")
    book.settle_claim(("newer", 1))
    claim(book, 1, 0, "older")


@pytest.mark.parametrize("acquired", [0, 1, 2])
def test_what_a_settled_claim_held_is_never_in_another_one(acquired: int) -> None:
    book = books(claims_expire=False)
    claim(book, 1, 1)
    book.settle_claim(("reader", 1))
    with pytest.raises(Violation, match="in two claims"):
        claim(book, 2, acquired)


def test_a_delivery_that_was_slow_on_the_wire_may_come_after_what_followed_it() -> None:
    book = books()
    deliver_and_settle(book, 1)
    book.deliver(BODY, INDEX, 0, OTHER)


@pytest.mark.parametrize("acquired", [1, 2])
def test_a_delivery_after_a_settle_is_found(acquired: int) -> None:
    book = books()
    deliver_and_settle(book, 1)
    with pytest.raises(Violation, match="delivered after its settle was answered"):
        book.deliver(BODY, INDEX, acquired, ONE)


def test_a_message_that_two_consumers_have_at_once_is_found() -> None:
    book = books()
    book.deliver(BODY, INDEX, 1, ONE)
    with pytest.raises(Violation, match="taken by two at once"):
        book.deliver(BODY, INDEX, 1, OTHER)


def test_a_late_delivery_of_what_was_given_up_is_told_from_a_new_one() -> None:
    book = Ledger(True).of(1, QueuePlan("plain", forgets=("expired",)))
    book.publish([BODY])
    book.bury(INDEX, 0, BODY, "expired", 1_000, takes=1)
    book.deliver(BODY, INDEX, 0, ONE)
    with pytest.raises(Violation, match="delivered after it was given up"):
        book.deliver(BODY, INDEX, 1, ONE)


def test_an_annotation_is_expected_of_later_deliveries_alone() -> None:
    book = books()
    book.annotate(BODY, 1)
    book.check_annotation(BODY, None, 1)
    with pytest.raises(Violation, match="an annotation is lost"):
        book.check_annotation(BODY, None, 2)
