"""The key paths of all GETs of the HTTP API: those of RabbitMQ's answers, and of Warren's.

    RMQ_ROOT=… PYTHONPATH=tests:. python3 tests/live/http_keys.py

plays `scene` against a RabbitMQ 4.3 (of RMQ_ROOT, or Debian's of the benchmarks) and writes the
keys of its answers to `http_keys_recorded.json`; `test_http_keys.py` plays it against Warren.
"""

from __future__ import annotations

import json
import shutil
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pika
from proton import Message
from proton.utils import BlockingConnection

from bench import rabbitmq
from bench.ports import free_ports
from connector.amqp.rabbitmq import OneRabbitMQ
from live.conftest import eventually
from live.http_client import HttpClient
from tests.certificates import Authority, Certificate

RECORDED: Final = Path(__file__).parent / "http_keys_recorded.json"
PLUGINS: Final = (
    *("rabbitmq_management", "rabbitmq_federation", "rabbitmq_federation_management"),
    *("rabbitmq_shovel", "rabbitmq_shovel_management"),
)
R: Final = "%2F"
EVERY: Final = {"configure": ".*", "write": ".*", "read": ".*"}
QUORUM: Final = {"x-queue-type": "quorum"}
AGES: Final = "&".join(
    f"{one}_age=60&{one}_incr=5" for one in ("lengths", "msg_rates", "data_rates", "node_stats")
)
FREE: Final = (
    *("arguments", "definition", "effective_policy_definition", "value", "headers"),
    *("cluster_state", "open_files", "messages_by_priority"),
)
"""Keys of maps of which the keys are the user's, names of nodes, or numbers."""


def key_paths(value: Any, above: str = "") -> Iterator[str]:
    """Yield the path of each key of an answer: `message_stats.publish`; `[]` is in each item."""
    if isinstance(value, dict):
        for key, item in value.items():
            path = f"{above}.{key}" if above else key
            yield path
            if key not in FREE:
                yield from key_paths(item, path)
    elif isinstance(value, list):
        for item in value:
            yield from key_paths(item, f"{above}[]")


@dataclass(frozen=True)
class Place:
    """Where clients of a broker connect.

    port, tls_port  of AMQP, on 127.0.0.1
    ca              of its certificate; client: one that it knows
    """

    http: HttpClient
    port: int
    tls_port: int
    ca: Path
    client: Certificate

    def connect(self, name: str, *, tls: bool = False) -> pika.BlockingConnection:
        """Open a connection of AMQP 0.9.1 with that name."""
        options = None
        if tls:
            context = ssl.create_default_context(cafile=str(self.ca))
            context.load_cert_chain(self.client.cert, self.client.key)
            options = pika.SSLOptions(context, "localhost")
        return pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1",
                self.tls_port if tls else self.port,
                ssl_options=options,
                client_properties={"connection_name": name},
            )
        )


