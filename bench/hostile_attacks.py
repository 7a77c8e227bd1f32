"""The attacks of `build.py bench hostile`, each a process of its own, only against loopback.

`python -m bench.hostile_attacks NAME AMQP HTTP PEERS SECONDS`: addresses are host:port. Each ends
by itself after that time and prints what it has done as JSON. They log in as USER, which has rights
on `^mine` only, or not at all.
"""

from __future__ import annotations

import base64
import contextlib
import json
import resource
import socket
import struct
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.amqp091 import TABLE_EMPTY, short

USER = "mine"
HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"
BINDINGS = 300
BINDING_WORDS = 80
ROUTING_WORDS = 127
COPIES = 50
SOCKETS = 10_000
WRONG_PER_S = 850
SLOW_HTTP = 600
PEER_SOCKETS_PER_S = 400
FILES_KEPT = 200
PATTERN = ".?" * 380 + "a.{240}[cd]"
MANY_QUEUES = 60
LONG_NAME = 254
COLUMNS = 3_000
KEYS = 1_000_000
BOMB_BYTES = 64 << 20
BODY_BYTES = 18_000_000
ANSWER_S = 30.0


@dataclass(frozen=True)
class Where:
    """One node's addresses, and how long to attack it."""

    amqp: str
    http: str
    peers: str
    seconds: float


def address(text: str) -> tuple[str, int]:
    """Return host and port."""
    host, _, port = text.rpartition(":")
    return host, int(port)


def ask(
    http: str, method: str, path: str, body: bytes | None = None, user: str = USER
) -> tuple[int, bytes]:
    """Return status and body of a request to the HTTP API; 0 without an answer."""
    request = urllib.request.Request(f"http://{http}/api{path}", data=body, method=method)
    request.add_header("Content-Type", "application/json")
    encoded = base64.b64encode(f"{user}:{user}".encode()).decode()
    request.add_header("Authorization", f"Basic {encoded}")
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        return refused.code, b""
    except OSError:
        return 0, b""


def until(seconds: float) -> Iterator[int]:
    """Yield 0, 1, 2 and so on for that time."""
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        yield number
        number += 1


def connected(where: str, source: str) -> socket.socket | None:
    """Begin to connect from an address of this machine; None: no file is free."""
    try:
        made = socket.socket()
    except OSError:
        return None
    made.setblocking(False)
    made.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT: as many ports as there are
    made.bind((source, 0))
    made.connect_ex(address(where))
    return made


# ------------------------------------------------------------------ with a login


def topic(where: Where) -> dict[str, Any]:
    """Bind keys with as many wildcards as are allowed, then publish with many long keys."""
    import pika

    host, port = address(where.amqp)
    login = pika.PlainCredentials(USER, USER)
    parameters = pika.ConnectionParameters(host, port, credentials=login, heartbeat=0)
    channel = pika.BlockingConnection(parameters).channel()
    channel.exchange_declare("mine-topic", "topic")
    channel.queue_declare("mine-topic", exclusive=True)
    for number in range(BINDINGS):
        words = ["*" if (number >> at % 9) & 1 else "a" for at in range(BINDING_WORDS)]
        words[number % BINDING_WORDS] = words[(number * 7 + 3) % BINDING_WORDS] = "#"
        channel.queue_bind("mine-topic", "mine-topic", ".".join(words))
    keys = [".".join("ab"[(n >> at % 6) & 1] for at in range(ROUTING_WORDS)) for n in range(COPIES)]
    sent = 0
    for _ in until(where.seconds):
        properties = pika.BasicProperties(headers={"CC": keys})
        channel.basic_publish("mine-topic", keys[0], b"x", properties)
        channel.queue_purge("mine-topic")  # waits for the message
        sent += 1
    return {"messages": sent}


def pattern(where: Where) -> dict[str, Any]:
    """Ask for the queues with names that an expensive regular expression matches."""
    made = 0
    for number in range(MANY_QUEUES):
        name = (f"mine-{number:02}-" + "a" * LONG_NAME)[:LONG_NAME]
        made += ask(where.http, "PUT", f"/queues/%2F/{name}", b'{"durable":true}')[0] in (201, 204)
    chosen = urllib.parse.quote(PATTERN, safe="")
    path = f"/queues?page=1&page_size=100&use_regex=true&name={chosen}"
    answers = [ask(where.http, "GET", path)[0] for _ in until(where.seconds)]
    return {"queues": made, "requests": len(answers), "status": sorted(set(answers))}


def own_pattern(where: Where) -> dict[str, Any]:
    """The same over /management of AMQP 1.0, which RabbitMQ has without patterns."""
    from warren.admin import Admin
    from warren.errors import WarrenError

    with _warren(where) as connection:
        return _refused(where, WarrenError, lambda: Admin(connection).queues.list(PATTERN))


def bomb(where: Where) -> dict[str, Any]:
    """Post definitions that inflate a thousand times, without the right to."""
    from warren.errors import WarrenError

    packed = zlib.compress(bytes(BOMB_BYTES), 9)
    with _warren(where) as connection:
        post = partial(connection.request, "POST", "/definitions", packed)
        return _refused(where, WarrenError, post)


def _refused(where: Where, refusal: type[Exception], call: Callable[[], Any]) -> dict[str, Any]:
    """Repeat a request that may be refused."""
    asked = refused = 0
    for number in until(where.seconds):
        asked = number + 1
        try:
            call()
        except refusal:
            refused += 1
    return {"requests": asked, "refused": refused}


def _warren(where: Where) -> Any:
    from warren.connection import Connection
    from warren.uri import Address

    return Connection(Address(hosts=(address(where.amqp),), user=USER, password=USER))


