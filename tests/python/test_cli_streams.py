"""The command `warren` where the terminal is not of UTF-8, or takes nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from python.fake_broker import FakeCluster, FakeNode, FakeQueue
from warren_wire.admin import members as m
from warren_wire.admin import members as v

NAME = "Größe-東京-\U0001f407"
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
LATIN = {**ASCII, "PYTHONIOENCODING": "latin-1"}
UTF8 = {"LC_ALL": "C.UTF-8", "PYTHONUTF8": "1"}
WAITING = re.compile(rb"no answer yet: [^\n]*\n|127\.0\.0\.1:\d+ answers\n")
"""What every command says where a node on a busy machine takes more than two seconds to answer."""
MEMBER = v.MemberInfo("w-1", "leader", "running", True, 90, 0)


@pytest.fixture
def place() -> Iterator[str]:
    world = FakeCluster()
    shown = v.QueueMembers("/", NAME, "quorum", "w-1", 3, 90, 90, (MEMBER,), ("w-1",), True)
    world.script = {m.GetMembersRequest: [shown]}
    world.queues[NAME] = FakeQueue(NAME)
    made = FakeNode(world, seed=1)
    yield f"amqp://guest:guest@{made.host}/?request_timeout=60"
    made.kill()


def run(
    place: str, more: Mapping[str, str], *arguments: str | bytes, to: str = "", errors_to: str = ""
) -> subprocess.CompletedProcess[bytes]:
    """Run the command as a process; to, errors_to: files for its streams."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    paths = os.pathsep.join(path for path in sys.path if path)
    env = {**kept, "PYTHONPATH": paths, "WARREN_URI": place, "COLUMNS": "200", **more}
    command = [sys.executable, "-m", "warren.cli", *arguments]
    with Path(to or os.devnull).open("ab") as out, Path(errors_to or os.devnull).open("ab") as err:
        return subprocess.run(
            command,
            env=env,
            stdout=out if to else subprocess.PIPE,
            stderr=err if errors_to else subprocess.PIPE,
            timeout=120,
            check=False,
        )


@pytest.mark.parametrize("arguments", [("queues", "members", NAME), ("queues", "list")])
@pytest.mark.parametrize(
    ("terminal", "shown"),
    [
        (ASCII, b"Gr\\xf6\\xdfe-\\u6771\\u4eac-\\U0001f407"),
        (LATIN, b"Gr\xf6\xdfe-\\u6771\\u4eac-\\U0001f407"),
        (UTF8, NAME.encode()),
    ],
    ids=["ascii", "latin-1", "utf-8"],
)
def test_names_are_shown_with_escapes(
    place: str, terminal: Mapping[str, str], shown: bytes, arguments: tuple[str, ...]
) -> None:
    found = run(place, terminal, *[os.fsencode(one) for one in arguments])
    assert (found.returncode, WAITING.sub(b"", found.stderr)) == (0, b"")
    assert shown in found.stdout


@pytest.mark.parametrize("terminal", [ASCII, LATIN, UTF8], ids=["ascii", "latin-1", "utf-8"])
def test_json_stays_json(place: str, terminal: Mapping[str, str]) -> None:
    found = run(place, terminal, "queues", "members", NAME.encode(), "--json")
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["name"] == NAME


def test_an_argument_that_is_no_text_is_refused(place: str) -> None:
    found = run(place, ASCII, "queues", "members", b"q\xff")
    assert found.returncode == 1 and b"Traceback" not in found.stderr
    assert found.stderr.startswith(b"warren: the argument 'q\\\\xff' is neither of UTF-8 nor of")


@pytest.mark.parametrize("more", [(), ("--json",)], ids=["table", "json"])
def test_output_that_takes_nothing_is_one_line(place: str, more: tuple[str, ...]) -> None:
    found = run(place, UTF8, "queues", "members", NAME.encode(), *more, to="/dev/full")
    assert found.returncode == 1
    assert found.stderr == b"warren: cannot write the output: No space left on device\n"
    silent = ("/dev/full", "/dev/full")
    found = run(place, UTF8, "queues", "list", *more, to=silent[0], errors_to=silent[1])
    assert found.returncode == 1


def test_help_is_shown_without_utf_8(place: str) -> None:
    found = run(place, ASCII, "--help")
    assert (found.returncode, found.stderr) == (
        0,
        b"",
    ) and b"Manage a Warren cluster" in found.stdout
