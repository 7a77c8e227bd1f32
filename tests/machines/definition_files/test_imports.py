"""Imports of files: what is created, what is left out and named, what is refused as a whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from machines.definition_files.around import Around, exported, load, not_honoured, sample
from machines.metadata.world import World
from warren_broker.cluster.link_logins import BY_OPERATOR
from warren_broker.cluster.turn_shares import SHARE_STEPS
from warren_machines.definition_files import document
from warren_machines.definition_files.check import (
    OBJECT_STEPS,
    RUN_OBJECTS,
    CheckedImport,
    check_import,
)
from warren_machines.definition_files.document import parse
from warren_machines.definition_files.import_plan import FileRefused
from warren_machines.metadata import commands, image, passwords
from warren_machines.metadata.records import Vhost
from warren_machines.steps import Steps, whole
from warren_wire.errors import InvalidArgument, NotFound, Refusal

QUEUE = {"name": "q", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
EXCHANGE = {"name": "x", "vhost": "/", "type": "topic", "durable": True, "auto_delete": False}
BINDING = {
    "source": "amq.topic",
    "vhost": "/",
    "destination": "q",
    "destination_type": "queue",
    "routing_key": "k",
    "arguments": {},
}


def refusal(world: World, given: dict[str, Any] | bytes, vhost: str | None = None) -> str:
    """Why a file is refused; nothing has changed."""
    snapshot = world.machine.snapshot(world.state)
    with pytest.raises(Refusal) as caught:
        load(world, given, vhost)
    assert world.machine.snapshot(world.state) == snapshot
    return caught.value.detail


# ------------------------------------------------------------------ exports of real servers


def test_an_export_of_rabbitmq_4_3_is_imported() -> None:
    world = World()
    report = load(world, sample("4.3.6"))
    missing = not_honoured(report)
    assert world.state.scopes["/"].exchanges["recent"].kind == "x-recent-history"
    assert missing["queue 'log.stream' in vhost '/'"] == ["arguments.x-queue-type"]
    assert missing["policy 'ages' in vhost '/'"] == ["definition.max-age"]
    assert any("app-passing" in one for one in missing), "bound, but exclusive: not in the export"
    state = world.state
    assert set(state.scopes["/"].queues) == {
        "passing",
        "work.classic",
        "work.expiring",
        "work.lazy",
        "work.moved",
        "work.quorum",
        "ünïcode/queue",
        "amq.history.recent",  # the exchange's own
    }
    assert state.scopes["/"].queues["work.quorum"].config.delivery_limit == 5
    assert state.scopes["/"].queues["work.moved"].config.kind == "classic"
    assert state.scopes["/"].exchanges["hashed"].arguments == {"hash-header": "customer"}
    assert state.scopes["/"].policies.user["ages"].definition == {"max-length-bytes": 1_000_000}
    above = state.scopes["billing"].policies.operator["above"]
    assert above.definition == {"expires": 1_800_000, "max-length": 50_000}
    assert state.scopes["billing"].vhost == Vhost(
        "billing",
        "orders and invoices",
        ("production", "billing"),
        "quorum",
        {"max-connections": 500, "max-queues": 100},
    )
    assert state.users["app"].limits == {"max-channels": 100, "max-connections": 50}
    assert state.parameters("/")["federation-upstream-set", "both"].value == [
        {"max-hops": 2, "upstream": "origin"}
    ]
    grant = state.grants["billing", "app", "amq.topic"]
    assert (grant.write, grant.read) == ("^{username}\\.", "^(orders|invoices)\\.")
    for user, password in (("operator", "made-up-1"), ("app", "made-up-3")):
        assert passwords.matches(password, state.users[user].password_hash)


def test_an_export_of_rabbitmq_3_10_is_imported() -> None:
    """Its maps may be lists of pairs, its queues' types stand beside the arguments."""
    world = World()
    report = load(world, sample("3.10.8"))
    state = world.state
    plain = state.scopes["billing"].queues["app-plain"]
    assert plain.config.kind == "classic" and not plain.config.replicated
    assert plain.arguments == {"x-queue-type": "classic"}
    assert state.scopes["billing"].policies.operator["above"].definition == {
        "expires": 1_800_000,
        "max-length": 50_000,
    }
    assert state.scopes["/"].policies.user["ha-two"].definition["max-length"] == 5_000
    assert state.scopes["billing"].vhost.tags == ("production", "billing")
    assert state.scopes["billing"].vhost.limits == {"max-connections": 500, "max-queues": 100}
    assert passwords.matches("made-up-2", state.users["watcher"].password_hash)
    assert "user 'watcher'" not in not_honoured(report)
    assert load(world, sample("3.10.8")).counts["queues"].unchanged == 9


