"""Build the image of deploy/Containerfile and try it: one container, then deploy/compose.yaml.

Needs root and Debian's programs for containers. The base is Debian's, of the Python that runs this;
images, containers and volumes are below .warren, and are removed at the end.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pika

from tools import console, wheelhouse
from tools.environment import LOGS, ROOT, STATE, environment, python
from tools.proof import Failed, eventually
from tools.wheelhouse import NotPossible
from warren_wire import VERSION

PROGRAMS = {
    "buildah": "buildah",
    "podman": "podman",
    "runc": "runc",
    "/usr/lib/podman/netavark": "netavark",
    "/usr/lib/podman/aardvark-dns": "aardvark-dns",
    "mmdebstrap": "mmdebstrap",
}
PLACE = STATE / "image"
LOG = LOGS / "image.log"
BASE = "localhost/warren-base"
IMAGE = f"localhost/warren:{VERSION}"
NOT_IN_BASE = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale")
COMPOSE = "podman-compose==1.6.0"
NODES = ("warren1", "warren2", "warren3")
HOST = "127.0.71.5"
"""Instead of compose.yaml's 127.0.0.1, where another node may listen."""
PORTS = (5672, 5673, 5674)
MESSAGES = 500
QUEUE = "kept"
USER, PASSWORD = "admin", "of-the-first-user"
STOP_S = 20.0
"""Within which a node stops: far less than compose.yaml's stop_grace_period."""
ULIMITS = '["nofile=20000:20000", "nproc=4000:4000"]'
"""podman's own are above what a machine without nested rights allows."""


def settings() -> dict[str, str]:
    """Write the configuration of podman and buildah; return their environment."""
    PLACE.mkdir(parents=True, exist_ok=True)
    (PLACE / "containers.conf").write_text(
        f'[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\ntmp_dir = "{PLACE}/tmp"\n'
        f'[network]\nnetwork_config_dir = "{PLACE}/networks"\n'
        f"[containers]\ndefault_ulimits = {ULIMITS}\n"
    )
    (PLACE / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{PLACE}/storage"\nrunroot = "{PLACE}/run"\n'
    )
    return environment(
        CONTAINERS_CONF=str(PLACE / "containers.conf"),
        CONTAINERS_STORAGE_CONF=str(PLACE / "storage.conf"),
        BUILDAH_ISOLATION="chroot",
        PYTHONPATH=str(PLACE / "compose"),
        IMAGE=IMAGE,
    )


class Containers:
    """podman, as the tests use it."""

    def __init__(self, env: dict[str, str]) -> None:
        self.env = env

    def run(self, *words: str, worked: Sequence[int] = (0,)) -> str:
        """Run podman; return what it prints."""
        return self.command(["podman", *words], worked)

    def compose(self, *words: str) -> None:
        """Run podman-compose on the file of `deploy`."""
        file = str(PLACE / "deploy" / "compose.yaml")
        self.command([str(python()), "-m", "podman_compose", "--file", file, *words])

    def command(self, words: Sequence[str], worked: Sequence[int] = (0,)) -> str:
        """Run a command with podman's environment; return what it prints."""
        with LOG.open("a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(words)}\n")
            log.flush()
            done = subprocess.run(
                words, env=self.env, stdout=subprocess.PIPE, stderr=log, text=True, check=False
            )
            log.write(done.stdout)
        if done.returncode not in worked:
            raise Failed(f"{' '.join(words)} ended with {done.returncode}; see {LOG}")
        return done.stdout.strip()

    def of(self, name: str, what: str) -> str:
        """Return a field of a container."""
        return self.run("inspect", name, "--format", "{{." + what + "}}")

    def healthy(self, name: str) -> bool:
        """Run the container's health check."""
        words = ["podman", "healthcheck", "run", name]
        return subprocess.run(words, env=self.env, capture_output=True, check=False).returncode == 0

    def wait_healthy(self, *names: str) -> None:
        """Wait until their health checks say so."""
        for name in names:
            eventually(partial(self.healthy, name), f"{name} to be healthy")

    def stop(self, name: str) -> float:
        """Stop a container as its user would; return the seconds. Its exit code is 0."""
        began = time.monotonic()
        self.run("stop", "--time", "60", name)
        seconds = time.monotonic() - began
        code = self.of(name, "State.ExitCode")
        if code != "0" or seconds > STOP_S:
            raise Failed(f"{name} stopped after {seconds:.1f} s with exit code {code}")
        return seconds


def build(containers: Containers, root: Path) -> None:
    """Import the base, collect the wheels and build the image."""
    context = PLACE / "context"
    wheelhouse.collect(context / "dist")
    (context / "dist" / "requirements.txt").rename(context / "requirements.txt")
    (context / "deploy").mkdir()
    shutil.copy(ROOT / "deploy" / "container.toml", context / "deploy")
    with console.Spinner("importing the base"):
        without = " ".join(f"--exclude=./{place}" for place in NOT_IN_BASE)
        tar = f"tar -C {root} {without} -c . | podman import - {BASE}"
        containers.command(["sh", "-c", tar])
    file = ROOT / "deploy" / "Containerfile"
    words = ["buildah", "bud", "--isolation", "chroot", "--network", "host", "--format", "docker"]
    given = ["--build-arg", f"BASE={BASE}", "--build-arg", "PIP_NO_INDEX=1"]
    given += ["--build-arg", f"VERSION={VERSION}", "--ignorefile", f"{file}.dockerignore"]
    command = [*words, *given, "--file", str(file), "--tag", IMAGE, str(context)]
    if not console.quiet("building the image", command, LOGS / "buildah.log", containers.env):
        raise Failed("the image was not built")


