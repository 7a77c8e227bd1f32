"""A verb refuses what would have it do nothing: such a run ended well."""

from __future__ import annotations

import pytest

from differ import scenarios
from differ.run import chosen
from mutation.run import parsed


def test_mutants_of_a_file_that_is_not_there_are_refused(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(["core", "recovery", "--file", "nonsense"])
    assert ended.value.code == 2
    assert "no file of core, recovery has that in its path" in capsys.readouterr().err
    assert parsed(["core", "recovery", "--file", "candidate"]).subjects == ["core"]


def test_a_scenario_that_is_not_there_is_refused_beside_others() -> None:
    scenarios.load()
    one = chosen([])[0]
    assert one in chosen([one])
    with pytest.raises(SystemExit, match="contains 'nonsense'"):
        chosen([one, "nonsense"])
