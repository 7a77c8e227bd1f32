"""Mirror policies on real clusters: queues move under load, whatever fails, and lose nothing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from live.conftest import eventually
from live.load import Load, connect, drain
from tests.live.test_hung_disk import SETTINGS, Disk, disk
from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.connection import Connection
from warren.errors import Unavailable, WarrenError
from warren.local import LocalCluster
from warren.uri import Address
from warren_wire.admin.members import QueueMembers

pytestmark = [pytest.mark.live, pytest.mark.slow]
WAIT_S = PATIENCE_S
QUEUE, CLASSIC = "orders", "classic.orders"
KINDS = {QUEUE: "quorum", CLASSIC: "classic"}
__all__ = ["disk"]


@pytest.fixture
def five(tmp_path: Path) -> Iterator[LocalCluster]:
    """Five nodes of the test's own."""
    with LocalCluster(nodes=5, directory=tmp_path) as made:
        declare(made)
        yield made


def declare(cluster: LocalCluster) -> None:
    """One queue of each kind."""
    with connect(cluster, 0) as connection:
        for name, kind in KINDS.items():
            connection.channel().queue_declare(name, durable=True, arguments={"x-queue-type": kind})


def asked(cluster: LocalCluster, call: Callable[[Admin], object], *without: str) -> object:
    """Ask a running node that is not in `without`, until one answers."""
    hosts = tuple(
        ("127.0.0.1", node.amqp_port)
        for node in cluster.nodes
        if node.name not in without and cluster.is_running(node.name)
    )

    def answered() -> tuple[object] | None:
        try:
            with Connection(Address(hosts=hosts, request_timeout_s=10)) as connection:
                return (call(Admin(connection)),)
        except Unavailable:
            return None

    return eventually(answered, "an answer", WAIT_S)[0]


def mirror(cluster: LocalCluster, mode: str, params: object = None, without: str = "-") -> None:
    """Set a policy for both queues."""
    definition = {"ha-mode": mode, **({} if params is None else {"ha-params": params})}
    asked(cluster, lambda admin: admin.policies.put("/", "ha", "orders$", definition), without)


def members(cluster: LocalCluster, queue: str, *without: str) -> QueueMembers:
    """The queue's status."""
    found = asked(cluster, lambda admin: admin.members.get(queue), *without)
    assert isinstance(found, QueueMembers)
    return found


def wait_on(cluster: LocalCluster, nodes: list[str], *without: str, queues: object = KINDS) -> None:
    """Until the queues are synchronised on exactly these nodes, and one of them leads."""
    assert isinstance(queues, dict)
    for queue in queues:
        seen = members(cluster, queue, *without)
        deadline = time.monotonic() + WAIT_S
        while not (
            seen.settled and list(seen.synchronised) == sorted(nodes) and seen.leader in nodes
        ):
            assert time.monotonic() < deadline, f"not on {nodes}: {seen}"
            time.sleep(0.2)
            seen = members(cluster, queue, *without)


def names(*numbers: int) -> list[str]:
    """Names of nodes."""
    return [f"node-{number}" for number in numbers]


def fill(cluster: LocalCluster, queue: str, count: int = 1000) -> list[bytes]:
    """Put confirmed messages into a queue."""
    bodies = [b"%08d" % number + b"." * 500 for number in range(count)]
    with connect(cluster, 0) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for body in bodies:
            channel.basic_publish("", queue, body)
    return bodies


def received_once(load: Load) -> None:
    """End a load whose clients' own nodes have not failed: nothing is lost or doubled."""
    load.finish()
    assert not any(client.reconnects for client in (*load.publishers, *load.consumers))
    times = Counter(body for consumer in load.consumers for body in consumer.got)
    assert times and max(times.values()) == 1, times.most_common(3)


@pytest.mark.parametrize("queue", [QUEUE, pytest.param(CLASSIC, marks=pytest.mark.long)])
@pytest.mark.specification(
    "reliability-guide: Mirrored queues replicate their contents across all configured",
    "mirrored-queues: Messages published to the queue are replicated",
    "mirrored-queues: exactly count Number of queue replicas",
    "mirrored-queues: ha-sync-mode: automatic: a queue will automatically",
)
def test_every_mode_under_load_loses_and_doubles_nothing(five: LocalCluster, queue: str) -> None:
    waiting = fill(five, CLASSIC if queue == QUEUE else QUEUE)
    with Load(five, queue) as load:
        mirror(five, "all")
        wait_on(five, names(0, 1, 2, 3, 4))
        load.goes_on()
        mirror(five, "nodes", [*names(3, 4), "rabbit@elsewhere"])
        wait_on(five, names(3, 4))
        load.goes_on()
        mirror(five, "exactly", 3)
        eventually(lambda: len(members(five, queue).synchronised) == 3, "three hold it", WAIT_S)
        assert {"node-3", "node-4"} < set(members(five, queue).synchronised)
        load.goes_on()
        mirror(five, "nodes", names(0))
        wait_on(five, names(0))
        load.goes_on()
        asked(five, lambda admin: admin.policies.delete("/", "ha"))
        size = 3 if queue == QUEUE else 1
        eventually(
            lambda: (
                (seen := members(five, queue)).settled
                and len(seen.synchronised) == size
                and not seen.following
            ),
            "the default size",
            WAIT_S,
        )
        received_once(load)
    other = CLASSIC if queue == QUEUE else QUEUE
    assert drain(five, other, 4, len(waiting)) == waiting, "in order, from another node"


