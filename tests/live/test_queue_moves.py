"""What a shovel of a queue's length moves when it is killed, deleted or held up amid the work."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from connector.amqp.rabbitmq import OneRabbitMQ
from live.conftest import Broker, eventually
from live.shovels import clean, fill, gone, shows, taken, worker_pids
from warren.admin import Admin
from warren.cli.app import app
from warren.errors import Conflict, NotFound
from warren.local import LocalCluster
from warren_wire.admin.queues import RelayInfo

pytestmark = pytest.mark.live
MESSAGES, TAKEN = 300, 40
FULL = {"max-length": TAKEN, "overflow": "reject-publish"}
MOVER = "Move from shovel-a"


@pytest.fixture
def admin(admin: Admin) -> Iterator[Admin]:
    """It deletes all shovels, their queues and the policy after the test."""
    yield admin
    clean(admin)
    if any(one.name == "shovel-full" for one in admin.policies.list("/")):
        admin.policies.delete("/", "shovel-full")


def run(broker: Broker, *words: str) -> str:
    """What a command prints."""
    done = CliRunner().invoke(app, [*words, "--uri", broker.cluster.uri])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def stuck(broker: Broker, admin: Admin) -> list[bytes]:
    """Begin to move a queue to one that takes a part of it, and refuses the rest."""
    bodies = fill(broker, "shovel-a", MESSAGES)
    admin.queues.declare("shovel-b")
    admin.policies.put("/", "shovel-full", "^shovel-b$", FULL, apply_to="queues")
    run(broker, "queues", "move", "shovel-a", "shovel-b")
    shows(admin, MOVER, lambda one: one.blocked_status == "refused", "the destination is full")
    eventually(lambda: ready(admin, "shovel-b") == TAKEN or None, "it has taken a part")
    return bodies


def ready(admin: Admin, queue: str) -> int:
    """Messages that any consumer could have."""
    return admin.queues.get(queue).messages_ready


def relay(admin: Admin, queue: str = "shovel-a") -> RelayInfo:
    """The only relay of a queue."""
    (found,) = admin.queues.get(queue).relays
    return found


def away(admin: Admin) -> RelayInfo | None:
    """The only relay, when its connection has ended."""
    found = relay(admin)
    return found if found.away_since else None


def kill_worker(broker: Broker, admin: Admin, name: str) -> None:
    """Kill -9 the process of a shovel, and wait for the next one."""
    node = broker.cluster.pid(admin.shovels.get("/", name).node)
    killed = set(worker_pids(node))  # one of a test before may be among them
    for pid in killed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    eventually(lambda: set(worker_pids(node)) - killed, "another process is started")


def given_up(broker: Broker, admin: Admin) -> RelayInfo:
    """Delete a move after its process was killed: what was published twice may be on its way."""
    kill_worker(broker, admin, MOVER)
    held = MESSAGES - TAKEN
    shows(admin, MOVER, lambda one: one.pending == held and not one.forwarded, "the next has it")
    admin.shovels.delete("/", MOVER)
    return eventually(lambda: away(admin), "what it held is kept")  # type: ignore[no-any-return]


def settings(**more: Any) -> dict[str, Any]:
    """A shovel of the queue's length."""
    ends = {"src-uri": "amqp://", "src-queue": "shovel-a", "src-delete-after": "queue-length"}
    return {**ends, "dest-queue": "shovel-b", **more}


def test_a_move_of_which_the_process_is_killed_ends_with_the_last_message(
    broker: Broker, admin: Admin
) -> None:
    """Before, it ended at once: nothing was ready, all was kept for the shovel."""
    bodies = stuck(broker, admin)
    assert ready(admin, "shovel-a") == 0
    for _ in range(2):
        kill_worker(broker, admin, MOVER)
        shows(
            admin,
            MOVER,
            lambda one: one.remaining == one.pending == MESSAGES - TAKEN and not one.forwarded,
            "the next process counts what is kept, and has it",
        )
    admin.policies.delete("/", "shovel-full")
    run(broker, "queues", "move", "shovel-a", "shovel-b", "--wait")
    assert sorted(body for _, body in taken(broker, "shovel-b")) == sorted(bodies)
    assert (admin.queues.get("shovel-a").messages, admin.queues.get("shovel-a").relays) == (0, ())


def test_an_auto_delete_queue_is_moved_as_a_whole_before_it_ends(
    broker: Broker, admin: Admin
) -> None:
    """Before, one message was moved, and the others were deleted with the queue."""
    admin.queues.declare("shovel-b")
    admin.queues.declare("shovel-c")
    named = {"headers": {"CC": ["shovel-c"]}}  # which is not used again
    bodies = fill(broker, "shovel-a", MESSAGES, auto_delete=True, **named)
    said = run(broker, "queues", "move", "shovel-a", "shovel-b", "--wait")
    assert "is not known" not in said, "the last line of the progress, before"
    assert "shovel-a: moved to shovel-b, and deleted with its last consumer" in said
    for queue in ("shovel-b", "shovel-c"):
        assert sorted(body for _, body in taken(broker, queue)) == sorted(bodies), queue


