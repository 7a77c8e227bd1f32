"""A real node with a disk that reports a failed sync."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pika
import pytest

from tests.live.conftest import eventually
from warren.local import LocalCluster

FLAG = "sync-fails"
SHIM = f"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <unistd.h>

static int failing(void) {{
    if (access("{FLAG}", F_OK) != 0) return 0;
    errno = EIO;
    return 1;
}}

int fdatasync(int fd) {{
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return failing() ? -1 : next(fd);
}}

int fsync(int fd) {{
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return failing() ? -1 : next(fd);
}}
"""
MESSAGES = 200


@pytest.fixture
def shim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process started from now on fails its syncs while its directory holds FLAG."""
    source, library = tmp_path / "shim.c", tmp_path / "shim.so"
    source.write_text(SHIM, encoding="utf-8")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))


def publish(cluster: LocalCluster, node: int, count: int) -> None:
    """Publish that many messages with confirms."""
    port = cluster.node(node).amqp_port
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for _ in range(count):
            channel.basic_publish("", "q", b"x")


def count(cluster: LocalCluster, node: int) -> int:
    """Ask that node for the number of messages in the queue."""
    port = cluster.node(node).amqp_port
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        return connection.channel().queue_declare("q", passive=True).method.message_count


def failing_disk(cluster: LocalCluster, unconfirmed: int) -> Path:
    """Publish through node 0, then let its syncs fail: that many further publishes end in an error.

    returns  the file that makes them fail while it exists
    """
    port = cluster.node(0).amqp_port
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        connection.channel().queue_declare("q", durable=True)
    publish(cluster, 0, MESSAGES)
    flag = Path(cluster.node(0).directory) / FLAG
    flag.touch()
    with pytest.raises(pika.exceptions.AMQPError):
        publish(cluster, 0, unconfirmed)
    return flag


def test_a_node_with_a_failed_sync_ends_and_the_others_continue(shim: None, tmp_path: Path) -> None:
    with LocalCluster(3, tmp_path / "cluster") as cluster:
        flag = failing_disk(cluster, MESSAGES)
        eventually(lambda: not cluster.is_running(0), "the node has ended")
        assert "could not be written and synced" in cluster.log(0)
        assert "This node ends" in cluster.log(0)
        publish(cluster, 1, MESSAGES)
        kept = count(cluster, 1)
        assert 2 * MESSAGES <= kept <= 2 * MESSAGES + 1  # the one that was under way may be there
        flag.unlink()
        cluster.start(0)
        cluster.kill(1)
        assert count(cluster, 0) == kept
        publish(cluster, 0, 1)


@pytest.mark.specification("reliability-guide: the broker will confirm messages once it has taken")
def test_a_single_node_confirms_nothing_that_its_disk_did_not_take(
    shim: None, tmp_path: Path
) -> None:
    with LocalCluster(1, tmp_path / "cluster") as cluster:
        flag = failing_disk(cluster, 1)
        eventually(lambda: not cluster.is_running(0), "the node has ended")
        flag.unlink()
        cluster.start(0)
        assert MESSAGES <= count(cluster, 0) <= MESSAGES + 1
