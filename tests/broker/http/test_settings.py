"""The table `management` of the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from warren_broker.config import ConfigError, load
from warren_broker.settings.http_settings import HttpSsl, HttpTcp


def test_it_is_off_and_on_rabbitmqs_port_of_this_machine() -> None:
    settings = load(None, {}).management
    assert not settings.enabled
    assert settings.ports() == [HttpTcp()]
    assert (HttpTcp().port, HttpTcp().ip) == (15672, "127.0.0.1")


def test_with_tls_alone_there_is_no_plain_port(tmp_path: Path) -> None:
    path = tmp_path / "warren.toml"
    path.write_text('[management]\nenabled = true\nssl.certfile = "c.pem"')
    (port,) = load(path, {}).management.ports()
    assert isinstance(port, HttpSsl) and port.port == 15671
    path.write_text('[management]\ntcp.port = 1\nssl.certfile = "c.pem"')
    assert [each.port for each in load(path, {}).management.ports()] == [1, 15671]


def test_it_is_set_by_the_environment() -> None:
    given = {"WARREN_MANAGEMENT__ENABLED": "true", "WARREN_MANAGEMENT__TCP__PORT": "8080"}
    settings = load(None, given).management
    assert settings.enabled and settings.ports()[0].port == 8080


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tcp.port = 70000", "management.tcp.port=70000"),
        ('tcp.ip = "localhost"', "management.tcp.ip"),
        ("ssl.port = 1", "management.ssl.certfile"),
        ('ssl = {certfile = "c", verify = "verify_peer"}', "needs management.ssl.cacertfile"),
        ('ssl = {certfile = "c", fail_if_no_peer_cert = true}', "needs management.ssl.verify"),
        ('path_prefix = "api"', "management.path_prefix"),
        ("http.max_body_size = 1", "management.http.max_body_size=1"),
        ("port = 1", "management.port: no such key"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "warren.toml"
    path.write_text(f"[management]\n{text}")
    with pytest.raises(ConfigError, match=said.replace(".", r"\.")):
        load(path, {})
