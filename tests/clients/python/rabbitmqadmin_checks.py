"""What `rabbitmqadmin` 2 does with a broker: a line for each command.

    python3 rabbitmqadmin_checks.py PROGRAM DIRECTORY

The broker has AMQP on port 5672 and the HTTP API on 15672. A command passes with exit code 0.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import urllib.request
from base64 import b64encode
from pathlib import Path

COMMAND_S = 120
API = "http://127.0.0.1:15672/api/overview"
LOGIN = ("--host", "127.0.0.1", "--port", "15672", "--username", "guest", "--password", "guest")
COMMANDS = Path(__file__).parent.parent / "rabbitmqadmin_commands.txt"
"""In this order; {node} is the broker's node, {directory} an existing one."""


def node_name() -> str:
    """The name of the broker's node."""
    request = urllib.request.Request(API)
    request.add_header("Authorization", "Basic " + b64encode(b"guest:guest").decode())
    with urllib.request.urlopen(request, timeout=COMMAND_S) as answer:
        return str(json.load(answer)["node"])


def main(program: str, directory: str) -> int:
    """Run all commands; the exit code is 0 whatever they said."""
    node = node_name()
    for command in COMMANDS.read_text().splitlines():
        filled = command.replace("{directory}", directory).replace("{node}", node)
        words = [program, *LOGIN, *shlex.split(filled)]
        done = subprocess.run(words, capture_output=True, check=False, timeout=COMMAND_S)
        if done.returncode == 0:
            print("passed", command)
        else:
            said = (done.stderr or done.stdout).decode("utf-8", "replace").split()
            print(f"failed {command}: exit code {done.returncode}: {' '.join(said)[-160:]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
