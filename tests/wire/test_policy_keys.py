"""The keys of policies: what is refused and how, which one wins, what a queue's settings become."""

from __future__ import annotations

from typing import Any

import pytest

from warren_wire.arguments import DECLARED, QueueDefaults, queue_declaration
from warren_wire.errors import InvalidArgument
from warren_wire.policy_keys import (
    ARGUMENTS,
    FEDERATION_KEYS,
    KEYS,
    applies_to_queue,
    check_policy,
    effective_config,
    merged,
)
from warren_wire.queue_values.config import QueueConfig

WITHOUT_ARGUMENT = {"alternate-exchange"} | {key for key in KEYS if not KEYS[key].what}
"""Keys with no argument of a queue; those of mirrored queues have test_mirror_keys.py."""


def refusal(definition: Any, operator: bool = False, **more: Any) -> str:
    """The text for a policy that cannot be set."""
    given = {"pattern": ".*", "priority": 0, "apply_to": "all", **more}
    with pytest.raises(InvalidArgument) as caught:
        check_policy("p", definition=definition, operator=operator, **given)
    return caught.value.detail


@pytest.mark.specification("quorum-queues: The below table summarises the policy keys")
def test_every_argument_with_a_policy_key_is_known() -> None:
    without = WITHOUT_ARGUMENT - {"queue-master-locator"}
    assert ARGUMENTS.keys() == KEYS.keys() - without - set(FEDERATION_KEYS)
    others = {"queue-type", "max-priority", "single-active-consumer", "quorum-initial-group-size"}
    assert {row.name for row in ARGUMENTS.values()} == DECLARED.keys() - {f"x-{n}" for n in others}


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ({}, "no policy provided"),
        ({"max-length": -1}, "-1 is not a valid maximum length"),
        ({"max-length": "5"}, '<<"5">> is not a valid maximum length'),
        ({"max-length": True}, "true is not a valid maximum length"),
        ({"max-length": 1.5}, "1.5 is not a valid maximum length"),
        ({"max-length-bytes": -1}, "-1 is not a valid maximum length in bytes"),
        ({"expires": 0}, "0 is not a valid queue expiry"),
        ({"message-ttl": -1}, "-1 is not a valid message TTL"),
        ({"message-ttl": 315_360_000_001}, "315360000001 is not a valid message TTL"),
        ({"delivery-limit": "x"}, '<<"x">> is not a valid delivery limit'),
        ({"dead-letter-exchange": 5}, "5 is not a valid dead letter exchange name"),
        ({"dead-letter-routing-key": 5}, "5 is not a valid dead letter routing key"),
        ({"dead-letter-strategy": "never"}, '<<"never">> is not a valid dead letter strategy'),
        ({"overflow": "block"}, '<<"block">> is not a valid overflow value'),
        ({"consumer-timeout": -1}, "-1 is not a valid consumer timeout"),
        (
            {"consumer-disconnected-timeout": -1},
            "-1 is not a valid consumer disconnected timeout",
        ),
        ({"queue-leader-locator": "x"}, '<<"x">> is not a valid queue leader locator value'),
        ({"target-group-size": 0}, "0 is not a valid qq target count value"),
        ({"alternate-exchange": 5}, "5 is not a valid alternate exchange name"),
        (
            {"unknown": 1, "max-age": "1h"},
            '[{<<"max-age">>,<<"1h">>},{<<"unknown">>,1}] are not recognised policy settings',
        ),
        (
            {"delayed-retry-type": "some", "delayed-retry-min": 5},
            '<<"some">> is not a valid delayed retry type. '
            "Must be one of: all, failed, returned, disabled",
        ),
        ({"delayed-retry-type": 5}, "5 is not a valid delayed retry type. Must be one of: all,"),
        (
            {"delayed-retry-min": 0},
            "0 is not a valid delayed retry minimum delay. Must be a positive integer",
        ),
        ({"delayed-retry-min": True}, "true is not a valid delayed retry minimum delay."),
        (
            {"delayed-retry-max": -1},
            "-1 is not a valid delayed retry maximum delay. Must be a positive integer",
        ),
        (
            {"delayed-retry-type": "all", "delayed-retry-max": 5},
            "delayed-retry-min is required when delayed-retry-type is all",
        ),
        (
            {"delayed-retry-min": 6, "delayed-retry-max": 5},
            "delayed-retry-max (5) must not be smaller than delayed-retry-min (6)",
        ),
        ({"queue-mode": "eager"}, '<<"eager">> is not a valid queue-mode value'),
        ({"queue-version": 3}, "3 is not a valid queue-version value"),
        ({"max-in-memory-length": -1}, "-1 is not a valid maximum memory in bytes"),
        ({"max-in-memory-bytes": "x"}, '<<"x">> is not a valid maximum memory in bytes'),
    ],
)
def test_a_definition_is_refused_in_rabbitmqs_words(definition: dict[str, Any], text: str) -> None:
    assert refusal(definition).startswith(f"Validation failed\n\n{text}")


