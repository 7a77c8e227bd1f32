"""The client against the broker's 1.0 connection, over real sockets cut at random places."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from python.fake_broker import FakeCluster, FakeNode
from tests.patience import PATIENCE_S, TooSlow, with_time_enough
from warren import wire as wire_module
from warren.admin import Admin
from warren.claims import (
    Claim,
    ClaimReader,
    ClaimSlice,
    ReaderStep,
    browse,
    fetch_claim,
    fetch_slices,
    take_steps,
)
from warren.connection import Connection, _Receiver
from warren.errors import (
    AccessRefused,
    ClaimLost,
    DeadlinePassed,
    Fenced,
    NotFound,
    PeerError,
    StageLost,
    TooLarge,
    Unavailable,
    Unroutable,
    UsageError,
    WarrenError,
)
from warren.stages import SinkDriver, StageWriter, draw_epoch, drop_batch, publish_batch
from warren.wire import REPLIES_MAX
from warren_broker.clients10 import connection_requests as asks
from warren_wire import errors
from warren_wire.admin import claims as claim_resource
from warren_wire.admin import exchanges as binding_resource
from warren_wire.admin import queues as queue_resource
from warren_wire.amqp10.engine import ANSWERS_OWED_MAX
from warren_wire.block import block as blocks

DRIVER = SinkDriver("s", "r", 1)


def make_block(queue: str, *bodies: bytes) -> bytes:
    """A block for one queue by the default exchange."""
    return blocks.encode(list(bodies), [b"\x00\x00"] * len(bodies), (b"", queue.encode()))


def settle_and_open(reader: ClaimReader, number: int, **limits: int) -> tuple[int, Claim | None]:
    """Settle what precedes a claim, and open it."""
    epoch = reader.registered_epoch()
    step = ReaderStep(reader.queue, reader.reader, epoch, number - 1, number, **limits)
    (taken,) = take_steps(reader.connection, [step])
    if isinstance(taken, WarrenError):
        raise taken
    return taken.messages, taken.claim


def bodies_of(pieces) -> list[bytes]:
    """The bodies of fetched pieces."""
    found = []
    for piece in pieces:
        decoded = blocks.Block.decode(piece.data)
        assert decoded.count == piece.messages
        found += [bytes(decoded.body(i)) for i in range(decoded.count)]
    return found


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    made._DeclareQueue(queue_resource.DeclareQueueRequest("q"))
    return made


@pytest.fixture(params=[1, 2, 3])
def node(request, cluster) -> Iterator[FakeNode]:
    made = FakeNode(cluster, seed=request.param)
    yield made
    made.kill()


def connect(
    *nodes: FakeNode, vhost: str = "", password: str = "guest", timeout: float = 10
) -> Connection:
    hosts = ",".join(each.host for each in nodes)
    return Connection(f"amqp://guest:{password}@{hosts}/{vhost}?request_timeout={timeout}")


def test_management_round_trip(node: FakeNode) -> None:
    with connect(node) as connection:
        admin = Admin(connection)
        made = admin.queues.declare(
            "a/ü?&", arguments={"x-max-length": 5, "x-nested": {"a": [1, True, None]}}
        )
        assert (made.name, made.replicas, made.by_priority) == ("a/ü?&", ("fake-1",), {4: 0})
        asked = next(
            r for r in node.cluster.seen if isinstance(r, queue_resource.DeclareQueueRequest)
        )
        assert asked.arguments == {"x-max-length": 5, "x-nested": {"a": [1, True, None]}}
        assert {type(v) for v in asked.arguments.values()} == {int, dict}
        assert [queue.name for queue in admin.queues.list()] == ["a/ü?&", "q"]
        assert node.cluster.seen[-1].count == 500
        assert admin.overview()["node"] == "fake-1"
        assert admin.queues.delete("a/ü?&", if_unused=True) == 0
        assert node.cluster.seen[-1] == queue_resource.DeleteQueueRequest(
            "a/ü?&", True, False, token=node.cluster.seen[-1].token
        )
        with pytest.raises(NotFound, match="no queue 'a/ü"):
            admin.queues.get("a/ü?&")


@pytest.mark.parametrize("value", [1 << 64, -(1 << 63) - 1, "\ud800", {"a": [1j]}])
def test_a_value_that_cannot_be_sent_spoiled_the_request_after_it(
    node: FakeNode, value: Any
) -> None:
    """The error was Python's, and the next request was told that its answer has no number."""
    with connect(node) as connection:
        admin = Admin(connection)
        with pytest.raises(UsageError, match="a value cannot be sent"):
            admin.queues.declare("big", arguments={"x-max-length": value})
        assert admin.queues.get("q").name == "q"
        assert admin.queues.declare("new", arguments={"x-max-length": 1 << 62}).name == "new"


