"""Spark on a cluster of three by claims and stages, with tokens that live five seconds."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from connector.oauth.endpoint import SECRET, Asked, TokenEndpoint, granting
from connector.test_secrets import everything_shown
from pyspark_warren.claims.client import connect
from pyspark_warren.options.options import parse_options
from tests.patience import PATIENCE_S, in_time, with_time_enough
from tests.signing_key import SigningKey
from warren.admin import Admin
from warren.claims import ClaimSlice, browse
from warren.local import LocalCluster
from warren.producer import Producer
from warren_wire.block.block import Block, encode
from warren_wire.block.layout import AREAS

pytestmark = [pytest.mark.live, pytest.mark.slow]

LIFE_S = 5.0
TOKENS = 9
"""Driver and tasks together: each process has four or so in twenty seconds."""
QUORUM = {"x-queue-type": "quorum"}


@pytest.fixture(scope="module")
def signing(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    return SigningKey(tmp_path_factory.mktemp("signing"))


@pytest.fixture(scope="module")
def cluster(
    signing: SigningKey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    table = {"resource_server_id": "rabbitmq", "signing_keys": {"k1": str(signing.public)}}
    with LocalCluster(
        3, tmp_path_factory.mktemp("cluster"), settings={"auth_oauth2": table}
    ) as made:
        yield made


class Pipeline:
    """A query from one queue to another; messages are published while it runs."""

    def __init__(
        self, spark: Any, cluster: LocalCluster, directory: Path, name: str, login: dict[str, str]
    ) -> None:
        self.cluster = cluster
        self.source, self.target = f"{name}-in", f"{name}-out"
        self._guest = cluster.connect()
        for queue in (self.source, self.target):
            Admin(self._guest).queues.declare(queue, arguments=QUORUM)
        self._producer = Producer(self._guest)
        self.sent = 0
        given = {"hosts": cluster.hosts, **login}
        self.rows = spark.readStream.format("warren").options(queue=self.source, **given).load()
        self.query = (
            self.rows.select("body")
            .writeStream.format("warren")
            .options(routingKey=self.target, **given)
            .option("checkpointLocation", str(directory / "checkpoint"))
            .trigger(processingTime="500 milliseconds")
            .start()
        )

    def publish_until(self, over: Callable[[], bool]) -> None:
        """Publish a few messages at a time."""
        deadline = time.monotonic() + PATIENCE_S
        while not over():
            assert self.query.exception() is None, self.query.exception()
            assert time.monotonic() < deadline
            for _ in range(10):
                self._producer.send(str(self.sent).encode(), self.source)
                self.sent += 1
            self._producer.flush()
            threading.Event().wait(0.3)

    def finish(self) -> None:
        """Let the query read everything, and end it."""
        self.query.processAllAvailable()
        self.query.stop()

    def arrived(self) -> list[int]:
        """Return the numbers in the target."""
        found = []
        for fetched in browse(self._guest, self.target, 1_000_000, AREAS):
            block = Block.decode(fetched.data)
            found += [int(bytes(block.body(i))) for i in range(block.count)]
        return sorted(found)


def counted(grant: Callable[[Asked], Any], tokens: list[str]) -> Callable[[Asked], Any]:
    def answer(asked: Asked) -> Any:
        made = grant(asked)
        tokens.append(made.body["access_token"])
        return made

    return answer


@pytest.mark.spark
@pytest.mark.long
def test_from_queue_to_queue_over_several_tokens_and_leaders(
    spark: Any, cluster: LocalCluster, signing: SigningKey, tmp_path: Path, capsys: Any
) -> None:
    """Every message arrives once, over kill -9 of either leader; nothing has a secret."""
    tokens: list[str] = []
    with TokenEndpoint(counted(granting(signing, LIFE_S), tokens)) as endpoint:
        pipeline = Pipeline(spark, cluster, tmp_path, "tokens", endpoint.options())
        pipeline.publish_until(lambda: len(tokens) >= TOKENS)
        for queue in (pipeline.source, pipeline.target):
            dead = cluster.leader_of(queue)
            cluster.kill(dead)
            before = len(tokens)
            pipeline.publish_until(lambda before=before: len(tokens) >= before + 3)
            cluster.start(dead)
        pipeline.rows.explain(True)
        pipeline.query.explain(True)
        shown = [str(one.json) for one in pipeline.query.recentProgress]
        shown.append(json.dumps(pipeline.query.status))
        pipeline.finish()
    assert pipeline.arrived() == list(range(pipeline.sent))
    shown += [everything_shown(spark), capsys.readouterr().out]
    shown += [cluster.log(node) for node in range(3)]
    shown += [
        path.read_bytes().decode(errors="replace") for path in tmp_path.rglob("*") if path.is_file()
    ]
    for secret in (SECRET, *tokens):
        leaks = [text for text in shown if secret in text]
        assert not leaks, leaks[0][:3000]


class Renewing:
    """Puts a new token into the file every two fifths of its life; true when there were six."""

    def __init__(
        self, signing: SigningKey, file: Path, scope: list[str], life_s: float = LIFE_S
    ) -> None:
        self.tokens: list[str] = []
        self._made = lambda: signing.token(life_s, sub="of-file", scope=scope)
        self._file, self._life_s, self._times = file, life_s, [0.0]
        self()

    @property
    def over(self) -> float:
        """When the token before the latest is over, at the earliest: `exp` is a whole second."""
        return self._times[1:][-2:][0] + self._life_s - 1

    def __call__(self) -> bool:
        now = time.monotonic()
        if now > self._times[-1] + 0.4 * self._life_s:
            self.tokens.append(self._made())
            fresh = self._file.with_suffix(".next")
            fresh.write_text(self.tokens[-1])
            fresh.rename(self._file)
            self._times.append(now)
        return len(self.tokens) > 6


@pytest.mark.spark
def test_tokens_of_a_file_that_something_else_renews(
    spark: Any, cluster: LocalCluster, signing: SigningKey, tmp_path: Path
) -> None:
    """Its scopes are just those that docs/how-to/secrets.md names."""
    scope = ["read:*/file-in", "write:*/amq.default", "write:*/file-out"]
    renew = Renewing(signing, tmp_path / "token", [f"rabbitmq.{one}" for one in scope])
    login = {"tokenFile": str(tmp_path / "token")}
    pipeline = Pipeline(spark, cluster, tmp_path, "file", login)
    pipeline.publish_until(renew)
    over = threading.Event()

    def renew_all_along() -> None:
        while not over.wait(0.2):
            renew()

    thread = threading.Thread(target=renew_all_along)
    thread.start()
    try:
        pipeline.finish()
    finally:
        over.set()
        thread.join()
    assert pipeline.arrived() == list(range(pipeline.sent))
    logs = "".join(cluster.log(node) for node in range(3))
    assert "user 'of-file' authenticated" in logs
    assert not any(token in logs for token in renew.tokens)


def test_connections_that_are_used_are_renewed(
    cluster: LocalCluster, signing: SigningKey, tmp_path: Path
) -> None:
    """Thirteen seconds with tokens of five: requests, a claim that is read slowly, a publisher."""
    with cluster.connect() as guest:
        Admin(guest).queues.declare("used", arguments=QUORUM)
    with_time_enough(lambda life_s: used(cluster, signing, tmp_path, life_s), LIFE_S)


def used(cluster: LocalCluster, signing: SigningKey, directory: Path, life_s: float) -> None:
    """Use one connection for more than two lives of its tokens."""
    with cluster.connect() as guest:
        Admin(guest).queues.purge("used")
        producer = Producer(guest)
        for _ in range(30):
            producer.send(bytes(1 << 20), "used")
        producer.flush()
    file = directory / f"token-{life_s:g}"
    renew = Renewing(
        signing, file, ["rabbitmq.read:*/used", "rabbitmq.write:*/amq.default"], life_s
    )
    options = parse_options(
        {"queue": "used", "hosts": cluster.hosts, "tokenFile": str(file)}, "read"
    )
    with in_time(renew.over):
        broker = connect(options)
        broker.queue("used")
        connection = broker._connection
        wire = connection._wire
        assert wire is not None and connect(options)._connection is connection
        reader = broker.reader("used", f"r-{life_s:g}")
        number = reader.register().settled + 1
        claim = reader.open(number, max_messages=100, max_bytes=1 << 30)
        writer = broker.publisher("", 60.0)
    read = 0
    whole = ClaimSlice("used", f"r-{life_s:g}", number, 0, claim.messages)
    for _, fetched in broker.fetch_slices([whole], AREAS):
        read += fetched.messages
        until = time.monotonic() + 0.09 * life_s
        while time.monotonic() < until:  # Spark takes its time for the rows
            with in_time(renew.over):
                renew()
                broker.queue("used")
                writer.write(encode([b"row"], [b"\0\0"], (b"", b"used")))
                assert connection._wire is wire and wire.lost is None, "one connection over all"
            threading.Event().wait(0.1)
    assert read == claim.messages == 30
    while not renew():
        broker.queue("used")
        threading.Event().wait(0.1)
    writer.finish()
    reader.settle(number)
    with in_time(renew.over):
        assert connection._wire is wire and wire.lost is None, "one connection over all of them"
    wire_of_a_refused = connection._wire
    file.write_text(signing.token(sub="another"))
    eventually(
        lambda: broker.queue("used") and connection._wire is not wire_of_a_refused,
        "a token that the node refuses on this connection is one for a new login",
    )


def eventually(holds: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, what
        threading.Event().wait(0.1)