@pytest.mark.parametrize("ends", [("shovel-a", "shovel-b"), ("shovel-b", "shovel-a")])
def test_a_move_with_an_exclusive_queue_is_refused(
    broker: Broker, admin: Admin, ends: tuple[str, str]
) -> None:
    """Before, the command ended well, or waited for a shovel that the queue refused, again and
    again."""
    admin.queues.declare("shovel-b")
    with broker.connect() as connection:
        connection.channel().queue_declare("shovel-a", exclusive=True)
        for more in ((), ("--wait",)):
            with pytest.raises(Conflict, match="queue 'shovel-a' is exclusive"):
                run(broker, "queues", "move", *ends, *more)
        assert admin.shovels.list() == []


def test_a_move_says_how_many_messages_the_queue_has_dropped_that_had_them_before(
    broker: Broker, admin: Admin
) -> None:
    """Before, nothing said that a queue with de-duplication takes a message once, and not back."""
    for queue in ("shovel-a", "shovel-b"):
        admin.queues.declare(queue)
    admin.policies.put("/", "shovel-full", "^shovel-a$", {"deduplication": True}, apply_to="queues")
    named = {"headers": {"x-deduplication-id": "one"}}

    def dropped() -> int | None:
        fill(broker, "shovel-a", 1, **named)
        return admin.queues.get("shovel-a").duplicates_dropped or None

    eventually(dropped, "the policy holds")
    count = ready(admin, "shovel-a")
    assert "dropped" not in run(broker, "queues", "move", "shovel-a", "shovel-b", "--wait")
    fill(broker, "shovel-b", 2)
    said = run(broker, "queues", "move", "shovel-b", "shovel-a", "--wait")
    assert f"shovel-a has dropped {count} messages meanwhile, of which it knows the ids" in said
    assert (ready(admin, "shovel-a"), ready(admin, "shovel-b")) == (2, 0)


@pytest.mark.long
def test_a_move_that_is_deleted_and_begun_again_takes_what_the_first_one_held(
    broker: Broker, admin: Admin
) -> None:
    bodies = stuck(broker, admin)
    given_up(broker, admin)
    extra = fill(broker, "shovel-a", 5)
    run(broker, "queues", "move", "shovel-a", "shovel-b")
    shows(
        admin,
        MOVER,
        lambda one: one.remaining == MESSAGES - TAKEN + len(extra),
        "ready ones and kept ones count",
    )
    admin.policies.delete("/", "shovel-full")
    eventually(lambda: gone(admin, MOVER) or None, "it ends")
    found = [body for _, body in taken(broker, "shovel-b")]
    assert sorted(found) == sorted(bodies + extra), "none is lost, none comes twice"
    assert admin.queues.get("shovel-a").messages == 0


def test_a_move_that_is_deleted_gives_back_what_the_destination_has_refused(
    broker: Broker, admin: Admin
) -> None:
    """Before, it was kept for a day, although it was known not to be there."""
    bodies = stuck(broker, admin)
    admin.shovels.delete("/", MOVER)
    eventually(lambda: ready(admin, "shovel-a") == MESSAGES - TAKEN or None, "they are ready")
    eventually(lambda: admin.queues.get("shovel-a").relays == () or None, "nothing is kept")
    found = [body for queue in ("shovel-a", "shovel-b") for _, body in taken(broker, queue)]
    assert sorted(found) == sorted(bodies)


@pytest.mark.long
def test_an_operator_has_released_what_is_kept_for_a_move_that_is_given_up(
    broker: Broker, admin: Admin
) -> None:
    bodies = stuck(broker, admin)
    name = relay(admin).name
    assert "Move from shovel-a" in name
    with pytest.raises(Conflict, match="is connected: delete or pause"):
        run(broker, "relays", "release", "shovel-a", name)
    kept = given_up(broker, admin)
    assert kept.messages == MESSAGES - TAKEN and ready(admin, "shovel-a") == 0
    assert kept.ready_again - kept.away_since == 24 * 3_600_000
    assert kept.ready_in_ms is not None and 0 < kept.ready_in_ms <= 24 * 3_600_000
    (shown,) = json.loads(run(broker, "relays", "list", "shovel-a", "--json"))
    assert (shown["name"], shown["messages"]) == (name, kept.messages)
    with pytest.raises(NotFound, match="keeps nothing for 'other'"):
        run(broker, "relays", "release", "shovel-a", "other")
    said = run(broker, "relays", "release", "shovel-a", name)
    assert f"{kept.messages:,} messages of queue shovel-a are ready again" in said
    assert admin.queues.get("shovel-a").relays == () and ready(admin, "shovel-a") == kept.messages
    found = [body for queue in ("shovel-a", "shovel-b") for _, body in taken(broker, queue)]
    assert sorted(found) == sorted(bodies), "the destination had refused these"