@pytest.mark.parametrize(
    "key", sorted(key for key in KEYS if KEYS[key].merge is None and KEYS[key].what)
)
def test_operator_policies_refuse_what_they_refuse_in_rabbitmq(key: str) -> None:
    values = {"consumer-timeout": 5, "consumer-disconnected-timeout": 5}
    words = {"queue-leader-locator": "balanced", "queue-mode": "lazy"}
    value = values.get(key, words.get(key, "at-most-once"))
    check_policy("p", ".*", {key: value}, 0, "queues", False)
    assert "are not recognised policy settings" in refusal({key: value}, operator=True)
    assert key in {
        *FEDERATION_KEYS,
        "dead-letter-exchange",
        "dead-letter-routing-key",
        "dead-letter-strategy",
        "consumer-timeout",
        "consumer-disconnected-timeout",
        "queue-leader-locator",
        "queue-mode",
        "alternate-exchange",
    }


def test_the_rest_of_a_policy_is_checked() -> None:
    limit = {"max-length": 1}
    assert "pattern should be regular expression but is invalid" in refusal(limit, pattern="(")
    assert "pattern must not exceed 1024 bytes" in refusal(limit, pattern="a" * 1025)
    assert "apply-to 'streams' unrecognised" in refusal(limit, apply_to="streams")
    assert "priority should be a number" in refusal(limit, priority=1 << 40)
    check_policy("p", "^(?!amq\\.).*", {**limit, "delivery-limit": -1}, -5, "exchanges", True)


def test_an_operator_policy_is_merged_as_rabbitmq_merges_it() -> None:
    policy = {
        "max-length": 10,
        "message-ttl": 10,
        "overflow": "drop-head",
        "delivery-limit": -1,
        "target-group-size": 3,
        "dead-letter-exchange": "x",
    }
    operator = {
        "max-length": 20,
        "message-ttl": 5,
        "overflow": "reject-publish",
        "delivery-limit": 7,
        "target-group-size": 5,
        "expires": 1000,
    }
    assert merged(policy, operator) == {
        "dead-letter-exchange": "x",
        "delivery-limit": 7,
        "expires": 1000,
        "max-length": 10,
        "message-ttl": 5,
        "overflow": "reject-publish",
        "target-group-size": 5,
    }
    assert merged({"delivery-limit": 3}, {"delivery-limit": 9}) == {"delivery-limit": 3}


def declared(arguments: dict[str, Any], kind: str = "quorum") -> QueueConfig:
    """The settings of a declaration."""
    return queue_declaration(
        "/",
        "q",
        durable=True,
        exclusive=False,
        auto_delete=False,
        arguments={"x-queue-type": kind, **arguments},
        defaults=QueueDefaults(consumer_timeout_ms=900),
    ).config


@pytest.mark.parametrize(
    ("argument", "value", "key", "policy", "field", "expected"),
    [
        ("x-max-length", 5, "max-length", 9, "max_length", 5),
        ("x-max-length", 9, "max-length", 5, "max_length", 5),
        ("x-max-length-bytes", 9, "max-length-bytes", 5, "max_length_bytes", 5),
        ("x-expires", 9, "expires", 5, "expires_ms", 5),
        ("x-message-ttl", 9, "message-ttl", 5, "message_ttl_ms", 5),
        ("x-message-ttl", 5, "message-ttl", 9, "message_ttl_ms", 5),
        ("x-dead-letter-exchange", "a", "dead-letter-exchange", "p", "dead_letter_exchange", "a"),
        ("x-delivery-limit", 5, "delivery-limit", 50, "delivery_limit", 5),
        ("x-delivery-limit", -1, "delivery-limit", 50, "delivery_limit", 50),
        ("x-delivery-limit", 5, "delivery-limit", -1, "delivery_limit", 5),
        ("x-overflow", "drop-head", "overflow", "reject-publish", "overflow", "reject-publish"),
        ("x-consumer-timeout", 9, "consumer-timeout", 5, "consumer_timeout_ms", 5),
        ("x-consumer-timeout", 5, "consumer-timeout", 9, "consumer_timeout_ms", 5),
        (
            "x-consumer-disconnected-timeout",
            9,
            "consumer-disconnected-timeout",
            5,
            "consumer_disconnected_timeout_ms",
            5,
        ),
    ],
)
def test_policy_against_argument(
    argument: str, value: Any, key: str, policy: Any, field: str, expected: Any
) -> None:
    given = {argument: value}
    config = declared(given)
    found = effective_config(config, given, {key: policy})
    assert getattr(found, field) == expected
    alone = effective_config(declared({}), {}, {key: policy})
    assert getattr(alone, field) == policy, "without the argument the policy's value is taken"
    assert effective_config(config, given, {}) == config, "without a policy the argument's"


