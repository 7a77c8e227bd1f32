"""A migration of queues: what is chosen, how many at a time, what is left, how counts compare."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from warren.cli.migrate import show_plan
from warren.cli.rabbitmq_source import fetch_definitions, parse_definitions, parse_source
from warren.errors import NotFound, UsageError
from warren.migration import (
    FAILED,
    MOVED,
    MOVES,
    WAITS,
    Chosen,
    Counts,
    Migration,
    MigrationPlan,
    QueueMigration,
    SourceQueue,
    choose,
    own_shovel,
)
from warren_wire.admin.definitions import ImportReport, NotHonoured
from warren_wire.admin.shovels import RUNNING, TERMINATED, ShovelInfo

SOURCE = "amqp://me:secret@rabbit.example/%2F"
PLAN = MigrationPlan(SOURCE, "amqp://guest:guest@/%2F", "/", at_once=2)


class Brokers:
    """Both ends: ready messages at the source and here, and shovels that move some per turn."""

    def __init__(self, source: dict[str, int], per_turn: int = 10) -> None:
        self.source = dict(source)
        self.here = dict.fromkeys(source, 0)
        self.consumers: dict[str, int] = {}
        self.values: dict[str, dict[str, Any]] = {}
        self.to_move: dict[str, int] = {}
        self.per_turn = per_turn
        self.failing: dict[str, str] = {}
        self.refused: set[str] = set()
        self.most = 0
        self.admin: Any = SimpleNamespace(
            queues=SimpleNamespace(get=self.queue),
            shovels=SimpleNamespace(list=self.shovels, delete=self.delete_shovel),
            parameters=SimpleNamespace(put=self.set_shovel),
        )

    def turn(self) -> None:
        self.most = max(self.most, len(self.values))
        for name, value in list(self.values.items()):
            queue = value["src-queue"]
            if name in self.failing:
                continue
            count = min(self.per_turn, self.source[queue], self.to_move[name])
            self.source[queue] -= count
            self.here[queue] += count
            self.to_move[name] -= count
            if value["src-delete-after"] == "queue-length" and not self.to_move[name]:
                del self.values[name]

    def ready(self, queue: str) -> int | None:
        return self.source.get(queue)

    def queue(self, name: str) -> Any:
        if name not in self.here:
            raise NotFound(name)
        consumers = self.consumers.get(name, 0)
        return SimpleNamespace(messages=self.here[name], consumer_count=consumers)

    def shovels(self, vhost: str | None = None) -> list[ShovelInfo]:
        assert vhost == "/"
        return [
            ShovelInfo(
                vhost="/",
                name=name,
                node="a",
                state=TERMINATED if name in self.failing else RUNNING,
                reason=self.failing.get(name, ""),
                access_refused=name in self.refused,
            )
            for name in self.values
        ]

    def set_shovel(self, component: str, vhost: str, name: str, value: dict[str, Any]) -> None:
        assert component == "shovel"
        self.values[name] = value
        follow = value["src-delete-after"] == "never"
        self.to_move[name] = 10**9 if follow else self.source[value["src-queue"]]

    def delete_shovel(self, vhost: str, name: str) -> None:
        if name not in self.values:
            raise NotFound(name)
        del self.values[name]


def migration(
    brokers: Brokers, plan: MigrationPlan = PLAN, counts: Counts | None = None
) -> Migration:
    return Migration(
        plan,
        sorted(brokers.here),
        brokers,
        brokers.admin,
        counts or Counts(None, SOURCE),
        None,
        Clock(),
    )


class Clock:
    """Time that passes by itself: a quarter of a second between two looks."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.25
        return self.now


def run(made: Migration, brokers: Brokers, turns: int = 1000) -> dict[str, QueueMigration]:
    """Run to the end, or for that many turns."""
    for _ in range(turns):
        made.step()
        if made.done:
            break
        brokers.turn()
    return {one.name: one for one in made.queues}


# ---------------------------------------------------------------------- moving