def test_a_move_to_another_cluster_that_fails_amid_it_moves_each_message_once(
    broker: Broker, admin: Admin, tmp_path: Path
) -> None:
    with LocalCluster(nodes=1, directory=tmp_path) as far:
        (place,) = far.addresses
        there = Broker((f"amqp://guest:guest@{place}/%2F",), far)
        with far.connect() as connection:
            other = Admin(connection)
            other.queues.declare("shovel-b")
            other.policies.put("/", "full", "^shovel-b$", FULL, apply_to="queues")
            bodies = fill(broker, "shovel-a", MESSAGES)
            admin.parameters.put("shovel", "/", "far", settings(**{"dest-uri": there.uri}))
            shows(admin, "far", lambda one: one.blocked_status == "refused", "it is full")
        far.kill(0)
        shows(admin, "far", lambda one: one.state == "terminated", "the other cluster has failed")
        kill_worker(broker, admin, "far")
        shows(admin, "far", lambda one: "refused" in one.reason, "another process cannot connect")
        assert relay(admin).messages and not gone(admin, "far")
        far.restart(0)
        with far.connect() as connection:
            other = Admin(connection)
            other.policies.delete("/", "full")
            eventually(lambda: gone(admin, "far") or None, "everything is moved")
        found = [body for _, body in taken(there, "shovel-b")]
        assert sorted(found) == sorted(bodies), "none is lost, none comes twice"
    assert admin.queues.get("shovel-a").messages == 0


def test_a_shovel_keeps_what_its_destination_may_have(broker: Broker, admin: Admin) -> None:
    """Before, it was returned although an earlier shovel of the name might have published it."""
    bodies = stuck(broker, admin)
    given_up(broker, admin)
    admin.policies.delete("/", "shovel-full")
    value = settings(**{"dest-uri": "amqp://", "src-delete-after": 7, "src-prefetch-count": 50})
    admin.parameters.put("shovel", "/", MOVER, value)
    eventually(lambda: gone(admin, MOVER) or None, "seven are moved")
    eventually(lambda: away(admin), "it has ended")
    assert ready(admin, "shovel-a") == 0
    assert (ready(admin, "shovel-b"), relay(admin).messages) == (TAKEN + 7, MESSAGES - TAKEN - 7)
    run(broker, "queues", "move", "shovel-a", "shovel-b", "--wait")
    assert sorted(body for _, body in taken(broker, "shovel-b")) == sorted(bodies)


@pytest.fixture(scope="module")
def rabbitmq() -> Iterator[OneRabbitMQ]:
    """A RabbitMQ, where one is installed."""
    with OneRabbitMQ() as made:
        yield made


def emptied(broker: Broker, queue: str) -> list[bytes]:
    """What is ready in a queue now."""
    return [body for _, body in taken(broker, queue)]


@pytest.mark.parametrize("into", [False, True])
@pytest.mark.long
def test_a_move_with_rabbitmq_at_one_end_loses_nothing_when_its_process_is_killed(
    broker: Broker, admin: Admin, rabbitmq: OneRabbitMQ, into: bool
) -> None:
    """Neither end keeps anything for the shovel: what it held is ready, and counted, again."""
    far = Broker((f"amqp://guest:guest@{rabbitmq.host}:{rabbitmq.port}/%2F",))
    source, target = (broker, far) if into else (far, broker)
    bodies = fill(source, "shovel-a", MESSAGES)
    with target.connect() as connection:
        full = {"x-max-length": TAKEN, "x-overflow": "reject-publish"}
        connection.channel().queue_declare("shovel-b", durable=True, arguments=full)
    value = settings(**{"src-uri": source.uri, "dest-uri": target.uri, "dest-predeclared": True})
    admin.parameters.put("shovel", "/", "mine", value)
    shows(admin, "mine", lambda one: one.blocked_status == "refused", "the destination is full")
    kill_worker(broker, admin, "mine")
    found: list[bytes] = []

    def over() -> bool | None:
        found.extend(emptied(target, "shovel-b"))
        return gone(admin, "mine") or None

    eventually(over, "it has moved what it has counted")
    found += emptied(target, "shovel-b")
    assert set(found) | set(emptied(source, "shovel-a")) == set(bodies), "none is lost"
    with far.connect() as connection:
        for queue in ("shovel-a", "shovel-b"):
            connection.channel().queue_delete(queue)
