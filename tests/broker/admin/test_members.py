"""What operators may ask of nodes with members through `/management`, from path to status."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from proton import Message

from warren_broker.admin.answers import rendered, shown_value
from warren_broker.admin.caller import Asker
from warren_broker.admin.connections import CONNECTIONS_LISTED_MAX
from warren_broker.clients.connection_events import CAPABILITIES_MAX
from warren_broker.clients10.client10 import _HANDLERS as HANDLERS
from warren_broker.cluster.membership.node_service import NodeService
from warren_broker.cluster.membership.service import MemberService
from warren_machines.metadata.commands import Deleted, DeleteQueue
from warren_machines.metadata.permissions import Permissions
from warren_wire import errors
from warren_wire.admin import members as v
from warren_wire.admin.connections import ConnectionInfo
from warren_wire.admin.resources import REQUESTS, find_route, parse_request

NODE = v.NodeInfo("w-2", "h:1", True, False, False, "follower", 3, 1, 0, 0)
MEMBER = v.MemberInfo("w-2", "learner", "snapshot", False, 5, 7, 1000, 1 << 33)
VALUES: dict[str, Any] = {
    "queue_status": v.QueueMembers(
        "/", "q", "quorum", None, 3, 12, 11, (MEMBER,), ("w-1", "w-2"), False
    ),
    "add_member": v.MembersChanged("/", "q", ("w-1", "w-2"), True),
    "delete_member": v.MembersChanged("/", "q", ("w-1",), False),
    "transfer_leadership": v.LeaderMoved("/", "q", "w-2", True),
    "grow": v.Resizing("w-2", (v.Resized("/", "q", 4), v.Resized("/", "r", 3, "no"))),
    "shrink": v.Resizing("w-2", ()),
    "rebalance": v.Rebalanced((v.LeaderMove("/", "q", "w-1", "w-2"),), (v.NodeLeaders("w-1", 1),)),
    "list_nodes": [NODE],
    "node_status": v.NodeStatus(NODE, (v.Moving("/", "q", MEMBER),), False),
    "drain": v.NodeStatus(NODE, (), False),
    "revive": v.NodeStatus(NODE, (), True),
    "forget": v.Forgetting("w-2", 3, (("/", "c"),)),
    "quorum_critical": v.QuorumCritical("w-2", False, (), 0),
}


def plain(value: Any) -> Any:
    """As it is to arrive: maps with lists."""
    return msgspec.json.decode(msgspec.json.encode(value))


COUNTS = {
    "grow": {"count": 2, "failed": 1},
    "shrink": {"count": 0, "failed": 0},
    "rebalance": {"count": 1},
    "forget": {"lost_count": 1},
}
"""What is set on the wire."""


class FakeMembers:
    """Answers each call with its value; remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.values = dict(VALUES)
        self.nodes = self

    def __getattr__(self, name: str) -> Any:
        if name not in VALUES:
            raise AttributeError(name)

        def call(*arguments: Any) -> None:
            *values, done = arguments
            self.asked.append((name, *values))
            done(self.values[name])

        return call


@dataclass
class World:
    """One user's connection to vhost `v`, over a fake membership."""

    tags: tuple[str, ...] = ("administrator",)
    read: str = "^$"
    configure: str = "^$"
    members: FakeMembers = field(default_factory=FakeMembers)
    submitted: list[Any] = field(default_factory=list)

    def queue(self, vhost: str, name: str) -> Any:
        """As MetadataState's: there is one, `q`."""
        return SimpleNamespace(vhost=vhost, name=name, group=7) if name == "q" else None

    def submit(self, command: Any, done: Any) -> None:
        """As Definitions'."""
        self.submitted.append(command)
        done(Deleted(()))

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and body of a request's answer."""
        answers: list[Any] = []
        broker: Any = SimpleNamespace(
            membership=self.members,
            settings=SimpleNamespace(node="w-9"),
            definitions=SimpleNamespace(
                state=SimpleNamespace(queue=self.queue), submit=self.submit
            ),
            tags=lambda name: self.tags,
            permissions=lambda vhost, name: Permissions(self.configure, "^$", self.read),
        )
        asker = Asker(broker, "v", "u", 1, lambda call: call)
        try:
            found = find_route(method, path)
            request = found.request(body)
        except errors.Refusal as refusal:
            return refusal.http_status, refusal.detail
        try:
            found.route.check(asker.access.must_be, 0)
            HANDLERS[type(request)](asker, request, answers.append)
        except errors.Refusal as refusal:
            answers.append(refusal)
        (answer,) = answers
        return rendered(request, answer)


