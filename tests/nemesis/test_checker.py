"""The judge of histories, on good ones and on ones with a planted wrong."""

from __future__ import annotations

import pytest

from nemesis import body, faults, history
from nemesis.checker import MUST_BE_NONE, Checker


def good():
    """Two messages of one stream, confirmed, delivered, acknowledged; a claim; a batch."""
    return [
        {"e": "stream", "s": "p.1", "node": 0},
        *({"e": "publish", "s": "p.1", "n": n, "q": "a", "y": 4} for n in (1, 2, 3)),
        {"e": "confirm", "s": "p.1", "n": [[1, 2]]},
        {"e": "unknown", "s": "p.1", "n": [[3, 3]]},
        {"e": "deliver", "c": "c.1", "q": "a", "s": "p.1", "n": 1, "r": False},
        {"e": "ack", "c": "c.1", "s": "p.1", "n": 1},
        {"e": "deliver", "c": "c.1", "q": "a", "s": "p.1", "n": 2, "r": False},
        {"e": "ack", "c": "c.1", "s": "p.1", "n": 2},
        *({"e": "publish", "s": "p.2", "n": n, "q": "k", "y": 4} for n in (1, 2)),
        {"e": "confirm", "s": "p.2", "n": [[1, 2]]},
        {"e": "claimed", "q": "k", "reader": "r", "number": 1, "ids": [["p.2", 1]]},
        {"e": "claimed", "q": "k", "reader": "r", "number": 1, "ids": [["p.2", 1]]},
        {"e": "settled", "q": "k", "reader": "r", "number": 1},
        {"e": "claimed", "q": "k", "reader": "r", "number": 2, "ids": [["p.2", 2]]},
        {"e": "staged", "q": "s", "sink": "w", "batch": 0, "ids": [["w.0", 0], ["w.0", 1]]},
        {"e": "batch", "q": "s", "sink": "w", "batch": 0},
        {"e": "deliver", "c": "c.2", "q": "s", "s": "w.0", "n": 0, "r": False},
        {"e": "deliver", "c": "c.2", "q": "s", "s": "w.0", "n": 1, "r": False},
    ]


def judge(events):
    return Checker().check({"t": float(i), **event} for i, event in enumerate(events))


def has(event, fields):
    return all(event.get(key) == value for key, value in fields.items())


def without(events, **fields):
    """All but the one event with these fields."""
    rest = [event for event in events if not has(event, fields)]
    assert len(rest) == len(events) - 1
    return rest


def first(events, **fields):
    return next(i for i, event in enumerate(events) if has(event, fields))


def only(verdict, kind):
    assert {name for name, cases in verdict.wrong.items() if cases} == {kind}, verdict.wrong


def test_a_good_history_is_clean():
    verdict = judge(good())
    assert verdict.clean, verdict.wrong
    assert verdict.counts["messages confirmed"] == 6
    assert set(verdict.wrong) == set(MUST_BE_NONE)


def test_planted_loss():
    only(judge(without(good(), e="deliver", s="p.1", n=2)), "lost")


def test_a_message_that_was_not_confirmed_may_be_gone_or_come():
    arrived = {"e": "deliver", "c": "c.1", "q": "a", "s": "p.1", "n": 3, "r": False}
    assert judge([*good(), arrived]).clean


@pytest.mark.specification(
    "reliability-guide: Without acknowledgements, message loss is possible",
    "mirrored-queues: If consumers use automatic acknowledgement mode",
)
def test_without_acks_a_loss_is_counted_and_allowed():
    events = [{"e": "no_ack", "q": "a"}, *without(good(), e="deliver", s="p.1", n=2)]
    verdict = judge(events)
    assert verdict.clean
    assert verdict.counts["lost where acks are off"] == 1


def dead_letters(*deliveries):
    """Two confirmed messages that die, and how they arrive."""
    return [
        {"e": "repeats", "q": "d"},
        *({"e": "publish", "s": "p.1", "n": n, "q": "d", "y": 4} for n in (1, 2)),
        {"e": "confirm", "s": "p.1", "n": [[1, 2]]},
        *({"e": "deliver", "c": "c", "q": "d", "s": "p.1", "n": n, "r": False} for n in deliveries),
    ]


def test_dead_letters_may_come_twice_and_in_any_order():
    verdict = judge(dead_letters(2, 1, 2))
    assert verdict.clean, verdict.wrong
    assert (verdict.counts["messages that may repeat"], verdict.counts["repeated"]) == (2, 1)


def test_planted_loss_of_a_dead_letter():
    only(judge(dead_letters(2)), "lost")


def test_planted_duplicate():
    again = {"e": "deliver", "c": "c.9", "q": "a", "s": "p.1", "n": 1, "r": False}
    only(judge([*good(), again]), "duplicated")


def test_redelivered_after_its_channel_has_gone_is_what_at_least_once_means():
    again = {"e": "deliver", "c": "c.9", "q": "a", "s": "p.1", "n": 1, "r": True}
    assert judge([*good(), {"e": "gone", "c": "c.1"}, again]).clean


def test_planted_redelivery_of_what_was_acknowledged():
    again = {"e": "deliver", "c": "c.9", "q": "a", "s": "p.1", "n": 1, "r": True}
    only(judge([*good(), again]), "needless")


def test_a_fault_explains_it():
    again = {"e": "deliver", "c": "c.9", "q": "a", "s": "p.1", "n": 1, "r": True}
    begin = {"e": "fault", "kind": "kill", "phase": "begin"}
    assert judge([*good(), begin, again]).clean


def test_planted_stranger():
    stranger = {"e": "deliver", "c": "c.1", "q": "a", "s": "p.1", "n": 77, "r": False}
    only(judge([*good(), stranger]), "unexpected")


