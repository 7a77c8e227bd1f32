"""What of the Helm chart can be held without Helm; `build.py chart` does the rest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from warren_broker import config
from warren_wire import VERSION

CHART = Path(__file__).resolve().parents[2] / "deploy" / "chart"


def test_the_chart_is_of_this_release() -> None:
    told = (CHART / "Chart.yaml").read_text(encoding="utf-8")
    assert (
        re.findall(r"^(?:version|appVersion): \"?([^\"\n]+)", told, re.MULTILINE) == [VERSION] * 2
    )


def test_the_chart_sets_what_a_node_knows() -> None:
    template = (CHART / "templates" / "_helpers.tpl").read_text(encoding="utf-8")
    settings = template.partition('define "warren.settings"')[2]
    names = re.findall(r"^([A-Z_]+): ", settings, re.MULTILINE)
    made = {f"WARREN_{name}": "" for name in names}
    assert len(made) == len(names) > 15
    assert config.unknown_variables(made) == []
    with pytest.raises(config.ConfigError) as refused:  # "" is no value of theirs
        config.load(None, made)
    assert "no such key" not in str(refused.value)
