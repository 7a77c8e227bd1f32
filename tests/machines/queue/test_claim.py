"""Claims: the rules of design section 5, one by one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.machines.queue.world import Queue
from warren_machines.queue.claims import claim as claim_module
from warren_machines.queue.claims.claim import CALLS_KEPT_MAX, claim_slice
from warren_machines.queue.commands import (
    AnyCommand,
    Cancel,
    Checkout,
    ClaimReply,
    Count,
    Delete,
    Done,
    Get,
    OpenClaim,
    ReaderReply,
    RegisterReader,
    ReleaseClaim,
    RenewClaims,
    Return,
    SettleClaims,
)
from warren_machines.queue.effects import Expired, SetTimer
from warren_machines.queue.queue_snapshot import restore, snapshot


def reading(count: int = 10, **settings: object) -> Queue:
    """A queue with messages and a registered reader "r" of epoch 1."""
    queue = Queue(**settings)
    if count:
        queue.put(count)
    queue.do(RegisterReader("r"))
    return queue


def claim(
    queue: Queue,
    number: int = 1,
    count: int = 4,
    size: int = 10**6,
    epoch: int = 1,
    ttl_ms: int = 0,
) -> Any:
    return queue.do(OpenClaim("r", number, epoch, count, size, ttl_ms))


def test_a_claim_takes_from_the_head_in_delivery_order() -> None:
    queue = Queue()
    low, high = queue.put(2, priorities=0), queue.put(2, priorities=9)
    queue.do(Get(1, 1))
    queue.do(Return(1, ((0, 0),), True))
    queue.do(RegisterReader("r"))
    reply = claim(queue, count=3)
    assert reply.runs == ((high, 0, 0, 1, 1), (high, 1, 1, 0, 0), (low, 0, 0, 0, 0))
    assert (reply.number, reply.messages, reply.size_bytes) == (1, 3, 30)
    assert queue.stat().messages_claimed == 3 and queue.stat().messages_ready == 1


def test_the_same_number_asked_for_again_is_the_same_claim_to_the_byte() -> None:
    queue = reading()
    first = claim(queue)
    queue.put(5, priorities=31)
    again = claim(queue, count=999, size=1)
    assert msgspec.msgpack.encode(first) == msgspec.msgpack.encode(again)
    assert queue.stat().messages_claimed == 4


def test_max_bytes_is_kept_but_one_message_is_always_taken() -> None:
    queue = reading()
    assert claim(queue, size=35).messages == 3
    queue.do(SettleClaims("r", 1, 1))
    assert claim(queue, 2, size=1).messages == 1


def test_max_bytes_is_kept_with_sizes_that_differ_a_little_or_much() -> None:
    for sizes in ([90, 100, 110, 100], [1, 900, 30, 400]):
        for limit in (1, 99, 150, 200, 250, 950, 10_000):
            queue = Queue()
            queue.put(4, size=sizes)
            queue.do(RegisterReader("r"))
            reply = claim(queue, size=limit)
            taken = sizes[: reply.messages]
            assert len(taken) == 1 or sum(taken) <= limit, (sizes, limit)


def test_a_message_without_bytes_fits_where_max_bytes_is_used_up() -> None:
    queue = Queue()
    for size in (10, 0, 1):
        queue.put(1, size=size)
    queue.do(RegisterReader("r"))
    assert claim(queue, size=10).messages == 2


@pytest.mark.parametrize("alone", [{"exclusive": True}, {}])
def test_a_claim_takes_what_is_ready_beside_an_only_consumer(alone: dict[str, bool]) -> None:
    queue = reading(0, single_active_consumer=not alone)
    queue.do(Checkout(1, 1, "t", 2, **alone))
    queue.put(5)
    assert claim(queue, 1, 10).messages == 3


def test_an_open_with_nothing_ready_is_no_claim_and_can_be_opened_later() -> None:
    queue = reading(0)
    assert claim(queue) == ClaimReply(1, 0, 0, ())
    (reader,) = queue.stat().readers
    assert msgspec.structs.astuple(reader)[:5] == ("r", 1, 0, 0, queue.now)
    queue.put(2)
    assert claim(queue).messages == 2


def test_only_the_number_after_the_last_settled_one_can_be_opened() -> None:
    queue = reading()
    for number in (-1, 0, 2, 3):
        assert claim(queue, number).reason == "claim_lost", number
    claim(queue)
    assert claim(queue, 2).reason == "claim_lost"
    queue.do(SettleClaims("r", 1, 1))
    assert claim(queue, 1).reason == "claim_lost"
    assert claim(queue, 2).messages == 4


def test_settling_is_cumulative_and_a_repeat_is_harmless() -> None:
    queue = reading()
    claim(queue)
    assert queue.do(SettleClaims("r", 1, 1)) == Count(4)
    assert queue.do(SettleClaims("r", 1, 1)) == Count(0)
    assert queue.do(SettleClaims("r", 0, 1)) == Count(0)
    assert queue.stat().messages_claimed == 0 and queue.stat().readers[0].settled == 1
    assert queue.stat().messages_ready == 6


def test_settling_what_was_never_opened_is_refused() -> None:
    queue = reading()
    assert queue.do(SettleClaims("r", 1, 1)).reason == "claim_lost"
    assert queue.stat().readers[0].settled == 0


def test_settling_a_claim_that_expired_is_refused_and_settles_nothing() -> None:
    # Spark's batch was committed; passed over, its messages would be in the next batch, too.
    queue = reading()
    claim(queue, ttl_ms=100)
    queue.tick(100)
    refused = queue.do(SettleClaims("r", 1, 1))
    assert refused.reason == "claim_lost" and "claim 1 " in refused.detail
    assert queue.stat().readers[0].settled == 0
    assert claim(queue, 2).reason == "claim_lost", "the same messages under the next number"
    assert queue.do(RegisterReader("r", go_on_after=1)) == ReaderReply(2, 1, 2)
    assert claim(queue, 2, epoch=2).messages == 4


def test_settling_a_claim_that_was_released_is_refused() -> None:
    queue = reading()
    claim(queue)
    queue.do(ReleaseClaim("r", 1, -1))
    assert queue.do(SettleClaims("r", 1, 1)).reason == "claim_lost"


def test_settling_again_what_was_settled_is_harmless() -> None:
    queue = reading()
    claim(queue, ttl_ms=100)
    assert queue.do(SettleClaims("r", 1, 1)) == Count(4)
    queue.tick(1000)
    for number in (0, 1):
        assert queue.do(SettleClaims("r", number, 1)) == Count(0)
    assert queue.do(SettleClaims("r", 2, 1)).reason == "claim_lost"


def test_of_several_claims_one_of_which_is_lost_none_is_settled() -> None:
    queue = reading()
    claim(queue, 1, 2)
    # The machine opens one claim at a time today; the rule does not lean on that.
    queue.state.readers["r"].opened = 3
    assert queue.do(SettleClaims("r", 3, 1)).detail.startswith("claim 2 ")
    assert queue.stat().messages_claimed == 2


def test_a_newer_epoch_fences_every_older_driver() -> None:
    queue = reading()
    claim(queue)
    assert queue.do(RegisterReader("r")) == ReaderReply(2, 0, 2)
    for command in (
        OpenClaim("r", 1, 1, 1, 1),
        RenewClaims("r", 1),
        SettleClaims("r", 1, 1),
        ReleaseClaim("r", 1, 1),
    ):
        assert queue.do(command).reason == "fenced", command
    assert claim(queue, epoch=2).messages == 4


def test_an_epoch_is_never_given_twice_even_when_the_reader_was_forgotten() -> None:
    queue = reading()
    queue.do(ReleaseClaim("r", 0, -1))
    assert queue.do(RegisterReader("r")) == ReaderReply(2, 1, 1)
    assert claim(queue, epoch=1).reason == "fenced"


def test_an_unknown_reader_is_refused() -> None:
    queue = Queue()
    for command in (
        OpenClaim("x", 1, 1, 1, 1),
        RenewClaims("x", 1),
        SettleClaims("x", 1, 1),
        ReleaseClaim("x", 1, -1),
    ):
        assert queue.do(command).reason == "unknown_reader", command


def test_impossible_sizes_are_refused() -> None:
    queue = reading()
    assert claim(queue, count=0).reason == "invalid"
    assert claim(queue, size=0).reason == "invalid"
    assert claim(queue, ttl_ms=-1).reason == "invalid"


def test_a_released_claim_goes_back_ahead_in_order_not_failed() -> None:
    queue = reading(3)
    claim(queue, count=2)
    queue.put(1, priorities=31)
    assert queue.do(ReleaseClaim("r", 1, 1)) == Count(2)
    assert queue.ready() == [(1, 0), (1, 1), (queue.index - 1, 0), (1, 2)]
    head = queue.state.order.head()
    assert head is not None and head[3:] == (0, 1)


def test_a_claim_released_as_failed_counts() -> None:
    queue = reading(1)
    claim(queue)
    queue.do(ReleaseClaim("r", 1, 1, True))
    head = queue.state.order.head()
    assert head is not None and head[3:] == (1, 1)


def test_a_released_claim_that_is_asked_for_is_lost_until_it_is_counted_as_settled() -> None:
    queue = reading()
    claim(queue)
    queue.do(ReleaseClaim("r", 1, -1))
    assert claim(queue).reason == "claim_lost"
    queue.do(RegisterReader("r", go_on_after=1))
    assert claim(queue, 2, epoch=2).messages == 4


def test_releasing_what_is_not_open_releases_nothing() -> None:
    assert reading().do(ReleaseClaim("r", 7, 1)) == Count(0)


def test_release_of_0_releases_all_and_forgets_the_reader() -> None:
    queue = reading()
    claim(queue)
    assert queue.do(ReleaseClaim("r", 0, -1)) == Count(4)
    assert queue.stat().readers == ()


def test_a_driver_that_accepts_the_loss_goes_on_after_it() -> None:
    queue = reading()
    queue.do(ReleaseClaim("r", 0, -1))
    assert queue.do(RegisterReader("r", go_on_after=7)) == ReaderReply(2, 7, 1)
    assert claim(queue, 8, epoch=2).messages == 4


def test_going_on_does_not_skip_a_claim_that_is_still_open() -> None:
    queue = reading()
    claim(queue)
    assert queue.do(RegisterReader("r", go_on_after=1)) == ReaderReply(2, 0, 2)
    assert claim(queue, 1, epoch=2).messages == 4


def test_a_claim_does_not_expire_by_default() -> None:
    queue = reading()
    claim(queue)
    assert queue.state.timer_ms == 0
    queue.tick(10**12)
    assert queue.stat().messages_claimed == 4


def test_a_claim_with_a_ttl_expires_and_is_lost() -> None:
    queue = reading()
    claim(queue, ttl_ms=100)
    assert queue.of(SetTimer) == [SetTimer(queue.now + 100)]
    queue.tick(99)
    assert queue.stat().messages_claimed == 4
    queue.tick(1)
    assert queue.stat().messages_claimed == 0 and queue.stat().returned == 4
    head = queue.state.order.head()
    assert head is not None and head[3:] == (0, 1)
    assert claim(queue).reason == "claim_lost"


def test_a_leader_with_a_clock_that_is_ahead_ends_claims_that_were_just_renewed() -> None:
    """The machine cannot distinguish it from an hour without a leader (claims.md)."""
    queue = reading()
    claim(queue, ttl_ms=30_000)
    queue.now += 10_000
    queue.do(RenewClaims("r", 1))
    queue.tick(3_600_000)
    assert queue.stat().messages_claimed == 0 and queue.stat().returned == 4
    assert claim(queue).reason == "claim_lost", "told, and not read silently"


def test_every_sign_of_life_postpones_expiry() -> None:
    for life in (
        RenewClaims("r", 1),
        OpenClaim("r", 1, 1, 1, 1),
        SettleClaims("r", 0, 1),
        RegisterReader("r"),
    ):
        queue = reading()
        claim(queue, ttl_ms=100)
        queue.now += 60
        queue.do(life)
        queue.tick(60)
        assert queue.stat().messages_claimed == 4, life
        assert queue.timers() == [queue.now + 40], life
        queue.tick(40)
        assert queue.stat().messages_claimed == 0, life


def test_an_operator_is_no_sign_of_life() -> None:
    queue = reading()
    claim(queue, ttl_ms=100)
    queue.now += 60
    queue.do(ReleaseClaim("r", 5, -1))
    queue.tick(40)
    assert queue.stat().messages_claimed == 0


def test_consumers_and_claims_compete_for_the_same_messages() -> None:
    queue = reading(0)
    queue.do(Checkout(1, 1, "t", 2))
    index = queue.put(5)
    assert queue.names() == [(index, 0), (index, 1)]
    assert claim(queue).runs == ((index, 2, 4, 0, 0),)


def test_readers_are_independent() -> None:
    queue = reading()
    queue.do(RegisterReader("s"))
    claim(queue)
    other = queue.do(OpenClaim("s", 1, 2, 4, 1000))
    assert other.runs == ((1, 4, 7, 0, 0),)
    assert [(of.name, of.epoch, of.settled, of.open_claims) for of in queue.stat().readers] == [
        ("r", 1, 0, 1),
        ("s", 2, 0, 1),
    ]


def test_a_slice_of_a_claim_is_numbered_in_claim_order() -> None:
    queue = Queue()
    low, high = queue.put(3, priorities=0), queue.put(3, priorities=9)
    queue.do(RegisterReader("r"))
    claim(queue, count=6)
    before = queue.digest()
    assert claim_slice(queue.state, "r", 1, 2, 4) == ((high, 2, 2, 0, 0), (low, 0, 0, 0, 0))
    assert claim_slice(queue.state, "r", 1, 5, 99) == ((low, 2, 2, 0, 0),)
    assert claim_slice(queue.state, "r", 1, 6, 7) == ()
    assert claim_slice(queue.state, "r", 2, 0, 1) is None
    assert claim_slice(queue.state, "x", 1, 0, 1) is None
    assert queue.digest() == before


def test_renewing_is_answered() -> None:
    assert reading().do(RenewClaims("r", 1)) == Done()


def test_a_call_to_register_that_was_held_up_does_not_fence_its_own_driver() -> None:
    queue = Queue()
    queue.put(10)
    assert queue.do(RegisterReader("r", call="a")) == ReaderReply(1, 0, 1)
    assert claim(queue).messages == 4
    assert queue.do(RegisterReader("r", call="a")) == ReaderReply(1, 0, 1)
    assert claim(queue).messages == 4, "fenced"


def test_a_call_held_up_until_another_driver_has_registered_fences_nobody() -> None:
    queue = Queue()
    queue.put(10)
    queue.do(RegisterReader("r", call="a"))
    assert queue.do(RegisterReader("r", call="b")) == ReaderReply(2, 0, 2)
    queue.state = restore(snapshot(queue.state))
    assert queue.do(RegisterReader("r", call="a")) == ReaderReply(1, 0, 2)
    assert claim(queue, epoch=2).messages == 4
    assert claim(queue, number=2, epoch=1).reason == "fenced"


def test_calls_without_a_name_and_calls_long_forgotten_are_calls_of_their_own() -> None:
    queue = Queue()
    for epoch in range(1, 4):
        assert queue.do(RegisterReader("r")) == ReaderReply(epoch, 0, epoch)
    for call in range(CALLS_KEPT_MAX + 1):
        queue.do(RegisterReader("r", call=f"c{call}"))
    assert len(queue.state.readers["r"].calls) == CALLS_KEPT_MAX
    assert queue.do(RegisterReader("r", call="c1")) == ReaderReply(5, 0, 3 + CALLS_KEPT_MAX + 1)
    assert queue.do(RegisterReader("r", call="c0")).epoch == 3 + CALLS_KEPT_MAX + 2


# ------------------------------------------------------------ readers that are forgotten

IDLE_MS = 1000


def names(queue: Queue) -> list[str]:
    return [reader.name for reader in queue.stat().readers]


def test_readers_that_were_silent_for_long_are_forgotten_when_another_one_comes() -> None:
    queue = reading()
    queue.do(RegisterReader("late", idle_ms=IDLE_MS))
    queue.now += IDLE_MS - 1
    queue.do(RegisterReader("a", idle_ms=IDLE_MS))
    assert names(queue) == ["a", "late", "r"]
    queue.do(RenewClaims("late", 2))
    queue.now += 1
    queue.do(RegisterReader("b", idle_ms=IDLE_MS))
    assert names(queue) == ["a", "b", "late"]


def test_a_reader_that_registers_again_does_not_forget_others() -> None:
    queue = reading()
    queue.do(RegisterReader("a", idle_ms=IDLE_MS))
    queue.now += 2 * IDLE_MS
    queue.do(RegisterReader("a", idle_ms=IDLE_MS))
    assert names(queue) == ["a", "r"]


def test_a_reader_with_an_open_claim_is_never_forgotten() -> None:
    queue = reading()
    claim(queue)
    queue.now += 10 * IDLE_MS
    queue.do(RegisterReader("a", idle_ms=IDLE_MS))
    assert names(queue) == ["a", "r"]
    assert queue.do(SettleClaims("r", 1, 1)) == Count(4)


def test_a_forgotten_reader_that_comes_back_is_told_and_its_numbers_are_not_used_again() -> None:
    queue = reading()
    claim(queue)
    queue.do(SettleClaims("r", 1, 1))
    queue.now += IDLE_MS
    queue.do(RegisterReader("a", idle_ms=IDLE_MS))
    assert queue.do(SettleClaims("r", 1, 1)).reason == "unknown_reader"
    back = queue.do(RegisterReader("r", idle_ms=IDLE_MS))
    assert back.settled == 2, "not 1, which is what its checkpoint says: it has been away"
    assert claim(queue, 2, epoch=back.epoch).reason == "claim_lost"
    assert claim(queue, 3, epoch=back.epoch).messages == 4


def test_the_claims_of_a_new_reader_never_have_numbers_that_an_old_checkpoint_knows() -> None:
    queue = reading()
    claim(queue)
    queue.do(ReleaseClaim("r", 0, -1))
    queue.state = restore(snapshot(queue.state))
    epoch = queue.do(RegisterReader("r")).epoch
    assert claim(queue, 3, epoch=epoch).messages == 4
    # The old checkpoint, which ends at claim 1, is started again.
    epoch = queue.do(RegisterReader("r")).epoch
    assert queue.do(SettleClaims("r", 1, epoch)) == Count(0)
    assert queue.stat().messages_claimed == 4, "what it never saw is still claimed"


def test_the_numbers_that_a_driver_went_on_after_are_not_used_again_either() -> None:
    queue = reading()
    queue.do(RegisterReader("r", go_on_after=7))
    queue.do(ReleaseClaim("r", 0, -1))
    assert queue.do(RegisterReader("r")).settled == 8


def test_claim_numbers_of_a_forgotten_reader_are_not_reused() -> None:
    queue = reading()
    queue.do(RegisterReader("few"))
    queue.do(RegisterReader("r", go_on_after=7))
    for name in ("r", "few"):
        queue.do(ReleaseClaim(name, 0, -1))
    assert queue.do(RegisterReader("r")).settled == 8


def test_at_the_bound_the_reader_that_was_silent_for_longest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claim_module, "READERS_MAX", 2)
    queue = reading()
    queue.now += 1
    queue.do(RegisterReader("a", idle_ms=IDLE_MS))
    queue.now += 1
    queue.do(RenewClaims("r", 1))
    queue.do(RegisterReader("b", idle_ms=IDLE_MS))
    assert names(queue) == ["b", "r"]


def test_the_bounds_are_the_same_in_every_release() -> None:
    # Members of different releases apply the same log to the same state.
    assert (CALLS_KEPT_MAX, claim_module.READERS_MAX) == (16, 1_024)


def test_how_many_readers_a_queue_knows_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_module, "READERS_MAX", 3)
    queue = reading()
    for name in "abcd":
        queue.now += 1
        queue.do(RegisterReader(name, idle_ms=IDLE_MS))
    assert names(queue) == ["b", "c", "d"]


def test_with_too_many_open_claims_a_new_reader_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claim_module, "READERS_MAX", 1)
    queue = reading()
    claim(queue)
    refused = queue.do(RegisterReader("a", idle_ms=IDLE_MS))
    assert refused.reason == "invalid" and "settle or release" in refused.detail
    assert names(queue) == ["r"]
    assert queue.do(RegisterReader("r", idle_ms=IDLE_MS)).settled == 0


def test_claims_that_expire_together_come_back_in_one_order_on_every_member() -> None:
    queue = Queue()
    queue.put(4)
    for epoch, name in enumerate(("b", "a"), 1):
        queue.do(RegisterReader(name))
        queue.do(OpenClaim(name, 1, epoch, 2, 10**6, 50))
    restored = queue.machine.restore(queue.machine.snapshot(queue.state))
    queue.tick(50)
    meta, data = queue.log[-1]
    queue.machine.apply(meta, data, restored)
    assert [*restored.order] == [*queue.state.order]
    assert queue.machine.snapshot(restored) == queue.digest()


def test_which_reader_is_forgotten_is_the_same_on_every_member(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claim_module, "READERS_MAX", 2)
    queue = Queue()
    for name in ("b", "a"):  # heard in the same millisecond
        queue.do(RegisterReader(name, 0, "", 1_000))
    restored = queue.machine.restore(queue.machine.snapshot(queue.state))
    queue.do(RegisterReader("c", 0, "", 1_000))
    meta, data = queue.log[-1]
    queue.machine.apply(meta, data, restored)
    assert sorted(restored.readers) == sorted(queue.state.readers) == ["b", "c"]


def test_a_queue_does_not_expire_under_a_claim() -> None:
    """It was deleted with everything in it while its only reader worked on a batch."""
    queue = reading(expires_ms=100)
    queue.do(OpenClaim("r", 1, 1, 4, 10**6))
    for _ in range(3):
        queue.state = restore(snapshot(queue.state))
        queue.tick(100)
        assert not queue.of(Expired)
    assert queue.do(Delete(if_unused=True)).reason == "in_use"
    queue.now += 50
    assert queue.do(SettleClaims("r", 1, 1)) == Count(4)
    queue.tick(99)
    assert not queue.of(Expired)
    queue.tick(1)
    assert queue.of(Expired) == [Expired("expires")]


@pytest.mark.parametrize("end", [ReleaseClaim("r", 1, 1), RegisterReader("s")])
def test_the_use_of_a_queue_ends_with_its_claim(end: AnyCommand) -> None:
    queue = reading(expires_ms=100)
    ttl_ms = 30 if isinstance(end, RegisterReader) else 0  # that one's entry finds it expired
    queue.do(OpenClaim("r", 1, 1, 4, 10**6, ttl_ms))
    queue.now += 60
    queue.do(end)
    assert queue.stat().messages_claimed == 0
    queue.tick(99)
    assert not queue.of(Expired)
    queue.tick(1)
    assert queue.of(Expired) == [Expired("expires")]


def test_who_asks_an_empty_queue_for_a_claim_uses_it() -> None:
    queue = reading(0, expires_ms=100)
    for _ in range(5):
        queue.tick(60)
        assert not queue.of(Expired)
        assert queue.do(OpenClaim("r", 1, 1, 4, 10**6)).messages == 0


def test_an_auto_delete_queue_goes_when_the_last_claim_ends() -> None:
    queue = reading(auto_delete=True, kind="classic")
    queue.do(Checkout(1, 1, "t", 1))
    queue.do(OpenClaim("r", 1, 1, 4, 10**6))
    queue.do(Cancel(1))
    assert queue.do(Delete(if_unused=True)).reason == "in_use"
    queue.do(SettleClaims("r", 1, 1))
    assert queue.of(Expired) == [Expired("auto_delete")]
