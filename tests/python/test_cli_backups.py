"""`warren backup` about what is in a place: list, verify, prune."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from tests.wire.test_backups import small
from warren.cli.app import app
from warren_wire.backups import manifest as m
from warren_wire.backups.store import DirectoryStore

RUN = CliRunner()


def test_backups_are_listed_verified_and_pruned(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    older, newer = small(store), small(store, "20261130T150000Z")
    place = str(tmp_path)
    listed = RUN.invoke(app, ["backup", "list", place, "--json"])
    assert [each["id"] for each in json.loads(listed.stdout)] == [older.id, newer.id]
    assert RUN.invoke(app, ["backup", "verify", place]).exit_code == 0
    pruned = RUN.invoke(app, ["backup", "prune", place, "--keep", "1"])
    assert "1 backups and 0 files removed" in pruned.stdout, "the newer one has the same files"
    assert m.manifests(store) == [newer.file()]
    name = newer.groups[1].entries[0].name
    store.write(name, b"other")
    damaged = RUN.invoke(app, ["backup", "verify", place, "--id", newer.id])
    assert damaged.exit_code == 1
    assert f"damaged: {name}: it has 5 bytes" in damaged.output.replace("\n", "")
    store.write(newer.file(), b"{}")
    assert RUN.invoke(app, ["backup", "verify", place]).exit_code == 1