PATTERNS = {"vhost_pattern": "^a", "queue_pattern": "x+"}
NODE_BODY = {"node": "w-2"}
CHANGES = [
    (
        "POST",
        "/queues/quorum/a%2Fb/replicas/add",
        NODE_BODY,
        ("add_member", "v", "a/b", "w-2"),
        202,
    ),
    (
        "DELETE",
        "/queues/quorum/q/replicas/delete",
        NODE_BODY,
        ("delete_member", "v", "q", "w-2"),
        200,
    ),
    (
        "POST",
        "/queues/quorum/q/leader/transfer",
        NODE_BODY,
        ("transfer_leadership", "v", "q", "w-2"),
        200,
    ),
    (
        "POST",
        "/queues/quorum/replicas/on/w-2/grow",
        {"strategy": "even", **PATTERNS},
        ("grow", "w-2", "even", "^a", "x+"),
        202,
    ),
    (
        "POST",
        "/queues/quorum/replicas/on/w-2/grow",
        {"strategy": "all"},
        ("grow", "w-2", "all", ".*", ".*"),
        202,
    ),
    (
        "DELETE",
        "/queues/quorum/replicas/on/w-2/shrink",
        {"errors_only": True},
        ("shrink", "w-2", True),
        200,
    ),
    ("POST", "/rebalance/queues", None, ("rebalance", ".*", ".*"), 202),
    ("POST", "/nodes/w-2/drain", None, ("drain", "w-2"), 202),
    ("POST", "/nodes/w-2/revive", None, ("revive", "w-2"), 200),
    ("DELETE", "/nodes/w-2", None, ("forget", "w-2"), 202),
]
LOOKS = [
    ("GET", "/queues/quorum/q/status", ("queue_status", "v", "q"), "monitoring"),
    ("GET", "/nodes", ("list_nodes",), "monitoring"),
    ("GET", "/nodes/w-2", ("node_status", "w-2"), "monitoring"),
    ("GET", "/health/checks/node-is-quorum-critical/w-2", ("quorum_critical", "w-2"), "management"),
    ("GET", "/health/checks/node-is-quorum-critical", ("quorum_critical", "w-9"), "management"),
]


@pytest.mark.parametrize(("method", "path", "body", "asked", "status"), CHANGES)
def test_a_change_is_asked_for_as_given_and_says_whether_it_goes_on(
    method: str, path: str, body: Any, asked: tuple[Any, ...], status: int
) -> None:
    world = World()
    answered, answer = world.ask(method, path, body)
    assert world.members.asked == [asked]
    assert answered == status
    counts = {name: answer.pop(name) for name in ("count", "failed", "lost_count") & answer.keys()}
    assert counts == COUNTS.get(asked[0], {})
    assert answer == {
        name: value for name, value in plain(VALUES[asked[0]]).items() if name not in counts
    }


@pytest.mark.parametrize("tags", [(), ("management",), ("monitoring", "policymaker")])
@pytest.mark.parametrize(("method", "path", "body", "asked", "status"), CHANGES)
def test_only_an_administrator_changes_anything(
    method: str, path: str, body: Any, asked: Any, status: int, tags: tuple[str, ...]
) -> None:
    world = World(tags, read=".*")
    answered, answer = world.ask(method, path, body)
    assert answered == 403 and "'administrator' is needed" in answer["detail"], answer
    assert not world.members.asked


