"""`warren-broker check` says what would keep a node from starting, and changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from warren_broker.__main__ import EXIT_USAGE, main
from warren_broker.config import ENVIRONMENT_PREFIX
from warren_raft.storage.files import Files
from warren_raft.storage.identity import open_directory


def _checked(
    directory: Path, capsys: pytest.CaptureFixture[str], lines: str = ""
) -> tuple[int, str, str]:
    file = directory / "warren.toml"
    data = directory / "data"
    file.write_text(f'node = "a"\ncluster = "c"\ndata_dir = "{data}"\n{lines}')
    file.chmod(0o600)
    code = main(["check", "--config", str(file)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_good_configuration_is_named_and_nothing_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = _checked(tmp_path, capsys)
    assert (code, err) == (0, "") and "node a of cluster c: ok" in out
    assert [path.name for path in tmp_path.iterdir()] == ["warren.toml"]


def test_a_running_node_is_no_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data").mkdir()
    held = open_directory(Files(), tmp_path / "data", "c", "a")
    assert _checked(tmp_path, capsys)[0] == 0
    held.close()


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ('nod = "b"\n', "no such key; did you mean 'node'?"),
        ('[tls]\ncertfile = "/nowhere/c.pem"\n', "/nowhere/c.pem"),
        (
            '[management]\nenabled = true\n[management.ssl]\ncertfile = "/nowhere/h.pem"\n',
            "/nowhere/h.pem",
        ),
        ('load_definitions = "/nowhere/d.json"\n', "load_definitions=/nowhere/d.json"),
        (
            '[auth_oauth2]\nresource_server_id = "r"\njwks_file = "/nowhere/k.json"\n',
            "auth_oauth2.jwks_file='/nowhere/k.json'",
        ),
    ],
)
def test_what_a_start_would_refuse_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: str, text: str
) -> None:
    code, out, err = _checked(tmp_path, capsys, lines)
    assert (code, out) == (EXIT_USAGE, "") and text in err


def test_another_nodes_directory_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    open_directory(Files(), tmp_path / "data", "c", "b").close()
    code, _, err = _checked(tmp_path, capsys)
    assert code == EXIT_USAGE and "it belongs to node 'b'" in err


def test_what_may_matter_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{ENVIRONMENT_PREFIX}SECRETT", "x")
    lines = '[peers]\na = "127.0.0.1:1"\nb = "no-such-host.invalid:1"\n'
    code, out, err = _checked(tmp_path, capsys, lines)
    assert code == 0 and ": ok" in out
    assert "did you mean WARREN_SECRET?" in err and "peers.b='no-such-host.invalid:1'" in err
