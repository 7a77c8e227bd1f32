"""When a peer is suspected, and when it is not any more."""

from __future__ import annotations

from warren_raft.runtime.failure_detector import FailureDetector, News


def detector(now: int = 0) -> FailureDetector:
    made = FailureDetector(suspect_after_ms=1000, disconnect_grace_ms=150, now_ms=now)
    made.add("b", now)
    return made


def checks(made: FailureDetector, first: int, last: int, heard: bool = False) -> list[News]:
    """Check every 100 ms, as the host does."""
    news: list[News] = []
    for now in range(first, last + 1, 100):
        if heard:
            made.heard("b", now)
        news += [what for _, what in made.check(now)]
    return news


def test_a_peer_that_never_appears_is_suspected_after_a_while() -> None:
    made = detector()
    assert checks(made, 100, 900) == []
    assert checks(made, 1000, 3000) == [News.SUSPECTED]
    assert made.suspected("b")
    assert made.connected("b", 3001) == [("b", News.BACK)]
    assert not made.suspected("b")


def test_silence_is_suspicious_and_a_sign_of_life_ends_it() -> None:
    made = detector()
    made.connected("b", 0)
    assert checks(made, 100, 2000, heard=True) == []
    assert checks(made, 2100, 2900) == []
    assert checks(made, 3000, 4000) == [News.SUSPECTED]
    assert checks(made, 4100, 4300, heard=True) == [News.BACK]


def test_a_broken_connection_has_its_grace() -> None:
    made = detector()
    made.connected("b", 0)
    checks(made, 100, 500, heard=True)
    assert made.disconnected("b", 520) == 150
    assert made.check(600) == []
    assert made.check(670) == [("b", News.SUSPECTED)]
    made.connected("b", 700)
    made.disconnected("b", 720)
    assert made.connected("b", 800) == []
    assert made.check(900) == []


def test_a_port_that_refuses_means_a_dead_process() -> None:
    made = detector()
    made.connected("b", 0)
    assert made.refused("b") == [], "a connection stands: that was an old attempt"
    made.disconnected("b", 100)
    assert not made.gone("b")
    assert made.refused("b") == [("b", News.SUSPECTED), ("b", News.GONE)]
    assert made.refused("b") == [] and made.gone("b")


def test_a_process_that_was_stopped_itself_suspects_nobody_for_it() -> None:
    made = detector()
    made.connected("b", 0)
    assert checks(made, 100, 300, heard=True) == []
    assert made.check(60_000) == [], "what it sent lies unread in the socket"
    assert checks(made, 60_100, 60_900) == []
    assert checks(made, 61_000, 61_100) == [News.SUSPECTED]


def test_strangers_are_not_suspected() -> None:
    assert not detector().suspected("z")
