"""A configuration with secrets that every user can read is named when the node starts."""

from __future__ import annotations

from pathlib import Path

import pytest

import warren_broker.__main__ as program
from warren_broker.process.open_secrets import open_secrets

SECRETS = """
node = "a"
secret = "s"
default_pass = "p"
[tls]
password = "p"
[shovels.one]
src-uri = "amqp://u:p@far"
dest-uri = "amqp://"
[shovels.two]
src-uri = ["amqp://", "amqp://u:p@far"]
"""


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o604])
def test_secrets_are_named_where_every_user_may_read_them(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "warren.toml"
    file.write_text(SECRETS)
    file.chmod(mode)
    keys = ["default_pass", "secret", "shovels.one.src-uri", "shovels.two.src-uri", "tls.password"]
    assert open_secrets(file) == (keys if mode & 0o004 else [])
    file.write_text('node = "a"')
    assert open_secrets(file) == [] == open_secrets(None)


def test_a_start_says_so_once_for_each_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    started = []
    monkeypatch.setattr(program, "run", lambda node: started.append(node) or 0)
    monkeypatch.setattr(program, "Node", lambda settings, announce: settings.node)
    monkeypatch.setattr(program.logs, "set_up", lambda level: None)
    monkeypatch.setattr(program.structured_logs, "configure", lambda settings: None)
    file = tmp_path / "warren.toml"
    file.write_text('node = "a"\nsecret = "a long one"\n')
    for mode, said in ((0o644, 1), (0o600, 0)):
        file.chmod(mode)
        caplog.clear()
        assert program.main(["--config", str(file)]) == 0
        warned = [one for one in caplog.messages if "every user of this machine" in one]
        assert len(warned) == said and "a long one" not in caplog.text
    assert started == ["a", "a"]
