"""A wheel of `build.py wheels`, installed where nothing can be compiled."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import wheels
from warren.local import LocalCluster
from warren_broker.http.ui_files import UI_FOLDER, UPLOT_FOLDER
from warren_wire.kernel.build_kernel import MODULES as KERNEL_MODULES

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.long]

PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet")
COMPILED_ONLY_HERE = {"CC": "false", "CXX": "false"}
"""`false` is a compiler that always fails."""

PUBLISH_AND_CLAIM = """
import importlib.util, sys
from warren import Address, Admin, ClaimReader, Connection, Producer
from warren_wire import kernel
from warren_wire.block.block import Block

assert kernel.ACTIVE == "compiled", kernel.ACTIVE
uri, queue = sys.argv[1:]
with Connection(uri) as connection:
    Admin(connection).queues.declare(queue)
    with Producer(connection) as producer:
        for number in range(1000):
            producer.send(b"%d" % number, queue, headers={"n": number})
    reader = ClaimReader(connection, queue, "reader")
    claim = reader.open(reader.register().settled + 1, max_messages=5000, max_bytes=1 << 20)
    bodies = []
    for piece in reader.fetch(claim.number, 0, claim.messages):
        block = Block.decode(piece.data)
        bodies += [int(bytes(block.body(i))) for i in range(block.count)]
    assert bodies == list(range(1000)), bodies[:5]
    reader.settle(claim.number)
    assert Admin(connection).queues.get(queue).messages == 0
print(*(name for name in ("proton", "typer", "rich", "pyspark", "warren_proton")
        if importlib.util.find_spec(name)))
"""
OTHER_PROTON = """
import sys
from proton import Message
from proton.utils import BlockingConnection
from warren import Admin, Connection
from warren_wire.amqp10.proton import Message as Ours

assert Ours is not Message and Ours.__module__ == "warren_proton._message"
host, queue = sys.argv[1:]
with Connection(f"amqp://guest:guest@{host}") as connection:
    Admin(connection).queues.declare(queue)
    theirs = BlockingConnection(
        host, user="guest", password="guest", allowed_mechs="PLAIN", sasl_enabled=True)
    sender = theirs.create_sender(f"/queues/{queue}")
    for number in range(20):
        sender.send(Message(body=number, durable=True))
    assert Admin(connection).queues.get(queue).messages == 20
    received = theirs.create_receiver(f"/queues/{queue}", credit=20)
    for number in range(20):
        assert received.receive(timeout=120).body == number
        received.accept()
    theirs.close()
print("both")
"""
OWN_NODE = """
import sys
from warren import Admin, Producer
from warren.local import LocalCluster

with LocalCluster(1, sys.argv[1]) as cluster, cluster.connect() as connection:
    Admin(connection).queues.declare("q")
    with Producer(connection) as producer:
        producer.send(b"one", "q").wait()
    print(Admin(connection).queues.get("q").messages)
"""


@pytest.fixture(scope="module")
def cluster_size() -> int:
    return 1


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same wheel, but for the speed of Proton."""
    (made,) = wheels.make(tmp_path_factory.mktemp("dist"), [wheels.here()], "-O0")
    return made


class Installed:
    """A virtual environment with the wheel and its extra `connector`, and no compiler."""

    def __init__(self, place: Path, wheel: Path) -> None:
        self.place = place
        self.wheel = wheel
        self.interpreter = place / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
        self.install("connector")

    def install(self, extra: str) -> None:
        """Install the wheel with that extra; nothing may come as sources."""
        wanted = ["install", "--no-compile", "--only-binary", ":all:", f"{self.wheel}[{extra}]"]
        pip = [sys.executable, *PIP, "--python", str(self.interpreter)]
        self._run([*pip, *wanted], **COMPILED_ONLY_HERE)

    def python(self, *arguments: str) -> str:
        """Run the environment's Python; return what it prints."""
        return self._run([str(self.interpreter), *arguments])

    def _run(self, command: list[str], **more: str) -> str:
        """Run a command where neither compiler nor repository is; return its standard output."""
        kept = ("HOME", "LANG", "TMPDIR", "PIP_INDEX_URL", "PIP_CERT", "PIP_CONFIG_FILE")
        env = {name: os.environ[name] for name in kept if name in os.environ}
        done = subprocess.run(
            command,
            cwd=self.place,
            env={**env, "PATH": str(self.place / "bin"), **more},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    @property
    def packages(self) -> Path:
        """Where packages are installed."""
        (found,) = self.place.glob("lib/python3*/site-packages")
        return found


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Iterator[Installed]:
    place = tmp_path_factory.mktemp("wheel") / "venv"
    yield Installed(place, wheel)
    shutil.rmtree(place)


def test_the_wheel_names_a_platform_that_it_can_run_on_and_holds_the_licence(wheel: Path) -> None:
    assert f"-manylinux_2_17_{platform.machine()}." in wheel.name
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        wanted = [
            line.partition(": ")[2]
            for line in opened.read(metadata).decode().splitlines()
            if line.startswith("Requires-Dist") and "extra ==" not in line
        ]
        assert b"Apache License\n" in opened.read("warren_proton/LICENSE")
        assert b"The Apache Software Foundation" in opened.read("warren_proton/NOTICE")
    needed = sorted(one.partition(">")[0] for one in wanted)
    assert needed == ["cffi", "lz4", "msgspec", "zlib-ng"]
    served = {path.name for path in UI_FOLDER.iterdir()}
    assert {f"warren_broker/http/ui/{name}" for name in served} <= set(names)
    if UPLOT_FOLDER.is_dir():
        charts = {"uPlot.esm.js", "uPlot.min.css", "LICENSE"}
        assert {f"warren_broker/http/uplot/{name}" for name in charts} <= set(names)
    compiled = {
        Path(name).name.partition(".")[0]
        for name in names
        if "warren_wire/kernel/compiled/" in name and name.endswith(".so")
    }
    assert compiled == set(KERNEL_MODULES)


def test_it_publishes_and_claims_without_a_compiler(
    cluster: LocalCluster, installed: Installed
) -> None:
    said = installed.python("-c", PUBLISH_AND_CLAIM, cluster.uri, "wheel-claims")
    assert said == "warren_proton"


def test_a_proton_of_the_users_own_works_beside_it(
    cluster: LocalCluster, installed: Installed
) -> None:
    import cproton
    import cproton_ffi
    import proton

    theirs = installed.packages
    assert proton.__file__ and cproton.__file__ and cproton_ffi.__file__
    shutil.copytree(Path(proton.__file__).parent, theirs / "proton")
    shutil.copy(cproton.__file__, theirs)
    shutil.copy(cproton_ffi.__file__, theirs)
    host = cluster.hosts.split(",")[0]
    assert installed.python("-c", OTHER_PROTON, host, "wheel-both") == "both"


def test_a_node_runs_from_it(installed: Installed) -> None:
    installed.install("broker")
    assert installed.python("-c", OWN_NODE, str(installed.place / "data")) == "1"
