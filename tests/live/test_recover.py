"""Two of three directories are destroyed: the third becomes a cluster, and it has everything."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.conftest import eventually
from tests.live.test_full_disk import consume, declare, uri_of
from warren import Admin, Connection
from warren.claims import ClaimReader
from warren.errors import Conflict
from warren.local import LocalCluster
from warren.local_node import LocalNode
from warren.producer import Producer
from warren_wire.block.block import Block

pytestmark = pytest.mark.live
MESSAGES, CLAIMED = 3_000, 500
OTHERS = (1, 2)


def recover(node: LocalNode, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "warren_broker", "recover", "--as-only-member"),
            *("--config", str(node.config_file), *more),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def reader_of(connection: Connection, epoch: int | None = None) -> ClaimReader:
    return ClaimReader(connection, "q", "spark", epoch)


def numbers(reader: ClaimReader, number: int, count: int) -> list[int]:
    """The messages of a claim."""
    blocks = [Block.decode(fetched.data) for fetched in reader.fetch(number, 0, count)]
    return [int(bytes(block.body(i))) for block in blocks for i in range(len(block))]


def filled(connection: Connection) -> tuple[int, list[int], int | None]:
    """Fill the queue, and open a claim; return its number, what it holds, and its epoch."""
    with Producer(connection) as producer:
        for number in range(MESSAGES):
            producer.send(b"%d" % number, "q")
    reader = reader_of(connection)
    opened = reader.register().settled + 1
    claim = reader.open(opened, max_messages=CLAIMED, max_bytes=1 << 30)
    return opened, numbers(reader, opened, claim.messages), reader.epoch


@pytest.mark.long
def test_the_survivor_of_two_lost_directories(tmp_path: Path) -> None:
    with LocalCluster(3, tmp_path) as cluster:
        declare(uri_of(cluster, 0), "q")
        first = cluster.nodes[0]
        with cluster.connect() as connection:
            opened, claimed, epoch = filled(connection)
            assert len(claimed) == CLAIMED
        held = recover(first, "--yes", first.name)
        assert held.returncode == 1 and "another process uses it" in held.stderr
        for node in cluster.nodes:
            cluster.kill(node.name)
        unasked = recover(first)
        assert unasked.returncode == 1 and "--yes NODE" in unasked.stderr
        other = recover(first, "--yes", "node-9")
        assert other.returncode == 1 and "nothing was changed" in other.stderr
        done = recover(first, "--yes", first.name)
        assert done.returncode == 0, done.stderr
        assert "queue 'q' in vhost '/': 3000 messages, 1 claims open" in done.stdout
        assert "node-1, node-2 may hold more" in done.stdout, done.stdout

        # The lost ones come back: each of them is told, and ends. The third is not disturbed.
        cluster.start(0)
        with Connection(cluster.node_address(0)) as connection:
            assert [one.node for one in Admin(connection).members.get("q").members] == ["node-0"]
            for i in OTHERS:
                cluster.spawn(i)
            for i in OTHERS:
                eventually(lambda i=i: not cluster.is_running(i), "it ends")
                assert "this node was removed from the cluster with it" in cluster.log(i)
            assert [one.name for one in Admin(connection).nodes.list()] == ["node-0"]
            again = reader_of(connection, epoch)
            assert numbers(again, opened, CLAIMED) == claimed
            assert again.settle(opened) == CLAIMED

        # New nodes under their names, with empty directories, and members on them.
        for i in OTHERS:
            cluster.wipe_node(i)
        cluster.start()
        with cluster.connect() as connection:
            admin = Admin(connection).waiting(60)
            eventually(lambda: all(one.running for one in admin.nodes.list()), "they are up")
            for i in OTHERS:
                admin.nodes.grow(cluster.nodes[i].name, "all")
            assert len(admin.members.get("q").members) == 3
        cluster.kill(0)
        rest = consume(uri_of(cluster, 1), "q")
        assert sorted(claimed + rest) == list(range(MESSAGES))
        print(
            f"\n2 of 3 directories destroyed: all {MESSAGES:,} confirmed messages served once, "
            f"{CLAIMED} of them by the claim that was open before; the lost nodes were refused and "
            "ended; two new nodes joined, and served when the first was killed"
        )


def test_recover_may_be_repeated(tmp_path: Path) -> None:
    with LocalCluster(2, tmp_path) as cluster:
        declare(uri_of(cluster, 0), "q")
        with cluster.connect() as connection, Producer(connection) as producer:
            for number in range(100):
                producer.send(b"%d" % number, "q")
        for node in cluster.nodes:
            cluster.kill(node.name)
        shutil.rmtree(cluster.nodes[1].data_dir)
        for _ in range(3):
            done = recover(cluster.nodes[0], "--yes", "node-0")
            assert done.returncode == 0, done.stderr
        cluster.start(0)
        eventually(lambda: consume(uri_of(cluster, 0), "q") == list(range(100)), "all are there")
        print("\nrecovered three times in a row: all 100 messages, once")


@pytest.mark.long
def test_a_queue_of_two_members_of_which_one_is_wiped(tmp_path: Path) -> None:
    with LocalCluster(3, tmp_path) as cluster:
        declare(uri_of(cluster, 0), "q")
        with cluster.connect() as connection:
            admin = Admin(connection).waiting(60)
            leader = cluster.leader_of("q")
            kept, wiped, third = leader, (leader + 1) % 3, (leader + 2) % 3
            admin.members.delete("q", f"node-{third}")
            opened, claimed, epoch = filled(connection)
            with pytest.raises(Conflict, match="has a leader"):
                admin.members.recover("q", f"node-{kept}")
        cluster.wipe_node(wiped)
        cluster.start(wiped)
        command = [*(sys.executable, "-m", "warren.cli", "queues", "recover", "q")]
        uri = ["--uri", uri_of(cluster, third)]
        nothing = subprocess.run(
            [*command, "--from", f"node-{wiped}", *uri], capture_output=True, text=True, check=False
        )
        assert "holds nothing of it" in nothing.stderr, nothing
        done = subprocess.run(
            [*command, "--from", f"node-{kept}", *uri], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert f"node-{kept} alone continues it" in done.stdout
        with cluster.connect() as connection:
            admin = Admin(connection).waiting(60)
            again = reader_of(connection, epoch)
            assert numbers(again, opened, CLAIMED) == claimed
            assert again.settle(opened) == CLAIMED
            with Producer(connection) as producer:
                producer.send(b"%d" % MESSAGES, "q")
            cluster.restart(kept, kill=True)
            admin.members.add("q", f"node-{wiped}")
            admin.members.add("q", f"node-{third}")
            assert len(admin.members.get("q").synchronised) == 3
        cluster.kill(kept)
        rest = consume(uri_of(cluster, third), "q")
        assert sorted(claimed + rest) == list(range(MESSAGES + 1))
        print(
            f"\na queue of two members, one wiped: the other continued it with all {MESSAGES:,} "
            "messages and the open claim, over a kill, and has three members again"
        )