def test_all_queues_are_moved_two_at_a_time_and_the_counts_are_equal() -> None:
    brokers = Brokers({"a": 35, "b": 7, "c": 0, "d": 50})
    found = run(migration(brokers), brokers)
    assert [one.state for one in found.values()] == [MOVED] * 4
    assert brokers.here == {"a": 35, "b": 7, "c": 0, "d": 50} and brokers.most == 2
    assert [one.compared for one in found.values()] == [""] * 4 and not brokers.values
    assert (found["a"].before, found["a"].arrived, found["a"].short) == (35, 35, False)


def test_what_a_removed_shovel_still_holds_is_waited_for() -> None:
    brokers = Brokers({"a": 0, "b": 0})
    made = migration(brokers)
    assert run(made, brokers, turns=3)["a"].state == WAITS, "it may come back"
    brokers.source["a"] = 20
    found = run(made, brokers)
    assert (found["a"].state, found["b"].state) == (MOVED, MOVED)
    assert brokers.here["a"] == 20 and "20 more" in found["a"].compared


def test_what_was_interrupted_is_continued_and_compared_as_a_whole(tmp_path: Path) -> None:
    report = tmp_path / "counts.json"
    brokers = Brokers({"a": 35, "b": 80, "c": 5})
    brokers.here["a"] = 100
    run(migration(brokers, counts=Counts(report, SOURCE)), brokers, turns=2)
    assert 0 < brokers.source["b"] < 80
    again = migration(brokers, counts=Counts(report, SOURCE))
    found = run(again, brokers)
    assert brokers.here == {"a": 135, "b": 80, "c": 5}
    assert {one.name: (one.before, one.arrived, one.compared) for one in found.values()} == {
        "a": (35, 35, ""),
        "b": (80, 80, ""),
        "c": (5, 5, ""),
    }
    found = run(migration(brokers, counts=Counts(report, SOURCE)), brokers)
    assert all(one.state == MOVED and not one.compared for one in found.values())


def test_what_is_published_meanwhile_is_another_round() -> None:
    brokers = Brokers({"a": 20})
    made = migration(brokers)
    run(made, brokers, turns=1)
    brokers.source["a"] += 15
    found = run(made, brokers)
    assert brokers.here == {"a": 35} and "15 more" in found["a"].compared
    assert not found["a"].short


def test_messages_that_consumers_of_the_source_take_are_not_waited_for() -> None:
    # 1. The shovel waits for as many messages as there were.  2. A consumer of the source takes
    # some.  3. The shovel never has its number, and never removes itself.
    brokers = Brokers({"a": 20, "b": 5})
    made = migration(brokers)
    run(made, brokers, turns=1)
    brokers.source["a"] -= 3
    found = run(made, brokers)
    assert found["a"].state == MOVED and found["a"].compared.startswith("3 fewer")
    assert not brokers.values and not found["b"].compared


def test_what_comes_back_after_the_shovel_was_removed_is_another_round() -> None:
    # The consumer that had taken three ends without acknowledging them, when nothing was left.
    brokers = Brokers({"a": 20})
    made = migration(brokers)
    run(made, brokers, turns=1)
    brokers.source["a"] -= 3
    while brokers.values:
        made.step()
        brokers.turn()
    assert made.queues[0].state == MOVES, "it is looked at once more"
    brokers.source["a"] += 3
    found = run(made, brokers)
    assert brokers.here["a"] == 20 and not found["a"].compared and found["a"].state == MOVED


def test_a_queue_of_which_nothing_moves_fails_in_time_and_alone() -> None:
    brokers = Brokers({"a": 20, "b": 35})
    brokers.failing[own_shovel("a")] = "Connection refused"
    plan = MigrationPlan(SOURCE, "amqp://", "/", at_once=1, give_up_s=20)
    made = migration(brokers, plan)
    found = run(made, brokers)
    assert (found["a"].state, found["b"].state) == (FAILED, MOVED)
    assert "for 20 s: Connection refused. What is left is at the source" in found["a"].reason
    assert not brokers.values and brokers.source["a"] == 20


