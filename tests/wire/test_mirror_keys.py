"""The keys of mirrored queues: refusals in RabbitMQ's words, merging, the leader's place."""

from __future__ import annotations

from typing import Any

import pytest

from warren_wire.arguments import QueueDefaults, queue_declaration
from warren_wire.errors import InvalidArgument
from warren_wire.mirror_keys import NEED_A_MODE, MirrorPolicy, mirror_policy
from warren_wire.policy_keys import KEYS, applies_to_queue, check_policy, leader_locator, merged


def set_it(definition: dict[str, Any], operator: bool = False) -> None:
    """Check a policy with that definition."""
    check_policy("p", ".*", definition, 0, "all", operator)


VALID: list[tuple[dict[str, Any], MirrorPolicy | None]] = [
    ({"ha-mode": "all"}, MirrorPolicy("all")),
    ({"ha-mode": "exactly", "ha-params": 2}, MirrorPolicy("exactly", count=2)),
    ({"ha-mode": "exactly", "ha-params": 99}, MirrorPolicy("exactly", count=99)),
    ({"ha-mode": "nodes", "ha-params": ["b", "a", "b"]}, MirrorPolicy("nodes", nodes=("a", "b"))),
    (
        {
            "ha-mode": "all",
            "ha-sync-mode": "automatic",
            "ha-sync-batch-size": 50_000,
            "ha-promote-on-shutdown": "always",
            "ha-promote-on-failure": "when-synced",
        },
        MirrorPolicy("all"),
    ),
    ({"queue-master-locator": "min-masters"}, None),
    ({"queue-master-locator": "client-local", "max-length": 5}, None),
]


@pytest.mark.parametrize(("definition", "policy"), VALID)
@pytest.mark.specification(
    "mirrored-queues: Mirroring parameters are configured using policies",
    "mirrored-queues: Batch can be configured via the ha-sync-batch-size",
)
def test_what_can_be_set(definition: dict[str, Any], policy: MirrorPolicy | None) -> None:
    set_it(definition)
    assert mirror_policy(definition) == policy
    for kind in ("classic", "quorum"):
        assert applies_to_queue("all", definition, kind)  # type: ignore[arg-type]


