"""`warren queues` and `warren nodes` against a node that plays a script: output, exit codes."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from python.fake_broker import FakeCluster, FakeNode
from python.test_membership import LEARNING, RUNNING, VOTING, members, node
from warren import cli
from warren.cli import output
from warren.cli.app import app
from warren.cli.progress_line import ProgressLine
from warren.cli.target import address_of
from warren_broker.config import Limits
from warren_wire import errors
from warren_wire.admin import members as m
from warren_wire.admin import members as v
from warren_wire.admin.requests import Listed

Run = Callable[..., Result]


@pytest.fixture
def world() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def place(world: FakeCluster) -> Iterator[str]:
    made = FakeNode(world, seed=1)
    yield f"amqp://guest:guest@{made.host}/?request_timeout=60"
    made.kill()


@pytest.fixture
def run(place: str) -> Run:
    def call(*arguments: str) -> Result:
        found = CliRunner().invoke(
            app, arguments, env={"WARREN_URI": place, "COLUMNS": "200", "TERM": "dumb"}
        )
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            raise found.exception
        return found

    return call


def test_a_command_waits_as_long_as_its_address_says_else_for_the_brokers_own_refusal() -> None:
    operation_timeout_s = Limits().operation_timeout_ms / 1000
    assert operation_timeout_s < address_of("amqp://h").request_timeout_s < 2 * operation_timeout_s
    assert address_of("amqp://h/?request_timeout=5").request_timeout_s == 5


def as_a_process(monkeypatch: pytest.MonkeyPatch, place: str, *arguments: str) -> int:
    """What the command exits with."""
    monkeypatch.setattr(sys, "argv", ["warren", *arguments])
    monkeypatch.setenv("WARREN_URI", place)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def test_members_are_shown_with_what_they_lack(run: Run, world: FakeCluster) -> None:
    world.script = {m.GetMembersRequest: [members(RUNNING, LEARNING, settled=False)]}
    shown = run("queues", "members", "q").stdout
    assert "q: w-1 leads, term 3, committed 90 of 90" in shown
    assert "learner" in shown and "1,000 of 2,500 bytes" in shown
    assert "changing to members on w-1, w-4" in shown
    found = json.loads(run("queues", "members", "q", "--json").stdout)
    assert found["members"][1]["sent_bytes"] == 1000 and found["settled"] is False


def test_waiting_shows_who_has_caught_up(run: Run, world: FakeCluster) -> None:
    world.script = {
        m.AddMemberRequest: [v.MembersChanged("/", "q", ("w-1", "w-4"), True)],
        m.GetMembersRequest: [
            members(RUNNING, LEARNING, settled=False),
            members(RUNNING, VOTING, settled=True),
        ],
    }
    found = run("queues", "add-member", "q", "w-4", "--wait")
    assert found.stdout == "q has its members on w-1, w-4\n"
    assert found.stderr.splitlines() == [
        "adding w-4 to q: 1 of 2 members caught up, w-4 snapshot (1,000 of 2,500 bytes)",
        "adding w-4 to q: 2 of 2 members caught up",
    ]
    found = run("queues", "add-member", "q", "w-4")
    assert "`warren queues members q` shows the progress" in found.stdout and not found.stderr
    world.script[m.AddMemberRequest] = [v.MembersChanged("/", "q", ("w-1", "w-4"), False)]
    assert "is a member already" in run("queues", "add-member", "q", "w-4").stdout


def test_what_is_not_done_in_time_exits_with_75(
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    world: FakeCluster,
    capsys: pytest.CaptureFixture[str],
) -> None:
    world.script = {
        m.DeleteMemberRequest: [v.MembersChanged("/", "q", ("w-1",), True)],
        m.GetMembersRequest: [members(RUNNING, LEARNING, settled=False)],
    }
    wait = ("--wait", "--timeout", "0.2")
    assert as_a_process(monkeypatch, place, "queues", "delete-member", "q", "w-4", *wait) == 75
    assert "it continues in the background" in capsys.readouterr().err


def test_a_refusal_exits_with_1_and_its_reason(
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    world: FakeCluster,
    capsys: pytest.CaptureFixture[str],
) -> None:
    world.refuse[m.ForgetNodeRequest] = [
        errors.PreconditionFailed("node 'w-4' is running: stop it")
    ]
    assert as_a_process(monkeypatch, place, "nodes", "forget", "w-4") == 1
    told = capsys.readouterr()
    assert told.err.endswith("warren: node 'w-4' is running: stop it\n") and not told.out


def test_queues_that_could_not_be_grown_are_named(run: Run, world: FakeCluster) -> None:
    grown = v.Resizing("w-4", (v.Resized("/", "q[red]", 4), v.Resized("a", "r", 3, "no leader")))
    world.script = {m.GrowNodeRequest: [grown]}
    found = run("queues", "grow", "w-4", "even", "--queue-pattern", "^q", "--vhost-pattern", "a")
    asked = next(each for each in world.seen if isinstance(each, m.GrowNodeRequest))
    assert (asked.strategy, asked.queue_pattern, asked.vhost_pattern) == ("even", "^q", "a")
    assert "q[red]" in found.stdout and "error: no leader" in found.stdout
    assert "w-4: 1 of 2 queues grown" in found.stdout
    assert found.exit_code == 1
    only = json.loads(run("queues", "grow", "w-4", "all", "--errors-only", "--json").stdout)
    assert [each["name"] for each in only["queues"]] == ["r"]
    two = v.Resized("/", "q", 2, remark="with 2 members, on w-1 and w-2, it stops")
    world.script = {m.ShrinkNodeRequest: [v.Resizing("w-4", (two,))]}
    found = run("queues", "shrink", "w-4")
    assert found.exit_code == 0 and "with 2 members, on w-1 and w-2" in found.stdout
    assert run("queues", "grow", "w-4", "odd").exit_code == 2


def test_rebalancing_shows_the_moves(run: Run, world: FakeCluster) -> None:
    moves = (v.LeaderMove("/", "q", "w-1", "w-2"),)
    leaders = (v.NodeLeaders("w-1", 2), v.NodeLeaders("w-2", 1))
    world.script = {m.RebalanceQueuesRequest: [v.Rebalanced(moves, leaders)]}
    shown = run("queues", "rebalance").stdout
    assert "leaders move" in shown and "w-2" in shown
    world.script = {
        m.RebalanceQueuesRequest: [v.Rebalanced(moves, leaders), v.Rebalanced((), leaders)]
    }
    found = run("queues", "rebalance", "--wait", "--json")
    assert json.loads(found.stdout)["moves"][0]["target"] == "w-2"
    assert found.stderr == "rebalancing: 0 leaders left to move\n"
    world.script = {m.TransferLeadershipRequest: [v.LeaderMoved("/", "q", "w-2", True)]}
    assert run("queues", "transfer-leader", "q", "w-2").stdout == "q: w-2 leads\n"


def test_nodes_are_listed_with_their_state(run: Run, world: FakeCluster) -> None:
    found = (node("w-1"), node("w-4", running=False, drained=True, forgetting=True, moving=7))
    world.script = {
        m.ListNodesRequest: [Listed(found)],
        m.GetNodeRequest: [v.NodeStatus(found[1], (v.Moving("/", "q", LEARNING),), False)],
    }
    shown = run("nodes", "list").stdout
    assert "down, in maintenance, being forgotten" in shown
    assert [each["name"] for each in json.loads(run("nodes", "list", "--json").stdout)] == [
        "w-1",
        "w-4",
    ]
    shown = run("nodes", "status", "w-4").stdout
    assert "w-4 snapshot (1,000 of 2,500 bytes)" in shown


def test_draining_shows_leaders_and_queues_that_are_left(run: Run, world: FakeCluster) -> None:
    draining = v.NodeStatus(node(drained=True, leaders=12), (), False)
    drained = v.NodeStatus(node(drained=True), (), True)
    world.script = {m.DrainNodeRequest: [draining], m.GetNodeRequest: [draining, drained]}
    found = run("nodes", "drain", "w-4", "--wait", "--json")
    assert json.loads(found.stdout)["done"] is True
    assert found.stderr.splitlines() == [
        "draining w-4: 0 queues left, 12 leaders left",
        "draining w-4: 0 queues left, 0 leaders left",
    ]
    world.script = {m.ReviveNodeRequest: [v.NodeStatus(node(), (), True)]}
    assert "running" in run("nodes", "revive", "w-4").stdout


def test_a_critical_node_exits_with_69_as_rabbitmqs_does(run: Run, world: FakeCluster) -> None:
    critical = v.QuorumCritical("w-4", True, (v.QueueName("/", "q"),), 5)
    world.script = {m.CheckQuorumCriticalRequest: [m.Criticality(critical)]}
    found = run("nodes", "check-if-quorum-critical", "w-4")
    assert found.exit_code == 69 and not found.stdout
    assert "queue 'q' in vhost '/' becomes unavailable if w-4 stops" in found.stderr
    assert "definitions become unavailable" in found.stderr and "and 4 more" in found.stderr
    found = run("nodes", "check-if-quorum-critical", "w-4", "--json")
    assert (found.exit_code, json.loads(found.stdout)["result"]) == (69, "error")
    world.script = {
        m.CheckQuorumCriticalRequest: [m.Criticality(v.QuorumCritical("w-4", False, (), 0))]
    }
    found = run("nodes", "check-if-quorum-critical", "w-4")
    assert found.exit_code == 0 and "may be stopped" in found.stdout


def test_a_forgotten_node_names_the_queues_that_went_with_it(run: Run, world: FakeCluster) -> None:
    world.script = {
        m.ForgetNodeRequest: [v.Forgetting("w-4", 3, (("/", "alone"),))],
        m.GetNodeRequest: [
            v.NodeStatus(node(forgetting=True, moving=3), (), False),
            errors.NotFound("no node 'w-4'"),
        ],
    }
    found = run("nodes", "forget", "w-4", "--wait")
    assert "alone" in found.stdout and "w-4 is forgotten: 3 queues" in found.stdout
    assert found.stderr == "forgetting w-4: 3 queues left\n"


def test_on_a_terminal_progress_is_one_line_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=100)
    monkeypatch.setattr(output, "ERRORS", terminal)
    with ProgressLine("growing [w-4]") as progress:
        assert terminal.is_terminal
        progress.saw(v.NodeStatus(node(moving=2), (v.Moving("/", "[red]", LEARNING),), False))
        terminal.print("")  # what the terminal is given between two frames
    shown = screen.getvalue()
    assert "growing [w-4]: 2 queues left" in shown and "[red]: w-4 snapshot" in shown
    assert "\x1b[2K" in shown, "the line is not cleared at the end"
