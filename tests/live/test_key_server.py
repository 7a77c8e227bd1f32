"""Keys from an issuer's https server: rotated, and out of reach of one node of three."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pika
import pytest
from pika import exceptions

from live.conftest import STRICT, eventually
from tests.certificates import Authority
from tests.key_server import KeyServer, published
from tests.patience import PATIENCE_S, PROMPTLY_S
from tests.signing_key import SigningKey
from warren.local import LocalCluster

if not os.environ.get(STRICT):
    pytest.importorskip("jwt")

pytestmark = [pytest.mark.live, pytest.mark.slow]
ALONE = 2
"""The node that does not reach the issuer."""


class World:
    """Three nodes, an issuer, and its keys."""

    def __init__(self, directory: Path) -> None:
        authority = Authority(directory)
        self.old, self.new = (SigningKey(_made(directory / name)) for name in ("old", "new"))
        self.server = KeyServer(authority.issue("login"), lambda: (200, published(self.old), {}))
        table = {
            "resource_server_id": "rabbitmq",
            "jwks_uri": self.server.url,
            "https": {"cacertfile": str(authority.cert)},
        }
        self.cluster = LocalCluster(3, directory / "cluster", settings={"auth_oauth2": table})
        file = self.cluster.node(ALONE).config_file
        text = file.read_text()
        assert self.server.url in text
        file.write_text(text.replace(self.server.url, "https://127.0.0.1:1/keys"))

    def connect(self, node: int, password: str, user: str = "any") -> pika.BlockingConnection:
        """Connect to one node."""
        login = pika.PlainCredentials(user, password)
        port = self.cluster.nodes[node].amqp_port
        return pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", port, credentials=login)
        )

    def logs_in(self, node: int, password: str, user: str = "any") -> bool:
        """Return whether it does."""
        try:
            self.connect(node, password, user).close()
        except exceptions.ProbableAuthenticationError:
            return False
        return True


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("keys"))
    with made.server, made.cluster:
        yield made


def test_a_node_that_does_not_reach_the_issuer_refuses_tokens_and_nothing_else(
    world: World,
) -> None:
    token = world.old.token()
    for node in (0, 1):
        eventually(lambda node=node: world.logs_in(node, token), "the keys are known")
    begun = time.monotonic()
    assert not world.logs_in(ALONE, token)
    assert time.monotonic() - begun < PROMPTLY_S + 10
    assert world.logs_in(ALONE, "guest", "guest")
    with world.connect(0, token) as one, world.connect(ALONE, "guest", "guest") as other:
        one.channel().queue_declare("q", durable=True, arguments={"x-queue-type": "quorum"})
        channel = one.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"a")
        assert other.channel().basic_get("q", True)[2] == b"a"
    log = world.cluster.log(ALONE)
    assert "auth_oauth2.jwks_uri, 127.0.0.1:1: no connection: Connection refused" in log
    assert "token refused: no key has its id" in log and token not in log
    assert "keys of the issuer of tokens: 'k1'" in world.cluster.log(0)


def test_a_new_key_of_the_issuer_is_good_without_a_restart(world: World) -> None:
    token = world.new.token(key_id="k2")
    assert not world.logs_in(0, token)
    world.server.answer = lambda: (200, published(world.old, world.new), {})
    eventually(lambda: world.logs_in(0, token), "the new key is fetched")
    assert world.logs_in(0, world.old.token())
    assert not world.logs_in(0, world.new.token(key_id="k1")), "under the id of the other key"


def test_an_issuer_that_hangs_keeps_no_client_waiting_that_has_a_known_key(world: World) -> None:
    """The node's loop continues: messages are confirmed, and clients log in, until it gives up."""
    token = world.old.token()
    eventually(lambda: world.logs_in(0, token), "the keys are known")
    with world.connect(0, token) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("steady")
        over = threading.Event()

        def hang() -> tuple[int, bytes, dict[str, str]]:
            over.wait(PATIENCE_S)
            return 500, b"", {}

        world.server.answer = hang

        def log_in() -> None:
            while not over.is_set():
                with suppress(exceptions.AMQPError, OSError):
                    world.logs_in(0, world.new.token(key_id="k7"))

        def given_up() -> int:
            return world.cluster.log(0).count("no answer in 5 s")

        def while_it_hangs() -> bool:
            before, asked = given_up(), world.server.asked
            eventually(lambda: world.server.asked > asked, "the issuer is asked")
            for _ in range(50):
                channel.basic_publish("", "steady", b"")
            assert world.logs_in(0, token), "a known key waits for nothing"
            return given_up() == before

        thread = threading.Thread(target=log_in)
        thread.start()
        try:
            eventually(while_it_hangs, "messages are confirmed before the node gives up")
        finally:
            over.set()
            thread.join(PATIENCE_S)