def test_a_binding_is_found_and_undone_by_its_location(node: FakeNode) -> None:
    with connect(node) as connection:
        Admin(connection).bindings.delete(
            "ex;1", destination_queue="q", routing_key="k=;", arguments={"x": [1, "é"]}
        )
        undone = node.cluster.seen[-1]
        assert isinstance(undone, binding_resource.UnbindRequest)
        assert undone.binding == binding_resource.BindingInfo(
            "ex;1", "q", "queue", "k=;", {"x": [1, "é"]}
        )


def test_a_wrong_password_is_refused_and_not_shown(node: FakeNode) -> None:
    with connect(node, password="sesame") as connection:
        with pytest.raises(AccessRefused) as caught:
            Admin(connection).queues.list()
        assert "sesame" not in str(caught.value) + repr(connection) + repr(connection.address)
    with connect(node) as connection:
        assert Admin(connection).queues.list()


def test_an_unknown_vhost_is_refused_with_its_name(node: FakeNode) -> None:
    with connect(node, vhost="nowhere") as connection:
        with pytest.raises(PeerError, match="vhost nowhere not found"):
            Admin(connection).queues.list()
    with connect(node, vhost="a%2Fb") as connection:
        assert Admin(connection).queues.list()


def test_claims_from_open_to_settle(node: FakeNode) -> None:
    node.cluster.queues["q"].add(make_block("q", *(b"%d" % i * 50 for i in range(9))))
    with connect(node) as connection:
        reader = ClaimReader(connection, "q", "reader/1")
        assert reader.register().settled == 0
        claim = reader.open(1, max_messages=5, max_bytes=1 << 20)
        assert claim == reader.open(1, max_messages=9, max_bytes=1 << 20)
        assert claim.messages == 5
        pieces = list(fetch_claim(connection, "q", "reader/1", 1, 1, 5))
        assert bodies_of(pieces) == [b"%d" % i * 50 for i in (1, 2, 3, 4)]
        assert pieces[0].runs == ((2, 0, 0, 1, 2),)
        assert list(reader.fetch(1, 3, 3)) == []
        with pytest.raises(PeerError, match="ended at message 5"):
            list(reader.fetch(1, 0, 6))
        reader.renew()
        assert reader.settle(1) == 5
        assert reader.settle(1) == 0
        with pytest.raises(ClaimLost, match="claim 1"):
            list(reader.fetch(1, 0, 5))
        assert reader.open(2, max_messages=100, max_bytes=1).messages == 4
        newer = ClaimReader(connection, "q", "reader/1")
        assert newer.register().settled == 1
        with pytest.raises(Fenced):
            reader.settle(2)
        assert Admin(connection).claims.readers("q")[0].open_claims == 1
        assert newer.release(2) == 4
        assert bodies_of(browse(connection, "q", 100)) == [b"%d" % i * 50 for i in range(5, 9)]
        assert len(bodies_of(browse(connection, "q", 3))) == 3


def test_a_claim_is_settled_and_the_next_one_opened_in_one_round_trip(
    cluster: FakeCluster, node: FakeNode
) -> None:
    cluster.queues["q"].add(make_block("q", *(b"%d" % i for i in range(9))))
    with connect(node) as connection:
        reader = ClaimReader(connection, "q", "r")
        reader.register()
        reader.open(1, max_messages=5, max_bytes=1 << 20)
        cluster.seen.clear()
        answers = settle_and_open(reader, 2, max_messages=3, max_bytes=1 << 20)
        assert answers == (5, Claim(2, 3, answers[1].size_bytes, True))
        assert answers[1].size_bytes > 0
        asked = [type(request) for request in cluster.seen]
        assert asked == [claim_resource.SettleClaimsRequest, claim_resource.OpenClaimRequest]
        assert settle_and_open(reader, 3, max_messages=3, max_bytes=1 << 20)[1].messages == 1
        assert settle_and_open(reader, 4, max_messages=3, max_bytes=100) == (
            1,
            Claim(4, 0, 0, False),
        )


