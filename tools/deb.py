"""Build the Debian package from the wheels, and try it in a Debian that systemd-nspawn boots.

Needs root and Debian's programs. The machine has loopback alone, is below .warren, and is removed.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools import console, wheelhouse
from tools.environment import LOGS, ROOT, STATE, environment, python
from tools.proof import Failed, eventually, require
from tools.wheelhouse import NotPossible
from warren_wire import VERSION

PROGRAMS = {
    "dpkg-deb": "dpkg",
    "lintian": "lintian",
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
}
PLACE = STATE / "deb"
MACHINE = PLACE / "machine"
LOG = LOGS / "deb.log"
SOURCES = ROOT / "deploy" / "debian"
NAME = "warren-broker"
SCRIPTS = ("postinst", "prerm", "postrm")
PROGRAM = """\
#!/usr/bin/python3
import sys

sys.path.insert(0, "/usr/lib/warren")
from {module} import main

sys.exit(main())
"""
COMMANDS = {"warren": "warren.cli", "warren-broker": "warren_broker.__main__"}
COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: 2026 The Warren developers, and the authors of the distributions in /usr/lib/warren
License: Apache-2.0
 On Debian systems the licence is in /usr/share/common-licenses/Apache-2.0. Each distribution in
 /usr/lib/warren has its own in its *.dist-info directory.
"""
EXPOSURE_MAX = 2.0
NODES = ("1", "2", "3")
CONFIG = """\
node = "n{0}"
cluster = "c"
data_dir = "/var/lib/warren/{0}"

[listen]
amqp = "127.0.0.1:567{0}"
peers = "127.0.0.1:2567{0}"

[peers]
n1 = "127.0.0.1:25671"
n2 = "127.0.0.1:25672"
n3 = "127.0.0.1:25673"
"""
URI = "amqp://guest:guest@127.0.0.1:5671,127.0.0.1:5672,127.0.0.1:5673"
LINES = 100


# ------------------------------------------------------------------ the package


def build(version: str, wheels: Path) -> Path:
    """Build the package from a folder of wheels; return its path in dist/."""
    tree = PLACE / f"tree-{version}"
    modules = tree / "usr/lib/warren"
    pip = [str(python()), "-m", "pip", "--disable-pip-version-check", "install", "--no-compile"]
    options = ["--no-index", "--find-links", str(wheels), "--target", str(modules)]
    wanted = [*pip, *options, "warrenmq[broker,oauth2]"]
    if not console.quiet("unpacking the wheels", wanted, LOGS / "deb-pip.log", environment()):
        raise Failed("the wheels cannot be unpacked")
    shutil.rmtree(modules / "bin", ignore_errors=True)
    for name, module in COMMANDS.items():
        _write(tree / "usr/bin" / name, PROGRAM.format(module=module), 0o755)
    unit = (ROOT / "deploy/systemd/warren@.service").read_text(encoding="utf-8")
    _write(tree / "lib/systemd/system/warren@.service", unit)
    _write(tree / "etc/warren/1.toml", (SOURCES / "1.toml").read_text(encoding="utf-8"), 0o640)
    (tree / "etc/warren").chmod(0o750)
    overrides = (SOURCES / "lintian-overrides").read_text(encoding="utf-8")
    _write(tree / f"usr/share/lintian/overrides/{NAME}", overrides)
    documents = tree / "usr/share/doc" / NAME
    _write(documents / "copyright", COPYRIGHT)
    when = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(_changed()))
    entry = f"{NAME} ({version}) stable; urgency=medium\n\n  * CHANGELOG.md of Warren {VERSION}.\n"
    entry += f"\n -- {_maintainer()}  {when}\n"
    packed = gzip.compress(entry.encode(), 9, mtime=0)
    (documents / "changelog.gz").write_bytes(packed)
    _control(tree, version)
    target = ROOT / "dist" / f"{NAME}_{version}_{_architecture()}.deb"
    target.parent.mkdir(exist_ok=True)
    command = ["dpkg-deb", "--root-owner-group", "-Zxz", "-z1", "--build", str(tree), str(target)]
    env = environment(SOURCE_DATE_EPOCH=str(_changed()))
    if not console.quiet(f"building {target.name}", command, LOGS / "dpkg-deb.log", env):
        raise Failed("the package was not built")
    shutil.rmtree(tree)
    return target