def test_refused_access_is_final_at_once_for_that_queue() -> None:
    brokers = Brokers({"a": 20, "b": 35})
    brokers.failing[own_shovel("a")] = "src-uri amqp://h: 403 ACCESS_REFUSED - refused"
    brokers.refused.add(own_shovel("a"))
    made = migration(brokers, MigrationPlan(SOURCE, "amqp://", "/", at_once=1, give_up_s=1e9))
    found = run(made, brokers)
    assert (found["a"].state, found["b"].state) == (FAILED, MOVED)
    assert "403 ACCESS_REFUSED" in found["a"].reason and "in --from or --uri" in found["a"].reason
    assert not brokers.values and brokers.source["a"] == 20


def test_missing_messages_are_said() -> None:
    brokers = Brokers({"a": 20})
    made = migration(brokers)
    run(made, brokers, turns=1)
    brokers.source["a"] -= 3  # a consumer of the source
    brokers.to_move[own_shovel("a")] -= 3
    found = run(made, brokers)
    assert found["a"].short and found["a"].compared.startswith("3 fewer")


def test_with_consumers_here_counts_are_not_compared() -> None:
    brokers = Brokers({"a": 20})
    brokers.consumers["a"] = 1
    found = run(migration(brokers), brokers)
    assert found["a"].compared == "not compared: the queue here has consumers"


def test_shovels_that_follow_stay_until_the_end_is_wanted() -> None:
    brokers = Brokers({"a": 20, "b": 0})
    follow = MigrationPlan(SOURCE, "amqp://", "/", at_once=2, follow=True)
    assert run(migration(brokers, follow), brokers)["a"].state == MOVED
    assert len(brokers.values) == 2
    brokers.source["b"] += 5
    brokers.turn()
    assert brokers.here["b"] == 5
    brokers.source["a"] += 5
    found = run(migration(brokers), brokers)
    assert not brokers.values and brokers.here == {"a": 25, "b": 5}
    assert all(one.state == MOVED for one in found.values())


def test_more_queues_than_shovels_cannot_be_followed() -> None:
    with pytest.raises(UsageError, match=r"3 queues, and --at-once is 2: raise it"):
        migration(Brokers({"a": 1, "b": 1, "c": 1}), MigrationPlan("", "", "/", 1, 2, follow=True))


def test_the_shovels_own_error_is_shown_while_it_tries_again() -> None:
    brokers = Brokers({"a": 20})
    brokers.failing[own_shovel("a")] = "Connection refused"
    made = migration(brokers)
    found = run(made, brokers, turns=3)
    assert (found["a"].state, found["a"].reason) == (MOVES, "Connection refused")
    brokers.failing.clear()
    assert run(made, brokers)["a"].state == MOVED and not found["a"].reason


def test_queues_that_are_not_there_fail_alone() -> None:
    brokers = Brokers({"a": 20, "b": 20, "c": 3, "d": 3})
    made = migration(brokers)
    run(made, brokers, turns=1)
    del brokers.source["a"], brokers.values[own_shovel("a")], brokers.here["c"]
    del brokers.source["d"]
    found = run(made, brokers)
    assert {one.name: one.state for one in found.values()} == {
        "a": FAILED,
        "b": MOVED,
        "c": FAILED,
        "d": FAILED,
    }
    assert "deleted meanwhile" in found["a"].reason and "here" in found["c"].reason
    assert "source" in found["d"].reason


def test_the_end_waits_for_confirms() -> None:
    brokers = Brokers({"a": 0})
    made = migration(brokers)
    brokers.values[own_shovel("a")] = {"src-queue": "a", "src-delete-after": "queue-length"}
    shown = brokers.shovels
    pending = [1]

    def with_pending(vhost: str | None = None) -> list[ShovelInfo]:
        return [
            ShovelInfo(vhost="/", name=one.name, node="a", state=RUNNING, pending=pending[0])
            for one in shown(vhost)
        ]

    brokers.admin.shovels.list = with_pending
    made.step()
    assert made.queues[0].state == MOVES and "confirms" in made.queues[0].reason
    brokers.here["a"] += 1
    brokers.values.clear()
    made.step()
    assert made.queues[0].state == MOVED


