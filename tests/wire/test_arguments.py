"""Arguments of queues and consumers: bounds, texts, what becomes of them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from warren_wire import arguments
from warren_wire.amqp091.fields import Field, Timestamp
from warren_wire.arguments import QueueDefaults, queue_declaration
from warren_wire.errors import InvalidArgument, PreconditionFailed, Refusal


def declare(
    given: dict[str, Any] | None = None,
    *,
    durable: bool = True,
    exclusive: bool = False,
    auto_delete: bool = False,
    name: str = "q",
    **defaults: Any,
) -> Any:
    return queue_declaration(
        "/",
        name,
        durable=durable,
        exclusive=exclusive,
        auto_delete=auto_delete,
        arguments=given or {},
        defaults=QueueDefaults(**defaults),
    )


@pytest.mark.specification(
    "quorum-queues: To declare a quorum queue set",
    "quorum-queues: will declare a quorum queue with up to three members",
    "quorum-queues: Sets the default quorum queue cluster size",
)
def test_a_durable_queue_is_a_quorum_queue_where_that_is_asked() -> None:
    asked = (
        declare({"x-queue-type": "quorum"}),
        declare(kind="quorum"),
        declare({"x-dead-letter-strategy": "at-most-once"}),
    )
    for declaration in asked:
        assert declaration.config.kind == "quorum" and not declaration.config.replicated
        assert declaration.config.delivery_limit == 20
        assert (declaration.config.priority_max, declaration.config.priority_default) == (31, 4)
        assert (declaration.group_size, declaration.leader_locator) == (3, "client-local")
    assert [each.by_default for each in asked] == ["", "quorum", "quorum"]


def test_a_durable_queue_of_which_no_type_is_asked_is_classic_with_several_members() -> None:
    for none in ({}, {"x-queue-type": ""}, {"x-queue-type": "undefined"}):
        untyped = declare(none)
        named = declare({"x-queue-type": "classic"})
        assert untyped.config == replace(named.config, replicated=True)
        assert untyped.config.delivery_limit == -1
        assert (untyped.config.priority_max, untyped.config.priority_default) == (0, 0)
        assert (untyped.group_size, named.group_size, untyped.by_default) == (3, 1, "")


def test_a_default_type_is_as_if_it_had_been_named() -> None:
    named = declare(kind="classic")
    assert (named.by_default, named.group_size) == ("classic", 1)
    with pytest.raises(InvalidArgument, match="of queue type rabbit_classic_queue"):
        declare({"x-dead-letter-strategy": "at-most-once"}, kind="classic")
    with pytest.raises(InvalidArgument, match="of queue type rabbit_quorum_queue"):
        declare({"x-queue-mode": "lazy"}, kind="quorum")
    assert declare(durable=False, kind="quorum").by_default == ""


@pytest.mark.parametrize(
    "flags",
    [
        {"durable": False},
        {"exclusive": True},
        {"durable": False, "auto_delete": True},
        {"durable": False, "exclusive": True, "auto_delete": True},
    ],
)
def test_temporary_queues_are_classic_by_default(flags: dict[str, bool]) -> None:
    declaration = declare(**flags)
    assert declaration.config.kind == "classic"
    assert declaration.config.delivery_limit == -1
    assert declaration.group_size == 1


def test_a_durable_auto_delete_queue_is_replicated_unless_it_asks_for_a_type() -> None:
    declaration = declare(auto_delete=True)
    assert declaration.config == replace(declare().config, auto_delete=True)
    assert declaration.group_size == 3
    for asked in (
        declare({"x-queue-type": "classic"}, auto_delete=True),
        declare(auto_delete=True, kind="classic"),
    ):
        assert (asked.config.kind, asked.group_size) == ("classic", 1)


@pytest.mark.specification("mirrored-queues: They are also never durable")
def test_an_exclusive_queue_is_never_durable() -> None:
    assert not declare(exclusive=True, durable=True).config.durable


@pytest.mark.parametrize(
    "flags, flaw",
    [
        ({"durable": False}, "non-durable"),
        ({"exclusive": True}, "exclusive-owner"),
        ({"auto_delete": True}, "auto-delete"),
    ],
)
@pytest.mark.specification(
    "quorum-queues: Non-durable queues",
    "quorum-queues: Exclusivity",
    "quorum-queues: Quorum queues are always durable",
)
def test_quorum_asked_for_by_name_must_be_possible(flags: dict[str, bool], flaw: str) -> None:
    with pytest.raises(PreconditionFailed) as caught:
        declare({"x-queue-type": "quorum"}, **flags)
    assert caught.value.reply_text == (
        f"PRECONDITION_FAILED - invalid property '{flaw}' for queue 'q' in vhost '/'"
    )


def test_a_dead_letter_exchange_that_is_no_string() -> None:
    with pytest.raises(InvalidArgument) as caught:
        declare({"x-dead-letter-exchange": 7})
    assert caught.value.detail == (
        "invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue 'q' in vhost '/'"
    )


@pytest.mark.parametrize("size", [200, 238, 239, 500])
def test_a_text_that_is_cut_says_so(size: int) -> None:
    text = PreconditionFailed("x" * (size - 22)).reply_text
    assert len(text) == min(size, 255)
    assert text.endswith("...") == (size > 255)


def test_everything_reaches_the_config() -> None:
    given = {
        "x-queue-type": "quorum",
        "x-max-length": 10,
        "x-max-length-bytes": 1000,
        "x-overflow": "reject-publish",
        "x-message-ttl": 0,
        "x-expires": 1,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
        "x-delivery-limit": 3,
        "x-single-active-consumer": True,
        "x-consumer-timeout": 5000,
        "x-consumer-disconnected-timeout": 70,
        "x-quorum-initial-group-size": 5,
        "x-queue-leader-locator": "balanced",
        "x-something-else": [1, {"a": None}],
    }
    declaration = declare(given)
    config = declaration.config
    assert (config.max_length, config.max_length_bytes) == (10, 1000)
    assert (config.overflow, config.message_ttl_ms, config.expires_ms) == ("reject-publish", 0, 1)
    assert (config.dead_letter_exchange, config.dead_letter_routing_key) == ("", "dead")
    assert (config.delivery_limit, config.single_active_consumer) == (3, True)
    assert (config.consumer_timeout_ms, config.consumer_disconnected_timeout_ms) == (5000, 70)
    assert (declaration.group_size, declaration.leader_locator) == (5, "balanced")
    assert declaration.arguments == given


@pytest.mark.specification("quorum-queues: The default delivery limit can be disabled")
def test_no_delivery_limit() -> None:
    assert declare({"x-delivery-limit": -1}).config.delivery_limit == -1
    assert declare({"x-delivery-limit": -7}).config.delivery_limit == -1


def test_settings_are_the_defaults() -> None:
    config = declare(kind="classic", consumer_timeout_ms=9).config
    assert (config.kind, config.consumer_timeout_ms) == ("classic", 9)


def test_max_priority_has_its_own_default_priority() -> None:
    config = declare({"x-max-priority": 10}).config
    assert (config.priority_max, config.priority_default) == (10, 0)
    assert declare({"x-max-priority": 255}).config.priority_max == 31


REFUSED = [
    ({"x-expires": 0}, "{value_zero,0}"),
    ({"x-expires": -1}, "{value_negative,-1}"),
    ({"x-message-ttl": -1}, "{value_negative,-1}"),
    ({"x-message-ttl": 315_360_000_001}, "{value_too_large,315360000001}"),
    ({"x-message-ttl": "60"}, '"expected integer, got longstr"'),
    ({"x-max-length": True}, '"expected integer, got bool"'),
    ({"x-max-length": 1.5}, '"expected integer, got double"'),
    ({"x-max-priority": 256}, "{max_value_exceeded,256}"),
    ({"x-max-priority": -1}, "{value_negative,-1}"),
    ({"x-overflow": "drop-tail"}, "invalid_overflow"),
    ({"x-overflow": 1}, "{unacceptable_type,signedint}"),
    ({"x-queue-type": "stream"}, "\"unsupported queue type 'stream'\""),
    ({"x-dead-letter-routing-key": "k"}, "routing_key_but_no_dlx_defined"),
    ({"x-dead-letter-strategy": "exactly-once"}, "invalid_dlx_strategy"),
    ({"x-single-active-consumer": 1}, "{unacceptable_type,signedint}"),
    ({"x-queue-leader-locator": "here"}, "invalid_queue_locator_arg"),
    ({"x-quorum-initial-group-size": 0}, "{value_zero,0}"),
]


@pytest.mark.parametrize("given, problem", REFUSED)
def test_what_cannot_be_is_refused_in_rabbitmqs_words(given: dict[str, Any], problem: str) -> None:
    (name,) = given
    with pytest.raises(InvalidArgument) as caught:
        declare(given)
    assert caught.value.reply_code == 406
    assert caught.value.detail == f"invalid arg '{name}' for queue 'q' in vhost '/': {problem}"


def test_a_promise_that_would_not_be_kept_is_refused() -> None:
    given = {"x-overflow": "reject-publish-dlx"}
    assert declare(given).config.overflow == "reject-publish-dlx"
    with pytest.raises(InvalidArgument, match="quorum queues have no reject-publish-dlx"):
        declare({"x-queue-type": "quorum", **given})


@pytest.mark.parametrize(
    "given, effective",
    [
        ({}, ("disabled", None, None)),
        ({"type": "disabled", "min": 5}, ("disabled", None, None)),
        ({"type": "all"}, ("disabled", None, None)),
        ({"min": 5, "max": 9}, ("disabled", None, None)),
        ({"type": "all", "min": 5}, ("all", 5, None)),
        ({"type": "failed", "min": 5, "max": 50}, ("failed", 5, 50)),
        ({"type": "returned", "min": 5, "max": 4}, ("returned", 5, 4)),
        ({"type": "All", "min": 5}, ("disabled", None, None)),
        ({"type": ["all"], "min": 5}, ("disabled", None, None)),
        ({"type": "all", "min": 0}, ("disabled", None, None)),
        ({"type": "all", "min": -1}, ("disabled", None, None)),
        ({"type": "all", "min": True}, ("disabled", None, None)),
        ({"type": "all", "min": "5"}, ("disabled", None, None)),
        ({"type": "all", "min": 5, "max": 0}, ("all", 5, None)),
        ({"type": "all", "min": 5, "max": b"9"}, ("all", 5, None)),
    ],
)
def test_delayed_retry_takes_any_value_as_rabbitmq_does(
    given: dict[str, Any], effective: tuple[str, int | None, int | None]
) -> None:
    made = declare({f"x-delayed-retry-{name}": value for name, value in given.items()})
    config = made.config
    found = config.delayed_retry_type, config.delayed_retry_min_ms, config.delayed_retry_max_ms
    assert found == effective
    assert made.arguments == {f"x-delayed-retry-{name}": value for name, value in given.items()}


@pytest.mark.parametrize("name", ["type", "min", "max"])
def test_classic_queues_refuse_delayed_retry(name: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        declare({"x-queue-type": "classic", f"x-delayed-retry-{name}": "disabled"})
    assert caught.value.reply_code == 406
    assert caught.value.detail == (
        f"invalid arg 'x-delayed-retry-{name}' for queue 'q' in vhost '/' of queue type "
        "rabbit_classic_queue"
    )


ONCE = {"x-dead-letter-strategy": "at-least-once"}
LETTERS = {**ONCE, "x-overflow": "reject-publish", "x-dead-letter-exchange": ""}


@pytest.mark.parametrize(
    "given, keeps",
    [
        (LETTERS, True),
        ({**LETTERS, "x-overflow": "drop-head"}, False),
        ({**ONCE, "x-dead-letter-exchange": "dlx"}, False),
        ({**ONCE, "x-overflow": "reject-publish"}, False),
        ({**LETTERS, "x-dead-letter-strategy": "at-most-once"}, False),
    ],
)
@pytest.mark.specification(
    "quorum-queues: at-least-once dead lettering does not work with the default",
    "at-least-once-dead-lettering: Setting overflow to drop-head will make dead letter",
)
def test_at_least_once_falls_back_where_it_cannot_be(given: dict[str, Any], keeps: bool) -> None:
    assert declare(given).config.keeps_letters is keeps


@pytest.mark.specification(
    "at-least-once-dead-lettering: For at-least-once dead lettering to work it must be of"
)
def test_a_classic_queue_refuses_a_dead_letter_strategy() -> None:
    with pytest.raises(InvalidArgument, match="x-dead-letter-strategy.*rabbit_classic_queue"):
        declare({**LETTERS, "x-queue-type": "classic"})


def test_classic_arguments_on_a_queue_that_asks_for_quorum() -> None:
    declare({"x-queue-mode": "lazy"})
    with pytest.raises(InvalidArgument, match="of queue type rabbit_quorum_queue"):
        declare({"x-queue-mode": "lazy", "x-queue-type": "quorum"})


def test_stream_arguments_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="invalid arg 'x-max-age'"):
        declare({"x-max-age": "1D"})


def test_long_names_are_refused() -> None:
    declare(name="é" * 127)
    with pytest.raises(PreconditionFailed, match="256 bytes"):
        declare(name="é" * 128)


def test_values_become_plain() -> None:
    given = {
        "a": Field("b", 1),
        "b": Timestamp(7),
        "c": Decimal("1.5"),
        "d": memoryview(b"x"),
        "e": [Field("t", True), {"f": None}],
        "g": 2.5,
    }
    made = arguments.plain(given)
    assert made == {"a": 1, "b": 7, "c": "1.5", "d": b"x", "e": [True, {"f": None}], "g": 2.5}
    assert type(made["b"]) is int and type(made["a"]) is int


@pytest.mark.parametrize(
    "flags",
    [
        {"durable": False},
        {"exclusive": True},
        {"auto_delete": True},
        {"kind": "classic"},
        {"asked": {"x-queue-type": "classic"}},
    ],
)
@pytest.mark.parametrize("name", ["x-quorum-initial-group-size", "x-quorum-target-group-size"])
@pytest.mark.parametrize("value", [1, "x"])
def test_a_classic_queue_has_no_group_size(flags: dict[str, Any], name: str, value: Any) -> None:
    flags = dict(flags)
    given = {name: value, **flags.pop("asked", {})}
    with pytest.raises(InvalidArgument) as caught:
        declare(given, **flags)
    assert caught.value.reply_text == (
        f"PRECONDITION_FAILED - invalid arg '{name}' for queue 'q' in vhost '/' of queue type "
        "rabbit_classic_queue"
    )


def test_nesting_is_bounded() -> None:
    value: Any = 1
    for _ in range(140):
        value = [value]
    with pytest.raises(PreconditionFailed, match="nested"):
        arguments.plain(value)


def test_consumers() -> None:
    checked = arguments.consume_arguments("/", "q", "quorum", {"x-priority": -3})
    assert (checked.priority, checked.timeout_ms) == (-3, None)
    checked = arguments.consume_arguments("/", "q", "classic", {"x-consumer-timeout": 10})
    assert (checked.priority, checked.timeout_ms) == (0, 10)
    for given in ({"x-priority": "high"}, {"x-consumer-timeout": -1}, {"x-stream-offset": "next"}):
        with pytest.raises(InvalidArgument) as caught:
            arguments.consume_arguments("/", "q", "quorum", given)
        assert next(iter(given)) in caught.value.detail


def check(current: dict[str, Any], received: dict[str, Any], kind: str = "quorum") -> None:
    arguments.check_equivalent_arguments(
        "/",
        "q",
        kind,
        current,
        received,  # type: ignore[arg-type]
    )


def test_equivalence() -> None:
    check({}, {})
    check({"x-max-length": 5, "x-other": 1}, {"x-max-length": 5, "x-other": 2})
    check({}, {"x-queue-type": "quorum"})
    check({"x-queue-type": "classic"}, {}, "classic")
    with pytest.raises(PreconditionFailed) as caught:
        check({"x-max-length": 5}, {})
    assert caught.value.detail == (
        "inequivalent arg 'x-max-length' for queue 'q' in vhost '/': "
        "received none but current is the value '5' of type 'signedint'"
    )
    with pytest.raises(PreconditionFailed) as caught:
        check({"x-queue-type": "classic"}, {"x-queue-type": "quorum"}, "classic")
    assert caught.value.detail == (
        "inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received the value 'quorum' "
        "of type 'longstr' but current is the value 'classic' of type 'longstr'"
    )
    with pytest.raises(Refusal):
        check({"x-single-active-consumer": True}, {"x-single-active-consumer": False})


def test_every_declared_argument_is_in_the_table_once() -> None:
    places = [(row.name, row.at) for row in arguments.TABLE]
    assert len(places) == len(set(places))


def test_names_that_are_no_text_are_refused() -> None:
    """They would end the node that writes them down."""
    for bad in ({"\udcff": 1}, {"a": {"\udcff": 1}}, {"a": [{"b\udcc3": 1}]}):
        with pytest.raises(PreconditionFailed, match="not UTF-8"):
            arguments.storable(bad)
    assert arguments.storable({"é": {"ü": [b"\xff"]}}) == {"é": {"ü": [b"\xff"]}}


@pytest.mark.parametrize("number", [1 << 64, -(1 << 63) - 1, 1 << 80])
def test_numbers_that_no_answer_can_show_are_refused(number: int) -> None:
    """A list of all queues would fail in the encoder."""
    for given in ({"x-max-length": number}, {"of-mine": [{"deep": number}]}):
        with pytest.raises(PreconditionFailed, match=f"number {number} is not from"):
            arguments.storable(given)
    assert arguments.storable({"a": (1 << 64) - 1, "b": [-(1 << 63), True]})


def test_a_dead_letters_routing_key_fits_a_frame() -> None:
    given = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "k" * 255}
    declare(given)
    with pytest.raises(InvalidArgument, match="routing_key_too_long,256"):
        declare({**given, "x-dead-letter-routing-key": "k" * 256})


def test_an_argument_sets_the_field_with_its_name() -> None:
    fields = set(declare().config.__struct_fields__)
    flags = {"vhost", "name", "kind", "durable", "exclusive", "auto_delete", "replicated"}
    assert fields - set(arguments.FIELDS.values()) == flags | {"priority_max", "priority_default"}
    set_by = {field: name for name, field in arguments.FIELDS.items()}
    assert (set_by["max_length"], set_by["expires_ms"]) == ("x-max-length", "x-expires")
