"""`python -m warren_broker.ready --config FILE`: whether a node serves clients.

For the health checks of containers, which run it every few seconds: it imports no more than the
settings. The exit code is 0 or 1.
"""

from __future__ import annotations

import argparse
import json
import socket
import ssl
import sys
from pathlib import Path

from warren_broker import config
from warren_broker.config import NO_ADDRESS, NodeConfig, parse_address, reachable_host
from warren_wire.amqp091.codec import PROTOCOL_HEADER
from warren_wire.node_files import READY_FILE
from warren_wire.tls.contexts import client_side

READY_ANSWER_S = 5.0
"""How long a node may take to answer. Its loop answers between two turns of its work."""


def unready(settings: NodeConfig) -> str | None:
    """Return why the node with these settings does not serve clients; None: it does.

    READY_FILE alone does not tell: a node that was killed leaves it, and one that hangs keeps it.
    So it is asked for the first frame of a connection, which needs no login.
    """
    file = settings.data_dir / READY_FILE
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return f"there is no {file}: the node starts, stops, waits for others or is in maintenance"
    except (OSError, ValueError) as error:
        return f"{file}: {error}"
    encrypted = values["amqp"] == NO_ADDRESS
    host, port = parse_address(values["amqps" if encrypted else "amqp"])
    try:
        with socket.create_connection((reachable_host(host), port), READY_ANSWER_S) as plain:
            # Nothing is sent that its certificate would have to protect.
            client = client_side(checks=False).wrap_socket(plain) if encrypted else plain
            with client:
                client.sendall(PROTOCOL_HEADER)
                answered = client.recv(1)
    except OSError as error:
        if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
            return None  # it answers: only clients with a certificate are served
        return f"{host}:{port} does not answer: {error}"
    return None if answered else f"{host}:{port} closes the connection"


def main(arguments: list[str] | None = None) -> int:
    """Print whether the node serves clients, or why not; return the exit code."""
    parser = argparse.ArgumentParser(prog="warren_broker.ready", description=__doc__)
    parser.add_argument("--config", type=Path, help="the node's TOML file")
    try:
        reason = unready(config.load(parser.parse_args(arguments).config))
    except config.ConfigError as error:
        reason = str(error)
    print(reason or "serves clients", file=sys.stderr if reason else sys.stdout)
    return 1 if reason else 0


if __name__ == "__main__":
    sys.exit(main())
