"""`warren lint`: files of definitions, and configurations, checked without a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from warren.cli.app import app
from warren.errors import UsageError

QUEUE: dict[str, Any] = {
    "name": "orders",
    "vhost": "/",
    "durable": True,
    "auto_delete": False,
    "arguments": {"x-queue-type": "quorum"},
}


def lint(file: Path) -> Result:
    return CliRunner().invoke(app, ["lint", str(file)])


def written(path: Path, **document: Any) -> Path:
    path.write_text(json.dumps(document))
    return path


def test_good_definitions_pass_with_what_the_doctor_says(tmp_path: Path) -> None:
    letters = {**QUEUE["arguments"], "x-dead-letter-exchange": "dlx"}
    file = written(
        tmp_path / "d.json",
        queues=[QUEUE, {**QUEUE, "name": "letters", "arguments": letters}],
        policies=[
            {
                "vhost": "/",
                "name": "keep",
                "pattern": ".*",
                "apply-to": "queues",
                "definition": {"dead-letter-exchange": "dlx"},
            }
        ],
    )
    found = lint(file)
    assert found.exit_code == 0 and "an import takes it" in found.stdout
    assert "warning: queues letters in /: dead letters are published at most once" in found.stdout
    assert "warning: policies keep in /" in found.stdout and "orders" not in found.stdout


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"queues": [{**QUEUE, "vhost": "absent"}]}, "absent"),
        ({"users": [{"name": "ann", "password_hash": "nonsense", "tags": ""}]}, "ann"),
    ],
)
def test_what_an_import_refuses_is_an_error(
    tmp_path: Path, document: dict[str, Any], text: str
) -> None:
    found = lint(written(tmp_path / "d.json", **document))
    assert found.exit_code == 1 and "error: " in found.stdout and text in found.stdout


def test_no_json_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "d.json").write_text("{")
    assert lint(tmp_path / "d.json").exit_code == 1
    with pytest.raises(UsageError, match="no such file"):
        raise lint(tmp_path / "absent").exception or AssertionError


def test_configurations_are_checked(tmp_path: Path) -> None:
    (tmp_path / "good.toml").write_text(f'node = "a"\ndata_dir = "{tmp_path}/data"\n')
    (tmp_path / "bad.toml").write_text('nodee = "a"\n')
    assert "node a of cluster warren: ok" in lint(tmp_path / "good.toml").stdout
    bad = lint(tmp_path / "bad.toml")
    assert bad.exit_code == 1 and "did you mean 'node'" in bad.stdout
