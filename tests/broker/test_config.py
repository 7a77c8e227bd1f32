"""Settings: a file, the environment over it, and what is said of mistakes."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from warren_broker import config
from warren_broker.config import ConfigError, load
from warren_broker.node import host_config
from warren_broker.settings.static_shovels import StaticShovel
from warren_raft.runtime.config import PEER_BACKLOG_BYTES
from warren_wire.links import definition

CONTINUOUS = """
[queues.continuous_membership_reconciliation]
enabled = true
target_group_size = 5
auto_remove = true
interval = 60000
trigger_interval = 500
"""


def test_definitions_come_from_one_place(tmp_path: Path) -> None:
    path = tmp_path / "warren.toml"
    for text in ('load_definitions = "d"', '[definitions]\nlocal.path = "d"'):
        path.write_text(text)
        assert load(path, {}).definitions_path == Path("d")
    path.write_text('load_definitions = "d"\ndefinitions.local.path = "e"')
    with pytest.raises(ConfigError, match="mean the same and differ; give one of them"):
        load(path, {})
    path.write_text('definitions.import_backend = "https"')
    with pytest.raises(ConfigError, match="import_backend='https': Input should be 'local_files"):
        load(path, {})
    assert load(None, {}).definitions_path is None


@pytest.mark.specification(
    "quorum-queues: The default reconciliation interval is 60 minutes",
    "quorum-queues: Enables or disables continuous membership",
)
def test_continuous_reconciliation_is_off_with_rabbitmqs_defaults() -> None:
    settings = load(None, {}).queues.continuous_membership_reconciliation
    assert (settings.enabled, settings.auto_remove, settings.target_group_size) == (
        False,
        False,
        None,
    )
    assert (settings.interval, settings.trigger_interval) == (3_600_000, 10_000)


@pytest.mark.specification("quorum-queues: Enables or disables continuous membership")
def test_it_is_set_by_file_and_environment(tmp_path: Path) -> None:
    path = tmp_path / "warren.toml"
    path.write_text(CONTINUOUS)
    name = "WARREN_QUEUES__CONTINUOUS_MEMBERSHIP_RECONCILIATION__TARGET_GROUP_SIZE"
    settings = load(path, {name: "7"}).queues.continuous_membership_reconciliation
    assert settings.enabled and settings.auto_remove
    assert (settings.target_group_size, settings.interval, settings.trigger_interval) == (
        7,
        60_000,
        500,
    )


@pytest.mark.parametrize(
    "line, text",
    [
        (
            "trigger_intervall = 5",
            "trigger_intervall: no such key; did you mean 'trigger_interval'?",
        ),
        (
            "target_group_size = 0",
            "target_group_size=0: Input should be greater than or equal to 1",
        ),
        ("interval = 0", "interval=0: Input should be greater"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, line: str, text: str) -> None:
    path = tmp_path / "warren.toml"
    path.write_text(f"[queues.continuous_membership_reconciliation]\n{line}\n")
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    assert text in str(caught.value)


def test_messages_that_no_block_holds_were_let_in_and_lost() -> None:
    most = 54_394_880
    size, frame = "WARREN_LIMITS__MESSAGE_SIZE_MAX", "WARREN_LIMITS__FRAME_MAX"
    assert load(None, {size: str(most)}).limits.message_size_max == most
    for given in ({size: str(most + 1)}, {size: str(most), frame: "131073"}):
        with pytest.raises(ConfigError, match=r"is above 543948\d\d: a message, its properties .*"):
            load(None, given)


def test_what_clients_have_in_flight_may_wait_for_one_node() -> None:
    settings = load(None, {"WARREN_LIMITS__NODE_IN_FLIGHT_BYTES_MAX": str(1 << 30)})
    assert host_config(settings).peer_backlog_bytes == PEER_BACKLOG_BYTES + (1 << 30)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("WARREN_LISTEN__AMQB", "x", "listen.amqb: no such key; did you mean 'amqp'?"),
        ("WARREN_NODE__X", "x", "is no"),
    ],
)
def test_a_variable_of_a_known_table_names_the_nearest(name: str, value: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, {"WARREN_NODE": "n", name: value})
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "WARREN_LISTENN__AMQP",
            "WARREN_LISTENN__AMQP is not a setting of a node; did you mean WARREN_LISTEN__AMQP?; "
            "it is ignored",
        ),
        ("WARREN_SECRETT", "did you mean WARREN_SECRET?"),
        ("WARREN_KERNL", "did you mean WARREN_KERNEL?"),
        ("WARREN_ALARM__DISK_FREE_LIMIT_BYTES", "did you mean WARREN_ALARMS__DISK_FREE_LIMIT"),
        ("WARREN_SOMETHING_ELSE_ENTIRE_5", "WARREN_SOMETHING_ELSE_ENTIRE_5 is not a setting"),
        ("WARREN_", "is not a setting of a node"),
    ],
)
def test_an_unknown_variable_is_a_warning_naming_the_nearest(name: str, text: str) -> None:
    environment = {"WARREN_NODE": "n", name: "x"}
    assert load(None, environment).node == "n"
    (said,) = config.unknown_variables(environment)
    assert text in said


def test_variables_of_a_kubernetes_service_kept_nodes_from_starting() -> None:
    # As the kubelet makes them for the Services `warren` and `warren-headless` (Kubernetes'
    # manual, "Accessing the Service", environment variables).
    address = "10.0.0.11"
    made = {
        "WARREN_SERVICE_HOST": address,
        "WARREN_SERVICE_PORT": "5672",
        "WARREN_SERVICE_PORT_AMQP": "5672",
        "WARREN_PORT": f"tcp://{address}:5672",
        "WARREN_PORT_5672_TCP": f"tcp://{address}:5672",
        "WARREN_PORT_5672_TCP_PROTO": "tcp",
        "WARREN_PORT_5672_TCP_PORT": "5672",
        "WARREN_PORT_5672_TCP_ADDR": address,
        "WARREN_HEADLESS_SERVICE_HOST": address,
        "WARREN_HEADLESS_PORT_25672_TCP_ADDR": address,
    }
    assert load(None, {**made, "WARREN_NODE": "n"}).node == "n"
    assert config.unknown_variables(made) == []


def test_variables_of_other_programs_and_of_other_parts_are_ignored() -> None:
    others = dict.fromkeys((*config.OTHER_VARIABLES, "WARRENX", "PATH"), "x")
    assert load(None, {**others, "WARREN_CLUSTER": "c"}).cluster == "c"


@pytest.mark.parametrize(
    ("peers", "refused"),
    [
        ("127.0.0.1:25672", False),
        ("[::1]:25672", False),
        ("localhost:1", False),
        (":25672", False),
        ("0.0.0.0:25672", True),
        ("10.0.0.1:25672", True),
        ("[::]:25672", True),
        ("warren-1:1", True),
    ],
)
@pytest.mark.parametrize("given", [{}, {"WARREN_SECRET": "warren"}])
def test_the_default_secret_stays_on_this_machine(
    peers: str, refused: bool, given: dict[str, str]
) -> None:
    asked = {"WARREN_LISTEN__PEERS": peers, **given}
    if not refused:
        assert load(None, asked).secret == "warren"
        return
    with pytest.raises(ConfigError) as caught:
        load(None, asked)
    text = str(caught.value)
    assert f"listen.peers='{peers}'" in text and "WARREN_SECRET" in text and "openssl" in text
    assert load(None, {**asked, "WARREN_SECRET": "a text of their own"}).listen.peers == peers


def test_who_may_connect_from_this_machine_only(tmp_path: Path) -> None:
    path = tmp_path / "warren.toml"
    path.write_text('loopback_users = ["a", "b"]')
    assert load(None, {}).loopback_users == ("guest",)
    assert load(path, {}).loopback_users == ("a", "b")
    assert load(path, {"WARREN_LOOPBACK_USERS": "c, d"}).loopback_users == ("c", "d")
    assert load(path, {"WARREN_LOOPBACK_USERS": "none"}).loopback_users == ()
    path.write_text("loopback_users = []")
    assert load(path, {}).loopback_users == ()


def test_anonymous_clients_have_a_user_or_are_refused() -> None:
    assert load(None, {}).anonymous_login == ("guest", "guest")
    for no_user in ("none", ""):
        assert load(None, {"WARREN_ANONYMOUS_LOGIN_USER": no_user}).anonymous_login is None
    named = {"WARREN_ANONYMOUS_LOGIN_USER": "ann", "WARREN_ANONYMOUS_LOGIN_PASS": "of ann"}
    assert load(None, named).anonymous_login == ("ann", "of ann")
    assert "of ann" not in repr(load(None, named))


CERTIFICATES = {"WARREN_TLS__CERTFILE": "/etc/warren/node.pem"}


@pytest.mark.parametrize(
    ("given", "plain", "tls"),
    [
        ({}, ("127.0.0.1", 5672), None),
        (CERTIFICATES, ("127.0.0.1", 5672), ("127.0.0.1", 5671)),
        (
            {**CERTIFICATES, "WARREN_LISTEN__AMQP": "10.0.0.1:1"},
            ("10.0.0.1", 1),
            ("10.0.0.1", 5671),
        ),
        ({**CERTIFICATES, "WARREN_LISTEN__AMQPS": "[::1]:9"}, ("127.0.0.1", 5672), ("::1", 9)),
        ({**CERTIFICATES, "WARREN_LISTEN__AMQPS": "none"}, ("127.0.0.1", 5672), None),
        (
            {
                **CERTIFICATES,
                "WARREN_LISTEN__AMQP": "none",
                "WARREN_LISTEN__AMQPS": "10.0.0.1:5671",
            },
            None,
            ("10.0.0.1", 5671),
        ),
    ],
)
def test_where_clients_connect(given: dict[str, str], plain: object, tls: object) -> None:
    settings = load(None, given)
    assert (settings.plain_address(), settings.tls_address()) == (plain, tls)


def test_what_is_asked_of_clients() -> None:
    def verify(**given: str) -> ssl.VerifyMode:
        variables = {f"WARREN_TLS__{key.upper()}": value for key, value in given.items()}
        files = load(None, {**CERTIFICATES, **variables}).tls.files()
        assert files is not None and str(files.certfile) == "/etc/warren/node.pem"
        return files.verify

    assert load(None, {}).tls.files() is None
    assert verify() is ssl.CERT_NONE and verify(cacertfile="/ca.pem") is ssl.CERT_NONE
    assert verify(cacertfile="/ca.pem", verify="verify_peer") is ssl.CERT_OPTIONAL
    both = verify(cacertfile="/ca.pem", verify="verify_peer", fail_if_no_peer_cert="true")
    assert both is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({**CERTIFICATES, "WARREN_TLS__BETWEEN_NODES": "true"}, "needs tls.cacertfile, the auth"),
        ({"WARREN_LISTEN__AMQPS": "127.0.0.1:5671"}, "needs tls.certfile"),
        ({"WARREN_SSL_CERT_LOGIN_FROM": "common_name"}, "needs tls.verify='verify_peer'"),
        ({"WARREN_SSL_CERT_LOGIN_FROM": "surname"}, "ssl_cert_login_from"),
        ({"WARREN_SSL_CERT_LOGIN_SAN_TYPE": "other_name"}, "ssl_cert_login_san_type"),
        ({"WARREN_SSL_CERT_LOGIN_SAN_INDEX": "-1"}, "ssl_cert_login_san_index"),
        ({"WARREN_TLS__KEYFILE": "/k"}, "tls.keyfile needs tls.certfile"),
        ({"WARREN_TLS__VERIFY": "verify_peer"}, "tls.verify needs tls.certfile"),
        ({**CERTIFICATES, "WARREN_TLS__VERIFY": "verify_peer"}, "needs tls.cacertfile"),
        ({**CERTIFICATES, "WARREN_TLS__VERIFY": "peer"}, "tls.verify='peer'"),
        (
            {**CERTIFICATES, "WARREN_TLS__FAIL_IF_NO_PEER_CERT": "true"},
            "tls.fail_if_no_peer_cert=true needs tls.verify='verify_peer'",
        ),
        ({"WARREN_LISTEN__AMQP": "none"}, "no client could connect"),
        (
            {**CERTIFICATES, "WARREN_LISTEN__AMQP": "none"},
            "give listen.amqps an address of its own",
        ),
        ({**CERTIFICATES, "WARREN_LISTEN__AMQPS": "5671"}, "listen.amqps='5671'"),
        ({"WARREN_LISTEN__PEERS": "none"}, "listen.peers='none'"),
    ],
)
def test_settings_of_tls_that_do_not_fit_together(given: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, given)
    assert text in str(caught.value)


def test_the_keys_password_is_never_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, {"WARREN_TLS__PASSWORD": "geheim"})
    assert "tls.password needs tls.certfile" in str(caught.value)
    assert "geheim" not in str(caught.value)
    assert "geheim" not in repr(load(None, {**CERTIFICATES, "WARREN_TLS__PASSWORD": "geheim"}))


@pytest.mark.parametrize(
    ("text", "on", "level"),
    [
        ("", False, None),
        ("[log]\nexchange = true", True, None),
        ("[log]\nexchange = false", False, None),
        ('[log.exchange]\nlevel = "debug"', True, "debug"),
        ('[log.exchange]\nlevel = "none"', False, "none"),
        ('[log.exchange]\nenabled = true\nlevel = "none"', False, "none"),
        ('[log.exchange]\nenabled = false\nlevel = "error"', False, "error"),
    ],
)
def test_the_log_exchange_is_turned_on_as_in_rabbitmq(
    tmp_path: Path, text: str, on: bool, level: str | None
) -> None:
    path = tmp_path / "warren.toml"
    path.write_text(text)
    found = load(path, {}).log.exchange
    assert (found.on, found.level) == (on, level)


def test_the_log_exchange_by_environment() -> None:
    assert load(None, {"WARREN_LOG__EXCHANGE": "true"}).log.exchange.on
    assert load(None, {"WARREN_LOG__EXCHANGE__LEVEL": "error"}).log.exchange.on


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[log.exchange]\nlevel = "verbose"', "'warning', 'error', 'critical'"),
        ("[log]\nexchange = 5", "log.exchange"),
        ('[log]\nexchange = "maybe"', "valid boolean"),
        ('[log.exchange]\nformatter = "json"', "log.exchange.formatter: no such key"),
    ],
)
def test_a_log_exchange_that_cannot_be(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "warren.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="log.exchange") as caught:
        load(path, {})
    assert said in str(caught.value)


STATIC = """
[shovels.orders]
src-uri = "amqp://u:hidden@far"
src-queue = "orders"
dest-protocol = "amqp10"
dest-uri = ["amqp://", "amqp://h"]
dest-address = "/queues/orders"
dest-properties = { subject = "s" }
"""


def test_a_static_shovel_has_the_keys_of_a_dynamic_one(tmp_path: Path) -> None:
    path = tmp_path / "warren.toml"
    path.write_text(STATIC)
    settings = load(path, {"WARREN_SHOVELS__ORDERS__SRC_PREFETCH_COUNT": "7"})
    value = settings.shovels["orders"].value()
    assert value == {
        "src-uri": "amqp://u:hidden@far",
        "src-queue": "orders",
        "src-prefetch-count": 7,
        "dest-protocol": "amqp10",
        "dest-uri": ["amqp://", "amqp://h"],
        "dest-address": "/queues/orders",
        "dest-properties": {"subject": "s"},
    }
    assert "hidden" not in repr(settings) and load(None, {}).shovels == {}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('src-exchange = "x"', "shovels.orders: Cannot specify 'src-exchange' and 'src-queue'"),
        ("src-prefetch-count = 0", "src-prefetch-count=0: a number from 1 to 65535 is expected"),
        ('src-colour = "x"', "shovels.orders.src-colour: no such key"),
        ('dest-queue = "x"', "shovels.orders: unknown keys dest-queue; known are"),
        ('ack-mode = "maybe"', "ack-mode should be one of no-ack, on-publish, on-confirm"),
        ("src-delete-after = 5", "a static shovel cannot delete itself; leave the key out"),
    ],
)
def test_a_static_shovel_that_cannot_run_stops_the_start(
    tmp_path: Path, line: str, reason: str
) -> None:
    path = tmp_path / "warren.toml"
    path.write_text(STATIC + line)
    with pytest.raises(ConfigError) as refused:
        load(path, {})
    assert reason in str(refused.value) and "hidden" not in str(refused.value)


def test_every_key_of_a_shovel_may_be_static() -> None:
    fields = {name.replace("_", "-") for name in StaticShovel.model_fields}
    keys = {key for of in definition.KEYS.values() for key in of} | set(definition.SHARED_KEYS)
    assert fields == keys
