"""One short run, so that the long ones work when they are wanted."""

from __future__ import annotations

import pytest

from nemesis.run import main

pytestmark = [pytest.mark.live, pytest.mark.slow]


def test_a_short_run_is_clean(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("signal.signal", lambda number, handler: None)  # pytest has its own
    arguments = ["--minutes", "0.1", "--seed", "1", "--faults", "kill-leader,cut-leader"]
    assert main([*arguments, "--directory", str(tmp_path / "run")]) == 0, capsys.readouterr().out
    said = capsys.readouterr().out
    assert "kill -9" in said or "is cut off" in said
    assert "0 lost" in said


def test_an_unknown_fault_is_named_with_the_known_ones(capsys):
    with pytest.raises(SystemExit):
        main(["--faults", "kil-leader"])
    assert "no such fault: kil-leader; known: kill-leader" in capsys.readouterr().err