# ------------------------------------------------------------------ refused as a whole


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not JSON"),
        (b"[]", "a JSON object is expected"),
        (b'{"queues": [', "not JSON"),
        (b'{"queues": {}}', "Expected `array`, got `object` - at `$.queues`"),
        (b'{"queues": [5]}', "Expected `object`, got `int` - at `$.queues[0]`"),
        (b'{"queues": [{"vhost": "/"}]}', "missing required field `name` - at `$.queues[0]`"),
        (b'{"users": [{"name": 7}]}', "Expected `str`, got `int` - at `$.users[0].name`"),
        (b'{"users": [{"name": "\xff"}]}', "not UTF-8"),
        (b'{"users": [{"name": "\\ud800"}]}', "not JSON"),
        (b'{"users": ' + b"[" * 5_000, "not JSON"),
        (b'{"queues": [{"name": "q", "durable": "yes"}]}', "at `$.queues[0].durable`"),
    ],
)
def test_a_malformed_file_is_refused_with_the_place(data: bytes, reason: str) -> None:
    assert reason in refusal(World(), data)


def test_a_file_with_everything_wrong_names_all_of_it() -> None:
    given = {
        "queues": [
            QUEUE,
            {**QUEUE, "arguments": {"x-max-length": 5}},
            {**QUEUE, "name": "q" * 256},
            {"name": "lost"},
            {**QUEUE, "vhost": "nowhere"},
            {**QUEUE, "name": "big", "arguments": {"x-max-length": 1 << 70}},
        ],
        "permissions": [{"user": "nobody", "vhost": "/", "configure": "", "write": "", "read": ""}],
        "users": [{"name": "none"}, {"name": "u", "password_hash": "###", "tags": []}],
        "bindings": [{**BINDING, "source": ""}],
    }
    text = refusal(World(), given)
    for part in (
        "queue 'q' in vhost '/' is in the file twice, and the two differ",
        "of 256 bytes",
        "queues[3] names no vhost",
        "no vhost 'nowhere'",
        "does not fit into 64 bits",
        "permissions of user 'nobody' in vhost '/': no such user in the file or in the cluster",
        "user 'none': give password, or password_hash",
        "password_hash is not base64",
        "operation not permitted on the default exchange",
    ):
        assert part in text, part


def test_what_exists_with_other_settings_refuses_the_import() -> None:
    world = World()
    world.declare("q", arguments={"x-max-length": 5})
    world.exchange("x", "direct")
    text = refusal(world, {"queues": [QUEUE], "exchanges": [EXCHANGE]})
    assert "inequivalent arg 'x-max-length' for queue 'q' in vhost '/'" in text
    assert "inequivalent arg 'type' for exchange 'x' in vhost '/'" in text


def test_the_last_administrator_stays_one() -> None:
    text = refusal(World(), {"users": [{"name": "guest", "password_hash": "", "tags": []}]})
    assert "no user would have the tag 'administrator'" in text


def test_many_problems_are_counted() -> None:
    text = refusal(World(), {"queues": [{"name": f"q{number}"} for number in range(25)]})
    assert text.count("names no vhost") == 20 and text.endswith("… and 5 more")


def test_a_file_is_only_so_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "OBJECTS_MAX", 2)
    assert load(World(), {"queues": [QUEUE], "users": []}).counts["queues"].created == 1
    text = refusal(World(), {"queues": [QUEUE, QUEUE, QUEUE]})
    assert text.startswith("definitions with 3 objects, 2 is the most; import them in parts")
    monkeypatch.setattr(document, "DOCUMENT_BYTES_MAX", 10)
    assert "10 is the most" in refusal(World(), b'{"queues": []}')


# ------------------------------------------------------------------ exchanges of nodes


def own(vhost: str, name: str, key: str) -> dict[str, Any]:
    return {**BINDING, "vhost": vhost, "source": name, "routing_key": key}


def test_bindings_of_events_are_kept_where_the_exchange_is_yet_to_be_declared() -> None:
    world = World()
    event = "amq.rabbitmq.event"
    keys = ("user.#", "queue.#")
    given = {"queues": [QUEUE], "bindings": [own("/", event, key) for key in keys]}
    for _ in range(2):
        report = load(world, given)
        assert not report.not_honoured
    made = world.state.scopes["/"].exchanges[event]
    assert (made.kind, made.internal, made.durable) == ("topic", True, True)
    found = exported(world).document["bindings"]
    assert [one["routing_key"] for one in found if one["source"] == event] == sorted(keys)
    assert event not in [one["name"] for one in exported(world).document["exchanges"]]


