"""What a command says and does while no node answers."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from python.fake_broker import FakeCluster, FakeNode
from tests.patience import PATIENCE_S, TooSlow, with_time_enough
from warren.cli import output, unanswered
from warren.cli.app import app
from warren.errors import ConnectionLost, NoNodeReached, NothingListens, StillUnderWay
from warren_wire import errors
from warren_wire.admin import members
from warren_wire.admin import queues as resource

LIMIT_S = 0.3
"""Of a request, by the address."""


class AtOnce(threading.Timer):
    """A timer that is due when it starts."""

    def start(self) -> None:
        """Do it."""
        self.function()


@pytest.fixture
def refusing() -> Iterator[str]:
    """An address where nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def run(monkeypatch: pytest.MonkeyPatch, hosts: str, *words: str, limit_s: float) -> Result:
    """Run a command that says at once what does not answer."""
    monkeypatch.setattr(unanswered, "Timer", AtOnce)
    environment = {
        "WARREN_URI": f"amqp://guest:guest@{hosts}/?request_timeout={limit_s:g}",
        "COLUMNS": "400",
        "TERM": "dumb",
    }
    return CliRunner().invoke(app, list(words), env=environment)


VERBS = (
    ("--wait", "definitions", "export", "never-written.json"),
    ("definitions", "import", "definitions.json"),
    ("queues", "sync", "q"),
    ("queues", "list", "--wait"),
    ("nodes", "drain", "w-1", "--wait"),
)


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_a_command_without_a_node_says_so_and_gives_up_with_the_address(
    words: tuple[str, ...], refusing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Exports and imports waited 120 s for a first connection, `sync` 600 s, and said nothing."""
    monkeypatch.chdir(tmp_path)
    Path("definitions.json").write_text("{}")
    done = run(monkeypatch, refusing, *words, limit_s=LIMIT_S)
    assert isinstance(done.exception, NoNodeReached)
    refused = f"gave up after {LIMIT_S:g} s: cannot connect to {refusing}: Connection refused"
    assert str(done.exception) == refused
    assert re.search(
        rf"no answer yet: no answer from {refusing}; trying on until \d\d:\d\d:\d\d \(\d s\)\n",
        done.stderr,
    )
    assert not Path("never-written.json").exists()


@pytest.mark.parametrize("words", [("queues", "list"), ("definitions", "export", "a.json")])
def test_one_that_only_reads_says_at_once_that_all_addresses_refuse(
    words: tuple[str, ...], refusing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(monkeypatch, refusing, *words, limit_s=PATIENCE_S)
    assert isinstance(done.exception, NothingListens)
    said = f"cannot connect to {refusing}: Connection refused (--wait: wait for a node)"
    assert str(done.exception) == said


def test_one_address_that_does_not_refuse_is_waited_for(refusing: str) -> None:
    other = ("127.0.0.1", 1)
    host, _, port = refusing.rpartition(":")
    refused = ConnectionLost("refused")
    refused.__cause__ = ConnectionRefusedError()
    with unanswered.UnansweredNote([(host, int(port)), other]) as note:
        note.unreached((host, int(port)), refused)
        note.unreached((host, int(port)), refused)
        note.unreached(other, ConnectionLost("no route"))
        with pytest.raises(NothingListens, match="refused; refused"):
            note.unreached(other, refused)


def test_one_that_was_reached_is_waited_for_as_long_as_the_command_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A majority may come back: only a first connection has no more than a request's time."""
    world = FakeCluster()
    world.script = {members.GetMembersRequest: [errors.Unavailable("no majority")]}
    node = FakeNode(world)

    def attempt(limit_s: float) -> Result:
        words = ("queues", "sync", "q", "--timeout", f"{3 * limit_s:g}")
        began = time.monotonic()
        done = run(monkeypatch, node.host, *words, limit_s=limit_s)
        assert time.monotonic() - began > limit_s
        if isinstance(done.exception, NoNodeReached):
            raise TooSlow
        assert isinstance(done.exception, StillUnderWay)
        assert "not known to be done: gave up after " in str(done.exception)
        assert "no majority" in str(done.exception)
        return done

    try:
        with_time_enough(attempt, LIMIT_S)
    finally:
        node.kill()


def test_an_answer_after_all_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    world = FakeCluster()
    world.refuse[resource.ListQueuesRequest] = [errors.Unavailable("no majority")] * 1000
    said: list[str] = []

    def note(text: str) -> None:
        said.append(text)
        if "no majority" in text:
            world.refuse.clear()

    monkeypatch.setattr(output, "note", note)
    node = FakeNode(world)
    try:
        assert run(monkeypatch, node.host, "queues", "list", limit_s=PATIENCE_S).exit_code == 0
    finally:
        node.kill()
    waits = f"no answer yet: no answer from {node.host}; trying on until "
    assert said[0].startswith(waits) and said[1] == f"{node.host} answers"
    assert said[2].startswith("no answer yet: no majority; trying on until ")
    assert said[3:] == [f"{node.host} answers"]


def noted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """What waits for the next note."""
    came, said = threading.Semaphore(0), list[str]()

    def note(text: str) -> None:
        said.append(text)
        came.release()

    def take() -> str:
        assert came.acquire(timeout=PATIENCE_S)
        return said.pop(0)

    monkeypatch.setattr(output, "note", note)
    return take


def test_it_speaks_while_the_one_that_waits_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that neither accepts nor refuses: the command stands in connect()."""
    monkeypatch.setattr(unanswered, "NOTE_S", 0.05)
    said = noted(monkeypatch)
    with unanswered.UnansweredNote() as note:
        note.trying(("a", 1), 0.0)
        note.unreached(("a", 1), ConnectionLost("cannot connect to a:1: No route to host"))
        note.trying(("b", 2), 0.0)
        assert said().startswith(
            "no answer yet: cannot connect to a:1: No route to host; no answer from b:2; trying on"
        )
        note.reached(("b", 2))
        assert said() == "b:2 answers"


def test_a_node_that_accepts_and_never_answers_is_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unanswered, "NOTE_S", 0.05)
    said = noted(monkeypatch)
    host, lost = ("a", 1), ConnectionLost("the connection to a:1 was lost")
    with unanswered.UnansweredNote() as note:
        note.trying(host, 0.0)
        note.reached(host)
        note.failed(host, lost, 0.0)
        note.trying(host, 0.0)
        note.reached(host)
        assert said().startswith("no answer yet: the connection to a:1 was lost; trying on until ")
        note.answered(host)
        assert said() == "a:1 answers"
