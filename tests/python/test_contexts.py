"""Names of clusters: kept for the user alone, and no password is printed."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from warren.cli.app import app
from warren.cli.kept_contexts import FILE_VARIABLE, complete_context
from warren.cli.target import address_of
from warren.errors import UsageError

SECRET = "a/secret:pass word"
PROD = "amqps://ann:a%2Fsecret%3Apass%20word@one,two:5673/orders?verify=false"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "deep" / "contexts.json"
    monkeypatch.setenv(FILE_VARIABLE, str(path))
    monkeypatch.delenv("WARREN_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    return path


def run(*words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["context", *words], input=stdin)


def test_a_name_stands_for_a_uri_without_a_password(file: Path) -> None:
    printed = run("add", "prod", PROD).output
    assert address_of("prod").password == SECRET and address_of("prod").tls is not None
    assert address_of("prod").hosts == (("one", 5671), ("two", 5673))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    run("add", "test", "amqp://ann@three/", "--ask-password", stdin="another secret\n")
    assert address_of("test").password == "another secret"
    for words in (["list"], ["list", "--json"], ["list", "--csv"], ["use", "test"]):
        printed += run(*words).output
    assert "ann@one" in printed
    assert not any(one in printed for one in ("secret", "a%2F", "another"))
    assert [one["in_use"] for one in json.loads(run("list", "--json").stdout)] == [False, True]


def test_the_one_in_use_counts_where_nothing_is_said(file: Path) -> None:
    assert address_of(None).hosts == (("127.0.0.1", 5672),)
    run("add", "prod", PROD)
    run("add", "test", "amqp://three/")
    assert address_of(None).hosts[0][0] == "one"
    run("use", "test")
    assert address_of(None).hosts == (("three", 5672),)
    assert address_of("amqp://four/").hosts == (("four", 5672),)
    run("remove", "test")
    assert address_of(None).hosts == (("127.0.0.1", 5672),)
    assert complete_context("p") == ["prod"] and not complete_context("t")


def test_what_cannot_be_is_refused(file: Path) -> None:
    with pytest.raises(UsageError, match=r"no context 'prod' \(known: none\)"):
        address_of("prod")
    run("add", "prod", PROD)
    for words in (["use", "x"], ["remove", "x"], ["add", "amqp://x", PROD], ["add", "y", "z"]):
        assert isinstance(run(*words).exception, UsageError), words
    file.chmod(0o640)
    with pytest.raises(UsageError, match="others may read"):
        address_of("prod")
    assert not complete_context("")
    file.chmod(0o600)
    file.write_text("nothing")
    with pytest.raises(UsageError, match="no file of contexts"):
        address_of(None)
