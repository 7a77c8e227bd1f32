"""`warren health`, `warren doctor`, and its support bundle."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from warren.admin import Admin
from warren.cli import output
from warren.cli.checks import DOCTOR, HEALTH, Check, Facts, Finding, findings
from warren.cli.target import Json, Uri, address_of, connect
from warren.errors import UsageError, WarrenError
from warren_wire import VERSION

_DEFLATED: Final = zipfile.ZIP_DEFLATED
EXIT_FOUND: Final = 69
"""As of `check-if-quorum-critical` (sysexits: unavailable)."""


def health(
    strict: Annotated[bool, typer.Option("--strict", help="warnings count as errors")] = False,
    uri: Uri = None,
    json: Json = False,
) -> None:
    """Check what is wrong now: nodes, alarms, leaders, certificates, versions, audit log.

    Exit code 0: nothing; 69: an error, with --strict a warning or a check that could not be made,
    too; 1: no node could be asked.
    """
    with connect(uri) as connection:
        facts = Facts(Admin(connection), address_of(uri), deep=False)
        found = findings(facts, HEALTH)
    _show(found, HEALTH, json)
    if any(one.level == "error" or strict for one in found):
        raise typer.Exit(EXIT_FOUND)


def doctor(
    bundle: Annotated[
        Path | None, typer.Option(help="write a ZIP file for support there, without secrets")
    ] = None,
    uri: Uri = None,
    json: Json = False,
) -> None:
    """Look for what is wrong, and for what may become so, with a remedy for each.

    Beside what `warren health` checks: clocks, slow disks, prefetch, timeouts, members of queues,
    dead letters. Exit code 69: there is an error.
    """
    with connect(uri) as connection:
        admin = Admin(connection)
        facts, checks = Facts(admin, address_of(uri), deep=True), {**HEALTH, **DOCTOR}
        found = findings(facts, checks)
        if bundle is not None:
            _write_bundle(bundle, facts, found)
    _show(found, checks, json)
    if bundle is not None:
        output.note(f"written to {bundle}: look into it before you send it")
    if any(one.level == "error" for one in found):
        raise typer.Exit(EXIT_FOUND)


def _show(found: list[Finding], checks: Mapping[str, Check], json: bool) -> None:
    if json:
        output.as_json([one._asdict() for one in found])
        return
    for one in found:
        output.say(f"{one.level}: {': '.join(filter(None, (one.check, one.object, one.text)))}")
        output.say(f"    {one.remedy}")
    wrong = {one.check for one in found}
    if good := [name for name in checks if name not in wrong]:
        output.say(f"ok: {', '.join(good)}")


# ------------------------------------------------------------------ bundle

_PARTS: Final[dict[str, Callable[[Facts], Any]]] = {
    "overview": lambda facts: facts.admin.overview(),
    "nodes": lambda facts: facts.admin.nodes.list(),
    "conditions": lambda facts: facts.conditions,
    "cluster-version": lambda facts: facts.admin.cluster.version(),
    "alarms": lambda facts: facts.admin.cluster.alarms(),
    "totals": lambda facts: facts.admin.cluster.totals(),
    "settings": lambda facts: {
        one.node: facts.admin.cluster.settings(one.node) for one in facts.conditions
    },
    "vhosts": lambda facts: facts.admin.vhosts.list(),
    "users": lambda facts: [
        {"name": one.name, "tags": one.tags} for one in facts.admin.users.list()
    ],
    "permissions": lambda facts: facts.admin.permissions.list(),
    "policies": lambda facts: facts.admin.policies.list(),
    "operator-policies": lambda facts: facts.admin.policies.list(operator=True),
    "parameters": lambda facts: [
        {"vhost": one.vhost, "component": one.component, "name": one.name}
        for one in facts.admin.parameters.list()
    ],
    "queues": lambda facts: facts.queues,
    "connections": lambda facts: facts.admin.connections.list(channels=True),
    "consumers": lambda facts: facts.consumers,
}
"""Files of the bundle. Values of parameters are not there: they may have secrets."""


def _write_bundle(path: Path, facts: Facts, found: list[Finding]) -> None:
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    try:
        with os.fdopen(number, "wb") as file, zipfile.ZipFile(file, "w", _DEFLATED) as to:
            _put(to, "findings", [one._asdict() for one in found])
            _put(to, "client", {"version": VERSION, "asked": str(facts.address)})
            for name, part in _PARTS.items():
                try:
                    _put(to, name, part(facts))
                except WarrenError as error:
                    _put(to, name, {"not_known": str(error)})
    except OSError as error:
        path.unlink(missing_ok=True)
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


def _put(to: zipfile.ZipFile, name: str, value: Any) -> None:
    data = msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2)
    to.writestr(f"{name}.json", data)