NO_MODE = "ha-mode must be specified to specify ha-params, ha-sync-mode or ha-promote-on-shutdown"


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ({"ha-params": 2}, NO_MODE),
        ({"ha-sync-mode": "automatic"}, NO_MODE),
        ({"ha-promote-on-shutdown": "always"}, NO_MODE),
        ({"ha-promote-on-failure": "always", "max-length": 1}, NO_MODE),
        ({"ha-sync-batch-size": 5}, NO_MODE),
        ({"ha-mode": "some"}, '<<"some">> is not a valid ha-mode value'),
        ({"ha-mode": 5, "ha-params": 5}, "5 is not a valid ha-mode value"),
        ({"ha-mode": ["all"]}, '[<<"all">>] is not a valid ha-mode value'),
        ({"ha-mode": "all", "ha-params": 2}, 'ha-mode="all" does not take parameters'),
        ({"ha-mode": "exactly"}, 'ha-mode="exactly" takes an integer, none given'),
        ({"ha-mode": "exactly", "ha-params": 0}, 'ha-mode="exactly" takes an integer, 0 given'),
        ({"ha-mode": "exactly", "ha-params": -1}, 'ha-mode="exactly" takes an integer, -1 given'),
        ({"ha-mode": "exactly", "ha-params": 1.5}, 'ha-mode="exactly" takes an integer, 1.5 given'),
        ({"ha-mode": "exactly", "ha-params": True}, 'ha-mode="exactly" takes an integer, true'),
        ({"ha-mode": "exactly", "ha-params": "2"}, 'ha-mode="exactly" takes an integer, <<"2">>'),
        ({"ha-mode": "nodes"}, 'ha-mode="nodes" takes a list, none given'),
        ({"ha-mode": "nodes", "ha-params": "a"}, 'ha-mode="nodes" takes a list, <<"a">> given'),
        ({"ha-mode": "nodes", "ha-params": []}, 'ha-mode="nodes" list must be non-empty'),
        (
            {"ha-mode": "nodes", "ha-params": ["a", 5]},
            'ha-mode="nodes" takes a list of strings, [<<"a">>,5] was not a string',
        ),
        (
            {"ha-mode": "all", "ha-sync-mode": "soon"},
            'ha-sync-mode must be "manual" or "automatic", got <<"soon">>',
        ),
        (
            {"ha-mode": "all", "ha-promote-on-shutdown": True},
            'ha-promote-on-shutdown must be "always" or "when-synced", got true',
        ),
        (
            {"ha-mode": "all", "ha-promote-on-failure": {"x": 1}},
            'ha-promote-on-failure must be "always" or "when-synced", got #{<<"x">> => 1}',
        ),
        (
            {"ha-mode": "all", "ha-sync-batch-size": 0},
            "ha-sync-batch-size takes an integer greater than 0, 0 given",
        ),
        ({"queue-master-locator": "here"}, '<<"here">> is not a valid master locator'),
        ({"queue-master-locator": []}, "[] is not a valid master locator"),
    ],
)
def test_what_is_refused_and_how(definition: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        set_it(definition)
    assert caught.value.detail.startswith(f"Validation failed\n\n{text}")


def test_operator_policies_know_the_mode_its_parameters_and_how_to_synchronise() -> None:
    set_it({"ha-mode": "exactly", "ha-params": 3, "ha-sync-mode": "automatic"}, operator=True)
    for key in ("ha-sync-batch-size", "ha-promote-on-shutdown", "ha-promote-on-failure"):
        assert key in NEED_A_MODE
        with pytest.raises(InvalidArgument, match="are not recognised policy settings"):
            set_it({"ha-mode": "all", key: 1}, operator=True)
    with pytest.raises(InvalidArgument, match="are not recognised policy settings"):
        set_it({"queue-master-locator": "random"}, operator=True)


def of(mode: str, params: Any = None) -> dict[str, Any]:
    """A definition."""
    return {"ha-mode": mode} if params is None else {"ha-mode": mode, "ha-params": params}


@pytest.mark.parametrize(
    ("policy", "operator", "found"),
    [
        (of("all"), of("exactly", 2), MirrorPolicy("all")),
        (of("exactly", 2), of("all"), MirrorPolicy("all")),
        (of("nodes", ["a"]), of("all"), MirrorPolicy("all")),
        (of("exactly", 2), of("exactly", 3), MirrorPolicy("exactly", count=3)),
        (of("exactly", 5), of("exactly", 3), MirrorPolicy("exactly", count=5)),
        (of("nodes", ["a", "b", "c"]), of("exactly", 2), MirrorPolicy("exactly", count=2)),
        (of("exactly", 2), of("nodes", ["a", "b", "c"]), MirrorPolicy("exactly", count=2)),
        (of("nodes", ["a"]), of("nodes", ["b", "c"]), MirrorPolicy("nodes", nodes=("b", "c"))),
        (of("nodes", ["a"]), of("nodes", ["b"]), MirrorPolicy("nodes", nodes=("b",))),
        ({"max-length": 5}, of("exactly", 2), MirrorPolicy("exactly", count=2)),
        (of("exactly", 2), {"max-length": 5}, MirrorPolicy("exactly", count=2)),
    ],
)
def test_both_policies_are_merged_as_rabbitmq_merges_them(
    policy: dict[str, Any], operator: dict[str, Any], found: MirrorPolicy
) -> None:
    assert mirror_policy(merged(policy, operator)) == found


def test_an_operator_decides_how_to_synchronise() -> None:
    one, other = {"ha-sync-mode": "manual"}, {"ha-sync-mode": "automatic"}
    assert merged(one, other) == other
    assert all(KEYS[key].only is None for key in NEED_A_MODE)


@pytest.mark.parametrize(
    ("policy", "arguments", "found"),
    [
        ({}, {}, "client-local"),
        ({"queue-master-locator": "min-masters"}, {}, "balanced"),
        ({"queue-master-locator": "random"}, {}, "balanced"),
        ({"queue-master-locator": "client-local"}, {}, "client-local"),
        ({}, {"x-queue-master-locator": "min-masters"}, "balanced"),
        (
            {"queue-master-locator": "client-local"},
            {"x-queue-master-locator": "min-masters"},
            "client-local",
        ),
        (
            {"queue-leader-locator": "client-local", "queue-master-locator": "random"},
            {},
            "client-local",
        ),
        (
            {"queue-master-locator": "client-local"},
            {"x-queue-leader-locator": "balanced"},
            "balanced",
        ),
    ],
)
@pytest.mark.specification(
    "mirrored-queues: Pick the node hosting the minimum number of bound masters"
)
def test_masters_have_the_place_of_leaders(
    policy: dict[str, Any], arguments: dict[str, Any], found: str
) -> None:
    declared = queue_declaration(
        "/",
        "q",
        durable=True,
        exclusive=False,
        auto_delete=False,
        arguments={"x-queue-type": "classic", **arguments},
        defaults=QueueDefaults(),
    )
    assert leader_locator(declared, policy) == found
