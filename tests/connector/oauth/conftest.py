"""A RabbitMQ node that takes tokens, and the key that they are signed with."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from connector.amqp.rabbitmq import OneRabbitMQ, newest_root
from tests.signing_key import SigningKey

PLUGIN = "rabbitmq_auth_backend_oauth2"
SETTINGS = """
auth_backends.1 = rabbit_auth_backend_oauth2
auth_backends.2 = internal
auth_oauth2.resource_server_id = rabbitmq
auth_oauth2.default_key = k1
auth_oauth2.signing_keys.k1 = {key}
auth_oauth2.additional_scopes_key = a.b roles
auth_oauth2.scope_aliases.reader = rabbitmq.read:*/q rabbitmq.write:*/amq.default
auth_oauth2.preferred_username_claims.1 = user_name
"""


@pytest.fixture(scope="package")
def token_broker() -> Iterator[tuple[OneRabbitMQ, SigningKey]]:
    """One node; guest logs in with its password, everything else with tokens of the key.

    Only RabbitMQ 4 ends connections with their tokens.
    """
    root = newest_root()
    directory = Path(tempfile.mkdtemp(prefix="warren-oauth-", dir=root / "var/tmp"))
    directory.chmod(0o755)  # the server may run as a user of its own
    try:
        key = SigningKey(directory)
        settings = SETTINGS.format(key=f"/{key.public.relative_to(root)}")
        with OneRabbitMQ(settings, (PLUGIN,), root) as made:
            yield made, key
    finally:
        shutil.rmtree(directory)


@pytest.fixture
def rabbitmq(token_broker: tuple[OneRabbitMQ, SigningKey]) -> OneRabbitMQ:
    """The node."""
    return token_broker[0]


@pytest.fixture
def key(token_broker: tuple[OneRabbitMQ, SigningKey]) -> SigningKey:
    """The key of its tokens."""
    return token_broker[1]