def test_what_is_refused_of_two_requests_at_once_is_told(
    cluster: FakeCluster, node: FakeNode
) -> None:
    cluster.queues["q"].add(make_block("q", b"a", b"b"))
    with connect(node) as connection:
        reader = ClaimReader(connection, "q", "r")
        reader.register()
        reader.open(1, max_messages=1, max_bytes=100)
        # 1. A node submits both, and the leader changes.  2. The second one arrives first.
        cluster.refuse[claim_resource.OpenClaimRequest] += [errors.ClaimNotOpen("claim 2: not yet")]
        assert settle_and_open(reader, 2, max_messages=1, max_bytes=100) == (1, None)
        assert reader.open(2, max_messages=1, max_bytes=100).messages == 1
        cluster.refuse[claim_resource.SettleClaimsRequest] += [errors.ClaimNotOpen("released")]
        with pytest.raises(ClaimLost, match="released"):
            settle_and_open(reader, 3, max_messages=1, max_bytes=100)
        # A leader that is being elected is not an answer: both are repeated.
        for kind in (claim_resource.OpenClaimRequest, claim_resource.SettleClaimsRequest):
            cluster.refuse[kind] += [errors.Unavailable("no leader")]
            cluster.queues["q"].add(make_block("q", b"c"))
        assert settle_and_open(reader, 3, max_messages=1, max_bytes=100)[1].messages == 1


def test_more_readers_than_answers_are_stored_step_at_once(
    cluster: FakeCluster, node: FakeNode
) -> None:
    names = [f"q{number}" for number in range(REPLIES_MAX)]
    steps = []
    with connect(node) as connection:
        for name in names:
            cluster._DeclareQueue(queue_resource.DeclareQueueRequest(name))
            cluster.queues[name].add(make_block(name, b"a", b"b"))
            reader = ClaimReader(connection, name, "r")
            reader.register()
            reader.open(1, max_messages=1, max_bytes=100)
            steps.append(ReaderStep(name, "r", reader.registered_epoch(), 1, 2, 1, 100))
        taken = take_steps(connection, steps)
        assert [(one.messages, one.claim.messages) for one in taken] == [(1, 1)] * len(names)
        counted = Admin(connection).queues.get_each([*names, "missing"])
        assert [queue.name for queue in counted[:-1]] == names
        assert isinstance(counted[-1], NotFound)
        assert take_steps(connection, []) == Admin(connection).queues.get_each([]) == []


def test_a_refusal_to_one_reader_is_told_in_its_place(cluster: FakeCluster, node: FakeNode) -> None:
    steps = []
    with connect(node) as connection:
        for name in ("q", "r", "s"):
            cluster._DeclareQueue(queue_resource.DeclareQueueRequest(name))
            cluster.queues[name].add(make_block(name, b"a", b"b", b"c"))
            reader = ClaimReader(connection, name, name)
            reader.register()
            reader.open(1, max_messages=1, max_bytes=100)
            steps.append(ReaderStep(name, name, reader.registered_epoch(), 1, 2, 1, 100))
        fenced = replace(steps[1], epoch=steps[1].epoch - 1)
        taken = take_steps(connection, [steps[0], fenced, steps[2]])
        assert isinstance(taken[1], Fenced)
        assert [taken[0].claim.messages, taken[2].claim.messages] == [1, 1]
    # A request to a leader that is away is repeated, and told at the deadline; others are not.
    cluster.refuse[claim_resource.SettleClaimsRequest] += [errors.Unavailable("no leader")] * 999
    late = [replace(step, settles=2, opens=3) for step in steps[:1]]
    only_opens = [replace(step, settles=0, opens=2) for step in steps[2:]]

    def attempt(limit_s: float) -> None:
        cluster.seen.clear()
        with connect(node, timeout=limit_s) as connection:
            taken = take_steps(connection, [*late, *only_opens])
        assert isinstance(taken[0], Unavailable)
        if "no leader" not in str(taken[0]):
            raise TooSlow(taken)
        assert taken[1].claim.messages == 1
        assert [getattr(request, "queue", "") for request in cluster.seen].count("s") == 1

    with_time_enough(attempt, 2.0)