def define(http: HttpClient, port: int) -> None:
    """Define one of all that can be listed."""
    uri = f"amqp://guest:guest@127.0.0.1:{port}"
    policy = {"pattern": "^q$", "definition": {"max-length": 100}, "apply-to": "queues"}
    fed = {"pattern": "^fed", "definition": {"federation-upstream-set": "all"}, "apply-to": "all"}
    shovel = {"src-protocol": "amqp091", "src-uri": uri, "src-queue": "from"}
    shovel |= {"dest-protocol": "amqp091", "dest-uri": uri, "dest-queue": "to"}
    single = {**QUORUM, "x-single-active-consumer": True}
    dated = {"properties": {"timestamp": 1_700_000_000}, "routing_key": "dated"}
    for method, path, body in (
        ("PUT", "/vhosts/v", {"description": "d", "tags": "a,b"}),
        ("PUT", "/users/u", {"password": "p", "tags": "management"}),
        ("PUT", f"/permissions/{R}/u", EVERY),
        ("PUT", "/permissions/v/guest", EVERY),
        ("PUT", f"/topic-permissions/{R}/u", {"exchange": "amq.topic", "write": "a", "read": "b"}),
        ("PUT", "/vhost-limits/v/max-queues", {"value": 100}),
        ("PUT", "/user-limits/u/max-channels", {"value": 100}),
        ("PUT", "/global-parameters/g", {"value": 1}),
        ("PUT", f"/policies/{R}/p", policy),
        ("PUT", f"/operator-policies/{R}/o", policy),
        ("PUT", f"/queues/{R}/q", {"durable": True, "arguments": QUORUM}),
        ("PUT", f"/queues/{R}/single", {"durable": True, "arguments": single}),
        ("PUT", f"/queues/{R}/c", {"durable": True, "arguments": {"x-queue-type": "classic"}}),
        ("PUT", f"/queues/{R}/dated", {"durable": True, "arguments": QUORUM}),
        ("PUT", f"/queues/{R}/from", {"durable": True, "arguments": QUORUM}),
        ("PUT", f"/queues/{R}/to", {"durable": True, "arguments": QUORUM}),
        ("PUT", "/queues/v/fed-q", {"durable": True, "arguments": QUORUM}),
        ("PUT", f"/queues/{R}/fed-q", {"durable": True, "arguments": QUORUM}),
        ("PUT", f"/exchanges/{R}/x", {"type": "topic", "durable": True}),
        ("PUT", f"/exchanges/{R}/y", {"type": "fanout", "durable": True}),
        ("PUT", f"/exchanges/{R}/fed-x", {"type": "fanout", "durable": True}),
        ("POST", f"/bindings/{R}/e/x/q/q", {"routing_key": "a"}),
        ("POST", f"/bindings/{R}/e/x/e/y", {"routing_key": "b"}),
        ("POST", f"/bindings/{R}/e/fed-x/q/to", {"routing_key": "b"}),
        ("PUT", f"/parameters/federation-upstream/{R}/up", {"value": {"uri": f"{uri}/v"}}),
        ("PUT", f"/policies/{R}/f", fed),
        ("PUT", f"/parameters/shovel/{R}/s", {"value": shovel}),
        (
            "POST",
            f"/exchanges/{R}/amq.default/publish",
            {**dated, "payload": "p", "payload_encoding": "string"},
        ),
    ):
        answer = http(method, path, body)
        assert answer.status in (200, 201, 204), (method, path, answer)


def work(place: Place, first: pika.BlockingConnection, other: BlockingConnection) -> list[Any]:
    """Have clients do everything that is counted; return what is to stay open."""
    publishing = first.channel()
    publishing.confirm_delivery()
    for _ in range(20):
        publishing.basic_publish("x", "a", b"body", pika.BasicProperties(priority=5), False)
        publishing.basic_publish("", "c", b"body", pika.BasicProperties(delivery_mode=2))
        publishing.basic_publish("", "single", b"body")
    publishing.basic_publish("x", "nowhere", b"dropped")
    try:
        publishing.basic_publish("x", "nowhere", b"returned", mandatory=True)
    except pika.exceptions.UnroutableError:
        pass
    taking = first.channel()
    for name in ("q", "c"):
        for _ in range(2):
            taking.basic_ack(taking.basic_get(name)[0].delivery_tag)
        assert taking.basic_get(name, auto_ack=True)[0] is not None
        taking.basic_nack(taking.basic_get(name)[0].delivery_tag, requeue=True)
        taking.basic_get(name)  # is held
    taking.basic_get("to")
    consuming = first.channel()
    consuming.basic_qos(prefetch_count=3)
    for name in ("single", "c", "fed-q"):
        consuming.basic_consume(name, lambda *given: None, consumer_tag=f"of-{name}")
    first.channel().basic_consume("single", lambda *given: None, consumer_tag="waits")
    first.process_data_events(0.5)
    sender = other.create_sender("/queues/q")
    sender.send(Message(b"of 1.0"))
    receiver = other.create_receiver("/queues/q", credit=5)
    receiver.accept() if receiver.receive() else None
    return [publishing, taking, consuming, sender, receiver]