def test_bindings_of_an_exchange_that_this_node_does_not_have_are_named() -> None:
    world = World()
    log = "amq.rabbitmq.log"  # configured for vhost v
    report = load(world, {"queues": [QUEUE], "bindings": [own("/", log, "error")]})
    assert log not in world.state.scopes["/"].exchanges
    assert [log in one.object for one in report.not_honoured] == [True]
    world.do(commands.PutVhost(Vhost("v")))
    report = load(world, {"queues": [{**QUEUE, "vhost": "v"}], "bindings": [own("v", log, "e")]})
    assert not report.not_honoured and log in world.state.scopes["v"].exchanges


# ------------------------------------------------------------------ left out and named


@pytest.mark.parametrize(
    ("given", "name", "key"),
    [
        ({"queues": [{**QUEUE, "exclusive": True}]}, "queue 'q' in vhost '/'", "exclusive"),
        ({"queues": [{**QUEUE, "name": "amq.gen-1"}]}, "queue 'amq.gen-1' in vhost '/'", ""),
        ({"queues": [{**QUEUE, "type": "stream"}]}, "queue 'q' in vhost '/'", "type"),
        (
            {"queues": [{**QUEUE, "arguments": {"x-overflow": "reject-oldest"}}]},
            "queue 'q' in vhost '/'",
            "arguments",
        ),
        ({"exchanges": [{**EXCHANGE, "type": "x-jms"}]}, "exchange 'x' in vhost '/'", "type"),
        ({"exchanges": [{**EXCHANGE, "name": "amq.x"}]}, "exchange 'amq.x' in vhost '/'", ""),
        (
            {"bindings": [BINDING]},
            "binding from exchange 'amq.topic' to queue 'q' with key 'k' in vhost '/'",
            "",
        ),
        (
            {
                "policies": [
                    {"vhost": "/", "name": "p", "pattern": "", "definition": {"max-age": "1D"}}
                ]
            },
            "policy 'p' in vhost '/'",
            "definition.max-age",
        ),
        (
            {"parameters": [{"vhost": "/", "component": "jms", "name": "n", "value": 1}]},
            "parameter 'n' of component 'jms' in vhost '/'",
            "",
        ),
        (
            {"users": [{"name": "u", "password_hash": "", "hashing_algorithm": "own"}]},
            "user 'u'",
            "hashing_algorithm",
        ),
        ({"vhosts": [{"name": "v", "tracing": True}]}, "vhost 'v'", "tracing"),
        ({"vhosts": [{"name": "v", "colour": "red"}]}, "vhosts[0]", "colour"),
        ({"toasters": []}, "the file", "toasters"),
        (
            {"vhosts": [{"name": "v", "metadata": {"default_queue_type": "stream"}}]},
            "vhost 'v'",
            "default_queue_type",
        ),
    ],
)
def test_what_cannot_be_honoured_is_named(given: dict[str, Any], name: str, key: str) -> None:
    """Beside it, everything else is imported."""
    world = World()
    report = load(world, {**given, "global_parameters": [{"name": "beside", "value": 1}]})
    assert key in not_honoured(report)[name]
    assert report.not_honoured_count == len(report.not_honoured)
    assert "beside" in world.state.global_parameters


def test_patterns_that_cannot_be_matched_refuse_the_import() -> None:
    policy = {"vhost": "/", "name": "p", "pattern": "a(?!b)", "definition": {"max-length": 1}}
    told = refusal(World(), {"policies": [policy]})
    assert "policy 'p' in vhost '/'" in told and "pattern has a look-around" in told
    large = {**policy, "pattern": "a.{240}[cd]"}
    many = [{**large, "name": f"p{at}"} for at in range(60)]
    assert "the patterns of the 60 policies of vhost '/'" in refusal(World(), {"policies": many})
    grant = {"user": "guest", "vhost": "/", "configure": "", "write": r"(a)\1", "read": ""}
    told = refusal(World(), {"permissions": [grant]})
    assert "permission pattern write='(a)\\\\1' has a back reference" in told


