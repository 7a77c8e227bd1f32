"""A short run of federated clusters under faults, so that the long ones work when wanted."""

from __future__ import annotations

import pytest

from nemesis.federation import main

pytestmark = [pytest.mark.live, pytest.mark.slow]
SHORT = ["--minutes", "0.15", "--nodes", "1", "--seed", "1"]


def test_nothing_is_lost_between_two_clusters(tmp_path, capsys):
    arguments = [*SHORT, "--faults", "silence,kill,kill-links"]
    assert main([*arguments, "--directory", str(tmp_path / "run")]) == 0, capsys.readouterr().out
    said = capsys.readouterr().out
    assert "kill -9" in said or "silence" in said
    assert "0 lost" in said


def test_an_unknown_fault_is_named_with_the_known_ones(capsys):
    with pytest.raises(SystemExit):
        main(["--faults", "sever"])
    assert "no such fault: sever; known: cut" in capsys.readouterr().err