def requests(http: HttpClient, node: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each GET, and its path."""
    named = quote(node, safe="")
    shown = {one.get("user_provided_name"): one["name"] for one in http.get("/connections")}
    ten = next(one["name"] for one in http.get("/connections") if one["protocol"] == "AMQP 1-0")
    places = {"C091": shown["plain"], "CTLS": shown["tls"], "C10": ten, "NODE": node}
    for path in GETS:
        at = path
        for place, given in places.items():
            at = at.replace(place, quote(given, safe=""))
        yield path, at
    del named


GETS: Final = (
    *("/overview", f"/overview?{AGES}", "/cluster-name", "/nodes", "/nodes/NODE"),
    *(f"/nodes/NODE?{AGES}", "/nodes/NODE?memory=true&binary=true", "/nodes/NODE/memory"),
    *("/nodes/NODE/memory/relative", "/extensions", "/definitions", f"/definitions/{R}"),
    *("/connections", f"/vhosts/{R}/connections", "/connections/username/guest"),
    *("/connections/C091", "/connections/CTLS", "/connections/C10", f"/connections/C091?{AGES}"),
    *("/connections/C091/channels", "/connections/C10/sessions", "/channels"),
    *(f"/vhosts/{R}/channels", "/channels/C091%20(1)", "/channels/C091%20(2)"),
    *("/channels/C091%20(3)", f"/channels/C091%20(2)?{AGES}", "/consumers", f"/consumers/{R}"),
    *("/exchanges", f"/exchanges/{R}", f"/exchanges/{R}/x", f"/exchanges/{R}/x?{AGES}"),
    *(f"/exchanges/{R}/x/bindings/source", f"/exchanges/{R}/y/bindings/destination"),
    *("/queues", f"/queues/{R}", "/queues/detailed", "/queues?page=1&page_size=2"),
    *(f"/queues/{R}/q", f"/queues/{R}/single", f"/queues/{R}/c", f"/queues/{R}/dated"),
    *(f"/queues/{R}/q?{AGES}", f"/queues/{R}?disable_stats=true&enable_queue_totals=true"),
    *(f"/queues/{R}/q/bindings", f"/queues/quorum/{R}/q/status", "/bindings", f"/bindings/{R}"),
    *(f"/bindings/{R}/e/x/q/q", f"/bindings/{R}/e/x/q/q/a", f"/bindings/{R}/e/x/e/y"),
    *("/vhosts", f"/vhosts/{R}", f"/vhosts/{R}?{AGES}", "/vhosts/v", f"/vhosts/{R}/permissions"),
    *(f"/vhosts/{R}/topic-permissions", "/users", "/users/u", "/users/without-permissions"),
    *("/users/u/permissions", "/users/u/topic-permissions", "/user-limits", "/user-limits/u"),
    *("/whoami", "/permissions", f"/permissions/{R}/u", "/topic-permissions"),
    *(f"/topic-permissions/{R}/u", "/parameters", "/parameters/shovel", f"/parameters/shovel/{R}"),
    *(f"/parameters/shovel/{R}/s", "/global-parameters", "/global-parameters/g", "/policies"),
    *(f"/policies/{R}", f"/policies/{R}/p", "/operator-policies", f"/operator-policies/{R}"),
    *(f"/operator-policies/{R}/o", "/vhost-limits", "/vhost-limits/v", "/health/checks/alarms"),
    *("/health/checks/local-alarms", "/health/checks/certificate-expiration/1/days"),
    *("/health/checks/protocol-listener/amqp", "/health/checks/virtual-hosts"),
    *("/health/checks/port-listener/1", "/health/checks/node-is-quorum-critical"),
    *("/health/checks/is-in-service", "/health/checks/below-node-connection-limit"),
    *(
        "/health/checks/ready-to-serve-clients",
        "/health/checks/quorum-queues-without-elected-leaders/all-vhosts/",
    ),
    *("/auth", "/auth/attempts/NODE", "/auth/attempts/NODE/source", "/auth/hash_password/p"),
    *("/feature-flags", "/deprecated-features", "/deprecated-features/used", "/version"),
    *("/federation-links", f"/federation-links/{R}", "/shovels", f"/shovels/{R}"),
    *(f"/shovels/vhost/{R}/s", f"/aliveness-test/{R}", "/all-configuration"),
)
"""NODE, C091, CTLS, C10: names of a node and of connections."""


def settled(http: HttpClient) -> bool:
    """Whether statistics have what `work` did, shovels and links run, and there are samples."""
    queue = http.get(f"/queues/{R}/q?{AGES}")
    stats = queue.get("message_stats", {})
    if stats.get("get_no_ack") is None or len(queue["messages_details"].get("samples", ())) < 3:
        return False
    channels = [one for one in http.get("/channels") if "message_stats" in one]
    links = [one for path in ("/federation-links", "/shovels") for one in http.get(path)]
    running = [one for one in links if one.get("status", one.get("state")) == "running"]
    return len(channels) >= 3 and len(running) >= 3


@contextmanager
def scene(place: Place) -> Iterator[None]:
    """Define objects and have clients use them, which stay connected."""
    define(place.http, place.port)
    with place.connect("plain") as first, place.connect("tls", tls=True) as tls:
        other = BlockingConnection(f"amqp://guest:guest@127.0.0.1:{place.port}")
        channel = tls.channel()
        kept = [tls, channel, *work(place, first, other)]

        def ready() -> bool:
            for connection in (first, tls):
                connection.process_data_events(0)
            return settled(place.http)

        eventually(ready, "the statistics are complete")
        yield
        kept.clear()
        other.close()


def looked(http: HttpClient) -> dict[str, list[str]]:
    """Return the key paths of each GET's answer; what is refused has its status instead."""
    node = http.get("/overview")["node"]
    found: dict[str, list[str]] = {}
    for name, path in requests(http, node):
        answer = http("GET", path)
        if answer.status == 200:
            found[name] = sorted({*key_paths(answer.body)})
        else:
            found[name] = [f"status {answer.status}"]
    return found


def tls_settings(root: Path, port: int, given: Authority, own: Certificate) -> tuple[str, Path]:
    """Return RabbitMQ's settings of a TLS port, with files below its root, and their folder."""
    folder = Path(tempfile.mkdtemp(prefix="warren-certs-", dir=root / "var/tmp"))
    folder.chmod(0o755)
    for name, file in (("ca", given.cert), ("cert", own.cert), ("key", own.key)):
        shutil.copy(file, folder / f"{name}.pem")
        (folder / f"{name}.pem").chmod(0o644)
    inside = f"/var/tmp/{folder.name}"
    return (
        f"listeners.ssl.1 = 127.0.0.1:{port}\nssl_options.cacertfile = {inside}/ca.pem\n"
        f"ssl_options.certfile = {inside}/cert.pem\nssl_options.keyfile = {inside}/key.pem\n"
        "ssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = true\n"
    ), folder


def main() -> None:
    """Record."""
    first = free_ports(2)
    root = rabbitmq.find([])
    with tempfile.TemporaryDirectory() as directory:
        authority = Authority(Path(directory))
        own, client = authority.issue("localhost"), authority.issue("client")
        lines, folder = tls_settings(root, first + 1, authority, own)
        lines += f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {first}\n"
        lines += "management.rates_mode = detailed\n"
        try:
            with OneRabbitMQ(lines, PLUGINS, root) as peer:
                http = HttpClient(f"http://127.0.0.1:{first}/api")
                for path in ("/overview", "/nodes"):  # 500 until it has its first statistics
                    eventually(lambda path=path: http("GET", path).status == 200, f"{path}")
                with scene(Place(http, peer.port, first + 1, authority.cert, client)):
                    answers = looked(http)
                name = peer.name
        finally:
            shutil.rmtree(folder)
    lines = ",\n".join(f"{json.dumps(one)}: {json.dumps(answers[one])}" for one in answers)
    RECORDED.write_text(f'{{"of": "{name}",\n"answers": {{\n{lines}\n}}}}\n')
    print(f"{sum(map(len, answers.values()))} keys of {len(answers)} answers of {name}")


if __name__ == "__main__":
    main()
