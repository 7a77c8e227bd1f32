"""aio-pika and the Java client over TLS, with a password and with a certificate."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import aio_pika
import pytest

from tests.certificates import run
from tests.live.test_tls import TlsBroker, by_common_name
from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.connection import Connection

pytestmark = pytest.mark.live

JARS = "WARREN_TEST_JAVA"
"""A class path with the Java client and slf4j-api, where they are not in Debian's place."""
DEBIAN_JARS = ("/usr/share/java/amqp-client.jar", "/usr/share/java/slf4j-api.jar")
PASSWORD = "changeit"
STRICT = "WARREN_STRICT"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    """Requires certificates of clients, and takes users from them."""
    directory = tmp_path_factory.mktemp("clients")
    with by_common_name(directory, fail_if_no_peer_cert=True) as made:
        guest = made.authority.issue("guest", file="guest")
        with Connection(
            made.address(cert_file=str(guest.cert), key_file=str(guest.key))
        ) as connection:
            admin = Admin(connection)
            admin.users.put("ann", password_hash="")
            admin.permissions.put("/", "ann", configure=".*", write=".*", read=".*")
        yield made


@pytest.mark.parametrize("mechanism", ["plain", "external"])
def test_aio_pika_with_certificates_of_both_sides(node: TlsBroker, mechanism: str) -> None:
    ann = node.authority.issue("ann", file="ann")
    options = {
        "cafile": node.authority.cert,
        "certfile": ann.cert,
        "keyfile": ann.key,
        "auth": mechanism,
    }
    user = "guest:guest@" if mechanism == "plain" else ""
    url = f"amqps://{user}localhost:{node.port}/?{urlencode(options)}"

    async def work() -> None:
        connection = await aio_pika.connect(url)
        async with connection:
            channel = await connection.channel(publisher_confirms=True)
            queue = await channel.declare_queue(exclusive=True)
            bodies = [b"", b"small", bytes(3 << 20), *(b"%d" % i for i in range(100))]
            for body in bodies:
                await channel.default_exchange.publish(aio_pika.Message(body), queue.name)
            for body in bodies:
                message = await queue.get(timeout=PATIENCE_S)
                assert message.body == body
                await message.ack()

    asyncio.run(asyncio.wait_for(work(), PATIENCE_S))


def test_aio_pika_without_a_certificate_is_refused(node: TlsBroker) -> None:
    url = f"amqps://localhost:{node.port}/?{urlencode({'cafile': node.authority.cert})}"

    async def work() -> None:
        with pytest.raises((aio_pika.exceptions.AMQPError, ConnectionError, OSError)):
            await aio_pika.connect(url)

    asyncio.run(asyncio.wait_for(work(), PATIENCE_S))
    node.logged("it has given no certificate, and one is required")


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of the compiled client."""
    found = [path for path in DEBIAN_JARS if Path(path).is_file()]
    path = os.environ.get(JARS) or (":".join(found) if len(found) == len(DEBIAN_JARS) else "")
    compiler = shutil.which("javac")
    if not path or compiler is None:
        lacks = f"needs javac and the Java client: install librabbitmq-client-java, or set {JARS}"
        if os.environ.get(STRICT):
            pytest.fail(f"{STRICT} is set: {lacks}")
        pytest.skip(lacks)
    place = tmp_path_factory.mktemp("java")
    source = Path(__file__).parent / "java" / "TlsClient.java"
    subprocess.run([compiler, "-cp", path, "-d", str(place), str(source)], check=True)
    return ["java", "-cp", f"{path}:{place}", "TlsClient"]


def stores(node: TlsBroker, directory: Path) -> tuple[Path, Path]:
    """What Java reads: the authority, and ann's certificate with its key."""
    ann = node.authority.issue("ann", file="ann")
    keys, trust = directory / "ann.p12", directory / "authority.p12"
    run(
        "pkcs12",
        "-export",
        "-in",
        ann.cert,
        "-inkey",
        ann.key,
        "-name",
        "ann",
        "-passout",
        f"pass:{PASSWORD}",
        "-out",
        keys,
    )
    subprocess.run(
        [
            "keytool",
            "-importcert",
            "-noprompt",
            "-alias",
            "ca",
            "-file",
            str(node.authority.cert),
            "-keystore",
            str(trust),
            "-storetype",
            "PKCS12",
            "-storepass",
            PASSWORD,
        ],
        check=True,
        capture_output=True,
    )
    return trust, keys


@pytest.mark.parametrize("protocol", [pytest.param("TLSv1.2", marks=pytest.mark.long), "TLSv1.3"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "EXTERNAL"])
def test_the_java_client_with_certificates_of_both_sides(
    node: TlsBroker, java: list[str], tmp_path: Path, protocol: str, mechanism: str
) -> None:
    trust, keys = stores(node, tmp_path)
    done = subprocess.run(
        [*java, str(node.port), str(trust), str(keys), PASSWORD, protocol, mechanism],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"ok {protocol} {mechanism}"


def test_the_java_client_without_a_certificate_is_refused(
    node: TlsBroker, java: list[str], tmp_path: Path
) -> None:
    trust, _ = stores(node, tmp_path)
    done = subprocess.run(
        [*java, str(node.port), str(trust), "none", PASSWORD, "TLSv1.3", "PLAIN"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0 and "ok" not in done.stdout