def try_one(containers: Containers) -> None:
    """One container with the least rights: its health, its user, what it leaves, its stop."""
    least = ["--read-only", "--read-only-tmpfs=false", "--cap-drop=ALL"]
    containers.run("run", "--detach", "--name", "one", "--network", "none", *least, IMAGE)
    containers.wait_healthy("one")
    users = set(containers.run("top", "one", "huser").split()[1:])
    if users != {"10001"}:
        raise Failed(f"it runs as {users}")
    first = int(containers.of("one", "State.Pid"))
    containers.run("exec", "one", "sh", "-c", "sleep 0.2 & true")
    time.sleep(2.0)
    states = subprocess.run(["ps", "-o", "stat=", "--ppid", str(first)], capture_output=True)
    if b"Z" in states.stdout:
        raise Failed("the first process leaves zombies")
    os.kill(first, signal.SIGSTOP)
    hung = containers.healthy("one")
    os.kill(first, signal.SIGCONT)
    if hung:
        raise Failed("a node that hangs is healthy")
    containers.wait_healthy("one")
    seconds = containers.stop("one")
    containers.run("rm", "--volumes", "one")
    console.say(
        " ✓ one container: user 10001, no capability, read-only root, healthy, unhealthy while it"
        f" hangs, no zombie, stopped with 0 after {seconds:.1f} s"
    )


def publish(first: int) -> None:
    """Publish MESSAGES messages with confirms through any node that runs."""
    with connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(first, first + MESSAGES):
            channel.basic_publish("", QUEUE, str(number).encode())


def connect() -> pika.BlockingConnection:
    """Connect to the first node that answers, from outside the containers."""
    login = pika.PlainCredentials(USER, PASSWORD)
    return pika.BlockingConnection(
        [pika.ConnectionParameters(HOST, port, credentials=login) for port in PORTS]
    )


def received() -> list[int]:
    """Return the numbers of all messages, sorted."""
    found: list[int] = []
    with connect() as connection:
        channel = connection.channel()
        while len(found) < 3 * MESSAGES:
            method, _, body = channel.basic_get(QUEUE)
            if method is None:
                break
            channel.basic_ack(method.delivery_tag)
            found.append(int(body))
    return sorted(found)


def try_cluster(containers: Containers) -> None:
    """Start compose.yaml; stop a node, kill another; every confirmed message is there, once."""
    folder = PLACE / "deploy"
    folder.mkdir()
    text = (ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8")
    (folder / "compose.yaml").write_text(text.replace("127.0.0.1:", f"{HOST}:"))
    (folder / "warren.env").write_text(
        f"WARREN_SECRET={os.urandom(16).hex()}\n"
        f"WARREN_DEFAULT_USER={USER}\nWARREN_DEFAULT_PASS={PASSWORD}\n"
    )
    names = [f"warren_{node}_1" for node in NODES]
    containers.compose("up", "--detach")
    containers.wait_healthy(*names)
    with connect() as connection:
        arguments = {"x-queue-type": "quorum"}
        connection.channel().queue_declare(QUEUE, durable=True, arguments=arguments)
    publish(0)
    seconds = containers.stop(names[0])
    publish(MESSAGES)
    containers.run("start", names[0])
    containers.wait_healthy(names[0])
    containers.run("kill", names[1])
    publish(2 * MESSAGES)
    containers.run("start", names[1])
    containers.wait_healthy(names[1])
    found = received()
    if found != list(range(3 * MESSAGES)):
        raise Failed(f"{len(set(found))} of {3 * MESSAGES} messages, {len(found)} deliveries")
    containers.compose("down", "--volumes")
    console.say(
        f" ✓ compose.yaml by podman-compose: three nodes healthy; one stopped with 0 after"
        f" {seconds:.1f} s, one killed; {3 * MESSAGES:,} confirmed messages, each received once"
    )


def clear() -> Containers:
    """Remove all containers, volumes and images of this verb; return podman for new ones."""
    if PLACE.exists():
        Containers(settings()).run("rm", "--force", "--all", "--volumes", worked=range(256))
        shutil.rmtree(PLACE)
    return Containers(settings())


def run() -> int:
    """Build and try the image; return the exit code."""
    began = time.monotonic()
    LOG.unlink(missing_ok=True)
    try:
        root = wheelhouse.debian(PROGRAMS)
    except NotPossible as error:
        console.say(f" ✗ {error}")
        return 1
    containers = clear()
    try:
        pip = [str(python()), "-m", "pip", "--disable-pip-version-check", "install"]
        words = [*pip, "--target", str(PLACE / "compose"), COMPOSE]
        if not console.quiet(f"installing {COMPOSE}", words, LOGS / "compose.log"):
            raise NotPossible("podman-compose cannot be installed")
        build(containers, root)
        try_one(containers)
        try_cluster(containers)
    except (NotPossible, Failed) as error:
        console.say(f" ✗ {error}")
        return 1
    finally:
        clear()
        shutil.rmtree(PLACE)
    console.say(f" ✓ {IMAGE} from deploy/Containerfile, {console.took(began)}")
    return 0


if __name__ == "__main__":
    sys.exit(run())