def _control(tree: Path, version: str) -> None:
    """Write the package's control files."""
    major, minor = sys.version_info[:2]
    values = {
        "VERSION": version,
        "ARCHITECTURE": _architecture(),
        "PYTHON_NEXT": f"{major}.{minor + 1}",
        "PYTHON": f"{major}.{minor}",
    }
    text = (SOURCES / "control").read_text(encoding="utf-8")
    _write(tree / "DEBIAN/control", re.sub("@(.*?)@", lambda found: values[found[1]], text))
    _write(tree / "DEBIAN/conffiles", "/etc/warren/1.toml\n")
    for name in SCRIPTS:
        _write(tree / "DEBIAN" / name, (SOURCES / name).read_text(encoding="utf-8"), 0o755)


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def _maintainer() -> str:
    found = re.search("^Maintainer: (.*)$", (SOURCES / "control").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def _architecture() -> str:
    return subprocess.check_output(["dpkg", "--print-architecture"], text=True).strip()


def _changed() -> int:
    """Return when the last commit was made, in seconds: two builds of it are the same."""
    return int(subprocess.check_output(["git", "log", "-1", "--format=%ct"], text=True, cwd=ROOT))


# ------------------------------------------------------------------ the machine


class Machine:
    """A Debian that systemd-nspawn has booted."""

    def __init__(self, root: Path) -> None:
        shutil.rmtree(MACHINE, ignore_errors=True)
        subprocess.run(["cp", "-a", str(root), str(MACHINE)], check=True)
        options = ["--register=no", "--keep-unit", "--private-network", "--link-journal=no"]
        command = ["systemd-nspawn", "--boot", *options, "--directory", str(MACHINE)]
        with (LOGS / "nspawn.log").open("wb") as out:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
            )
        try:
            eventually(lambda: self.code("systemctl", "is-active", "basic.target") == 0, "systemd")
        except BaseException:
            self.end()
            raise

    def _inside(self) -> list[str]:
        """Return what runs a command in the machine; fails until it has a first process."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        leader = children[0] if children else "0"
        return ["nsenter", "--target", leader, "--mount", "--uts", "--ipc", "--net", "--pid"]

    def run(self, *words: str, given: str = "", worked: Sequence[int] = (0,)) -> str:
        """Run a command in the machine; return what it prints."""
        done = subprocess.run(
            [*self._inside(), "--", *words],
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"},
        )
        with LOG.open("a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(words)}\n{done.stdout}")
        if done.returncode not in worked:
            raise Failed(f"{' '.join(words)} ended with {done.returncode}; see {LOG}")
        return done.stdout

    def code(self, *words: str) -> int:
        """Run a command in the machine; return its exit code."""
        command = [*self._inside(), "--", *words]
        return subprocess.run(command, capture_output=True, check=False).returncode

    def copy(self, file: Path) -> str:
        """Copy a file into the machine; return its path there."""
        shutil.copy(file, MACHINE / "root")
        return f"/root/{file.name}"

    def end(self) -> None:
        """Power it off and remove it."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(MACHINE, ignore_errors=True)


def started(machine: Machine, unit: str) -> str:
    """Return the id of a unit's process; "0": there is none."""
    return machine.run("systemctl", "show", "--value", "--property=MainPID", unit).strip()


def try_one(machine: Machine, package: Path) -> None:
    """Install it; run the node of its conffile; a wrong configuration is refused."""
    machine.run("dpkg", "--install", machine.copy(package))
    owner = machine.run("stat", "--format=%a %U:%G", "/etc/warren", "/etc/warren/1.toml")
    require(owner.split("\n")[:2] == ["750 root:warren", "640 root:warren"], f"modes: {owner}")
    require(machine.code("systemctl", "is-active", "warren@1") != 0, "it was started unasked")
    machine.run("systemctl", "enable", "--now", "warren@1")
    machine.run("warren", "queues", "declare", "kept")
    machine.run("warren", "publish", "kept", given="a line\n" * LINES)
    machine.run("systemctl", "restart", "warren@1")
    require(str(LINES) in machine.run("warren", "queues", "list"), "messages are missing")
    process = started(machine, "warren@1")
    user = machine.run("stat", "--format=%U", f"/proc/{process}").strip()
    require(user == "warren", f"it runs as {user}")
    judged = machine.run("systemd-analyze", "security", "--no-pager", "warren@1")
    found = re.search(r"Overall exposure level[^:]*: ([\d.]+)", judged)
    require(found is not None and float(found[1]) <= EXPOSURE_MAX, judged)
    assert found is not None
    (MACHINE / "etc/warren/wrong.toml").write_text('nod = "wrong"\n')
    require(machine.code("systemctl", "start", "warren@wrong") != 0, "a wrong one starts")
    said = machine.run("journalctl", "--no-pager", "--unit=warren@wrong")
    require("did you mean 'node'?" in said, "the journal does not say what is wrong")
    time.sleep(5.0)
    state = machine.run("systemctl", "is-failed", "warren@wrong", worked=(0, 1)).strip()
    require(state == "failed", f"warren@wrong is {state}: it is tried again")
    warned = machine.run("journalctl", "--no-pager", "--priority=warning", "--unit=warren@1")
    require("default password" in warned, "a warning is not in the journal as one")
    (MACHINE / "etc/warren/wrong.toml").unlink()
    console.say(
        f" ✓ installed; warren@1 serves, keeps {LINES} messages over a restart, runs as warren;"
        f" exposure {found[1]}; a wrong configuration is refused, with its reason in the journal"
    )