def test_parameters_and_policies_of_federation_are_imported() -> None:
    world = World()
    value = {"uri": ["amqp://a", "amqp://b"], "max-hops": 1}
    given = {"vhost": "/", "component": "federation-upstream", "name": "up", "value": value}
    definition = {"federation-upstream": "up"}
    policy = {"vhost": "/", "pattern": "^q", "priority": 0, "definition": definition}
    policies = [
        {**policy, "name": "queues", "apply-to": "queues"},
        {**policy, "name": "exchanges", "apply-to": "exchanges"},
    ]
    report = load(world, {"parameters": [given], "policies": policies})
    assert not report.not_honoured
    assert set(world.state.scopes["/"].policies.of(operator=False)) == {"exchanges", "queues"}
    assert world.state.parameters("/")["federation-upstream", "up"].value == value
    given["value"] = {"max-hops": 1}
    assert 'Key "uri" not found in up' in refusal(world, {"parameters": [given]})


def test_keys_that_tell_where_a_file_comes_from_are_no_objects() -> None:
    report = load(World(), {"rabbit_version": "3.8", "rabbitmq_version": "4.3", "queues": []})
    assert report.counts == {} and report.not_honoured == ()


def test_equal_repeats_count_once() -> None:
    world = World()
    report = load(world, {"queues": [QUEUE, QUEUE], "bindings": [BINDING, BINDING]})
    assert report.counts["queues"].created == 1
    assert (report.counts["bindings"].created, report.counts["bindings"].unchanged) == (1, 1)


def test_an_internal_exchange_is_imported() -> None:
    world = World()
    load(world, {"exchanges": [{**EXCHANGE, "internal": True}]})
    assert world.state.scopes["/"].exchanges["x"].internal
    (shown,) = exported(world).document["exchanges"]
    assert shown["internal"] is True, "unlike RabbitMQ's, exports have them: bindings need them"


# ------------------------------------------------------------------ users, vhosts


def test_a_password_in_the_file_is_hashed_once() -> None:
    world = World()
    given = {"users": [{"name": "u", "password": "secret", "tags": "management, monitoring"}]}
    assert load(world, given).created == ("user 'u'",)
    assert world.state.users["u"].tags == ("management", "monitoring")
    known = passwords.hash_password("secret", b"salt")
    load(world, {"users": [{"name": "u", "password_hash": known, "tags": ["management"]}]})
    report = load(world, {"users": [{"name": "u", "password": "secret", "tags": ["management"]}]})
    assert report.unchanged == ("user 'u'",)


@pytest.mark.parametrize("algorithm", passwords.ALGORITHMS)
def test_a_user_with_a_hash_of_any_algorithm_logs_in(algorithm: str) -> None:
    world = World()
    hashed = passwords.hash_password("made-up", b"salt", algorithm)
    given = {"name": "u", "password_hash": hashed, "hashing_algorithm": algorithm, "tags": []}
    load(world, {"users": [given]})
    assert passwords.matches("made-up", world.state.users["u"].password_hash)


def test_what_the_file_does_not_say_of_a_vhost_stays() -> None:
    world = World()
    load(world, {"vhosts": [{"name": "/", "description": "d", "tags": ["t"]}]})
    report = load(world, {"vhosts": [{"name": "/"}]})
    assert report.unchanged == ("vhost '/'",)
    assert world.state.scopes["/"].vhost == Vhost("/", "d", ("t",))


def test_limits_hold_for_what_comes_after_the_import() -> None:
    """A cluster may have more queues than a limit that was set later; its export is imported."""
    world = World()
    other = {**QUEUE, "name": "r"}
    one = {"vhosts": [{"name": "/", "limits": {"max-queues": 1, "max-colours": 3}}]}
    report = load(world, {**one, "queues": [QUEUE, other]})
    assert not_honoured(report) == {"limits of vhost '/'": ["max-colours"]}
    assert world.state.scopes["/"].vhost.limits == {"max-queues": 1}
    text = refusal(world, {"queues": [{**QUEUE, "name": "s"}]})
    assert "queue limit in vhost '/' (1) is reached" in text
    assert load(world, {**one, "queues": [QUEUE, other]}).created == ()
    parameter = {"vhost": "/", "component": "vhost-limits", "name": "limits", "value": {}}
    assert "the two differ" in refusal(world, {**one, "parameters": [parameter]})
    load(world, {"parameters": [parameter], "users": [{"name": "u", "password": "p"}]})
    assert world.state.scopes["/"].vhost.limits == {}
    assert "should be a number" in refusal(
        world, {"users": [{"name": "u", "password": "p", "limits": {"max-channels": "x"}}]}
    )


def test_a_queue_follows_the_policies_of_its_file_from_its_first_message() -> None:
    world = World()
    policy = {"vhost": "/", "name": "p", "pattern": "^q", "definition": {"max-length": 3}}
    load(world, {"policies": [policy], "queues": [QUEUE]})
    queue = world.state.scopes["/"].queues["q"]
    assert queue.initial is not None and queue.initial.max_length == 3
    assert queue.config.max_length is None


