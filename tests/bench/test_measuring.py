"""What the measurements rest on: ratios within a round, probes that are not fooled."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import threading
import time

import pytest

from bench import generator
from bench.__main__ import parsed
from bench.amqp091 import until_served
from bench.backlog import FILL_S_MAX, STEPS, TRIAL, step_of, trial_of
from bench.commands import quantiles
from bench.loads import LOADS, rows
from bench.processes import Meter, resident_bytes
from bench.rounds import Column, Plan, ratios, span, table, turns
from tests.patience import PATIENCE_S
from warren.local import guard

RATE = Column("per s", ",.0f", lambda one: one["rate"])
RESULTS = [
    {"peer": "Warren", "round": 0, "rate": 400.0},
    {"peer": "Rabbit", "round": 0, "rate": 40.0},
    {"peer": "Warren", "round": 1, "rate": 100.0},
    {"peer": "Rabbit", "round": 1, "rate": 20.0},
    {"peer": "Rabbit", "round": 2, "rate": 1.0},
]


def test_ratios_are_those_of_a_round():
    assert ratios(RESULTS, "Rabbit", RATE) == [0.1, 0.2], "and a round without both has none"


def test_a_table_has_medians_spans_and_ratios():
    ours, theirs, beside = table(RESULTS, [RATE])
    assert ours == {"cluster": "Warren", "per s": "250 (100 - 400)"}
    assert theirs == {"cluster": "Rabbit", "per s": "20 (1 - 40)"}
    assert beside == {"cluster": "Rabbit / Warren", "per s": "0.1 - 0.2"}
    assert span([]) == "-"


def test_a_load_has_a_row_for_each_figure_and_says_what_was_wrong():
    each = LOADS[5]
    made = [
        {"peer": name, "round": turn, "name": each.name, "consumed_per_s": rate, "lost": lost}
        for name, turn, rate, lost in [
            ("Warren", 0, 400.0, 0),
            ("Rabbit", 0, 100.0, 0),
            ("Warren", 1, 300.0, 0),
            ("Rabbit", 1, 100.0, 7),
        ]
    ]
    assert rows(made) == [
        {
            "load": "1 KB, window 100",
            "figure": "msg/s",
            "Warren": "350 (300 - 400)",
            "Rabbit": "100 (100)",
            "Warren / Rabbit": "3.00 - 4.00",
            "found wrong": "7 lost",
        }
    ]


def test_a_run_without_figures_leaves_the_others_their_rows():
    each = LOADS[5]
    good = {"peer": "Warren", "round": 0, "name": each.name, "consumed_per_s": 400.0}
    bad = {"peer": "Rabbit", "round": 0, "name": each.name, "failed": "run ended with 1: refused"}
    expected = {
        "load": "1 KB, window 100",
        "figure": "msg/s",
        "Warren": "400",
        "Rabbit": "-",
        "Warren / Rabbit": "-",
        "found wrong": "no figures of Rabbit: it ended with 1: refused",
    }
    assert rows([good, bad]) == [expected]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["loads", "--load", "nonsense"], "no such load: 'nonsense'; those of loads: '16 B', "),
        (["loads", "--load", "1 KB", "nonsense"], "no such load: 'nonsense'"),
        (["nats", "--load", "16 B"], "no such load: '16 B'; those of nats: '100 B', '1 KB'"),
        (["loads", "nats", "--load", "16 B"], "no load of nats is named"),
        (["raft", "--load", "1 KB"], "--load is for the parts loads, nats, not for raft"),
        (["--load", "1 KB", "loads"], "no such load: 'loads'"),
    ],
)
def test_a_load_that_would_measure_nothing_is_refused(arguments, said, capsys):
    with pytest.raises(SystemExit) as ended:
        parsed(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_loads_are_named_for_each_part():
    assert parsed(["loads", "nats", "--load", "1 KB", "16 B"]).load == ["1 KB", "16 B"]
    assert parsed(["--load", "16 B"]).load == ["16 B"], "all parts, and NATS is left out"
    assert list(parsed(["raft"]).load) == []


def test_a_generator_that_ends_without_a_report_says_why(tmp_path):
    program = tmp_path / "generator"
    program.write_text("#!/bin/sh\necho 'login refused' >&2\nexit 1\n", encoding="utf-8")
    program.chmod(0o755)
    with pytest.raises(generator.Failed, match=r"generator pubsub --size 16 ended with 1: login"):
        generator.run(program, "pubsub", size=16)


@pytest.mark.parametrize("messages", [100, 20_000, 50_000, 1_000_000])
def test_a_small_backlog_has_as_many_messages_as_its_title_says(messages):
    trial = trial_of(messages)
    step = step_of(messages - trial, 1e9)
    assert 0 < trial <= TRIAL and step > 0, "the generator takes 0 for its own default"
    assert messages - STEPS < trial + STEPS * step <= messages


def test_a_slow_cluster_gets_a_smaller_backlog():
    assert step_of(1_000_000, 10.0) == int(10 * FILL_S_MAX / STEPS)


def test_quantiles_are_of_what_was_timed():
    assert quantiles([0.002]) == {"p50_ms": 2.0, "p99_ms": 2.0}
    assert quantiles([n / 1000 for n in range(200, 0, -1)]) == {"p50_ms": 101.0, "p99_ms": 199.0}


def test_clusters_take_turns():
    order = [(turn, peer) for turn, peer in turns(Plan(rounds=2), ["a", "b"])]
    assert order == [(0, "a"), (0, "b"), (1, "a"), (1, "b")]


def test_a_meter_tells_its_process_from_the_others():
    busy = subprocess.Popen(["/bin/sh", "-c", "while :; do :; done"])
    try:
        meter = Meter([busy.pid, os.getpid()])
        deadline = time.monotonic() + PATIENCE_S
        while meter.spent().cpu_s[0] < 0.2:
            assert time.monotonic() < deadline
        assert meter.spent().cpu_s[0] >= 0.2
        assert resident_bytes(busy.pid) > 100_000
    finally:
        busy.kill()
        busy.wait()
    assert Meter([busy.pid]).spent().cpu_s == (0.0,), "one that is gone has none"


def test_what_is_guarded_ends_with_its_guard():
    group = subprocess.Popen(["/bin/sh", "-c", "sleep 600 & wait"], start_new_session=True)
    watching = guard(-group.pid)
    watching.stdin.close()
    assert group.wait(PATIENCE_S) == -9
    watching.wait(PATIENCE_S)


class Broker(threading.Thread):
    """Says what AMQP asks for; of the first connection's messages it confirms the even ones."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.target = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.asked = []
        self.start()

    def run(self):
        for number in (0, 1):
            with self.listener.accept()[0] as sock:
                self.talk(sock, number)

    def talk(self, sock, number):
        stream = sock.makefile("rb")
        stream.read(8)
        self.say(sock, 10, 10, b"")
        tag = 0
        answers = {
            (10, 31): None,
            (10, 11): (10, 30),
            (10, 40): (10, 41),
            (20, 10): (20, 11),
            (85, 10): (85, 11),
        }
        while head := stream.read(7):
            kind, _, size = struct.unpack(">BHI", head)
            payload = stream.read(size + 1)
            if kind != 1:
                continue
            method = struct.unpack_from(">HH", payload)
            if method == (60, 40):
                tag += 1
                self.asked.append((number, payload[8 : 8 + payload[7]].decode()))
                if number or tag % 2 == 0:
                    self.say(sock, 60, 80, struct.pack(">QB", tag, 0))
                elif tag == 5:
                    return  # and ends the connection
            elif answers[method]:
                self.say(sock, *answers[method], b"")

    def say(self, sock, cls, number, arguments):
        payload = struct.pack(">HH", cls, number) + arguments
        sock.sendall(struct.pack(">BHI", 1, 1, len(payload)) + payload + b"\xce")


def test_a_queue_serves_when_its_own_message_is_confirmed():
    broker = Broker()
    queues = [f"q{i}" for i in range(6)]
    assert until_served(broker.target, queues, 30) == []
    again = {queue for connection, queue in broker.asked if connection == 1}
    assert again >= {"q0", "q2", "q4"}, "what was not confirmed is asked again"


def test_a_cluster_that_is_not_there_does_not_serve():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    assert until_served(f"127.0.0.1:{port}", ["q"], 0.2) == ["q"]