def test_names_of_shovels_are_different_and_short_enough() -> None:
    long = ["ü" * 120 + end for end in "ab"]
    names = {own_shovel(name) for name in ["a", "b", *long]}
    assert len(names) == 4 and all(len(name.encode()) <= 200 for name in names)
    assert all(name.startswith("migrate ") for name in names)


def test_passwords_are_not_shown() -> None:
    assert "secret" not in repr(PLAN) and "secret" not in str(parse_source(SOURCE))


# ---------------------------------------------------------------------- counts


def test_counts_of_another_source_or_damaged_ones_are_refused(tmp_path: Path) -> None:
    report = tmp_path / "counts.json"
    Counts(report, "amqp://one/").begin("a", 1, 2)
    assert Counts(report, "amqp://one/").queues["a"].target_before == 2
    with pytest.raises(UsageError, match="is of amqp://one/, not of amqp://two/"):
        Counts(report, "amqp://two/")
    for text in ("{", "[]", '{"source": "amqp://one/"}', '{"source": "x", "queues": {"a": 3}}'):
        report.write_text(text)
        with pytest.raises(UsageError, match="cannot be read"):
            Counts(report, "amqp://one/")
    with pytest.raises(UsageError, match="cannot be written"):
        Counts(tmp_path / "no" / "counts.json", "amqp://one/").begin("a", 1, 2)


# ---------------------------------------------------------------------- what is chosen

DEFINITIONS: dict[str, Any] = {
    "queues": [
        {"name": "orders", "vhost": "/", "durable": True, "arguments": {}},
        {"name": "orders-log", "vhost": "/", "arguments": {"x-queue-type": "stream"}},
        {"name": "other", "vhost": "/", "arguments": {}},
        {"name": "orders", "vhost": "test", "arguments": {"x-max-length": 3}},
    ],
    "exchanges": [{"name": "in", "vhost": "/"}, {"name": "test-in", "vhost": "test"}],
    "bindings": [
        {"source": "in", "vhost": "/", "destination": "orders", "destination_type": "queue"},
        {"source": "in", "vhost": "/", "destination": "other", "destination_type": "queue"},
        {"source": "in", "vhost": "/", "destination": "in2", "destination_type": "exchange"},
    ],
    "parameters": [
        {"component": "shovel", "name": "s", "vhost": "/", "value": {}},
        {"component": "mine", "name": "p", "vhost": "/", "value": 1},
    ],
    "users": [{"name": "guest"}],
}


def test_one_vhosts_objects_and_the_queues_of_a_pattern_are_chosen() -> None:
    found = choose(DEFINITIONS, "/", "^orders")
    assert found.queues == ("orders",)
    assert found.document == {
        "queues": [{"name": "orders", "durable": True, "arguments": {}}],
        "exchanges": [{"name": "in"}],
        "bindings": [
            {"source": "in", "destination": "orders", "destination_type": "queue"},
            {"source": "in", "destination": "in2", "destination_type": "exchange"},
        ],
        "policies": [],
        "parameters": [{"component": "mine", "name": "p", "value": 1}],
    }
    assert [name for name, _ in found.left_out] == ["queue orders-log", "shovel s"]
    assert choose(DEFINITIONS, "test", ".*").document["queues"][0]["arguments"] == {
        "x-max-length": 3
    }


def test_what_a_shovel_would_destroy_or_wait_for_is_left_out_with_its_reason() -> None:
    rows: list[dict[str, Any]] = [
        {"name": "passing", "auto_delete": True},
        {"name": "one", "arguments": {"x-single-active-consumer": True}},
        {"name": "idle", "arguments": {"x-single-active-consumer": True}},
        {"name": "amq.gen-x"},
        {"name": "mine", "exclusive": True},
    ]
    known = {
        name: SourceQueue(name, exclusive=name == "private", consumers=int(name == "one"))
        for name in ("passing", "one", "idle", "private", "fresh")
    }
    found = choose({"queues": rows}, "/", ".*", known)
    assert found.queues == ("idle",)
    reasons = dict(found.left_out)
    assert {name: reason.split(":")[0] for name, reason in reasons.items()} == {
        "queue passing": "it is auto-delete",
        "queue one": "it has a single active consumer, for which a shovel would wait",
        "queue amq.gen-x": "the broker has named it for a client, which will have another one here",
        "queue mine": "it is exclusive",
        "queue private": "it is exclusive",
        "queue fresh": "the definitions do not have it",
    }


