"""Make the exports of real RabbitMQ servers that tests/machines/definition_files/samples keeps.

    python -m live.rabbitmq_exports DIRECTORY [ROOT]

ROOT is where the file system with the server begins, such as bench's chroot; "/" without it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pika

from bench.rabbitmq import RabbitMQ

DATA = f"/var/tmp/warren-exports-data-{os.getpid()}"
"""Of this process: another test run on this machine may have one, too."""
PLUGINS = (
    "rabbitmq_consistent_hash_exchange",
    "rabbitmq_federation",
    "rabbitmq_random_exchange",
    "rabbitmq_recent_history_exchange",
    "rabbitmq_sharding",
    "rabbitmq_shovel",
)
CONTROL_S = 600.0
URI = "amqp://up:secret@upstream.example/%2F"


def one_node(root: Path) -> RabbitMQ:
    """One node of the server found there, with the plugins that definitions can name."""
    return RabbitMQ(root, nodes=1, plugins=PLUGINS, data=DATA)


def control(peer: RabbitMQ, *arguments: str) -> str:
    """Run rabbitmqctl; its output."""
    done = subprocess.run(
        [
            *peer._inside(),
            "env",
            "-i",
            *peer._environment(0),
            f"{peer.programs}/rabbitmqctl",
            "-q",
            "-n",
            "r1@localhost",
            *arguments,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=CONTROL_S,
    )
    if done.returncode:
        raise RuntimeError(f"rabbitmqctl {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout


def exchange_file(peer: RabbitMQ, name: str) -> tuple[str, Path]:
    """A file for both sides: its path as the server sees it, and as this process does."""
    return f"{DATA}/{name}", peer.data / name


def exported(peer: RabbitMQ) -> dict[str, Any]:
    """The server's definitions."""
    inside, outside = exchange_file(peer, "exported.json")
    control(peer, "export_definitions", inside)
    found: dict[str, Any] = json.loads(outside.read_text(encoding="utf-8"))
    return found


def make_definitions(peer: RabbitMQ, with_ha: bool) -> None:
    """Make objects of every kind; with_ha: the server knows mirrored queues."""
    for user, word, tags in (
        ("operator", "made-up-1", ("administrator",)),
        ("watcher", "made-up-2", ("monitoring", "policymaker")),
        ("app", "made-up-3", ()),
    ):
        control(peer, "add_user", user, word)
        control(peer, "set_user_tags", user, *tags)
    control(
        peer, "set_user_limits", "app", json.dumps({"max-connections": 50, "max-channels": 100})
    )
    described = ("--description", "orders and invoices", "--tags", "production,billing")
    kind = () if with_ha else ("--default-queue-type", "quorum")
    control(peer, "add_vhost", "billing", *described, *kind)
    limits = json.dumps({"max-connections": 500, "max-queues": 100})
    control(peer, "set_vhost_limits", "-p", "billing", limits)
    for vhost, user, patterns in (
        ("/", "operator", (".*", ".*", ".*")),
        ("billing", "app", ("^app-.*", ".*", "^(app-|amq\\.)")),
        ("billing", "watcher", ("^$", "^$", ".*")),
    ):
        control(peer, "set_permissions", "-p", vhost, user, *patterns)
    topics = ("amq.topic", "^{username}\\.", "^(orders|invoices)\\.")
    control(peer, "set_topic_permissions", "-p", "billing", "app", *topics)
    _policies(peer, with_ha)
    _parameters(peer, with_ha)
    with pika.BlockingConnection(
        pika.URLParameters(f"amqp://guest:guest@{peer.targets()}/%2F")
    ) as one:
        _declare(one.channel(), with_ha)
    control(peer, "set_permissions", "-p", "billing", "guest", ".*", ".*", ".*")
    uri = f"amqp://guest:guest@{peer.targets()}/billing"
    with pika.BlockingConnection(pika.URLParameters(uri)) as one:
        channel = one.channel()
        channel.queue_declare("app-orders", durable=True, arguments={"x-queue-type": "quorum"})
        channel.queue_bind("app-orders", "amq.topic", "orders.#")
        channel.queue_declare("app-plain", durable=True)
        # the binding of an exclusive queue is in the export, the queue is not
        channel.queue_declare("app-passing", exclusive=True)
        channel.queue_bind("app-passing", "amq.topic", "passing.#")
        exporting = exported(peer)
    (peer.data / "definitions.json").write_text(json.dumps(exporting, indent=1, sort_keys=True))


