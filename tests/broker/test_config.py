"""Settings: a file, the environment over it, and what is said of mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from warren_broker.config import ConfigError, load

CONTINUOUS = """
[queues.continuous_membership_reconciliation]
enabled = true
target_group_size = 5
auto_remove = true
interval = 60000
trigger_interval = 500
"""


def test_continuous_reconciliation_is_off_with_rabbitmqs_defaults() -> None:
    settings = load(None, {}).queues.continuous_membership_reconciliation
    assert (settings.enabled, settings.auto_remove, settings.target_group_size) == (
        False, False, None)
    assert (settings.interval, settings.trigger_interval) == (3_600_000, 10_000)


def test_it_is_set_by_file_and_environment(tmp_path: Path) -> None:
    path = tmp_path / "warren.toml"
    path.write_text(CONTINUOUS)
    name = "WARREN_QUEUES__CONTINUOUS_MEMBERSHIP_RECONCILIATION__TARGET_GROUP_SIZE"
    settings = load(path, {name: "7"}).queues.continuous_membership_reconciliation
    assert settings.enabled and settings.auto_remove
    assert (settings.target_group_size, settings.interval, settings.trigger_interval) == (
        7, 60_000, 500)


@pytest.mark.parametrize("line, text", [
    ("trigger_intervall = 5", "trigger_intervall: no such key; did you mean 'trigger_interval'?"),
    ("target_group_size = 0", "target_group_size=0: Input should be greater than or equal to 1"),
    ("interval = 0", "interval=0: Input should be greater"),
])
def test_mistakes_are_named(tmp_path: Path, line: str, text: str) -> None:
    path = tmp_path / "warren.toml"
    path.write_text(f"[queues.continuous_membership_reconciliation]\n{line}\n")
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    assert text in str(caught.value)