def test_planted_message_of_another_queue():
    only(
        judge([*good(), {"e": "deliver", "c": "c.1", "q": "s", "s": "p.1", "n": 3, "r": False}]),
        "unexpected",
    )


def test_planted_reorder():
    events = good()
    one, two = (first(events, e="deliver", s="p.1", n=n) for n in (1, 2))
    events[one], events[two] = events[two], events[one]
    only(judge(events), "reordered")


def test_another_priority_may_overtake():
    events = good()
    events[first(events, e="publish", s="p.1", n=2)]["y"] = 9
    one, two = (first(events, e="deliver", s="p.1", n=n) for n in (1, 2))
    events[one], events[two] = events[two], events[one]
    assert judge(events).clean


def test_planted_change_of_a_claim():
    changed = {"e": "claimed", "q": "k", "reader": "r", "number": 1, "ids": [["p.2", 2]]}
    only(judge([*good(), changed]), "claim changed")


def test_planted_overlap_of_claims():
    third = {"e": "claimed", "q": "k", "reader": "r", "number": 3, "ids": [["p.2", 2]]}
    only(judge([*good(), third]), "claims overlap")


def test_planted_torn_batch():
    verdict = judge(without(good(), e="deliver", s="w.0", n=1))
    assert verdict.wrong["batch torn"]
    assert verdict.wrong["lost"]


def test_planted_losing_attempt():
    loser = {"e": "deliver", "c": "c.2", "q": "s", "s": "w.loses", "n": 0, "r": False}
    only(judge([*good(), loser]), "unexpected")


def test_planted_older_batch_after_a_newer():
    events = [
        *good(),
        {"e": "staged", "q": "s", "sink": "w", "batch": 1, "ids": [["w.1", 0]]},
        {"e": "batch", "q": "s", "sink": "w", "batch": 1},
    ]
    newer = {"e": "deliver", "c": "c.2", "q": "s", "s": "w.1", "n": 0, "r": False}
    at = first(events, e="deliver", s="w.0", n=0)
    staged = first(events, e="staged", batch=1)
    moved = [*events[:at], events[staged], newer, *events[at:staged], *events[staged + 1 :]]
    verdict = judge(moved)
    assert verdict.wrong["batch reordered"]


def test_what_the_run_saw_itself_counts():
    only(judge([*good(), {"e": "problem", "what": "a node ended by itself"}]), "problem")


def test_the_gap_belongs_to_the_fault_and_to_clients_of_other_nodes():
    def gap(node):
        return judge(
            [
                {"e": "stream", "s": "p.1", "node": node},
                *({"e": "publish", "s": "p.1", "n": n, "q": "a", "y": 4} for n in (1, 2)),
                {"e": "confirm", "s": "p.1", "n": [[1, 1]]},
                {"e": "fault", "kind": "kill", "phase": "begin"},
                {"e": "fault", "kind": "", "phase": "hit", "nodes": [1]},
                {"e": "fault", "kind": "kill", "phase": "end"},
                {"e": "confirm", "s": "p.1", "n": [[2, 2]]},
                {"e": "deliver", "c": "c", "q": "a", "s": "p.1", "n": 1, "r": False},
                {"e": "deliver", "c": "c", "q": "a", "s": "p.1", "n": 2, "r": False},
            ]
        ).gaps

    assert gap(node=0) == {"kill": 4.0, "none": 2.0}
    assert gap(node=1) == {"none": 2.0}


def test_a_publisher_with_nothing_open_waits_for_nothing():
    def publish(n):
        return {"e": "publish", "s": "p.1", "n": n, "q": "a", "y": 4}

    verdict = judge(
        [
            publish(1),
            {"e": "confirm", "s": "p.1", "n": [[1, 1]]},
            {"e": "fault", "kind": "kill", "phase": "begin"},
            {"e": "fault", "kind": "kill", "phase": "end"},
            publish(2),
            {"e": "confirm", "s": "p.1", "n": [[2, 2]]},
            {"e": "deliver", "c": "c", "q": "a", "s": "p.1", "n": 1, "r": False},
            {"e": "deliver", "c": "c", "q": "a", "s": "p.1", "n": 2, "r": False},
        ]
    )
    assert verdict.gaps == {"none": 1.0}


def test_history_is_read_as_it_was_written(tmp_path):
    record = history.Recorder(tmp_path / "history.jsonl")
    record("publish", s="p", n=1, q="a", y=4)
    record("fault", kind="kill", phase="begin")
    record.close()
    read = list(history.read(tmp_path / "history.jsonl"))
    assert [event["e"] for event in read] == ["publish", "fault"]
    assert read[0]["t"] <= read[1]["t"]
    assert history.runs([1, 2, 3, 7, 9, 10]) == [[1, 3], [7, 7], [9, 10]]


@pytest.mark.parametrize("size_bytes", [0, 1, 30, 5000])
def test_a_body_says_who_sent_it_and_shows_damage(size_bytes):
    made = body.make("orders-0.12", 77, size_bytes)
    assert body.parse(made) == ("orders-0.12", 77)
    assert len(made) >= size_bytes
    assert body.parse(made + b"x") is None
    assert body.parse(made[1:]) != ("orders-0.12", 77)
    assert body.parse(b"") is None


def test_a_seed_gives_one_schedule_with_every_kind_in_each_round():
    kinds = list(faults.FAULTS)
    planned = faults.schedule(7, kinds, 3 * len(kinds))
    assert planned == faults.schedule(7, kinds, 3 * len(kinds))
    assert planned != faults.schedule(8, kinds, 3 * len(kinds))
    for i in range(3):
        round_ = planned[i * len(kinds) : (i + 1) * len(kinds)]
        assert sorted(each.kind for each in round_) == sorted(kinds)
