"""RabbitMQ's AMQP 1.0 management with Proton's own client, logged in as RabbitMQ's tests do."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest
from proton import Array, Message, symbol
from proton.reactor import LinkOption
from proton.utils import BlockingConnection

from live.conftest import Broker

pytestmark = pytest.mark.live


class Pair(LinkOption):
    """Both termini are /management, as RabbitMQ's link pairs want it."""

    def apply(self, link: Any) -> None:
        link.source.address = link.target.address = "/management"
        link.properties = {symbol("paired"): True}


class Requests:
    """Requests with their answers, one at a time."""

    def __init__(self, connection: BlockingConnection) -> None:
        self.sender = connection.create_sender("/management", name="pair", options=Pair())
        self.receiver = connection.create_receiver(
            "/management", credit=10, name="pair", options=Pair()
        )

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and body."""
        message = Message(id=1, address=path, subject=method, reply_to="$me", body=body)
        message.inferred = False
        self.sender.send(message)
        reply = self.receiver.receive(timeout=60)
        assert reply.correlation_id == 1
        return int(reply.subject), reply.body


@pytest.fixture
def requests(broker: Broker) -> Iterator[Requests]:
    address = urllib.parse.urlsplit(broker.uri)
    connection = BlockingConnection(
        f"{address.hostname}:{address.port}", timeout=60, allowed_mechs="ANONYMOUS"
    )
    yield Requests(connection)
    connection.close()


def test_every_request_of_rabbitmqs_clients(requests: Requests, queue_name: str) -> None:
    ask, exchange = requests.ask, f"{queue_name}.x"
    queue = f"/queues/{urllib.parse.quote(queue_name, safe='')}"
    args = {"x-queue-type": "quorum"}
    status, shown = ask("PUT", queue, {"durable": True, "arguments": args})
    assert status == 201
    assert (shown["type"], shown["message_count"], shown["consumer_count"]) == ("quorum", 0, 0)
    assert isinstance(shown["replicas"], Array)
    assert ask("PUT", queue, {"durable": True, "arguments": args})[0] == 200
    assert ask("GET", queue)[1]["name"] == queue_name
    status, why = ask("PUT", queue, {"durable": True, "arguments": {**args, "x-max-length": 5}})
    assert status == 409
    assert why.startswith(f"inequivalent arg 'x-max-length' for queue '{queue_name}' in vhost '/'")
    assert ask("GET", "/queues/absent") == (404, "queue 'absent' in vhost '/' not found")

    assert ask("PUT", f"/exchanges/{exchange}", {"type": "topic"}) == (204, None)
    assert ask("PUT", f"/exchanges/{exchange}", {"type": "direct"})[0] == 409
    binding = {
        "source": exchange,
        "destination_queue": queue_name,
        "binding_key": "a.#",
        "arguments": {"k": "v"},
    }
    assert ask("POST", "/bindings", binding) == (204, None)
    of_pair = f"/bindings?src={exchange}&dstq={queue_name}&key=a.%23"
    status, (found,) = ask("GET", of_pair)
    assert {key: found[key] for key in binding} == binding
    assert ask("DELETE", found["location"]) == (204, None)
    assert ask("GET", of_pair) == (200, [])
    assert ask("DELETE", found["location"]) == (204, None)

    assert ask("DELETE", f"{queue}/messages") == (200, {"message_count": 0})
    assert ask("DELETE", queue) == (200, {"message_count": 0})
    assert ask("DELETE", f"/exchanges/{exchange}") == (204, None)
    assert ask("PUT", "/auth/tokens", b"token") == (204, None)
