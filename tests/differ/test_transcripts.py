"""What counts as a difference."""

from __future__ import annotations

from differ.script import Step
from differ.transcripts import Known, differences, parse, text_of

THEIRS = [Step("1. get q", ["Basic.GetEmpty"]), Step("2. ack 1"), Step("3. count q", ["5", "6"])]


def test_equal_transcripts() -> None:
    assert differences("s", THEIRS, THEIRS) == ([], set())


def test_a_transcript_survives_its_file() -> None:
    assert parse("remarks\n\n" + text_of({"s": THEIRS, "t": []})) == {"s": THEIRS, "t": []}


def test_a_difference_shows_both_sides() -> None:
    ours = [THEIRS[0], THEIRS[1], Step("3. count q", ["5"])]
    found, used = differences("s", THEIRS, ours)
    assert found == ["s, step 3. count q\n  RabbitMQ: 5\n  RabbitMQ: 6\n  Warren:   5"]
    assert not used


def test_a_step_that_is_missing() -> None:
    found, _ = differences("s", THEIRS, THEIRS[:2])
    assert found == ["s: 3 steps on RabbitMQ, 2 on Warren"]


def test_another_step() -> None:
    ours = [THEIRS[0], Step("2. ack 2"), THEIRS[2]]
    everything = Known("row", "", rabbitmq=((r"(?s).*", "x"),), warren=((r"(?s).*", "x"),))
    found, used = differences("s", THEIRS, ours, [everything])
    assert found and not used, "a known difference is one of what is observed"


def test_known_differences_explain_a_step_together_or_not_at_all() -> None:
    ours = [THEIRS[0], THEIRS[1], Step("3. count q", ["7", "8"])]
    five = Known("five", "^s 3[.]", rabbitmq=(("5", "7"),))
    six = Known("six", "count", warren=(("8", "6"),))
    elsewhere = Known("elsewhere", "^t ", rabbitmq=(("5", "7"),))
    assert differences("s", THEIRS, ours, [five, six, elsewhere]) == ([], {five, six})
    found, used = differences("s", THEIRS, ours, [five])
    assert len(found) == 1 and not used
