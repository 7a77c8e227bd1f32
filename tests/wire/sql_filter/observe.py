"""Ask RabbitMQ what its filters of streams say of MESSAGES, and write observed.json.

`python3 -m wire.sql_filter.observe` in tests/, as root on Debian: see `build.py differ`.
"""

from __future__ import annotations

import json
import sys
import uuid
from contextlib import closing
from pathlib import Path
from typing import Final

import pika
from proton import Described, ProtonException, symbol
from proton.reactor import Filter
from proton.utils import BlockingConnection

from wire.sql_filter.messages import FAILED, FILTERS, MESSAGES, OBSERVED, REFUSED, message_of

sys.path.insert(0, str(Path(__file__).parents[3]))

from bench import rabbitmq

_LAST: Final = "the last message"
"""An application property by which every filter lets the last message pass."""
_QUEUE: Final = "observed"
_DATA: Final = "/var/tmp/warren-observed-filters"
_WAIT_S: Final = 5.0


def asked(connection: BlockingConnection, text: str) -> list[int] | str:
    """Return the numbers of the messages that a filter is true of, or REFUSED."""
    described = {
        symbol("sql-filter"): Described(symbol("amqp:sql-filter"), f"({text}) OR [{_LAST}]"),
        symbol("from"): Described(symbol("rabbitmq:stream-offset-spec"), "first"),
    }
    receiver = connection.create_receiver(
        f"/queues/{_QUEUE}",
        credit=len(MESSAGES) + 1,
        name=uuid.uuid4().hex,
        options=Filter(described),
    )
    # What the broker does not apply is not among the filters of its attach.
    confirmed = receiver.link.remote_source.filter
    confirmed.rewind()
    if confirmed.next() is None or "sql-filter" not in map(str, confirmed.get_object()):
        return REFUSED
    found: list[int] = []
    while True:
        body = receiver.receive(timeout=_WAIT_S).body
        receiver.accept()
        if body == len(MESSAGES):
            return found
        found.append(body)


def main() -> None:
    """Start a node, publish, ask, write."""
    with rabbitmq.RabbitMQ(rabbitmq.find([]), 1, (), "", _DATA) as node:
        host, port = node.targets().split(":")
        address = pika.ConnectionParameters(host, int(port))
        with pika.BlockingConnection(address) as declaring:
            declaring.channel().queue_declare(
                _QUEUE, durable=True, arguments={"x-queue-type": "stream"}
            )

        def connected() -> BlockingConnection:
            return BlockingConnection(
                f"amqp://guest:guest@{host}:{port}", timeout=_WAIT_S, allowed_mechs="PLAIN"
            )

        with closing(connected()) as connection:
            sender = connection.create_sender(f"/queues/{_QUEUE}")
            for number, given in enumerate([*MESSAGES, {_LAST: True}]):
                sender.send(message_of(number, given))
        answers: dict[str, list[int] | str] = {}
        for text in FILTERS:
            with closing(connected()) as connection:
                try:
                    answers[text] = asked(connection, text)
                except ProtonException:
                    answers[text] = FAILED
        lines = [
            f"  {json.dumps(text, ensure_ascii=False)}: {json.dumps(answer)}"
            for text, answer in answers.items()
        ]
        joined = ",\n".join(lines)
        OBSERVED.write_text(
            f'{{\n "broker": "{node.name}",\n "answers": {{\n{joined}\n }}\n}}\n', encoding="utf-8"
        )
        print(f"{node.name}: {len(answers)} filters")


if __name__ == "__main__":
    main()