def try_cluster(machine: Machine, newer: Path) -> None:
    """Three instances serve as a cluster, one is killed, an upgrade restarts them in turn."""
    machine.run("systemctl", "disable", "--now", "warren@1")
    machine.run("rm", "--recursive", "/var/lib/warren/1")
    for node in NODES:
        (MACHINE / f"etc/warren/{node}.toml").write_text(CONFIG.format(node))
    units = [f"warren@{node}" for node in NODES]
    machine.run("systemctl", "enable", "--now", *units)
    arguments = ("--argument", "x-queue-type=quorum", "--uri", URI)
    machine.run("warren", "queues", "declare", "kept", *arguments)
    machine.run("warren", "publish", "kept", "--uri", URI, given="a line\n" * LINES)
    killed = started(machine, units[0])
    machine.run("systemctl", "kill", "--signal=KILL", units[0])
    eventually(lambda: started(machine, units[0]) not in (killed, "0"), "a restart")
    eventually(lambda: machine.code("systemctl", "is-active", units[0]) == 0, "its service")
    before = [started(machine, unit) for unit in units]
    (MACHINE / "etc/warren/3.toml").write_text('nod = "wrong"\n' + CONFIG.format("3"))
    said = machine.run("dpkg", "--force-confold", "--install", machine.copy(newer))
    after = [started(machine, unit) for unit in units]
    same = [one == other for one, other in zip(before, after, strict=True)]
    require(same == [False, False, True], f"not restarted: {same}")
    require("warren@3.service is not restarted" in said, said)
    kept = machine.run("warren", "queues", "list", "--uri", URI)
    require(str(LINES) in kept, f"messages are missing: {kept}")
    console.say(
        " ✓ three instances are a cluster; one killed is started again; an upgrade restarts those"
        f" with a good configuration in turn; {LINES} messages kept"
    )


def try_removal(machine: Machine) -> None:
    """A removal keeps data and configuration, a purge does not."""
    machine.run("dpkg", "--remove", NAME)
    running = ("--state=running", "--plain", "--no-legend", "warren@*")
    require(not machine.run("systemctl", "list-units", *running), "nodes run after a removal")
    require((MACHINE / "var/lib/warren/1").is_dir(), "a removal deletes data")
    left = list((MACHINE / "usr/lib").glob("warren"))
    require(not left, f"a removal leaves {left}")
    machine.run("dpkg", "--purge", NAME)
    for place in ("var/lib/warren", "etc/warren"):
        require(not (MACHINE / place).exists(), f"a purge keeps /{place}")
    require(machine.code("id", "warren") != 0, "a purge keeps the user")
    failed = machine.run("systemctl", "list-units", "--failed", "--plain", "--no-legend")
    require("warren" not in failed, failed)
    console.say(" ✓ removed: data and configuration kept; purged: neither, nor the user")


def judge(package: Path) -> None:
    """Let lintian look at it; errors fail."""
    command = ["lintian", "--allow-root", "--fail-on", "error", str(package)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (LOGS / "lintian.log").write_text(done.stdout)
    warned = sum(line.startswith("W:") for line in done.stdout.splitlines())
    require(done.returncode == 0, f"lintian: {done.stdout}{done.stderr}")
    console.say(f" ✓ lintian: no error, {warned} warnings")


def run() -> int:
    """Build and try the package; return the exit code."""
    began = time.monotonic()
    LOG.unlink(missing_ok=True)
    try:
        root = wheelhouse.debian(PROGRAMS)
        shutil.rmtree(PLACE, ignore_errors=True)
        wheelhouse.collect(PLACE / "wheels")
        package = build(VERSION, PLACE / "wheels")
        newer = build(f"{VERSION}+upgrade", PLACE / "wheels").rename(PLACE / "newer.deb")
        judge(package)
        with console.Spinner("booting Debian"):
            machine = Machine(root)
        try:
            try_one(machine, package)
            try_cluster(machine, newer)
            try_removal(machine)
        finally:
            machine.end()
    except (NotPossible, Failed) as error:
        console.say(f" ✗ {error}")
        return 1
    finally:
        shutil.rmtree(PLACE, ignore_errors=True)
    size = package.stat().st_size // 1024
    console.say(f" ✓ {os.path.relpath(package, ROOT)}  {size} KiB, {console.took(began)}")
    return 0


if __name__ == "__main__":
    sys.exit(run())
