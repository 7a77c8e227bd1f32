"""The nodes of a local cluster on disk: directories, configuration, the state file."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from warren.errors import UsageError
from warren.ports import ReservedPorts
from warren_wire.whole_file import write_whole

STATE_FILE = "cluster.json"
SECRET_FILE = "secret"
"""With the secret that the cluster's nodes share."""
PEERS_PORT_OFFSET = 20_000
"""RabbitMQ's ports: 5672 for clients, 25672 between nodes."""
PORT_MAX = 65_535 - PEERS_PORT_OFFSET


class PortTaken(UsageError):
    """Another process listens on the port of the first node."""


@dataclass(frozen=True, slots=True)
class LocalNode:
    """One node: its name, ports on loopback, directory."""

    name: str
    amqp_port: int
    peers_port: int
    directory: str

    @property
    def config_file(self) -> Path:
        """Its configuration in TOML."""
        return Path(self.directory) / "warren.toml"

    @property
    def data_dir(self) -> Path:
        """Its data directory, with LISTENING_FILE and READY_FILE while it listens and serves."""
        return Path(self.directory) / "data"

    @property
    def log_file(self) -> Path:
        """Its log: standard output and error."""
        return Path(self.directory) / "log.txt"

    @property
    def peers_address(self) -> str:
        """The address at which the other nodes reach it."""
        return f"127.0.0.1:{self.peers_port}"


@dataclass(frozen=True, slots=True)
class State:
    """The content of the state file.

    pids      the process last started for a node, by name
    settings  more keys of every node's configuration
    next      the number of the next node that is added; numbers are not reused
    """

    nodes: tuple[LocalNode, ...]
    pids: Mapping[str, int]
    settings: Mapping[str, Any]
    next: int


def read_state(directory: Path) -> State:
    """Read the state of the cluster in the directory, which must exist."""
    return msgspec.json.decode((directory / STATE_FILE).read_bytes(), type=State)


def write_state(directory: Path, state: State) -> None:
    """Write the state file atomically."""
    text = json.dumps(asdict(state), indent=2)
    write_whole(directory / STATE_FILE, text.encode(), mode=0o666, sync=False)


def new_nodes(
    numbers: Sequence[int], directory: Path, reserved: ReservedPorts, port: int | None = None
) -> tuple[LocalNode, ...]:
    """Return nodes on ports that are free now, and stay so while `reserved` is there.

    port  the first one's client port, 1 to PORT_MAX, raises PortTaken; the others get the next
          ones if they are free. None: any free ports
    """
    if port is not None and not 1 <= port <= PORT_MAX - len(numbers):
        raise UsageError(f"port {port}: from 1 to {PORT_MAX - len(numbers)} is possible")
    nodes = []
    for i, number in enumerate(numbers):
        amqp = reserved.take(None if port is None else port + i)
        if port is not None and i == 0 and amqp != port:
            raise PortTaken(f"port {port} is taken by another program; give another --port")
        peers = reserved.take(None if port is None else port + i + PEERS_PORT_OFFSET)
        place = directory / f"node-{number}"
        nodes.append(LocalNode(place.name, amqp, peers, str(place)))
    for node in nodes:
        Path(node.directory).mkdir(exist_ok=True)
    return tuple(nodes)


def cluster_secret(directory: Path) -> str:
    """Return the secret of the cluster in a directory; made for it, and for its owner to read.

    One for all clusters is no secret: each user of the machine could join each of them.
    """
    path = directory / SECRET_FILE
    if not path.exists():
        write_whole(path, secrets.token_hex(32).encode(), sync=False)
    return path.read_text(encoding="utf-8").strip()


def write_config(node: LocalNode, nodes: Sequence[LocalNode], settings: Mapping[str, Any]) -> None:
    """Write the node's TOML file; see `warren_broker.config`."""
    values: dict[str, Any] = {
        "node": node.name,
        "cluster": "local",
        "secret": cluster_secret(Path(nodes[0].directory).parent),
        "data_dir": str(node.data_dir),
        "listen": {"amqp": f"127.0.0.1:{node.amqp_port}", "peers": node.peers_address},
        "peers": {each.name: each.peers_address for each in nodes},
    }
    for key, value in settings.items():
        both = isinstance(value, Mapping) and isinstance(values.get(key), dict)
        values[key] = {**values[key], **value} if both else value
    lines: list[str] = []
    _table(lines, "", values)
    text = "\n".join(lines).lstrip() + "\n"
    write_whole(node.config_file, text.encode(), sync=False)
    node.config_file.chmod(0o600)


def _table(lines: list[str], path: str, values: Mapping[str, Any]) -> None:
    """Append a table's own keys, then the tables in it."""
    if path:
        lines += ["", f"[{path}]"]
    for key, value in values.items():
        if not isinstance(value, Mapping):
            lines.append(f"{json.dumps(key)} = {_toml(value)}")
    for key, value in values.items():
        if isinstance(value, Mapping):
            _table(lines, f"{path}.{json.dumps(key)}" if path else json.dumps(key), value)


def _toml(value: object) -> str:
    """Encode a string, number, flag, or list of strings as TOML, which for these is JSON."""
    texts = isinstance(value, list) and all(isinstance(each, str) for each in value)
    if not texts and not isinstance(value, (str, int, float)):
        raise UsageError(f"setting {value!r}: a text, number or flag, or texts, are expected")
    return json.dumps(value)