def test_a_queue_without_a_type_gets_that_of_its_vhost() -> None:
    world = World()
    vhost = {"name": "v", "metadata": {"default_queue_type": "classic"}}
    load(world, {"vhosts": [vhost], "queues": [{**QUEUE, "vhost": "v"}, QUEUE]})
    named, unnamed = (world.state.scopes[vhost].queues["q"] for vhost in ("v", "/"))
    assert (named.config.kind, named.replicated) == ("classic", False)
    assert named.arguments == {"x-queue-type": "classic"}
    assert (unnamed.config.kind, unnamed.replicated) == ("classic", True)
    assert unnamed.arguments == {}


# ------------------------------------------------------------------ one vhost


def test_a_file_of_one_vhost_goes_into_the_vhost_that_is_named() -> None:
    world = World()
    load(world, {"vhosts": [{"name": "v"}], "queues": [QUEUE], "bindings": [BINDING]})
    alone = exported(world, "/").document
    assert "users" not in alone and "vhost" not in alone["queues"][0]
    assert "queues[0] names no vhost" in refusal(world, alone)
    load(world, alone, "v")
    assert "q" in world.state.scopes["v"].queues
    assert world.state.scopes["v"].bindings.keys() == {"amq.topic"}
    report = load(world, {"users": [{"name": "u"}], "queues": [QUEUE]}, "v")
    assert not_honoured(report) == {"1 users": [""]}
    with pytest.raises(NotFound, match="no vhost 'nowhere'"):
        load(world, alone, "nowhere")


def test_large_integers_and_deep_values() -> None:
    world = World()
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    with pytest.raises((FileRefused, InvalidArgument), match="nested deeper than 128"):
        load(world, {"queues": [{**QUEUE, "arguments": {"x-deep": deep}}]})
    longest = {"x-long": (1 << 63) - 1, "x-float": 2.5, "x-none": None}
    load(world, {"queues": [{**QUEUE, "arguments": longest}]})
    shown = json.loads(json.dumps(exported(world).document))["queues"][0]["arguments"]
    assert shown == {**longest, "x-queue-type": "classic"}


def test_the_importer_of_a_vhost_gets_all_permissions_by_default() -> None:
    """No user could use it before."""
    world = World()
    said = {"user": "guest", "configure": "^c", "write": "^w", "read": "^r"}
    document = {
        "vhosts": [{"name": "new"}, {"name": "said"}, {"name": "/"}],
        "permissions": [{"vhost": "said", **said}],
    }
    before = world.state.grants[("/", "guest", None)]
    load(world, document, importer="guest")
    grants = world.state.grants
    patterns = [(one.configure, one.write, one.read) for one in grants.values() if one.vhost != "/"]
    assert sorted(patterns) == [(".*", ".*", ".*"), ("^c", "^w", "^r")]
    assert grants[("/", "guest", None)] == before, "it was there"
    load(world, {"vhosts": [{"name": "booted"}]}, importer=BY_OPERATOR)
    assert not [key for key in grants if key[0] == "booted"], "no user imports a file at the start"


def test_a_large_import_is_checked_a_little_per_turn() -> None:
    """Before: a file of 100,000 objects was checked in one turn of the node's loop, for seconds."""
    world = World()
    names = [f"n{number}" for number in range(1_000)]
    given = {
        "vhosts": [{"name": "v"}],
        "parameters": [{"component": "none", "name": "same", "vhost": "v", "value": 1}] * 1_000,
        "queues": [{"name": name, "vhost": "v"} for name in names],
        "bindings": [
            {
                "source": "amq.topic",
                "vhost": "v",
                "destination": name,
                "destination_type": "queue",
                "routing_key": name,
            }
            for name in names
        ],
    }
    file = parse(json.dumps(given).encode())
    expected = whole(check_import(file, world.state, Around()))
    steps, taken = Steps(SHARE_STEPS), []
    work = check_import(file, world.state, Around(), steps=steps)
    before = image.to_bytes(world.state)
    found: CheckedImport | None = None
    while found is None:
        start = steps.taken
        try:
            next(work)
        except StopIteration as end:
            found = end.value
        taken.append(steps.taken - start)
        steps.limit = steps.taken + SHARE_STEPS
    assert found == expected and image.to_bytes(world.state) == before
    assert max(taken) < SHARE_STEPS + OBJECT_STEPS * RUN_OBJECTS
    assert sum(taken) > 5_000 * OBJECT_STEPS, "objects of the file, and commands that were tried"
