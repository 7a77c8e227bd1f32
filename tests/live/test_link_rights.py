"""A policymaker's shovels and upstreams stay within what their user may do in this cluster.

`amqp:///vb`, set by a user with rights in `va` only, emptied the queues of `vb`: a URI without a
host is this node, without a user it was `guest`, and the node's own process comes from loopback.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from live.conftest import Broker, eventually
from warren.admin import Admin
from warren.connection import Connection
from warren.errors import PeerError
from warren.producer import Producer
from warren.uri import Address
from warren_wire.admin.shovels import RUNNING, TERMINATED, ShovelInfo

pytestmark = pytest.mark.live
REFUSED = 'user "pm" may not connect to vhost "vb"'


@pytest.fixture
def address(broker: Broker, admin: Admin) -> Iterator[Address]:
    """`pm`, a policymaker in `va`; `vb` has a queue with a message, and is guest's alone."""
    for vhost in ("va", "vb"):
        admin.vhosts.put(vhost)
        admin.permissions.put(vhost, "guest", configure=".*", write=".*", read=".*")
    admin.users.put("pm", password="pm-password", tags=["policymaker"])
    admin.permissions.put("va", "pm", configure=".*", write=".*", read=".*")
    guest = broker.cluster.address
    fill(replace(guest, vhost="vb"), "secret")
    yield replace(guest, user="pm", password="pm-password", vhost="va")
    admin.users.delete("pm")
    for vhost in ("va", "vb"):
        admin.vhosts.delete(vhost)


def fill(address: Address, queue: str) -> None:
    """Declare a queue with one message."""
    with Connection(address) as connection:
        Admin(connection).queues.declare(queue)
        with Producer(connection) as producer:
            producer.send(b"m", queue).wait()


def ready(address: Address, queue: str) -> int:
    """Messages in a queue."""
    with Connection(address) as connection:
        return Admin(connection).queues.get(queue).messages_ready


def shovel(source: str, **more: Any) -> dict[str, Any]:
    """A shovel that brings `vb`'s messages to `va`."""
    ends = {"src-uri": source, "src-queue": "secret", "dest-uri": "amqp:///va"}
    return {**ends, "dest-queue": "loot", "reconnect-delay": 1, **more}


def shows(admin: Admin, name: str, state: str, reason: str = "") -> ShovelInfo:
    """Wait for a state of a shovel of `va`, with a reason that has these words."""

    def found() -> ShovelInfo | None:
        one = admin.shovels.get("va", name)
        return one if one.state == state and reason in one.reason else None

    return eventually(found, f"{name} is {state}: {reason}")  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "host", ["", "guest:guest@", "{host}", "localhost:{port}", "guest:guest@127.0.0.9:{port}"]
)
def test_a_uri_that_leads_to_this_cluster_is_refused_when_it_is_set(
    broker: Broker, address: Address, host: str
) -> None:
    own = broker.cluster.addresses[0]
    place = host.format(host=own, port=own.rpartition(":")[2])
    uri, bus = f"amqp://{place}/vb", {"dest-protocol": "amqp10", "dest-address": "/queues/loot"}
    del_queue = shovel(uri)
    del_queue.pop("dest-queue")
    with Connection(replace(address, hosts=address.hosts[:1])) as connection:
        admin = Admin(connection)
        for component, value in (
            ("shovel", shovel(uri)),
            ("shovel", shovel("amqp:///va", **{"dest-uri": ["amqp://far.example", uri]})),
            ("shovel", {**del_queue, **bus}),
            ("federation-upstream", {"uri": uri}),
        ):
            with pytest.raises(PeerError, match=REFUSED):
                admin.parameters.put(component, "va", "steal", value)
        assert admin.parameters.list() == []


@pytest.mark.parametrize("node", [0, 1, 2])
@pytest.mark.parametrize("credentials", ["", "guest:guest@"])
def test_a_name_that_leads_to_this_cluster_is_found_out_when_the_link_connects(
    broker: Broker, address: Address, node: int, credentials: str
) -> None:
    """`127.1` is this machine, and no name of it: own ports and those of the other nodes."""
    port = broker.cluster.addresses[node].rpartition(":")[2]
    uri = f"amqp://{credentials}127.1:{port}/vb"
    guest = replace(broker.cluster.address, vhost="vb")
    source10 = {"src-protocol": "amqp10", "src-address": "/queues/secret"}
    over10 = {**shovel(f"{uri}?hostname=vhost:vb"), **source10}
    del over10["src-queue"]
    with Connection(address) as connection:
        admin = Admin(connection)
        admin.parameters.put("shovel", "va", "steal", shovel(uri))
        admin.parameters.put("shovel", "va", "steal10", over10)
        for name in ("steal", "steal10"):
            one = shows(admin, name, TERMINATED)
            assert one.access_refused or "refused" in one.reason or "leads to" in one.reason, one
            admin.shovels.delete("va", name)
    assert ready(guest, "secret") == 1


def test_a_shovel_without_a_host_has_its_user_rights(
    broker: Broker, admin: Admin, address: Address
) -> None:
    for queue in ("mine", "other"):
        fill(address, queue)
    value = shovel("amqp:///va", **{"src-queue": "mine"})
    with Connection(address) as connection:
        pm = Admin(connection)
        pm.parameters.put("shovel", "va", "move", value)
        shows(pm, "move", RUNNING)
        eventually(lambda: ready(address, "loot") == 1 or None, "the message is moved")
        (kept,) = pm.parameters.list()
        assert kept.value["src-uri"] == "amqp:///va" and "password" not in str(kept)
        # A permission inside the vhost.
        admin.permissions.put("va", "pm", configure=".*", write=".*", read="^other$|^loot$")
        shows(pm, "move", TERMINATED, "ACCESS_REFUSED")
        admin.permissions.put("va", "pm", configure=".*", write=".*", read=".*")
        shows(pm, "move", RUNNING)
    admin.permissions.delete("va", "pm")
    shows(admin, "move", TERMINATED, 'user "pm" may not connect to vhost "va"')
    admin.permissions.put("va", "pm", configure=".*", write=".*", read=".*")
    shows(admin, "move", RUNNING)
    admin.users.delete("pm")
    shows(admin, "move", TERMINATED, 'user "pm" may not connect to vhost "va"')
    admin.users.put("pm", password="pm-password", tags=["policymaker"])