@pytest.mark.specification(
    "mirrored-queues: RabbitMQ will keep the existing master around",
    "mirrored-queues: Should a mirror fail, there is little to be done",
)
@pytest.mark.long
def test_a_listed_node_is_dead_and_the_leader_is_killed_amid_the_move(five: LocalCluster) -> None:
    """Whenever the leader dies, a majority of the members lives: the dead one was not one yet."""
    waiting = {queue: fill(five, queue) for queue in KINDS}
    leader, held = five.leader_of(QUEUE), set(members(five, QUEUE).wanted)
    living, dead = sorted({0, 1, 2, 3, 4} - {int(name.removeprefix("node-")) for name in held})
    stays = next(node for node in (4, 3, 2, 1, 0) if node not in (leader, living, dead))
    five.kill(dead)
    mirror(five, "nodes", names(living, stays, dead))
    five.kill(leader)
    lead = {f"node-{living}", f"node-{stays}"}
    eventually(lambda: members(five, QUEUE).leader in lead, "a living one leads", WAIT_S)
    # The classic queue is on node 0 alone: only that node can give it away.
    five.start(dead)
    five.start(leader)
    wait_on(five, names(living, stays, dead))
    for queue, bodies in waiting.items():
        got = drain(five, queue, living, len(bodies))
        assert got == bodies


@pytest.mark.specification("mirrored-queues: If the node that hosts queue master fails")
@pytest.mark.long
def test_the_leader_is_killed_at_several_moments_and_the_policy_is_changed_back(
    five: LocalCluster,
) -> None:
    with Load(five, QUEUE) as load:
        for pause_s in (0.0, 0.3, 1.0):
            leader = five.leader_of(QUEUE)
            mirror(five, "nodes", names(2, 3, 4))
            time.sleep(pause_s)
            five.kill(leader)
            mirror(five, "nodes", names(0, 1, 2), without=f"node-{leader}")
            time.sleep(pause_s)
            five.start(leader)
            wait_on(five, names(0, 1, 2), queues={QUEUE: "quorum"})
            load.goes_on()
        load.finish()


@pytest.mark.long
def test_a_policy_changes_while_the_leader_is_paused(tmp_path: Path) -> None:
    """What the leader would have done by the policy before does not happen when it runs again."""
    with LocalCluster(nodes=4, directory=tmp_path, settings=SETTINGS) as cluster:
        declare(cluster)
        mirror(cluster, "nodes", names(0, 1, 2))
        wait_on(cluster, names(0, 1, 2))
        bodies = fill(cluster, QUEUE)
        paused = cluster.leader_of(QUEUE)
        rest = [name for name in names(0, 1, 2) if name != f"node-{paused}"]
        mirror(cluster, "nodes", [*rest, "node-3"])  # perhaps just seen by the leader
        cluster.pause(paused)
        try:
            mirror(cluster, "exactly", 3, without=f"node-{paused}")
            eventually(
                lambda: members(cluster, QUEUE, f"node-{paused}").leader in [*rest, "node-3"],
                "another member leads",
                WAIT_S,
            )
        finally:
            cluster.resume(paused)

        def followed() -> QueueMembers | None:
            found = members(cluster, QUEUE)  # the node that was paused may answer, still behind
            exact = found.following == "policy 'ha' (ha-mode exactly 3)"
            return found if found.settled and exact else None

        seen = eventually(followed, "three members", WAIT_S)
        assert len(seen.synchronised) == 3
        later = time.monotonic() + 3
        eventually(lambda: time.monotonic() > later, "the leader's late changes have arrived")
        assert members(cluster, QUEUE).wanted == seen.wanted, "nothing late is done"
        assert drain(cluster, QUEUE, 0, len(bodies)) == bodies


def test_a_policy_moves_a_queue_away_from_a_disk_that_hangs(
    tmp_path: Path, disk: Callable[[Path], Disk]
) -> None:
    cluster = LocalCluster(4, tmp_path / "cluster", settings=SETTINGS)
    frozen = disk(cluster.nodes[0].data_dir)
    with cluster, frozen:
        declare(cluster)
        mirror(cluster, "nodes", names(0, 1, 2))
        wait_on(cluster, names(0, 1, 2))
        if cluster.leader_of(QUEUE) != 0:
            asked(cluster, lambda admin: admin.members.transfer(QUEUE, "node-0"))
        bodies = fill(cluster, QUEUE)
        frozen.freeze()
        mirror(cluster, "nodes", names(1, 2, 3), without="node-0")
        only = {QUEUE: "quorum"}
        wait_on(cluster, names(1, 2, 3), "node-0", queues=only)
        mirror(cluster, "exactly", 2, without="node-0")
        eventually(lambda: len(members(cluster, QUEUE, "node-0").synchronised) == 2, "two", WAIT_S)
        frozen.thaw()
        eventually(
            lambda: (
                members(cluster, QUEUE).settled and "node-0" not in members(cluster, QUEUE).wanted
            ),
            "it has left",
            WAIT_S,
        )
        assert drain(cluster, QUEUE, 1, len(bodies)) == bodies


def test_operators_see_what_is_refused(five: LocalCluster) -> None:
    mirror(five, "exactly", 2)
    eventually(lambda: len(members(five, QUEUE).synchronised) == 2, "two hold it", WAIT_S)
    with pytest.raises(WarrenError, match="its members follow policy 'ha'"):
        asked(five, lambda admin: admin.members.add(QUEUE, "node-4"))
    for definition in ({"ha-params": 2}, {"ha-mode": "nodes", "ha-params": []}):
        with pytest.raises(WarrenError, match="ha-mode"):
            asked(five, lambda admin, one=definition: admin.policies.put("/", "bad", ".", one))
    found = asked(five, lambda admin: [policy.name for policy in admin.policies.list("/")])
    assert found == ["ha"], "what is refused is not kept"
