"""Rates and samples of the HTTP API: pure arithmetic of what nodes have counted."""

from __future__ import annotations

from typing import Any

from warren_broker.http.sample_ranges import Range
from warren_broker.http.samples import SAMPLES_KEPT, Samples

PUBLISH = "global_messages_received"


def totals(node: str, at_ms: int, published: int, messages: int = 0, boot: int = 1) -> Any:
    """What a node says."""
    led = {"messages": messages, "messages_ready": messages, "messages_unacknowledged": 0}
    vhosts = {"/": led, "other": led}
    counters = {PUBLISH: published}
    return {"node": node, "boot": boot, "at_ms": at_ms, "counters": counters, "vhosts": vhosts}


def test_a_rate_is_the_sum_of_the_nodes_differences_by_their_own_clocks() -> None:
    samples = Samples()
    assert samples.rate(PUBLISH) == 0
    samples.add(10_000, [totals("a", 50, 100), totals("b", 7_000, 1_000)])
    assert samples.rate(PUBLISH) == 0, "one sample is no difference"
    samples.add(15_000, [totals("a", 5_050, 150, 3), totals("b", 11_000, 1_080, 2)])
    assert samples.rate(PUBLISH) == 30
    assert samples.details("messages", None, 15_000) == {"rate": 2.0}, "five more, in two vhosts"
    samples.add(20_000, [totals("a", 10_050, 150, 0), totals("b", 16_000, 1_080, 0)])
    assert samples.rate(PUBLISH) == 0 and samples.rate("messages") == -2


def test_a_node_that_restarted_or_was_out_of_reach_has_no_rate_before_its_second_sample() -> None:
    samples = Samples()
    samples.add(0, [totals("a", 1_000, 500), totals("b", 1_000, 500)])
    samples.add(5_000, [totals("a", 100, 3, boot=2)])
    assert samples.rate(PUBLISH) == 0, "neither the restarted one nor the missing one"
    samples.add(10_000, [totals("a", 1_100, 13, boot=2), totals("b", 11_000, 600)])
    assert samples.rate(PUBLISH) == 10
    samples.clear()
    samples.add(15_000, [totals("a", 6_100, 63, boot=2)])
    assert samples.rate(PUBLISH) == 0


def test_samples_of_a_counter_do_not_go_down_when_a_node_restarts_or_is_out_of_reach() -> None:
    """Before: what the ended process had counted was in the older ones, and avg_rate below 0."""
    samples, wanted = Samples(), Range(15_000, 5_000)

    def shown(now_ms: int) -> list[int]:
        details = samples.details(PUBLISH, wanted, now_ms)
        assert details["avg_rate"] >= 0, details
        return [one["sample"] for one in details["samples"]]

    samples.add(5_000, [totals("a", 1_000, 500), totals("b", 1_000, 70)])
    samples.add(10_000, [totals("a", 100, 3, boot=2), totals("b", 6_000, 80)])
    assert shown(10_000) == [83, 70], "the restarted node's are those of its present process"
    samples.add(15_000, [totals("a", 5_100, 4, boot=2)])
    assert shown(15_000) == [4, 3, 0], "of the node that is out of reach there are none"
    samples.add(20_000, [totals("a", 10_100, 5, boot=2), totals("b", 16_000, 90)])
    assert shown(20_000) == [95, 84, 83, 70], "and what it had counted when it is back"


def test_samples_are_given_at_multiples_of_the_step_the_latest_first() -> None:
    samples = Samples()
    for step in range(SAMPLES_KEPT + 5):
        samples.add(5_000 * step, [totals("a", 5_000 * step, 10 * step)])
    last = 5_000 * (SAMPLES_KEPT + 4)
    shown = samples.details(PUBLISH, Range(30_000, 10_000), last + 1)
    assert [one["timestamp"] for one in shown["samples"]] == [
        *(last - last % 10_000, last - last % 10_000 - 10_000, last - last % 10_000 - 20_000)
    ]
    assert shown["rate"] == shown["avg_rate"] == 2.0
    assert shown["avg"] == shown["samples"][1]["sample"]
    every = samples.details(PUBLISH, Range(3_600_000, 10_000), last)["samples"]
    assert len(every) == SAMPLES_KEPT // 2, "older ones are not kept"
    assert Samples().details(PUBLISH, Range(60_000, 5_000), last) == {
        "rate": 0.0,
        "samples": [],
        "avg": 0.0,
        "avg_rate": 0.0,
    }