@pytest.mark.parametrize(
    ("definitions", "pattern", "text"),
    [
        (DEFINITIONS, "(", "is not a regular expression"),
        ({"queues": {}}, ".*", "queues is no list of objects"),
        ({"bindings": [1]}, ".*", "bindings is no list of objects"),
        ({"queues": [{"vhost": "/"}]}, ".*", "a queue has no name"),
    ],
)
def test_what_is_no_definitions_is_refused(
    definitions: dict[str, Any], pattern: str, text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        choose(definitions, "/", pattern)


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"3"])
def test_a_file_that_is_no_definitions_is_refused(data: bytes) -> None:
    with pytest.raises(UsageError, match=r"file\.json has no definitions"):
        parse_definitions(data, "file.json")


def test_a_source_needs_a_host() -> None:
    with pytest.raises(UsageError, match="--from has no host"):
        parse_source("amqp:///")
    with pytest.raises(UsageError, match="--from is not a valid URI"):
        parse_source("http://localhost/")


# ---------------------------------------------------------------------- the HTTP API


@pytest.fixture
def api() -> Iterator[tuple[str, dict[str, tuple[int, bytes]], list[str]]]:
    """An HTTP server: its address, its answers by path, and what it was asked with."""
    answers: dict[str, tuple[int, bytes]] = {}
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.path} {self.headers['Authorization']}")
            code, body = answers.get(self.path, (404, b"{}"))
            self.send_response(code)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", answers, asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_definitions_come_from_the_http_api(
    api: tuple[str, dict[str, tuple[int, bytes]], list[str]],
) -> None:
    address, answers, asked = api
    answers["/api/definitions/a%2Fb"] = (200, json.dumps(DEFINITIONS).encode())
    source = parse_source("amqp://me:se%3Acret@127.0.0.1/a%2Fb")
    assert fetch_definitions(source, address) == DEFINITIONS
    assert asked == ["/api/definitions/a%2Fb Basic bWU6c2U6Y3JldA=="]
    answers["/api/definitions/a%2Fb"] = (401, b"{}")
    with pytest.raises(UsageError, match="401: user or password is refused") as refused:
        fetch_definitions(source, address)
    assert "cret" not in str(refused.value)
    with pytest.raises(UsageError, match="404: there is no vhost none"):
        fetch_definitions(parse_source("amqp://127.0.0.1/none"), address)
    answers["/api/definitions/a%2Fb"] = (200, b"<html>")
    with pytest.raises(UsageError, match="has no definitions of RabbitMQ"):
        fetch_definitions(source, address)
    with pytest.raises(UsageError, match=r"cannot be reached: .* give --management"):
        fetch_definitions(source, "http://127.0.0.1:9")
    with pytest.raises(UsageError, match="--management is not an address"):
        fetch_definitions(source, "ftp://me:secret@h")


def test_a_queue_waits_until_there_is_a_place() -> None:
    brokers = Brokers({"a": 100, "b": 100, "c": 100})
    found = run(migration(brokers), brokers, turns=1)
    assert [one.state for one in found.values()] == [MOVES, MOVES, WAITS]


def test_what_an_import_left_out_whole_is_shown_without_a_key(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It was `exchange 'amq.x': : left out`."""
    left_out = (
        NotHonoured("exchange 'amq.x'", "", "left out"),
        NotHonoured("queue 'q'", "arguments.x", "unknown"),
    )
    imported = ImportReport(False, {}, not_honoured=left_out, not_honoured_count=2)
    show_plan(Chosen({}, (), ()), imported, None, None)
    shown = capsys.readouterr()
    lines = (shown.out + shown.err).splitlines()
    assert lines[1:3] == ["  exchange 'amq.x': left out", "  queue 'q': arguments.x: unknown"]