def _policies(peer: RabbitMQ, with_ha: bool) -> None:
    limits = {"max-length": 10_000, "overflow": "reject-publish", "message-ttl": 86_400_000}
    control(peer, "set_policy", "-p", "billing", "limits", "^app-", json.dumps(limits))
    letters = {"dead-letter-exchange": "dead", "dead-letter-routing-key": "letters"}
    more = ("--apply-to", "queues", "--priority", "7")
    control(peer, "set_policy", *more, "letters", "^work\\.", json.dumps(letters))
    ages = {"max-age": "7D", "max-length-bytes": 1_000_000}
    control(peer, "set_policy", "--apply-to", "all", "ages", "^log", json.dumps(ages))
    upstream = {"federation-upstream-set": "all"}
    control(peer, "set_policy", "--apply-to", "exchanges", "fed", "^fed\\.", json.dumps(upstream))
    unrouted = {"alternate-exchange": "amq.fanout"}
    control(peer, "set_policy", "--apply-to", "exchanges", "unrouted", "^x-", json.dumps(unrouted))
    if with_ha:
        for name, definition in (
            ("ha-all", {"ha-mode": "all", "ha-sync-mode": "automatic"}),
            ("ha-two", {"ha-mode": "exactly", "ha-params": 2, "max-length": 5_000}),
            ("ha-nodes", {"ha-mode": "nodes", "ha-params": ["r1@localhost"]}),
        ):
            control(peer, "set_policy", name, f"^{name}\\.", json.dumps(definition))
    above = json.dumps({"max-length": 50_000, "expires": 1_800_000})
    control(peer, "set_operator_policy", "-p", "billing", "above", ".*", above)


def _parameters(peer: RabbitMQ, with_ha: bool) -> None:
    upstream = {"uri": URI, "expires": 3_600_000, "ack-mode": "on-confirm"}
    control(peer, "set_parameter", "federation-upstream", "origin", json.dumps(upstream))
    if not with_ha:  # 3.10 cannot export a parameter whose value is a list
        several = json.dumps([{"upstream": "origin", "max-hops": 2}])
        control(peer, "set_parameter", "federation-upstream-set", "both", several)
    shovel = {
        "src-protocol": "amqp091",
        "src-uri": "amqp://",
        "src-queue": "work.moved",
        "dest-protocol": "amqp091",
        "dest-uri": URI,
        "dest-queue": "arrived",
        "ack-mode": "on-confirm",
    }
    control(peer, "set_parameter", "shovel", "mover", json.dumps(shovel))
    control(peer, "set_global_parameter", "mqtt_port_to_vhost_mapping", '{"1883": "billing"}')


def _declare(channel: Any, with_ha: bool) -> None:
    for name, kind, arguments in (
        ("dead", "direct", {}),
        ("fed.news", "topic", {}),
        ("events", "headers", {"alternate-exchange": "dead"}),
        ("hashed", "x-consistent-hash", {"hash-header": "customer"}),
        ("any", "x-random", {}),
        ("recent", "x-recent-history", {"x-recent-history-length": 10}),
        ("shards", "x-modulus-hash", {}),
    ):
        channel.exchange_declare(name, kind, durable=True, arguments=arguments)
    channel.exchange_declare("passing", "fanout", auto_delete=True)
    channel.exchange_declare("inner", "fanout", durable=True, internal=True)
    channel.exchange_bind("inner", "fed.news", "news.#")
    for name, arguments in (
        ("work.quorum", {"x-queue-type": "quorum", "x-delivery-limit": 5}),
        ("work.classic", {"x-queue-type": "classic", "x-max-priority": 10}),
        ("work.moved", {"x-max-length": 1000, "x-overflow": "reject-publish"}),
        ("log.stream", {"x-queue-type": "stream", "x-max-age": "1D"}),
        ("ünïcode/queue", {"x-message-ttl": 60_000, "x-custom": {"deep": [1, "two", True]}}),
        ("work.lazy", {"x-queue-mode": "lazy", "x-single-active-consumer": True}),
        ("work.expiring", {"x-expires": 3_600_000, "x-dead-letter-exchange": "dead"}),
    ):
        channel.queue_declare(name, durable=True, arguments=arguments)
    channel.queue_declare("passing", auto_delete=True, durable=with_ha)
    channel.queue_bind("passing", "passing", "")
    channel.queue_bind("work.quorum", "amq.direct", "work")
    channel.queue_bind("work.classic", "events", "", {"x-match": "any", "colour": "red", "size": 3})
    channel.queue_bind("work.quorum", "hashed", "5")
    channel.queue_bind("log.stream", "fed.news", "log.#")
    channel.queue_bind("work.classic", "inner", "")
    channel.queue_bind("ünïcode/queue", "fed.news", "ünï.#")
    channel.queue_declare("", durable=True)


def main(arguments: list[str]) -> None:
    """Write the export of a server to `rabbitmq-VERSION.json`."""
    directory, root = Path(arguments[0]), Path(arguments[1] if len(arguments) > 1 else "/")
    with one_node(root) as peer:
        make_definitions(peer, with_ha=" 3." in peer.name)
        version = peer.name.removeprefix("RabbitMQ ")
        text = (peer.data / "definitions.json").read_text(encoding="utf-8")
        (directory / f"rabbitmq-{version}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
