"""The alert rules and dashboards of `deploy`, without a cluster: promtool's tests of rules."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tools import debian

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy/prometheus/rules.yaml"
PAGE = ROOT / "docs/how-to/alerts.md"
NODE = 'job="warren",instance="a"'
READER = 'job="warren-queues",instance="a",vhost="/",queue="q",reader="r"'
DAYS_S = 86_400
SERIES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "WarrenNodeDown": ({f"up{{{NODE}}}": "0x90"}, {f"up{{{NODE}}}": "1x90"}),
    "WarrenPeerUnreachable": (
        {f'warren_peers{{{NODE},state="suspected"}}': "1x90", f"up{{{NODE}}}": "1x90"},
        {f'warren_peers{{{NODE},state="suspected"}}': "1x90", f"up{{{NODE}}}": "0x90"},
    ),
    "WarrenGroupWithoutLeader": (
        {f"warren_raft_groups_without_leader{{{NODE}}}": "2x90"},
        {f"warren_raft_groups_without_leader{{{NODE}}}": "0x80 1 0x9"},
    ),
    "WarrenLeadersMove": (
        {
            f"warren_raft_leader_changes_total{{{NODE}}}": "0+9x90",
            f"warren_raft_groups{{{NODE}}}": "9x90",
        },
        {
            f"warren_raft_leader_changes_total{{{NODE}}}": "0+2x90",
            f"warren_raft_groups{{{NODE}}}": "9x90",
        },
    ),
    "WarrenLoopStalls": (
        {
            f"warren_loop_lag_seconds_count{{{NODE}}}": "0+900x90",
            f'warren_loop_lag_seconds_bucket{{{NODE},le="0.5"}}': "0+880x90",
        },
        {
            f"warren_loop_lag_seconds_count{{{NODE}}}": "0+900x90",
            f'warren_loop_lag_seconds_bucket{{{NODE},le="0.5"}}': "0+899x90",
        },
    ),
    "WarrenFilesNearLimit": (
        {
            f"rabbitmq_process_open_fds{{{NODE}}}": "900x90",
            f"rabbitmq_process_max_fds{{{NODE}}}": "1000x90",
        },
        {
            f"rabbitmq_process_open_fds{{{NODE}}}": "700x90",
            f"rabbitmq_process_max_fds{{{NODE}}}": "1000x90",
        },
    ),
    "WarrenKernelInterpreted": (
        {f'warren_kernel_info{{{NODE},mode="interpreted"}}': "1x90"},
        {f'warren_kernel_info{{{NODE},mode="compiled"}}': "1x90"},
    ),
    "WarrenMaintenance": (
        {f"warren_maintenance{{{NODE}}}": "1x90"},
        {f"warren_maintenance{{{NODE}}}": "0x60 1x30"},
    ),
    "WarrenCertificateEnds": (
        {f'warren_certificate_not_after_seconds{{{NODE},file="f"}}': f"{13 * DAYS_S}x90"},
        {f'warren_certificate_not_after_seconds{{{NODE},file="f"}}': f"{15 * DAYS_S}x90"},
    ),
    "WarrenMemoryAlarm": (
        {f"rabbitmq_alarms_memory_used_watermark{{{NODE}}}": "1x90"},
        {f"rabbitmq_alarms_memory_used_watermark{{{NODE}}}": "0x90"},
    ),
    "WarrenDiskAlarm": (
        {f"rabbitmq_alarms_free_disk_space_watermark{{{NODE}}}": "1x90"},
        {f"rabbitmq_alarms_free_disk_space_watermark{{{NODE}}}": "0x90"},
    ),
    "WarrenDiskHangs": (
        {f"warren_disk_condition{{{NODE}}}": "2x90"},
        {f"warren_disk_condition{{{NODE}}}": "0x90"},
    ),
    "WarrenDiskSlow": (
        {f"warren_disk_condition{{{NODE}}}": "1x90"},
        {f"warren_disk_condition{{{NODE}}}": "0x86 1x3"},
    ),
    "WarrenEntriesDamaged": (
        {f"warren_raft_entries_damaged{{{NODE}}}": "1x90"},
        {f"warren_raft_entries_damaged{{{NODE}}}": "0x86 1x3"},
    ),
    "WarrenLoginsFail": (
        {f'rabbitmq_auth_attempts_failed_total{{{NODE},protocol="http"}}': "0+90x90"},
        {f'rabbitmq_auth_attempts_failed_total{{{NODE},protocol="http"}}': "0+30x90"},
    ),
    "WarrenConnectionsRefused": (
        {f'warren_connections_refused_total{{{NODE},reason="user_limit"}}': "0+9x90"},
        {f'warren_connections_refused_total{{{NODE},reason="user_limit"}}': "0+1x90"},
    ),
    "WarrenDeadLettersWait": (
        {f"warren_queue_messages_dead_lettering{{{READER}}}": "3x90"},
        {f"warren_queue_messages_dead_lettering{{{READER}}}": "3x80 0 3x9"},
    ),
    "WarrenTransferTerminated": (
        {f'rabbitmq_shovel_static{{{NODE},status="terminated"}}': "1x90"},
        {f'rabbitmq_federation_links{{{NODE},status="running"}}': "1x90"},
    ),
    "WarrenReaderSilent": (
        {
            f"warren_reader_silent_seconds{{{READER}}}": "0+60x90",
            f"warren_reader_lag_messages{{{READER}}}": "1x90",
        },
        {
            f"warren_reader_silent_seconds{{{READER}}}": "0+60x90",
            f"warren_reader_lag_messages{{{READER}}}": "0x90",
        },
    ),
    "WarrenReaderBehind": (
        {
            f"warren_reader_lag_seconds{{{READER}}}": "4000x90",
            f"warren_reader_silent_seconds{{{READER}}}": "1x90",
        },
        {
            f"warren_reader_lag_seconds{{{READER}}}": "3000x90",
            f"warren_reader_silent_seconds{{{READER}}}": "1x90",
        },
    ),
}
"""Of each alert series of 90 minutes after which it fires, and others after which it does not."""


def told(name: str, series: dict[str, str], fires: bool) -> dict[str, Any]:
    """A test of promtool: after 90 minutes it fires and nothing else does, or it does not."""
    every = 'count(ALERTS{alertstate="firing"}) or vector(0)'
    own = f'count(ALERTS{{alertstate="firing",alertname="{name}"}}) or vector(0)'
    return {
        "interval": "1m",
        "name": name,
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "promql_expr_test": [
            {
                "expr": one,
                "eval_time": "90m",
                "exp_samples": [{"labels": "{}", "value": int(fires)}],
            }
            for one in ([own, every] if fires else [own])
        ],
    }


def test_promtool_s_tests_of_the_rules(tmp_path: Path) -> None:
    promtool = debian.unpacked("promtool")
    if promtool is None:
        reason = "no promtool here: apt-get install prometheus, or PROMTOOL=PATH"
        (pytest.fail if os.environ.get("WARREN_STRICT") else pytest.skip)(reason)
    tests = [
        told(name, series, fires)
        for name, both in SERIES.items()
        for series, fires in zip(both, (True, False), strict=True)
    ]
    file = tmp_path / "tests.yaml"
    said = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}
    file.write_text(json.dumps(said))  # which is YAML
    for command in (["check", "rules", str(RULES)], ["test", "rules", str(file)]):
        done = subprocess.run([promtool, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_its_section_and_its_test() -> None:
    text = RULES.read_text()
    alerts = re.findall(r"- alert: (\w+)", text)
    links = re.findall(r"runbook_url: \S+/docs/how-to/alerts\.md#(\w+)", text)
    assert links == [name.lower() for name in alerts]
    assert re.findall(r"(?m)^## (\w+)$", PAGE.read_text()) == alerts
    assert {*SERIES} == {*alerts}


@pytest.mark.parametrize(
    "file", sorted((ROOT / "deploy/grafana").glob("*.json")), ids=lambda one: one.stem
)
def test_a_dashboard_s_panels_stand_beside_each_other(file: Path) -> None:
    board = json.loads(file.read_text())
    assert board["uid"] == f"warren-{file.stem}"
    panels = board["panels"]
    assert len({one["id"] for one in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        for place in (
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        ):
            assert place not in taken and place[0] < 24, panel["title"]
            taken.add(place)
        assert panel["targets"] and panel["datasource"]["uid"] == "${datasource}"
