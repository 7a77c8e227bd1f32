"""Each wheel is tried where nothing else is installed, and no compiler is on PATH.

1. An empty virtual environment of the wheel's Python gets the wheel with its extra `broker`, and
   what that needs as wheels. Only `pure` needs a compiler, for Proton: that is compiled before.
2. Three nodes run from it by `warren-broker run`; pika publishes what `warren` reads, and the other
   way around.
3. A wheel for another machine is loaded under qemu, where that and a Python of Debian's are there:
   both kernels must give the same. Without them it is said that it is untested.
4. The sdist alone gives a wheel with the kernel, by `pip wheel` in an empty environment.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from tools import console, pythons
from tools.environment import LOGS, compiler_missing, python
from tools.wheels import DISTRIBUTION, WheelFailed, proton_version

QEMU = "qemu-{}-static"
PROOF = """
import subprocess, sys, time
from pathlib import Path
import pika
from warren import Admin, ClaimReader, Connection, Producer
from warren.errors import WarrenError
from warren.local import LocalCluster
from warren_wire import kernel
from warren_wire.block.block import Block

assert kernel.ACTIVE == sys.argv[1], kernel.ACTIVE
cluster = LocalCluster(3, "cluster")
run = [str(Path(sys.executable).with_name("warren-broker")), "run", "--config"]
logs = [Path(f"{node.name}.log") for node in cluster.nodes]
nodes = [
    subprocess.Popen([*run, node.config_file], stdout=log.open("wb"), stderr=subprocess.STDOUT)
    for node, log in zip(cluster.nodes, logs)
]
try:
    until = time.monotonic() + 240
    while True:
        try:
            connection = Connection(cluster.uri)
            Admin(connection).queues.declare("from-pika")
            Admin(connection).queues.declare("from-warren")
            break
        except WarrenError:
            if time.monotonic() > until:
                raise
            time.sleep(1)
    port = cluster.nodes[1].amqp_port
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as other:
        channel = other.channel()
        channel.confirm_delivery()
        for number in range(200):
            channel.basic_publish("", "from-pika", b"%d" % number)
        with Producer(connection) as producer:
            for number in range(200):
                producer.send(b"%d" % number, "from-warren")
        got = [channel.basic_get("from-warren", auto_ack=True)[2] for _ in range(200)]
        assert got == [b"%d" % number for number in range(200)], got[:5]
    reader = ClaimReader(connection, "from-pika", "reader")
    claim = reader.open(reader.register().settled + 1, max_messages=500, max_bytes=1 << 20)
    bodies = []
    for piece in reader.fetch(claim.number, 0, claim.messages):
        block = Block.decode(piece.data)
        bodies += [bytes(block.body(i)) for i in range(block.count)]
    assert bodies == [b"%d" % number for number in range(200)], bodies[:5]
    reader.settle(claim.number)
    connection.close()
finally:
    for node in nodes:
        node.terminate()
    ended = [node.wait(60) for node in nodes]
    if sys.exc_info()[0]:
        print(*(log.read_text()[-2000:] for log in logs), sep="\\n")
assert ended == [0, 0, 0], ended
said = ["runs interpreted" in log.read_text() for log in logs]
assert said == [kernel.ACTIVE == "interpreted"] * 3, said
"""
FOREIGN = """
import platform, sys
sys.path.insert(0, sys.argv[1])
from warren_wire import kernel
from warren_wire.amqp10.proton import Message, compiled_engine
from warren_wire.block.block import Block, encode

assert kernel.ACTIVE == "compiled" and "warren_proton" in compiled_engine
block = encode([b"%d" % n * 50 for n in range(500)], [b"\\0\\0"] * 500, [(b"", b"key")] * 500)
found = []
for one in (kernel.load("compiled"), kernel.load("interpreted")):
    table = one.admit.load_block(Block.decode(block))
    found.append(one.digest.content_digest(kernel.Selection(table, 0, table.count)))