def test_two_requests_whose_node_dies_between_them_are_made_again(cluster: FakeCluster) -> None:
    first, second = FakeNode(cluster, 1), FakeNode(cluster, 2)
    for each in (first, second):
        each.die_after[claim_resource.SettleClaimsRequest] = 0
    cluster.queues["q"].add(make_block("q", b"a", b"b", b"c"))
    with connect(first, second) as connection:
        reader = ClaimReader(connection, "q", "r")
        reader.register()
        reader.open(1, max_messages=1, max_bytes=100)
        settled, claim = settle_and_open(reader, 2, max_messages=1, max_bytes=100)
        assert claim is not None and (settled, claim.messages) == (0, 1)
        assert [len(cluster.queues["q"].ready), len(cluster.queues["q"].claims)] == [1, 1]
    first.kill()
    second.kill()


def test_an_empty_claim_is_kept_when_asked_for(node: FakeNode) -> None:
    with connect(node) as connection:
        reader = ClaimReader(connection, "q", "r")
        reader.register()
        assert reader.open(1, max_messages=5, max_bytes=100) == Claim(1, 0, 0, False)
        kept = reader.open(1, max_messages=5, max_bytes=100, keep_empty=True)
        assert kept == Claim(1, 0, 0, True)
        node.cluster.queues["q"].add(make_block("q", b"a", b"b"))
        assert reader.open(1, max_messages=5, max_bytes=100) == kept
        assert list(reader.fetch(1, 0, 0)) == []
        assert reader.settle(1) == 0
        later = reader.open(2, max_messages=5, max_bytes=100, keep_empty=True)
        assert (later.messages, later.open) == (2, True)
        with pytest.raises(PeerError, match="keep_empty"):
            connection.request(
                "PUT",
                "/queues/q/readers/r/claims/2",
                {"epoch": 1, "max_messages": 1, "max_bytes": 1, "keep_empty": "perhaps"},
            )


def test_a_fetch_goes_on_where_the_connection_was_lost(cluster: FakeCluster) -> None:
    cluster.queues["q"].add(make_block("q", *(b"%d" % i for i in range(20))))
    first, second = FakeNode(cluster, 1), FakeNode(cluster, 2)
    with connect(first, second) as connection:
        reader = ClaimReader(connection, "q", "r")
        reader.register()
        reader.open(1, max_messages=20, max_bytes=1 << 20)
        fetched = reader.fetch(1, 0, 20)
        pieces = [next(fetched) for _ in range(3)]
        (first if connection.node[1] == first.port else second).kill()
        pieces += fetched
        assert bodies_of(pieces) == [b"%d" % i for i in range(20)]
    first.kill()
    second.kill()


def test_slices_that_are_read_later_send_one_message_ahead(cluster: FakeCluster) -> None:
    """Each of 32 sent eight, of up to 4 MB: a gigabyte in the client."""
    cluster.queues["q"].add(make_block("q", *(b"%d" % i for i in range(80))))
    node = FakeNode(cluster, 1)
    with connect(node) as connection:
        reader = ClaimReader(connection, "q", "r")
        reader.register()
        reader.open(1, max_messages=80, max_bytes=1 << 20)
        slices = [ClaimSlice("q", "r", 1, first, first + 20) for first in range(0, 80, 20)]
        fetched = fetch_slices(connection, slices)
        pieces = [next(fetched)]
        wire = connection.wire(time.monotonic() + PATIENCE_S)

        def receivers() -> list[int]:
            found = wire._client._links.values()
            return [len(each.messages) for each in found if isinstance(each, _Receiver)]

        wire.run(lambda: receivers()[1:] == [1, 1, 1], time.monotonic() + PATIENCE_S)
        with pytest.raises(DeadlinePassed):
            wire.run(lambda: max(receivers()[1:]) > 1, time.monotonic() + 0.2)
        pieces += fetched
        assert bodies_of([piece for _, piece in pieces]) == [b"%d" % i for i in range(80)]
    node.kill()


def test_a_request_whose_node_dies_is_made_again_elsewhere(cluster: FakeCluster) -> None:
    first, second = FakeNode(cluster, 1), FakeNode(cluster, 2)
    for each in (first, second):
        each.die_after[claim_resource.OpenClaimRequest] = 0
    cluster.queues["q"].add(make_block("q", b"a", b"b", b"c"))
    with connect(first, second) as connection:
        reader = ClaimReader(connection, "q", "r")
        reader.register()
        assert reader.open(1, max_messages=2, max_bytes=1 << 20).messages == 2
        opened = [r for r in cluster.seen if isinstance(r, claim_resource.OpenClaimRequest)]
        assert len(opened) == 3  # twice the answer was lost
        assert len(cluster.queues["q"].ready) == 1
    first.kill()
    second.kill()