@pytest.mark.parametrize(("method", "path", "asked", "tag"), LOOKS)
def test_looking_wants_the_tag_that_rabbitmq_wants(
    method: str, path: str, asked: tuple[Any, ...], tag: str
) -> None:
    for tags in ((tag,), ("administrator",)):
        world = World(tags)
        assert world.ask(method, path)[0] == 200
        assert world.members.asked == [asked]
    less = {"monitoring": ("management", "policymaker"), "management": ("impersonator",)}[tag]
    world = World(less)
    assert world.ask(method, path)[0] == 403
    assert not world.members.asked


def test_who_may_read_a_queue_sees_its_members() -> None:
    assert World((), read="^q").ask("GET", "/queues/quorum/q/status")[0] == 200
    assert World((), read="^z").ask("GET", "/queues/quorum/q/status")[0] == 403


def test_nodes_are_a_list_and_a_status_is_not_work_that_goes_on() -> None:
    status, nodes = World().ask("GET", "/nodes")
    assert (status, nodes[0]["name"], nodes[0]["metadata"]) == (200, "w-2", "follower")
    status, one = World().ask("GET", "/nodes/w-2")
    assert status == 200 and one["done"] is False
    assert one["moving"][0]["member"]["total_bytes"] == 1 << 33


def test_a_critical_node_is_a_503_with_the_queues() -> None:
    world = World()
    path = "/health/checks/node-is-quorum-critical"
    status, body = world.ask("GET", path)
    assert (status, body["status"]) == (200, "ok")
    world.members.values["quorum_critical"] = v.QuorumCritical(
        "w-9", True, (v.QueueName("/", "q"),), 5
    )
    status, body = world.ask("GET", path)
    assert (status, body["status"], body["count"], body["metadata"]) == (503, "failed", 5, True)
    assert body["queues"] == [{"vhost": "/", "name": "q"}]


