"""One short run, so that the long ones work when they are wanted."""

from __future__ import annotations

import os

import pytest

from nemesis import faults
from nemesis.run import main

pytestmark = [pytest.mark.live, pytest.mark.slow]


@pytest.mark.specification(
    "quorum-queues: A message that was successfully confirmed back",
    "reliability-guide: Use of acknowledgements guarantees at-least-once",
)
@pytest.mark.long
def test_a_short_run_is_clean(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("signal.signal", lambda number, handler: None)  # pytest has its own
    arguments = ["--minutes", "0.1", "--seed", "1", "--faults", "kill-leader,cut-leader"]
    assert main([*arguments, "--directory", str(tmp_path / "run")]) == 0, capsys.readouterr().out
    said = capsys.readouterr().out
    assert "kill -9" in said or "is cut off" in said
    assert "0 lost" in said


def test_a_short_run_with_faults_of_disks_is_clean(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    arguments = ["--minutes", "0.2", "--seed", "5", "--faults", "power-cut,hang-leader"]
    if not faults.possible(True, has_disks=os.geteuid() == 0) >= {"power-cut"}:
        pytest.skip("disks need root")
    assert main([*arguments, "--directory", str(tmp_path / "run")]) == 0, capsys.readouterr().out
    said = capsys.readouterr().out
    assert "disk hangs" in said and "0 lost" in said


def test_what_is_not_possible_here_is_left_out():
    assert "power-cut" in faults.possible(can_cut=False, has_disks=True)
    assert "power-cut" not in faults.possible(can_cut=True, has_disks=False)
    assert "cut-leader" not in faults.possible(can_cut=False, has_disks=True)


def test_an_unknown_fault_is_named_with_the_known_ones(capsys):
    with pytest.raises(SystemExit):
        main(["--faults", "kil-leader"])
    assert "no such fault: kil-leader; known: kill-leader" in capsys.readouterr().err
