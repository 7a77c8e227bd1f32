"""`warren lint`: a definitions file or a node's configuration, checked without a cluster."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from warren.cli import output
from warren.cli.checks import dead_letter_findings
from warren.errors import UsageError


def lint(
    file: Annotated[Path, typer.Argument(help="definitions (JSON), or a configuration (TOML)")],
) -> None:
    """Check a file of definitions or a node's configuration; nothing is changed.

    Definitions: what an import into a new cluster would refuse or leave out, and what `warren
    doctor` would warn of. A configuration: what would keep the node from starting on this machine.
    Exit code 1: there is an error.
    """
    if importlib.util.find_spec("warren_broker") is None:
        raise UsageError("`warren lint` needs the broker: pip install 'warrenmq[broker]'")
    if not file.exists():
        raise UsageError(f"cannot read {file}: no such file or directory")
    is_configuration = file.suffix == ".toml"
    option = "--config" if is_configuration else "--definitions"
    words = [sys.executable, "-m", "warren_broker", "check", option, str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    for line in (done.stdout + done.stderr).splitlines():
        output.say(line)
    if not is_configuration and not done.returncode:
        for text in _doubts(file):
            output.say(f"warning: {text}")
    if done.returncode:
        raise typer.Exit(output.EXIT_REFUSED)


def _doubts(file: Path) -> list[str]:
    """Return what the doctor says of the file's queues and policies; it has been read before."""
    found: dict[str, Any] = {}
    for one in sorted(file.glob("*.json")) if file.is_dir() else [file]:
        for kind, objects in msgspec.json.decode(one.read_bytes()).items():
            if isinstance(objects, list):
                found.setdefault(kind, []).extend(objects)
    texts = []
    for kind, settings in (("queues", "arguments"), ("policies", "definition")):
        for one in found.get(kind, []):
            said = {key.removeprefix("x-"): value for key, value in one.get(settings, {}).items()}
            is_quorum = kind == "policies" or said.get("queue-type") == "quorum"
            name = f"{kind} {one['name']} in {one.get('vhost', '/')}"
            texts += [
                f"{each.object}: {each.text}; {each.remedy}"
                for each in dead_letter_findings(name, is_quorum, said)
            ]
    return texts
