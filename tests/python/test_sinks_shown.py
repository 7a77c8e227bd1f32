"""`warren sinks` on real nodes: every node answers with what the queue's leader remembers."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner, Result

from python.test_sinks import publish_rows, stage
from warren import Admin, Connection
from warren.cli.app import app
from warren.errors import Conflict, NotFound, PeerError, StageLost, UsageError
from warren.local import LocalCluster
from warren.stages import SinkDriver, draw_epoch, publish_batch
from warren_wire.admin.queues import SINKS_LISTED_MAX

pytestmark = pytest.mark.live


def run(cluster: LocalCluster, *words: str) -> Result:
    environment = {"WARREN_URI": cluster.uri, "COLUMNS": "200", "TERM": "dumb"}
    found = CliRunner().invoke(app, ["sinks", *words], env=environment)
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found


def test_runs_are_shown_by_every_node_with_their_batches(cluster: LocalCluster) -> None:
    queue = "output"
    with cluster.connect() as connection:
        Admin(connection).queues.declare(queue, arguments={"x-queue-type": "quorum"})
        for batch in range(18):
            publish_rows(connection, "query-1", queue, [b"row"] * (batch + 1), batch, 1)
        driver = SinkDriver("s", "query-2", draw_epoch(connection))
        part = stage(connection, driver, queue, 7, [b"row"] * 5)
        for i in range(3):
            with Connection(cluster.node_address(i)) as at:
                found = Admin(at).sinks.list(queue)
                assert [each.run for each in found.runs] == ["query-2", "query-1"], i
                new, old = found.runs
                assert (found.total, new.last_batch, new.batches) == (2, -1, ())
                assert (new.epoch, new.messages_staged, new.stages) == (driver.epoch, 5, 1)
                assert old.last_batch == 17 and old.messages_staged == 0
                assert old.batches == tuple((batch, batch + 1) for batch in range(2, 18))
        (first,) = json.loads(run(cluster, "list", queue, "--count", "1", "--json").stdout)
        assert (first["sink"], first["run"], first["last_batch"]) == ("s", "query-2", -1)
        assert "1 more runs of 2: see --count" in run(cluster, "list", queue, "--count", "1").stderr
        publish_batch(connection, driver, 7, [part])
        (shown,) = json.loads(run(cluster, "show", queue, "s", "--run", "query-2", "--json").stdout)
        assert (shown["last_batch"], shown["batches"]) == (7, [[7, 5]])
        assert "query-1" in run(cluster, "show", queue, "s").stdout


def test_what_is_not_there_or_cannot_be_asked_is_refused(cluster: LocalCluster) -> None:
    with cluster.connect() as connection:
        admin = Admin(connection)
        admin.queues.declare("none")
        assert admin.sinks.list("none").total == 0
        with pytest.raises(NotFound, match="absent"):
            admin.sinks.list("absent")
        for count in (0, SINKS_LISTED_MAX + 1):
            with pytest.raises(PeerError, match=f"count={count}: a number from 1 to 500"):
                admin.sinks.list("none", count=count)
    with pytest.raises(NotFound, match="queue 'none' knows no sink 's' with run 'r'"):
        run(cluster, "show", "none", "s", "--run", "r")
    with pytest.raises(UsageError, match="the sink's name is empty"):
        run(cluster, "show", "none", "")


def test_a_sink_is_forgotten_and_a_new_checkpoint_begins_clean(cluster: LocalCluster) -> None:
    """A new run's batch 0 is published; the forgotten run's last batch would be published again."""
    queue = "forgetting"
    with cluster.connect() as connection:
        admin = Admin(connection)
        admin.queues.declare(queue, arguments={"x-queue-type": "quorum"})
        driver = SinkDriver("s", "old", draw_epoch(connection))
        publish_batch(connection, driver, 3, [stage(connection, driver, queue, 3, [b"row"] * 5)])
        part = stage(connection, driver, queue, 4, [b"row"] * 2)
        with pytest.raises(Conflict, match="attempts of batch 4 are staged"):
            admin.sinks.forget(queue, "s")
        assert run(cluster, "forget", queue, "s", "--force").stdout == (
            "forgot 1 runs of s; 2 staged messages dropped\n"
        )
        with Connection(cluster.node_address(2)) as at:
            assert Admin(at).sinks.list(queue).total == 0
        with pytest.raises(StageLost):
            publish_batch(connection, driver, 4, [part])
        new = SinkDriver("s", "new", draw_epoch(connection))
        publish_batch(connection, new, 0, [stage(connection, new, queue, 0, [b"row"] * 7)])
        assert admin.queues.get(queue).messages_ready == 12
        publish_batch(connection, driver, 3, [stage(connection, driver, queue, 3, [b"row"] * 5)])
        assert admin.queues.get(queue).messages_ready == 17
        assert admin.sinks.forget(queue, "s", "old").runs == 1
        assert [each.run for each in admin.sinks.list(queue).runs] == ["new"]
    with pytest.raises(NotFound, match="queue 'forgetting' knows no sink 's' with run 'old'"):
        run(cluster, "forget", queue, "s", "--run", "old")
