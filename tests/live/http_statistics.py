"""What clients do, and what the HTTP API then says of it: of RabbitMQ's answers and Warren's.

    RMQ_ROOT=… PYTHONPATH=tests:. python3 tests/live/http_statistics.py

plays this against a RabbitMQ 4.3 (of RMQ_ROOT, or Debian's of the benchmarks) and writes what came
to `http_statistics_recorded.json`; `test_http_statistics.py` plays it against Warren.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pika

from bench import rabbitmq
from bench.ports import free_ports
from connector.amqp.rabbitmq import OneRabbitMQ
from live.conftest import eventually
from live.http_client import HttpClient, quoted

RECORDED = Path(__file__).parent / "http_statistics_recorded.json"
R = "%2F"
AGES = "lengths_age=60&lengths_incr=5&msg_rates_age=60&msg_rates_incr=5"
RANGES = (
    *("msg_rates_age=60", "msg_rates_incr=5", "msg_rates_age=&msg_rates_incr="),
    *("msg_rates_age=x&msg_rates_incr=5", "msg_rates_age=60&msg_rates_incr=x"),
    *("msg_rates_age=-60&msg_rates_incr=5", "msg_rates_age=60&msg_rates_incr=-5"),
    *("msg_rates_age=0&msg_rates_incr=5", "msg_rates_age=0&msg_rates_incr=0"),
    *("msg_rates_age=60&msg_rates_incr=0", "msg_rates_age=5&msg_rates_incr=60"),
    *("msg_rates_age=60.5&msg_rates_incr=5", "msg_rates_age=6e1&msg_rates_incr=5"),
    *("msg_rates_age=99999999&msg_rates_incr=1", "msg_rates_age=3600&msg_rates_incr=1"),
    *("msg_rates_age=500&msg_rates_incr=1", "msg_rates_age=501&msg_rates_incr=1"),
    "msg_rates_age=99999999999999999999&msg_rates_incr=99999999999999999999",
    *("lengths_age=x&lengths_incr=5", "lengths_age=-1&lengths_incr=1"),
    *("lengths_age=60&lengths_incr=0", "data_rates_age=60&data_rates_incr=0"),
    *("data_rates_age=60&data_rates_incr=x", "node_stats_age=60&node_stats_incr=0"),
)
"""Ages and steps of samples, most of them wrong."""


KEPT = (
    *("message_stats", "queue_totals", "deliveries", "samples", "messages", "messages_ready"),
    *("messages_unacknowledged", "name", "items", "recv_oct", "send_oct"),
)
"""Keys that are compared, besides those of rates."""
CHANGING = ("recv_oct", "send_oct", "messages", "messages_ready", "messages_unacknowledged")
"""Keys with other values in each run: RabbitMQ's lengths of a quorum queue are 5 s old."""