def test_a_refusal_keeps_its_status_and_text() -> None:
    world = World()
    world.members.values["add_member"] = errors.PreconditionFailed("node 'w-2' is drained")
    path = "/queues/quorum/q/replicas/add"
    status, body = world.ask("POST", path, {"node": "w-2"})
    assert (status, body["detail"]) == (409, "node 'w-2' is drained")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("POST", "/queues/quorum/q/replicas/add", {}, 400, "lacks 'node'"),
        ("POST", "/queues/quorum/q/replicas/add", {"node": ""}, 400, "GET /nodes"),
        ("POST", "/queues/quorum/q/replicas/add", {"node": 5}, 400, "int"),
        ("POST", "/queues/quorum/q/replicas/add", {"node": "n" * 256}, 400, "255 bytes"),
        (
            "POST",
            "/queues/quorum/q/replicas/add",
            {"node": "n", "membership": "voter"},
            400,
            "'promotable'",
        ),
        (
            "POST",
            "/queues/quorum/q/replicas/add",
            {"node": "n", "nod": 1},
            400,
            "known: node, membership",
        ),
        ("POST", "/queues/quorum/q/replicas/add", ["n"], 400, "a map"),
        ("PUT", "/queues/quorum/q/replicas/add", {}, 405, "only POST"),
        ("DELETE", "/queues/quorum/q/replicas/delete", {"nodes": "n"}, 400, "known: node"),
        ("POST", "/queues/quorum/replicas/on/w-2/grow", {}, 400, "lacks 'strategy'"),
        ("POST", "/queues/quorum/replicas/on/w-2/grow", {"strategy": "odd"}, 400, "all, even"),
        (
            "POST",
            "/queues/quorum/replicas/on/w-2/grow",
            {"strategy": "all", "queue_pattern": "(a"},
            400,
            "regular expression",
        ),
        ("POST", "/queues/quorum/replicas/on//grow", {"strategy": "all"}, 400, "empty"),
        ("DELETE", "/queues/quorum/replicas/on/w-2/shrink", {"errors_only": "yes"}, 400, "bool"),
        ("POST", "/rebalance/queues", {"pattern": "a"}, 400, "vhost_pattern, queue_pattern"),
        ("POST", "/nodes/w-2/drain", {"force": True}, 400, "unknown key 'force'"),
        ("DELETE", "/nodes/", None, 400, "empty"),
        ("POST", "/nodes", None, 405, "only GET"),
        ("GET", "/nodes/w-2/x/y", None, 404, "no resource"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_can(
    method: str, path: str, body: Any, status: int, words: str
) -> None:
    world = World()
    answered, text = world.ask(method, path, body)
    assert answered == status and words in text, text
    assert not world.members.asked


def test_queues_with_names_out_of_the_paths_are_still_queues() -> None:
    world = World(("administrator",), read=".*")
    world.ask("GET", "/queues/quorum/readers/status")
    world.ask("GET", "/queues/quorum/replicas/status")
    assert [name for *_, name in world.members.asked] == ["readers", "replicas"]
    assert type(parse_request("POST", "/queues/quorum/readers/status", None)).__name__ == (
        "RegisterReaderRequest"
    )


def test_every_request_has_its_handler_and_every_call_its_request() -> None:
    assert set(HANDLERS) >= set(REQUESTS)
    calls = {name for name in (*dir(MemberService), *dir(NodeService)) if not name.startswith("_")}
    assert calls >= set(VALUES)


def test_deleting_a_queue_unasked_is_an_administrators() -> None:
    world = World(("monitoring",))
    world.configure = ".*"
    status, body = world.ask("DELETE", "/queues/q?force=true")
    assert status == 403 and "administrator" in body["detail"]
    status, body = world.ask("DELETE", "/queues/q?force=true&if-empty=true")
    assert status == 400 and "if-empty" in body
    world.tags = ("administrator",)
    assert world.ask("DELETE", "/queues/q?force=true") == (200, {"message_count": 0})
    assert world.submitted == [DeleteQueue("v", "q", 7)]
    assert world.ask("DELETE", "/queues/none?force=true") == (200, {"message_count": 0})
    world.configure = "^z"
    assert world.ask("DELETE", "/queues/q?force=true")[0] == 403
    assert len(world.submitted) == 1


def test_an_answer_about_many_queues_fits_into_one_message() -> None:
    """Proton's values hold 65,535 parts: growing a node of 20,000 queues cannot name them all."""
    world = World()
    queues = tuple(v.Resized("/", f"q{i}", 4, "no" if i > 19_990 else "") for i in range(20_000))
    world.members.values["grow"] = v.Resizing("w-2", queues)
    moves = tuple(v.LeaderMove("/", f"q{i}", "a", "b") for i in range(20_000))
    world.members.values["rebalance"] = v.Rebalanced(moves, ())
    lost = tuple(("/", f"q{i}") for i in range(20_000))
    world.members.values["forget"] = v.Forgetting("w-2", 0, lost)
    status, grown = world.ask("POST", "/queues/quorum/replicas/on/w-2/grow", {"strategy": "all"})
    assert (status, grown["count"], grown["failed"], len(grown["queues"])) == (202, 20_000, 9, 1000)
    assert [bool(each["error"]) for each in grown["queues"][:10]] == [True] * 9 + [False]
    status, moved = world.ask("POST", "/rebalance/queues")
    assert (status, moved["count"], len(moved["moves"])) == (202, 20_000, 1000)
    status, forgot = world.ask("DELETE", "/nodes/w-2")
    assert (status, forgot["lost_count"], len(forgot["lost"])) == (202, 20_000, 1000)
    for body in (grown, moved, forgot):
        assert proton_round_trip(body) == body


def test_as_many_connections_as_an_answer_takes_fit_into_one_message() -> None:
    """Before: 2,000 were let into an answer, and Proton's values held 1,000."""
    said = dict.fromkeys(("product", "version", "platform", "information", "connection_name"), "x")
    one = ConnectionInfo(
        *("c", "n1", "guest", "/", "AMQP 1-0", "127.0.0.1", 1, "127.0.0.1", 2),
        *(False, 1, 10, 10, 60, 0, 0, 0, "x", said),
        rates=(0.0, 0.0),
        capabilities={str(at): True for at in range(CAPABILITIES_MAX)},
    )
    body = [shown_value(one)] * CONNECTIONS_LISTED_MAX
    assert proton_round_trip(body) == body


def proton_round_trip(body: Any) -> Any:
    """As the answer travels."""
    arrived = Message()
    sent = Message(body=body)
    sent.inferred = True
    arrived.decode(sent.encode())
    return arrived.body