def test_a_node_that_cannot_serve_now_is_asked_again(node: FakeNode) -> None:
    node.cluster.refuse[queue_resource.GetQueueRequest] += [errors.Unavailable("no majority")] * 2
    with connect(node) as connection:
        assert Admin(connection).queues.get("q").name == "q"
        node.cluster.refuse[queue_resource.GetQueueRequest] += [
            errors.Unavailable("no majority")
        ] * 1000
        gives_up(connection, "no majority")


def gives_up(connection: Connection, why: str) -> None:
    """A request is given up with that reason, in as much time as one attempt needs here."""

    def attempt(limit_s: float) -> None:
        with pytest.raises(Unavailable) as told:
            connection.request("GET", "/queues/q", timeout_s=limit_s)
        if why not in str(told.value):
            raise TooSlow(str(told.value))

    with_time_enough(attempt, 0.3)


def test_no_node_at_all(node: FakeNode) -> None:
    node.kill()
    with connect(node) as connection:
        gives_up(connection, "cannot connect")


def test_a_node_that_says_nothing_is_given_up_at_the_deadline(node: FakeNode) -> None:
    with connect(node) as connection:
        Admin(connection).queues.list()
        node.silent = True
        gives_up(connection, "deadline")
        node.silent = False


def test_a_process_that_was_stopped_reads_what_came_before_it_gives_the_node_up(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its system call was interrupted and found nothing; the node had answered meanwhile."""
    waits = wire_module.select.select

    def interrupted(*given: Any) -> Any:
        if not given[3]:
            return waits(*given)
        monkeypatch.setattr(wire_module.select, "select", waits)
        waits([given[0][0]], [], [], PATIENCE_S)
        threading.Event().wait(2.5)  # longer than the idle timeout
        return [], [], []

    with Connection(
        f"amqp://guest:guest@{node.host}/?request_timeout=60&heartbeat=1"
    ) as connection:
        Admin(connection).queues.get("q")
        wire = connection._wire
        assert wire is not None
        monkeypatch.setattr(wire_module.select, "select", interrupted)
        Admin(connection).queues.get("q")
        assert connection._wire is wire and wire.lost is None


def test_stages_are_published_once_and_whole(node: FakeNode) -> None:
    node.cluster._DeclareQueue(queue_resource.DeclareQueueRequest("p"))
    with connect(node) as connection:
        driver = SinkDriver("s", "run 1", draw_epoch(connection))
        parts = []
        for partition in (0, 1):
            with StageWriter(connection, driver, batch=7, partition=partition, attempt=3) as writer:
                for i in range(40):
                    writer.write(make_block("p" if i % 2 else "q", b"%d-%d" % (partition, i)))
                parts.append(writer.finish())
        assert parts[0].queues == (("p", 20), ("q", 20))
        assert parts[0].blocks == 40
        assert not node.cluster.queues["q"].ready
        assert publish_batch(connection, driver, 7, parts) == 80
        assert publish_batch(connection, driver, 7, parts) == 80, "what was published then"
        wanted = [b"%d-%d" % (p, i) for p in (0, 1) for i in range(0, 40, 2)]
        assert bodies_of(browse(connection, "q", 1000)) == wanted
        drop_batch(connection, driver, 8, parts)
        with pytest.raises(StageLost):
            publish_batch(connection, driver, 8, parts)


@pytest.mark.parametrize("lost_after", [0, 1, 5, 17, 29])
def test_a_stage_survives_its_node(cluster: FakeCluster, lost_after: int) -> None:
    nodes = [FakeNode(cluster, seed) for seed in (1, 2)]
    for each in nodes:
        each.die_after[asks.StageBlock] = lost_after
    with connect(*nodes) as connection:
        driver = SinkDriver("s", "r", draw_epoch(connection))
        writer = StageWriter(connection, driver, batch=0, partition=0, attempt=0, window_bytes=3000)
        for i in range(60):
            writer.write(make_block("q", b"%d" % i * 20))
        part = writer.finish()
        assert publish_batch(connection, driver, 0, [part]) == 60
        assert bodies_of(browse(connection, "q", 100)) == [b"%d" % i * 20 for i in range(60)]
    assert len([r for r in cluster.seen if isinstance(r, asks.StageBlock)]) > 60
    for each in nodes:
        each.kill()


def test_a_stage_without_a_route_is_refused(node: FakeNode) -> None:
    with connect(node) as connection:
        writer = StageWriter(connection, DRIVER, batch=0, partition=0, attempt=0)
        with pytest.raises(Unroutable):
            writer.write(make_block("nowhere", b"x"))
            writer.finish()
        with pytest.raises(Unroutable):
            writer.write(make_block("q", b"x"))


def test_a_refused_block_of_a_stage_ends_it(node: FakeNode) -> None:
    node.cluster.refuse[asks.StageBlock] += [
        errors.PreconditionFailed("stage s was lost; stage it again")
    ]
    with connect(node) as connection:
        writer = StageWriter(connection, DRIVER, batch=0, partition=0, attempt=0)
        with pytest.raises(PeerError, match="stage it again"):
            for _ in range(50):
                writer.write(make_block("q", b"x"))
            writer.finish()
        assert Admin(connection).queues.get("q")  # the connection continues


def test_a_block_above_the_limit_is_refused_by_name(node: FakeNode) -> None:
    with connect(node) as connection:
        writer = StageWriter(
            connection, DRIVER, batch=0, partition=0, attempt=0, window_bytes=1 << 30
        )
        with pytest.raises(TooLarge, match=str(32 << 20)):
            writer.write(bytes((32 << 20) + 1))
            writer.finish()


@pytest.mark.parametrize("size", [0, 1, 247, 65_000, 1 << 20, 20 << 20])
def test_blocks_of_every_size_travel_unchanged(node: FakeNode, size: int) -> None:
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    with connect(node) as connection:
        with StageWriter(connection, DRIVER, batch=0, partition=0, attempt=0) as writer:
            for _ in range(3):
                writer.write(
                    blocks.encode([body], [b"\0\0"], (b"", b"q"), message_bytes_max=64 << 20)
                )
            part = writer.finish()
        assert publish_batch(connection, DRIVER, 0, [part]) == 3
        assert bodies_of(browse(connection, "q", 3)) == [body] * 3


def test_a_connection_is_good_for_any_number_of_stages(node: FakeNode) -> None:
    """After 256 answers to its attaches and detaches it sent nothing, again and again, for ever."""

    def stages() -> int:
        with connect(node) as connection:
            Admin(connection).queues.declare("q")
            for attempt in range(ANSWERS_OWED_MAX):
                with StageWriter(connection, DRIVER, batch=0, partition=0, attempt=attempt) as one:
                    one.write(make_block("q", b"body"))
                    part = one.finish()
            return publish_batch(connection, DRIVER, 0, [part])

    done: list[int] = []
    thread = threading.Thread(target=lambda: done.append(stages()), daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert done == [1]


@pytest.mark.parametrize(
    "address", ["q", "/exchanges/x/key", "/queues/q/blocks?x=1", "/queues/q/browse"]
)
def test_links_that_this_listener_lacks_are_refused(node: FakeNode, address: str) -> None:
    with connect(node) as connection, pytest.raises(PeerError) as caught:
        list(connection.stream(lambda: address))
    assert caught.value.condition in ("amqp:not-implemented", "amqp:invalid-field")
    assert address in str(caught.value)


def test_a_request_above_the_limit_is_refused_and_the_next_one_works(node: FakeNode) -> None:
    with connect(node) as connection:
        with pytest.raises(TooLarge, match="4194304 is the limit"):
            connection.request("PUT", "/queues/x", {"arguments": {"x": "y" * (5 << 20)}})
        assert Admin(connection).queues.list()


def test_unknown_requests_are_refused_with_what_is_known(node: FakeNode) -> None:
    with connect(node) as connection:
        with pytest.raises(PeerError, match="misspelt.*known: durable"):
            connection.request("PUT", "/queues/x", {"misspelt": True})
        with pytest.raises(PeerError, match="only DELETE, GET, PUT"):
            connection.request("POST", "/queues/x")
        with pytest.raises(NotFound, match="/nothing"):
            connection.request("GET", "/nothing")
        with pytest.raises(PeerError, match="max_messages=0"):
            connection.request(
                "PUT",
                "/queues/q/readers/r/claims/1",
                {"epoch": 1, "max_messages": 0, "max_bytes": 1},
            )


def test_a_connection_idle_for_long_is_made_anew(node: FakeNode) -> None:
    with connect(node) as connection:
        Admin(connection).queues.list()
        node.die_before_apply = True
        node._waker.send(b"x")
        while node.connections:
            pass
        assert Admin(connection).queues.list()
