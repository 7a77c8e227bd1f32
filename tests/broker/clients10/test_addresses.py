"""Addresses of links: those of ordinary clients (version 2), those of blocks, and neither."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from warren_wire.amqp10.addresses import (
    AnonymousTarget,
    BlocksTarget,
    BrowseSource,
    ClaimSource,
    ExchangeTarget,
    ManagementNode,
    QueueSource,
    QueueTarget,
    StageTarget,
    ViewSource,
    area_words,
    parse_source,
    parse_target,
    parse_to,
)
from warren_wire.block.layout import AREA_BODIES, AREA_PROPERTIES, AREAS
from warren_wire.errors import InvalidArgument, PreconditionFailed, Refusal
from warren_wire.queue_values.describe_command import ReadBy

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60)
PATHS = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=40),
    st.text(alphabet="/queuesxchangblokt%aF2?=.&\u270b", max_size=40),
    st.lists(
        st.sampled_from(
            ["/queues", "/exchanges", "/", "blocks", "stage", "browse", "%2F", "%", "q", "?max=1"]
        ),
        max_size=6,
    ).map("".join),
)
# RabbitMQ's own list of what is no address of version 2 (its amqp_address_SUITE)
BAD = [
    "/topic/mytopic",
    "/amq/queue/myqueue",
    "myqueue",
    "/queue",
    "",
    "\0",
    "/",
    "//",
    "/queues",
    "/queues/",
    "/queue/",
    "/exchanges",
    "/exchanges/",
    "/exchanges//",
    "/exchanges//mykey",
    "/exchanges/amq.default",
    "/exchanges/amq.default/",
    "/exchanges/amq.default/mykey",
    "/ex/\u270b",
    "/exchange",
    "/exchange/",
    "/exchange/amq.default",
    "/exchange//key/",
    "/exchange//key/mykey",
    "/queues/missing%encoding",
    "/queues/missing/encoding",
    "/queues/\u270b",
    "/exchanges/missing%encoding",
    "/exchanges/missing/encoding/routingkey",
    "/exchanges/exchange/missing%encoding",
    "/exchanges/\u270b",
    "/queues/%ff",
    "/queues/" + "x" * 256,
    "/queues/a b",
    "/queues/a?b",
]


@settings(max_examples=200)
@given(NAMES, NAMES)
@example("/", "%")
@example("blocks", "blocks")
@example("x", "stage")
@example("\u270b", "a+b c")
def test_every_name_has_an_address(name: str, key: str) -> None:
    quoted, quoted_key = quote(name, safe=""), quote(key, safe="")
    if max(len(name.encode()), len(key.encode())) > 255:
        return
    queue = f"/queues/{quoted}"
    assert parse_source(queue) == QueueSource(name)
    assert parse_target(queue) == parse_to(queue) == QueueTarget(name)
    if name != "amq.default":
        assert parse_target(f"/exchanges/{quoted}") == ExchangeTarget(name, "")
        with_key = f"/exchanges/{quoted}/{quoted_key}"
        assert parse_target(with_key) == parse_to(with_key) == ExchangeTarget(name, key)


@pytest.mark.parametrize("address", BAD)
def test_what_is_no_address_of_version_2_is_refused(address: str) -> None:
    for parse in (parse_source, parse_target):
        with pytest.raises(InvalidArgument, match="^Attach refused: {") as caught:
            parse(address)
        assert caught.value.condition == "amqp:invalid-field"
        assert "/queues/:queue" in str(caught.value)
    with pytest.raises(PreconditionFailed) as refused:
        parse_to(address)
    assert str(refused.value).startswith(f"bad 'to' address string: {address[:200]}")


def test_refusals_have_rabbitmqs_text() -> None:
    with pytest.raises(InvalidArgument) as version_1:
        parse_target("myqueue")
    assert str(version_1.value).startswith(
        'Attach refused: {amqp_address_v1_not_permitted,{utf8,<<"myqueue">>}}: RabbitMQ AMQP '
        "address version 1 is unsupported. Clients must use RabbitMQ AMQP address version 2"
    )
    with pytest.raises(InvalidArgument) as source:
        parse_source("/queues/a%")
    assert str(source.value).startswith('Attach refused: {bad_address,{utf8,<<"/queues/a%">>}}')
    with pytest.raises(InvalidArgument) as target:
        parse_target("/exchanges/\u270b")
    assert str(target.value).startswith(
        'Attach refused: {bad_address_string,<<"/exchanges/\u270b"/utf8>>}'
    )
    with pytest.raises(InvalidArgument) as absent:
        parse_source(None)
    assert str(absent.value).startswith("Attach refused: {bad_address,undefined}")
    with pytest.raises(PreconditionFailed) as unset:
        parse_to(None)
    assert str(unset.value) == "anonymous terminus requires 'to' address to be set"


def test_the_null_target_is_the_anonymous_terminus() -> None:
    assert parse_target(None) == AnonymousTarget()
    assert parse_target("/management") == parse_source("/management") == ManagementNode()


def test_blocks_and_messages_are_told_apart_by_the_attach() -> None:
    for exchange in ("x", "blocks", "amq.topic"):
        address = f"/exchanges/{exchange}/blocks"
        assert parse_target(address) == ExchangeTarget(exchange, "blocks")
        assert parse_target(address, blocks=True) == BlocksTarget("", exchange)
    for blocks in (False, True):
        assert parse_target("/exchanges//blocks", blocks=blocks) == BlocksTarget("", "")
        assert parse_target("/queues/q/blocks", blocks=blocks) == BlocksTarget("q", "")
        stage = "/exchanges/x/stage?sink=s&run=r&epoch=1&batch=2&partition=3&attempt=4&seq=5"
        assert parse_target(stage, blocks=blocks) == StageTarget("x", "s", "r", 1, 2, 3, 4, 5)
    assert parse_target("/exchanges/x/stage") == ExchangeTarget("x", "stage")
    with pytest.raises(InvalidArgument, match="lacks epoch|sink must have"):
        parse_target("/exchanges/x/stage", blocks=True)


@settings(max_examples=400)
@given(PATHS)
@example("/queues/q/browse?max=1")
@example("/exchanges/%61mq.default/k")
def test_an_address_has_one_meaning_or_is_refused(address: str) -> None:
    """A second, slower reading of version 2 decides what single messages may be sent to."""
    expected = slow(address)
    for parse, found in ((parse_target, QueueTarget | ExchangeTarget), (parse_source, QueueSource)):
        try:
            parsed = parse(address)
        except Refusal:
            parsed = None
        if isinstance(parsed, found):
            assert expected is not None
            names = (parsed.exchange, parsed.key) if hasattr(parsed, "key") else (parsed.queue,)
            assert names == expected[1:]
        elif parsed is None:
            assert expected is None or (parse is parse_source and expected[0] == "exchanges")
        else:  # blocks: no address of version 2
            assert expected is None
            assert isinstance(
                parsed, (ManagementNode, BlocksTarget, StageTarget, BrowseSource, ClaimSource)
            )


def slow(address: str) -> tuple[str, ...] | None:
    """Read an address of version 2 character by character, as RFC 3986 and RabbitMQ define it."""
    kind, slash, rest = address[1:].partition("/")
    parts = rest.split("/")
    if address[:1] != "/" or not slash or kind not in ("queues", "exchanges"):
        return None
    if len(parts) > (1 if kind == "queues" else 2) or parts[0] == "":
        return None
    if kind == "exchanges" and parts[0] == "amq.default":
        return None
    names = []
    for part in parts:
        raw, at = bytearray(), 0
        while at < len(part):
            if part[at] == "%":
                digits = part[at + 1 : at + 3]
                if len(digits) < 2 or any(d not in "0123456789abcdefABCDEF" for d in digits):
                    return None
                raw.append(int(digits, 16))
                at += 3
            elif part[at].isascii() and (part[at].isalnum() or part[at] in "-._~!$&'()*+,;=:@"):
                raw.append(ord(part[at]))
                at += 1
            else:
                return None
        try:
            names.append(raw.decode())
        except UnicodeDecodeError:
            return None
        if len(raw) > 255:
            return None
    if kind == "exchanges" and len(names) == 1:
        names.append("")
    return (kind, *names)


def test_a_view_of_a_queue() -> None:
    asked = "/queues/q%2F1/view?states=ready,dead&first=3&last=9&max=0&want=times,blocks"
    assert parse_source(asked) == ViewSource("q/1", ("ready", "dead"), 3, 9, 0, True, True)
    for want, blocks, areas in (
        ("", False, 0),
        ("blocks", True, AREAS),
        ("outlines", True, 0),
        ("outlines,bodies", True, AREA_BODIES),
        ("properties", True, AREA_PROPERTIES),
        ("properties,bodies", True, AREAS),
    ):
        found = parse_source(f"/queues/q/view?states=held&first=0&last=9&max=0&want={want}")
        assert found == ViewSource("q", ("held",), 0, 9, 0, False, blocks, areas)
    for wrong, says in (
        ("want=body", "want='body'; known: times, blocks, outlines, properties, bodies"),
        ("want=&order=1", "unknown 'order'"),
        ("last=-1", "last='-1' is not a number"),
    ):
        with pytest.raises(InvalidArgument, match=says):
            parse_source(f"/queues/q/view?states=ready&first=0&last=9&max=0&{wrong}")


def test_areas_of_a_fetch() -> None:
    claim, browse = "/queues/q/readers/r/claims/7?first=1&last=3", "/queues/q/browse?max=5"
    for want, areas in (
        ("", AREAS),
        ("&want=", 0),
        ("&want=bodies", AREA_BODIES),
        ("&want=properties", AREA_PROPERTIES),
        ("&want=bodies,properties", AREAS),
    ):
        assert parse_source(claim + want) == ClaimSource("q", "r", 7, 1, 3, areas)
        assert parse_source(browse + want) == BrowseSource("q", 5, areas)
        assert parse_source(f"{browse}&want={','.join(area_words(areas))}").areas == areas
    for address in (claim, browse):
        with pytest.raises(InvalidArgument, match="want='times'; known: properties, bodies"):
            parse_source(address + "&want=times")


def test_a_fetch_says_what_reads_its_claim() -> None:
    claim = "/queues/q/readers/r/claims/7?first=0&last=3"
    said = parse_source(claim + "&query=0d3c&name=all%20orders&batch=41")
    assert said == ClaimSource("q", "r", 7, 0, 3, AREAS, ReadBy("0d3c", "all orders", 41))
    unnamed = parse_source(claim + "&query=0d3c&name=&batch=0")
    assert unnamed == ClaimSource("q", "r", 7, 0, 3, AREAS, ReadBy("0d3c", "", 0))
    for wrong, says in (
        ("&name=orders&batch=1", "query must have 1 to 255 bytes"),
        ("&query=0d3c", "lacks batch"),
        ("&query=0d3c&batch=-1", "batch='-1' is not a number"),
        (f"&query=0d3c&batch=1&name={'n' * 256}", "name must have 1 to 255 bytes"),
    ):
        with pytest.raises(InvalidArgument, match=says):
            parse_source(claim + wrong)