assert found[0] == found[1], found
again = Message()
again.decode(Message(body="x" * 1000).encode())
assert again.body == "x" * 1000
print(platform.machine())
"""


def try_out(made: Iterable[Path]) -> None:
    """Try what was made; print a line for each; WheelFailed where one does not work."""
    for path in made:
        named = path.name.split("-")
        machine = named[-1].split(".")[-2].partition("manylinux2014_")[2]
        with tempfile.TemporaryDirectory(prefix="warren-trial-") as place:
            if path.name.endswith(".tar.gz"):
                _try_sdist(path, Path(place))
            elif machine in ("", platform.machine()):
                _try_wheel(path, Path(place))
            else:
                _try_foreign(path, machine, Path(place))


def _step(title: str, command: list[str], place: Path, **env: str) -> str:
    log = LOGS / "wheel-trial.log"
    if not console.quiet(title, command, log, env=env, cwd=place):
        raise WheelFailed(title)
    return log.read_text(encoding="utf-8")


def bare(*paths: Path) -> dict[str, str]:
    """Return an environment without compilers, sources of Warren and virtual environments."""
    kept = ("HOME", "LANG", "TMPDIR")
    env = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    env |= {name: os.environ[name] for name in kept if name in os.environ}
    return {**env, "PATH": os.pathsep.join(map(str, paths)), "CC": "false", "CXX": "false"}


def install(wheel: Path, interpreter: Path, venv: Path, extra: str, *more: str) -> Path:
    """Install a wheel in an empty environment, from wheels; return its interpreter."""
    make = [str(interpreter), "-m", "venv", str(venv)]
    _step(f"an empty environment of {interpreter.name}", make, venv.parent, **bare())
    inside = venv / "bin" / "python"
    pip = [str(inside), "-m", "pip", "--disable-pip-version-check", "install"]
    wanted = ["--only-binary", ":all:", *more, f"{wheel}[{extra}]"]
    _step(f"installing {wheel.name}[{extra}]", [*pip, *wanted], venv.parent, **bare(venv / "bin"))
    return inside


def _try_wheel(wheel: Path, place: Path) -> None:
    named = wheel.name.split("-")
    mode = "compiled" if named[3].startswith("cp3") else "interpreted"
    minor = int(named[2][3:]) if mode == "compiled" else sys.version_info[1]
    interpreter = pythons.find(minor)
    assert interpreter is not None, minor
    more: list[str] = []
    if named[3] == "none":
        if why := compiler_missing():
            console.say(f" ! {wheel.name} is untested: it needs {DISTRIBUTION}, and {why}")
            return
        wanted = f"{DISTRIBUTION}=={proton_version()}"
        pip = [str(python()), "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(place), wanted]
        _step(f"compiling {wanted}, which this wheel requires", pip, place, **os.environ)
        more = ["--find-links", str(place)]
    inside = install(wheel, interpreter, place / "venv", "broker", *more)
    env = bare(inside.parent)
    version = _step(
        "warren --version", [str(inside.with_name("warren")), "--version"], place, **env
    )
    title = f"three nodes by `warren-broker run`, kernel {mode}; pika and warren publish and read"
    _step(title, [str(inside), "-c", PROOF, mode], place, **env)
    console.say(f"   {wheel.name}: {version.strip()} on Python 3.{minor} without a compiler")


def _try_foreign(wheel: Path, machine: str, place: Path) -> None:
    """Load a wheel of another machine under qemu, with a Python of Debian's."""
    named = wheel.name.split("-")[2]
    minor = int(named[3:])
    qemu = shutil.which(QEMU.format(machine))
    found = pythons.unpacked(minor, machine) if qemu else None
    if qemu is None or found is None or "-abi3-" in wheel.name:
        why = (
            f"{QEMU.format(machine)} is missing" if qemu is None else "no such Python is available"
        )
        console.say(f" ! {wheel.name} is untested: {why}")
        return
    pip = [str(python()), "-m", "pip", "--disable-pip-version-check", "install", "--no-compile"]
    pip += [
        "--target",
        str(place / "site"),
        "--only-binary",
        ":all:",
        "--python-version",
        f"3.{minor}",
    ]
    pip += [f"--platform=manylinux_2_{glibc}_{machine}" for glibc in (34, 28, 17)]
    pip += [f"--platform=manylinux2014_{machine}", str(wheel)]
    _step(f"installing {wheel.name} for {machine}", pip, place, **os.environ)
    root = found.parents[2]
    run = [qemu, "-L", str(root), str(found), "-I", "-c", FOREIGN, str(place / "site")]
    said = _step(f"loading it under {Path(qemu).name}", run, place, **bare())
    console.say(f"   {wheel.name}: kernel and engine work on {said.strip()} with Python 3.{minor}")


def _try_sdist(sdist: Path, place: Path) -> None:
    if why := compiler_missing():
        console.say(f" ! {sdist.name} is untested: {why}")
        return
    subprocess.run([sys.executable, "-m", "venv", str(place / "venv")], check=True)
    pip = [str(place / "venv/bin/python"), "-m", "pip", "--disable-pip-version-check", "wheel"]
    env = {**bare(Path("/usr/local/bin"), Path("/usr/bin"), Path("/bin")), "CC": "cc", "CXX": "c++"}
    title = f"pip wheel {sdist.name} in an empty environment"
    _step(title, [*pip, "--no-deps", "--wheel-dir", str(place), str(sdist)], place, **env)
    (wheel,) = place.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        compiled = [name for name in opened.namelist() if name.endswith(".so")]
    if not compiled:
        raise WheelFailed(f"{wheel.name}, made from {sdist.name}, has no kernel")
    console.say(f"   {sdist.name}: gives {wheel.name} with {len(compiled)} compiled modules")