def test_a_policy_raises_a_default() -> None:
    assert effective_config(declared({}), {}, {"delivery-limit": 50}).delivery_limit == 50
    assert effective_config(declared({}), {}, {"delivery-limit": -5}).delivery_limit == -1
    longer = effective_config(declared({}), {}, {"consumer-timeout": 5000})
    assert longer.consumer_timeout_ms == 5000, "the node's default gives way"


def test_a_classic_queue_prefers_its_own_overflow() -> None:
    given = {"x-overflow": "drop-head"}
    found = effective_config(declared(given, "classic"), given, {"overflow": "reject-publish"})
    assert found.overflow == "drop-head"


@pytest.mark.parametrize(
    ("given", "policy", "expected"),
    [
        ((None, None, None), ("all", 5, 9), ("all", 5, 9)),
        ((None, None, None), ("all", 5, None), ("all", 5, None)),
        (("failed", 7, 8), ("all", 5, 9), ("all", 5, 8)),
        (("failed", 3, 8), ("all", 5, 4), ("all", 3, 4)),
        (("failed", 7, 8), ("disabled", None, None), ("disabled", None, None)),
        (("failed", 7, 8), (None, 5, None), ("failed", 5, 8)),
        (("failed", 7, 8), (None, None, 5), ("failed", 7, 5)),
        (("failed", None, None), (None, 5, None), ("failed", 5, None)),
        ((None, None, None), (None, 5, 9), ("disabled", None, None)),
        (("all", "x", True), ("all", 5, 9), ("all", 5, 9)),  # in Erlang a word is above a number
        (("all", -7, 8), ("all", 5, 9), ("disabled", None, None)),
        (("all", 1.5, 8), ("all", 5, 9), ("disabled", None, None)),
        (("all", 7, 0), ("all", 5, 9), ("all", 5, None)),
        (("word", 7, 8), ("all", 5, 9), ("all", 5, 8)),
    ],
)
@pytest.mark.specification("quorum-queues: Delayed retry can be configured via queue arguments")
def test_delayed_retry_by_policy_and_argument(given: Any, policy: Any, expected: Any) -> None:
    names = ("type", "min", "max")
    arguments = {
        f"x-delayed-retry-{n}": v for n, v in zip(names, given, strict=True) if v is not None
    }
    definition = {
        f"delayed-retry-{n}": v for n, v in zip(names, policy, strict=True) if v is not None
    }
    found = effective_config(declared(arguments), arguments, definition)
    assert (
        found.delayed_retry_type,
        found.delayed_retry_min_ms,
        found.delayed_retry_max_ms,
    ) == expected
    classic = effective_config(declared({}, "classic"), {}, definition)
    assert classic == declared({}, "classic"), "it applies to classic queues without effect"
    assert applies_to_queue("all", definition, "classic")


def test_an_operators_delays_are_merged_as_rabbitmq_merges_them() -> None:
    policy = {"delayed-retry-type": "all", "delayed-retry-min": 5, "delayed-retry-max": 50}
    operator = {"delayed-retry-type": "failed", "delayed-retry-min": 7, "delayed-retry-max": 40}
    assert merged(policy, operator) == {**operator}
    assert merged(operator, policy) == {**operator, "delayed-retry-type": "all"}


def test_the_dead_letter_strategy_by_policy_and_argument() -> None:
    policy = {
        "dead-letter-strategy": "at-least-once",
        "overflow": "reject-publish",
        "dead-letter-exchange": "dlx",
    }
    check_policy("p", ".*", policy, 0, "queues", False)
    assert effective_config(declared({}), {}, policy).keeps_letters
    own = {"x-dead-letter-strategy": "at-most-once"}
    assert not effective_config(declared(own), own, policy).keeps_letters, "the argument goes first"
    drops = {"x-overflow": "drop-head"}
    assert effective_config(declared(drops), drops, policy).keeps_letters, "the policy goes first"
    assert not applies_to_queue("all", policy, "classic")


def test_historical_keys_change_nothing() -> None:
    definition = {"queue-version": 2, "max-in-memory-length": 5, "max-in-memory-bytes": 5}
    check_policy("p", ".*", definition, 0, "all", True)
    assert effective_config(declared({}), {}, definition) == declared({})
    assert applies_to_queue("all", definition, "quorum")
    assert not applies_to_queue("all", definition, "classic")
    check_policy("p", ".*", {"queue-mode": "lazy"}, 0, "all", False)
    assert applies_to_queue("all", {"queue-mode": "lazy"}, "classic")
    assert not applies_to_queue("all", {"queue-mode": "lazy"}, "quorum")


def test_a_policy_with_a_key_of_the_other_kind_does_not_apply() -> None:
    assert applies_to_queue("queues", {"delivery-limit": 5}, "quorum")
    assert not applies_to_queue("queues", {"delivery-limit": 5, "max-length": 1}, "classic")
    assert applies_to_queue("classic_queues", {"max-length": 1}, "classic")
    assert not applies_to_queue("classic_queues", {"max-length": 1}, "quorum")
    assert not applies_to_queue("exchanges", {"max-length": 1}, "quorum")