def json_body(where: Where) -> dict[str, Any]:
    """Post definitions with a million keys, then only brackets, without the right to."""
    keys = b"{" + b",".join(b'"%d":1' % number for number in range(KEYS)) + b"}"
    brackets = b"[" + b"[]," * (BODY_BYTES // 3 - 2) + b"[]]"
    answers = [
        ask(where.http, "POST", "/definitions", (keys, brackets)[number % 2])[0]
        for number in until(where.seconds)
    ]
    return {"requests": len(answers), "status": sorted(set(answers))}


def columns(where: Where) -> dict[str, Any]:
    """Ask for the queues with thousands of columns."""
    names = ",".join(f"a{number}.b" for number in range(COLUMNS))
    path = f"/queues?columns={names}"
    answers = [ask(where.http, "GET", path)[0] for _ in until(where.seconds)]
    return {"requests": len(answers), "status": sorted(set(answers))}


# ------------------------------------------------------------------ before the login


def sockets(where: Where, source: str = ELSEWHERE) -> dict[str, Any]:
    """Open thousands of connections that say `AMQP` and nothing more."""
    count = min(SOCKETS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - FILES_KEPT)
    return _hold(where, where.amqp, count, b"AMQP", source)


def sockets_here(where: Where) -> dict[str, Any]:
    """The same from the address of the clients."""
    return sockets(where, HERE)


def slow_http(where: Where) -> dict[str, Any]:
    """Open connections to the HTTP API that send an incomplete header."""
    return _hold(where, where.http, SLOW_HTTP, b"GET /api/whoami HTTP/1.1\r\nX: ", ELSEWHERE)


def _hold(where: Where, to: str, count: int, says: bytes, source: str) -> dict[str, Any]:
    """Hold so many connections, in the place of closed ones new ones, at most `count` a second."""
    held: list[socket.socket] = []
    opened = 0
    begun = time.monotonic()
    for _ in until(where.seconds):
        held = [one for one in held if not _closed(one)]
        while len(held) < count and opened < count * (1 + time.monotonic() - begun):
            made = connected(to, source)
            if made is None:
                break
            held.append(made)
            opened += 1
            if opened % 200 == 0:
                break
        time.sleep(0.02)
        for one in held[-200:]:
            with contextlib.suppress(OSError):
                one.send(says)
    return {"opened": opened, "held": len(held)}


def _closed(one: socket.socket) -> bool:
    try:
        if one.recv(4096):
            return False
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno == 107:  # ENOTCONN: not connected yet
            return False
    one.close()
    return True


def wrong_passwords(where: Where) -> dict[str, Any]:
    """Log in with a wrong password, hundreds of times a second, each over a new connection."""
    answer = b"\0guest\0wrong"
    arguments = TABLE_EMPTY + short("PLAIN") + struct.pack(">I", len(answer)) + answer
    method = struct.pack(">HH", 10, 11) + arguments + short("en_US")
    start_ok = struct.pack(">BHI", 1, 0, len(method)) + method + b"\xce"
    return _at_rate(where, where.amqp, WRONG_PER_S, b"AMQP\0\0\x09\x01" + start_ok)


def peer_sockets(where: Where) -> dict[str, Any]:
    """Open connections to the port where nodes connect with each other."""
    return _at_rate(where, where.peers, PEER_SOCKETS_PER_S, b"")


def _at_rate(where: Where, to: str, per_s: int, says: bytes) -> dict[str, Any]:
    """Open connections at a rate, and say that; each is closed when the node does, or after 5 s."""
    living: list[tuple[float, socket.socket]] = []
    unsaid: list[socket.socket] = []
    opened = ended = 0
    begun = time.monotonic()
    for _ in until(where.seconds):
        while opened < per_s * (time.monotonic() - begun):
            made = connected(to, ELSEWHERE)
            if made is None:
                break
            opened += 1
            living.append((time.monotonic(), made))
            unsaid.append(made)
        time.sleep(0.005)
        unsaid = [one for one in unsaid if says and not _said(one, says)]
        kept = [(since, one) for since, one in living if not _closed(one)]
        ended += len(living) - len(kept)
        for since, one in kept:
            if time.monotonic() - since > 5:
                one.close()
        living = [(since, one) for since, one in kept if one.fileno() >= 0]
    return {"opened": opened, "ended_by_the_node": ended}


def _said(one: socket.socket, says: bytes) -> bool:
    """Return whether nothing remains to be said, or can be."""
    try:
        one.send(says)
    except BlockingIOError:
        return False
    except OSError as error:
        return error.errno not in (11, 107)
    return True


ATTACKS: dict[str, Callable[[Where], dict[str, Any]]] = {
    "topic bindings and CC": topic,
    "patterns of names": pattern,
    "patterns over /management": own_pattern,
    "definitions that inflate": bomb,
    "JSON of millions of values": json_body,
    "thousands of columns": columns,
    "sockets before the login": sockets,
    "the same from the client's address": sockets_here,
    "wrong passwords": wrong_passwords,
    "slow HTTP": slow_http,
    "sockets at the peer port": peer_sockets,
}
ONLY_WARREN = ("patterns over /management", "definitions that inflate")
"""What RabbitMQ does not have."""


def main(arguments: list[str]) -> int:
    """Carry out one attack."""
    name, amqp, http, peers, seconds = arguments
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    where = Where(amqp, http, peers, float(seconds))
    watchdog = threading.Timer(where.seconds + 2 * ANSWER_S, sys.exit)
    watchdog.daemon = True
    watchdog.start()
    print(json.dumps(ATTACKS[name](where)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