def shape(value: Any) -> Any:
    """What is the same in each run: numbers of counts, and of rates and samples their keys."""
    if isinstance(value, list):
        return [shape(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "rate" in value:
        return sorted(value)
    kept = {key: value[key] for key in sorted(value) if key in KEPT or _is_rate(key)}
    kept |= dict.fromkeys([key for key in CHANGING if key in kept])
    if "message_stats" in kept:
        stats = kept["message_stats"]
        kept["message_stats"] = {key: shape(stats[key]) for key in sorted(stats)}
    return {key: item if key == "message_stats" else shape(item) for key, item in kept.items()}


def _is_rate(key: str) -> bool:
    others = ("connection_details", "consumer_details", "reductions_details")
    return key.endswith("_details") and key not in others


def work(connection: pika.BlockingConnection) -> None:
    """Publish, get, consume, acknowledge, on the first channel."""
    channel = connection.channel()
    for queue in ("idle", "used", "filled", "taken"):
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
    channel.queue_bind("used", "amq.topic", "a.#")
    channel.confirm_delivery()
    for _ in range(6):
        channel.basic_publish("", "used", b"body")
    for _ in range(2):
        channel.basic_publish("amq.topic", "a.b", b"body")
    channel.basic_publish("", "filled", b"body")
    channel.basic_publish("amq.topic", "nowhere", b"dropped")
    try:
        channel.basic_publish("amq.topic", "nowhere", b"returned", mandatory=True)
    except pika.exceptions.UnroutableError:
        pass
    tag = channel.basic_get("used")[0].delivery_tag
    channel.basic_nack(tag, requeue=True)
    channel.basic_ack(channel.basic_get("used")[0].delivery_tag)
    assert channel.basic_get("used", auto_ack=True)[0] is not None
    for method, _, _ in channel.consume("used", inactivity_timeout=60):
        channel.basic_ack(method.delivery_tag)
        if method.delivery_tag == 9:
            break
    channel.cancel()
    channel.basic_publish("", "taken", b"body")
    for _ in channel.consume("taken", auto_ack=True, inactivity_timeout=60):
        break
    channel.cancel()
    for _ in range(3):
        assert channel.basic_get("used")[0] is None


def looked(http: HttpClient) -> dict[str, Any]:
    """The answers, by path."""
    found: dict[str, Any] = {}
    connection = http.get("/connections")[0]["name"]
    named = quoted(connection)
    for path in (
        *(f"/queues/{R}/{queue}" for queue in ("used", "filled", "idle")),
        *(f"/queues/{R}/used?{AGES}", f"/queues/{R}/idle?{AGES}", f"/queues/{R}"),
        *(f"/queues/{R}?{AGES}", f"/queues/{R}?disable_stats=true"),
        f"/queues/{R}?disable_stats=true&enable_queue_totals=true",
        f"/queues/{R}?page=1&page_size=2&sort=message_stats.publish&sort_reverse=true",
        *("/connections", f"/connections/{named}", "/channels"),
        f"/connections/{named}?data_rates_age=60&data_rates_incr=5",
        *(f"/channels/{named}%20(1)", f"/channels/{named}%20(1)?{AGES}"),
        *(f"/exchanges/{R}/amq.topic", f"/exchanges/{R}/amq.topic?{AGES}"),
        *(f"/exchanges/{R}/amq.default", f"/exchanges/{R}/amq.direct", f"/vhosts/{R}"),
        *(f"/vhosts/{R}?{AGES}", "/vhosts", f"/overview?{AGES}"),
        *(f"/vhosts/{R}?data_rates_age=60&data_rates_incr=5", f"/connections/{named}/channels"),
        *("/nodes", "/nodes?node_stats_age=60&node_stats_incr=5"),
    ):
        answer = http("GET", path)
        assert answer.status == 200, (path, answer)
        found[path.replace(named, "NAME")] = json.loads(
            json.dumps(answer.body).replace(connection, "NAME")
        )
    return found


def refused(http: HttpClient) -> dict[str, list[Any]]:
    """Status, error and whether there are samples, by the query."""
    found: dict[str, list[Any]] = {}
    for query in RANGES:
        for path in (f"/queues/{R}/used", "/overview"):
            answer = http("GET", f"{path}?{query}")
            body = answer.body if isinstance(answer.body, dict) else {}
            samples = '"samples"' in json.dumps(body)
            found[f"{path}?{query}"] = [answer.status, body.get("error"), samples]
    return found


def settled(http: HttpClient) -> bool:
    """Whether the statistics have what `work` did."""
    wanted = {"used": ("get_empty", 3), "filled": ("publish", 1), "taken": ("deliver_no_ack", 1)}
    for name, (key, count) in wanted.items():
        stats = http.get(f"/queues/{R}/{name}").get("message_stats") or {}
        if stats.get(key) != count:
            return False
    channels = http.get("/channels")
    return bool(channels) and channels[0].get("message_stats", {}).get("get_empty", 0) == 3


def sampled(http: HttpClient) -> bool:
    """Whether there are samples of more than one moment."""
    stats = http.get(f"/queues/{R}/used?{AGES}")["message_stats"]
    return len(stats["publish_details"].get("samples", ())) > 2


def write(name: str, answers: dict[str, Any], ranges: dict[str, Any]) -> None:
    """Write what was recorded, one answer a line."""
    parts = [
        ",\n".join(f"{json.dumps(one)}: {json.dumps(found[one])}" for one in found)
        for found in (answers, ranges)
    ]
    RECORDED.write_text(
        f'{{"of": "{name}",\n"answers": {{\n{parts[0]}\n}},\n"ranges": {{\n{parts[1]}\n}}}}\n'
    )


def main() -> None:
    """Record."""
    ports = free_ports(1)
    port = ports if isinstance(ports, int) else ports[0]
    listen = f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {port}\n"
    with OneRabbitMQ(listen, ("rabbitmq_management",), rabbitmq.find([])) as peer:
        http = HttpClient(f"http://127.0.0.1:{port}/api")
        for path in ("/overview", "/nodes"):  # 500 until it has its first statistics
            eventually(lambda path=path: http("GET", path).status == 200, f"{path} is answered")
        with peer.connect() as connection:
            work(connection)
            eventually(lambda: settled(http), "the statistics are complete")
            eventually(lambda: sampled(http), "there are samples")
            answers, ranges = looked(http), refused(http)
        shapes = {path: shape(answer) for path, answer in answers.items()}
        write(peer.name, shapes, ranges)
    print(f"{len(answers)} answers of {peer.name}")


if __name__ == "__main__":
    main()
