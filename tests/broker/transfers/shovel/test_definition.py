"""What a shovel's parameter may say, and what is shown of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from warren_broker.admin.parameters import _put_parameter
from warren_wire.admin.resources import parse_request
from warren_wire.errors import InvalidArgument
from warren_wire.links.definition import ShovelDefinition, parse_shovel, with_pause
from warren_wire.links.uris import parse_shovel_uri, without_passwords

LEAST: dict[str, Any] = {
    "src-uri": "amqp://",
    "src-queue": "a",
    "dest-uri": "amqp://far",
    "dest-queue": "a",
}


def made(**more: Any) -> ShovelDefinition:
    """A shovel with more keys, `_` for `-`; None: without it."""
    given = {**LEAST, **{key.replace("_", "-"): value for key, value in more.items()}}
    return parse_shovel("/", "s", {key: one for key, one in given.items() if one is not None})


def test_the_defaults_are_those_of_rabbitmq() -> None:
    plain = made()
    assert (plain.ack_mode, plain.prefetch, plain.delete_after) == ("on-confirm", 1_000, "never")
    assert (plain.reconnect_delay_s, plain.forward_headers) == (1, False)
    assert plain.source.uris[0].host == "" and plain.destination.uris[0].port == 5672


def test_a_pause_is_a_key_that_goes_with_it() -> None:
    assert not made().paused and made(paused=True).paused
    paused = with_pause(LEAST, True)
    assert paused == {**LEAST, "paused": True} and with_pause(paused, True) == paused
    assert with_pause(paused, False) == LEAST == with_pause(LEAST, False)
    with pytest.raises(InvalidArgument, match="paused should be boolean"):
        made(paused="yes")


def test_old_names_mean_the_same_and_new_ones_count_first() -> None:
    assert made(prefetch_count=5).prefetch == 5
    assert made(delete_after="queue-length").delete_after == "queue-length"
    assert made(add_forward_headers=True).forward_headers
    assert made(prefetch_count=5, src_prefetch_count=6).prefetch == 6


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"src_queue": None}, "Must specify 'src-exchange' or 'src-queue'"),
        ({"src_exchange": "x"}, "Cannot specify 'src-exchange' and 'src-queue'"),
        ({"dest_exchange": "x"}, "Cannot specify 'dest-exchange' and 'dest-queue'"),
        ({"src_uri": None}, 'Key "src-uri" not found'),
        ({"src_uri": []}, "src-uri should be a URI or a list of URIs"),
        ({"src_uri": ["amqp://"] * 65}, "src-uri has 65 URIs, 64 is the most"),
        (
            {"src_uri": "amqp://h?auth_mechanism=cram"},
            "src-uri has auth_mechanism='cram'; known are plain, external",
        ),
        (
            {"src_uri": "amqp://h?auth_mechanism=cram&auth_mechanism=plain"},
            "src-uri has the option 'auth_mechanism' more than once",
        ),
        ({"src_uri": "http://h"}, "src-uri is not a valid URI: write amqp://"),
        ({"dest_uri": "amqp://h:0"}, "a port from 1 to 65535"),
        ({"dest_uri": "amqp://u:p/w@h"}, "USER:PASSWORD@, percent-encoded"),
        ({"dest_uri": "amqp://u:***@h"}, "lists show instead of one"),
        ({"dest_uri": "amqp://h?colour=1"}, "dest-uri has the option 'colour'; known are"),
        ({"dest_uri": "amqp://h?cacertfile=f"}, "which needs amqps://"),
        ({"dest_uri": "amqps://h?verify=yes"}, "known are verify_peer, verify_none"),
        ({"dest_uri": "amqp://h?heartbeat=x"}, "a number from 0 to 65535 is expected"),
        ({"dest_uri": "amqp://h?auth_mechanism=x"}, "known are plain, external"),
        ({"dest_protocol": "local"}, "dest-protocol 'local' is not supported"),
        ({"src_colour": 1}, "unknown keys src-colour; known are"),
        ({"src_prefetch_count": 0}, "src-prefetch-count=0: a number from 1 to 65535 is expected"),
        ({"src_prefetch_count": 1.5}, "src-prefetch-count=1.5: a number from 1"),
        ({"src_delete_after": "soon"}, "should be a number greater than or equal to 0"),
        ({"src_delete_after": -1}, "should be a number greater than or equal to 0"),
        ({"src_delete_after": True}, "should be a number greater than or equal to 0"),
        ({"src_delete_after": 5, "ack_mode": "no-ack"}, "Cannot specify 'no-ack' and numerical"),
        ({"ack_mode": "maybe"}, "ack-mode should be one of no-ack, on-publish, on-confirm"),
        ({"reconnect_delay": -1}, "reconnect-delay=-1: a number from 0 to 86400 is expected"),
        ({"src_consumer_args": []}, "src-consumer-args=[]: a map is expected"),
        ({"src_predeclared": 1}, "src-predeclared=1: true or false is expected"),
        ({"dest_publish_properties": {"headers": {}}}, "dest-publish-properties has 'headers'"),
        ({"dest_publish_properties": {"priority": 300}}, "priority=300: a number from 0 to 255"),
        ({"dest_publish_properties": {"app_id": 1}}, "a string of at most 255 bytes is expected"),
        ({"dest_uri": "amqp://"}, "the source and the destination are the same"),
        ({"dest_uri": "amqp:///%2F", "dest_queue": None}, "would come back to it"),
        (
            {
                "dest_uri": "amqp://",
                "dest_queue": None,
                "dest_exchange": "",
                "dest_exchange_key": "a",
            },
            "the source and the destination are the same",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(more: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        made(**more)
    assert reason in refused.value.detail
    assert "p/w" not in refused.value.detail


@pytest.mark.parametrize(
    "more",
    [
        {"dest_uri": "amqp://", "dest_queue": "b"},
        {"dest_uri": "amqp:///other"},
        {"dest_uri": "amqp://", "dest_queue": None, "dest_exchange": "x"},
    ],
)
def test_a_shovel_within_a_cluster_is_no_loop(more: dict[str, Any]) -> None:
    made(**more)


def test_a_uri_is_read_as_rabbitmq_reads_it() -> None:
    plain = parse_shovel_uri(
        "src-uri", "amqps://u%40:p%2F@[::1]:99/a%2Fb?heartbeat=5&verify=verify_none"
    )
    assert (plain.user, plain.password, plain.host, plain.port) == ("u@", "p/", "::1", 99)
    assert (plain.vhost, plain.options["heartbeat"]) == ("a/b", "5")
    assert str(plain) == "amqps://u%40@[::1]:99/a%2Fb"
    own = parse_shovel_uri("src-uri", "amqp://u:secret@/%2F")
    assert (own.host, own.vhost, own.password) == ("", "/", "secret")
    assert "secret" not in repr(own) and "secret" not in str(own)


def test_no_listing_has_a_password() -> None:
    value = {
        "src-uri": ["amqp://u:secret@h/v", "amqps://h?certfile=a&password=secret&verify=x"],
        "dest-uri": "amqp://u:secret@",
        "src-queue": "amqp://u:kept@",
    }
    shown = without_passwords(value)
    assert "secret" not in json.dumps(shown) and "kept" in json.dumps(shown)
    assert shown["src-uri"][0] == "amqp://u:***@h/v"
    assert without_passwords([{"uri": "amqp://u:secret@h"}]) == [{"uri": "amqp://u:***@h"}]
    assert without_passwords({"uri": "amqp://u:secr/et@h"}) == {"uri": "amqp://u:***@h"}
    assert without_passwords({"uri": "amqp://h:5672/v"}) == {"uri": "amqp://h:5672/v"}
    for option in ("pass%77ord", "%70assword", "pass%77%6frd", "PASSWORD", "password+"):
        shown = without_passwords({"uri": f"amqps://h/v?verify=x&{option}=secret&certfile=a#f"})
        assert shown == {"uri": f"amqps://h/v?verify=x&{option}=***&certfile=a#f"}


def test_setting_a_shovel_checks_it() -> None:
    value = {**LEAST, "src-protocol": "amqp10"}
    with pytest.raises(InvalidArgument, match='Key "src-address" not found in s'):
        request = parse_request("PUT", "/parameters/shovel/%2F/s", {"value": value})
        _put_parameter(None, request, None)  # type: ignore[arg-type]
    parse_request("PUT", "/parameters/shovel/%2F/s", {"value": LEAST})


# ------------------------------------------------------------------ AMQP 1.0

OVER_10: dict[str, Any] = {
    "src-uri": "amqp://",
    "src-protocol": "amqp10",
    "src-address": "/queues/a",
    "dest-uri": "amqp://far",
    "dest-protocol": "amqp10",
    "dest-address": "/queues/a",
}


def over_10(**more: Any) -> ShovelDefinition:
    """As `made`, with both ends over AMQP 1.0."""
    given = {**OVER_10, **{key.replace("_", "-"): value for key, value in more.items()}}
    return parse_shovel("/", "s", {key: one for key, one in given.items() if one is not None})


def test_a_shovel_over_amqp_10_has_addresses_and_what_is_added() -> None:
    plain = over_10(
        src_prefetch_count=7,
        src_delete_after=5,
        dest_application_properties={"a": "b"},
        dest_message_annotations={"x-opt-c": "d"},
        dest_properties={"subject": "s"},
        dest_add_forward_headers=True,
    )
    assert (plain.source.protocol, plain.source.address) == ("amqp10", "/queues/a")
    assert (plain.prefetch, plain.delete_after, plain.forward_headers) == (7, 5, True)
    assert (plain.application_properties, plain.annotations) == ({"a": "b"}, {"x-opt-c": "d"})
    assert plain.properties == {"subject": "s"}
    mixed = over_10(src_protocol=None, src_address=None, src_queue="q")
    assert (mixed.source.queue, mixed.destination.described()) == ("q", "address '/queues/a'")


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"src_address": None}, 'Validation failed\n\nKey "src-address" not found in s'),
        ({"dest_address": None}, 'Key "dest-address" not found in s'),
        ({"dest_address": ""}, "dest-address is empty"),
        ({"src_address": 5}, "src-address should be binary, actually was 5"),
        ({"src_queue": "a"}, "unknown keys src-queue; known are src-uri, src-address"),
        ({"dest_queue": "a"}, "unknown keys dest-queue"),
        ({"dest_publish_properties": {}}, "unknown keys dest-publish-properties"),
        (
            {"src_delete_after": "queue-length"},
            "Validation failed\n\nsrc-delete-after should be a number greater than or equal to 0 "
            'or "never", actually was <<"queue-length">>',
        ),
        ({"src_delete_after": 5, "ack_mode": "no-ack"}, "Cannot specify 'no-ack' and numerical"),
        ({"dest_properties": {"subject": 1}}, "subject should be binary, actually was 1"),
        ({"dest_properties": {"colour": "x"}}, "dest-properties has 'colour'; known are"),
        ({"dest_application_properties": []}, "should be a JSON object, actually was []"),
        ({"src_uri": "amqp://h?heartbeat=5"}, "src-uri has the option 'heartbeat'; known are"),
        ({"src_uri": "amqp://h?sasl=md5"}, "sasl='md5'; known are plain, anon, none, external"),
        ({"src_uri": "amqp://h?idle_time_out=x"}, "a number from 0 to 600000 is expected"),
        ({"dest_uri": "amqp://"}, "the source and the destination are the same"),
        (
            {"dest_uri": "amqp://", "src_protocol": None, "src_address": None, "src_queue": "a"},
            "the source and the destination are the same",
        ),
        (
            {
                "src_protocol": None,
                "src_address": None,
                "src_exchange": "x",
                "src_exchange_key": "k",
                "dest_address": "/exchanges/x/k",
                "dest_uri": "amqp://",
            },
            "the source and the destination are the same",
        ),
    ],
)
def test_what_cannot_be_done_over_amqp_10_is_refused(more: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        over_10(**more)
    assert reason in refused.value.detail


def test_a_uri_of_amqp_10_has_its_own_options() -> None:
    text = "amqps://u:p@h/v?sasl=anon&hostname=bus&idle_time_out=5000&verify=verify_none"
    uri = parse_shovel_uri("src-uri", text, "amqp10")
    assert (uri.options["sasl"], uri.options["hostname"], uri.names_vhost) == ("anon", "bus", True)
    assert not parse_shovel_uri("src-uri", "amqp://h", "amqp10").names_vhost
    with pytest.raises(InvalidArgument, match="the option 'sasl'; known are heartbeat"):
        parse_shovel_uri("src-uri", "amqp://h?sasl=anon")


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("amqp://localhost/%2f", "amqp://localhost/%2f"),
        ("amqp://u:p@[::1]:99", "amqp://[::1]:99"),
        ("amqps://u:p%40@h/v?password=secret", "amqps://h/v"),
        ("amqp://", "amqp://"),
    ],
)
def test_lists_show_a_uri_as_it_was_given(text: str, given: str) -> None:
    assert parse_shovel_uri("src-uri", text).given == given
