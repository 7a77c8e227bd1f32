"""What a leader believes about one follower."""

from __future__ import annotations

import pytest

from warren_raft.core.progress import Progress


def replicating(match: int, next_index: int) -> Progress:
    progress = Progress(match + 1, False, 0)
    progress.sent(match, 0, 0, 0)
    assert progress.accepted(match, 0, 0) == (match > 0)
    for index in range(match + 1, next_index):
        progress.sent(index, 10, 0, 0)
    progress.check()
    return progress


def test_it_begins_with_one_guess() -> None:
    progress = Progress(8, False, 0)
    progress.sent(9, 20, 3, 5)
    assert progress.next == 8, "a probe is repeated from the same place"
    assert progress.unanswered
    assert progress.waiting_since == 5


def test_an_accepted_guess_ends_probing() -> None:
    progress = Progress(8, False, 0)
    progress.sent(9, 20, 3, 5)
    assert progress.accepted(9, 3, 6)
    assert (progress.match, progress.next, progress.probing) == (9, 10, False)
    assert not progress.waiting


def test_a_refused_guess_backs_up() -> None:
    progress = Progress(8, False, 0)
    progress.sent(7, 0, 0, 0)
    assert progress.rejected(7)
    progress.back_up_to(4)
    assert (progress.next, progress.probing, progress.unanswered) == (4, True, False)


def test_a_refusal_of_another_guess_is_ignored() -> None:
    progress = Progress(8, False, 0)
    progress.sent(7, 0, 0, 0)
    assert not progress.rejected(5)
    assert progress.unanswered


def test_a_refusal_of_what_was_accepted_since_is_ignored() -> None:
    progress = replicating(5, 9)
    assert not progress.rejected(5)
    assert not progress.rejected(9)
    assert progress.rejected(7)


def test_backing_up_never_goes_below_match() -> None:
    progress = replicating(5, 9)
    progress.back_up_to(2)
    assert progress.next == 6


def test_an_answer_puts_off_the_repeat_of_what_is_still_under_way() -> None:
    progress = replicating(5, 9)
    assert progress.accepted(6, 0, 700) and progress.waiting
    assert progress.waiting_since == 700


@pytest.mark.parametrize("seam", [Progress.pause, Progress.resume])
def test_a_new_connection_is_asked_anew_who_it_is(seam: object) -> None:
    progress = replicating(5, 6)
    progress.asked, progress.vouched = 3, True
    seam(progress)  # type: ignore[operator]
    assert (progress.asked, progress.vouched) == (0, False)


def test_bytes_under_way_are_counted_down() -> None:
    progress = replicating(5, 9)
    assert progress.inflight_bytes == 30
    progress.accepted(7, 0, 2)
    assert (progress.inflight_bytes, len(progress.inflight)) == (10, 1)
    progress.check()


def test_answers_out_of_order() -> None:
    progress = replicating(5, 9)
    assert progress.accepted(8, 0, 2)
    assert not progress.accepted(6, 0, 2)
    assert (progress.match, progress.next) == (8, 9)
    progress.check()


def test_silence_forgets_what_is_under_way() -> None:
    progress = replicating(5, 9)
    progress.become_probe()
    assert (progress.next, progress.inflight_bytes, progress.waiting) == (6, 0, False)


def test_a_guess_survives_silence() -> None:
    progress = Progress(800, False, 0)
    progress.sent(800, 0, 0, 0)
    progress.become_probe()
    assert progress.next == 800, "from match + 1 = 1 on the whole log would be sent"


def test_the_news_of_a_commit_is_waited_for() -> None:
    progress = replicating(5, 6)
    progress.sent(5, 0, 4, 7)
    assert progress.waiting
    progress.accepted(5, 3, 8)
    assert progress.waiting
    progress.accepted(5, 4, 9)
    assert not progress.waiting


def test_a_new_process_has_forgotten_the_commit() -> None:
    progress = replicating(5, 6)
    progress.accepted(5, 4, 8)
    progress.resume()
    assert progress.commit_known == 0


def test_nothing_is_sent_to_a_suspected_node() -> None:
    progress = replicating(5, 9)
    progress.pause()
    assert not progress.waiting
    with pytest.raises(AssertionError):
        progress.sent(6, 1, 0, 0)
    progress.resume()
    progress.sent(6, 1, 0, 0)
