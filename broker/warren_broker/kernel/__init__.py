"""The code that runs per message: frames to messages, messages to blocks, blocks to frames.

The modules `scan`, `admit`, `assemble`, `column_block`, `deliver`, `delivery_scan`, `digest`,
`even_block`, `join`, `publisher_ids`, `property_columns`, `property_lists`, `section_values`,
`sections_in` and `sections_out` are written in Cython's pure Python mode. They run compiled when
`kernel/compiled` holds the extensions (`build_kernel.py` makes them) and interpreted otherwise,
with the same results. WARREN_KERNEL=interpreted or compiled selects one; `ACTIVE` is the running
one. Signatures at a glance:

scan
    FrameScanner(frame_max, message_bytes_max=16 MiB, unfinished_bytes_max=...)
        feed(data) -> list[Item]        cut received bytes; partial frames wait for the next feed
        table                           the MessageTable that PublishRun items point into
        take_table() -> MessageTable    the table filled so far; a new one takes its place
        frame_max                       set it when connection.tune-ok arrives
        discard_channel(channel)        drop content on it until channel.close or close-ok comes
        pending_bytes                   bytes held for messages and frames that are not complete
        close()                         drop everything held

admit
    check_structure(block)       BlockError when offsets or columns of a block are out of range
    load_block(block, mandatory=False, exchange=None, properties_max=...) -> MessageTable
                                 a client's block, to be partitioned; BlockError when the
                                 properties of a message are malformed or too long
    set_deaths_apart(table, first, last)
                                 x-death behind the other headers, in place (`published_deaths`)

assemble
    distinct_routes(table, first, last) -> list[int]      route ids in the order first seen
    flags_of(table, first, last) -> int                   the flags of these messages, or-ed
    first_other_user(table, first, last, user) -> int     the first message with another user_id
    select(table, first, last, route_ids) -> Selection    the messages with one of these routes
    partition(table, first, last, targets, count) -> list[Selection]
                                 targets: per route id a tuple of target numbers 0 <= t < count;
                                 one Selection per target, each in the order received
    count_groups(selections, groups, count) -> list[int]  messages of each group of routes
    count_unselected(selections, first, last) -> int      messages that are in no selection
    assemble(selections, form=0, priority_max=31, priority_default=4) -> bytes
                                 one block, stable-sorted by the priorities of that queue

deliver                                                   all append to `out`, a bytearray
    format_deliveries(out, block, first, last, channel, consumer_tag, delivery_tag_first,
                      redelivered, frame_max, headers=None)
    format_get_ok(out, block, i, channel, delivery_tag, redelivered, message_count, frame_max,
                  headers=None)
    fitting(i, properties, frame_max) -> bytes            as they fit into a frame; Unsendable
    format_return(out, table, i, channel, reply_code, reply_text, frame_max)
    format_confirms(out, channel, up_to, tags=(), negative=False)
                                 one ack multiple up to `up_to` (0: none), then closed ranges
                                 (first, last) tag by tag; negative: basic.nack
    with_headers(properties, headers) -> bytes            headers: {name: int}, added or replaced
    readable(properties) -> bytes                         themselves, or a replacement
    with_sections(properties, kept) -> bytes              AMQP 1.0 sections as the first header
    split_sections(properties) -> (properties, kept)      the same way back

delivery_scan                                             the client's side, for the connector
    DeliveryScanner(channel, frame_max, message_bytes_max)
        feed(data) -> bytes             cut deliveries; the frames of everything else come back
        filled                          the Deliveries so far: columns that Arrow can use
        take() -> Deliveries            those that are complete; an incomplete one stays

digest
    content_digest(selection) -> int of messages, whatever their order; adds up

join
    join(parts, areas) -> bytes           one block of many stored ones, as `block.concat`

even_block
    even_block(block) -> (form, messages, priority, bytes of each's properties, of its body)
                                 None: the messages differ, or the block is not a plain one

publisher_ids
    publisher_ids(block) -> list of groups of messages with ids, for queues that drop duplicates

property_columns                                          Arrow's layout, for the connector
    split_properties(offsets, data, count, wanted) -> (list[Column | None], malformed)
    header_entries(offsets, data, count) -> Entries       None: they need more than columns

property_lists                                            the way back, for its sink
    Values(count, first, validity, words, width, data=None, end=-1)    an Arrow array
    property_lists(count, columns) -> (offsets, data)     of 14 Values
    expirations(texts, ms_max) -> (ttls, bad)             times to live; the first text that is none
    Members(kinds, kind, values)                          what the entries of headers hold
    header_tables(rows, names, members) -> (offsets, data)     None: the codec must look at them

column_block
    block_of_columns(count=..., ...) -> bytes             as `encode_columns`

sections_in                                               AMQP 1.0 to AMQP 0.9.1
    read_sections(data) -> SectionsRead                   MalformedSections
    is_body(data) -> bool                                 whether they are body sections alone
    map_entries(data, at, count) -> [(key, entry)]        of a map that was read
    whole_entries(data) -> [(constructor, key, value)]    of a map that is checked whole

sections_out                                              AMQP 0.9.1 to AMQP 1.0
    write_sections(properties, ...) -> bytes              the sections that precede the body
    sections_to_keep(properties, data, sections, pieces) -> bytes   that 0.9.1 cannot express
    is_owned(name) -> bool                                whether the broker sets an annotation

section_fields                                            single fields of sections, for filters
    read_fields(sections, priority, fields, names, found) -> found
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from warren_broker.block.layout import PRIORITY_DEFAULT, PRIORITY_MAX, TTL_NONE
from warren_broker.kernel.items import (
    ACK,
    BAD_EXPIRATION,
    CC,
    DIRECT_REPLY_TO,
    HAS_DEATHS,
    HEADERS,
    NACK_DISCARD,
    NACK_REQUEUE,
    PERSISTENT,
    REJECT_DISCARD,
    REJECT_REQUEUE,
    USER_ID,
    AckRun,
    ContentRefused,
    DeliveryMalformed,
    Heartbeat,
    Item,
    Malformed,
    MethodItem,
    PublishRun,
    Route,
    Unsendable,
)
from warren_broker.kernel.table import (
    MessageTable,
    Routes,
    Selection,
    lanes,
)

Mode = Literal["compiled", "interpreted"]


class Kernel(NamedTuple):
    """The kernel's modules, all compiled or all interpreted."""

    mode: Mode
    scan: Any
    admit: Any
    assemble: Any
    deliver: Any
    delivery_scan: Any
    digest: Any
    join: Any
    even_block: Any
    publisher_ids: Any
    property_columns: Any
    property_lists: Any
    column_block: Any
    sections_in: Any
    sections_out: Any
    section_fields: Any


def load(mode: Mode) -> Kernel:
    """Return the kernel in that mode; ImportError when the extensions were not built."""
    parent = "warren_broker.kernel.compiled" if mode == "compiled" else "warren_broker.kernel"
    names = Kernel._fields[1:]
    # 1. The compiled kernel is active: `assemble` here is its function.  2. The interpreted one is
    # loaded for a comparison, and the import binds `assemble` here to the module of that name.
    # 3. A later import of `assemble` gets the module.  So what was bound stays.
    bound = {name: globals()[name] for name in names if name in globals()}
    loaded = Kernel(mode, *(importlib.import_module(f"{parent}.{name}") for name in names))
    globals().update(bound)
    return loaded


def _choose(wanted: str) -> Kernel:
    if wanted == "interpreted":
        return load("interpreted")
    if wanted not in ("", "compiled"):
        raise ImportError(
            f"WARREN_KERNEL={wanted!r} is neither 'compiled' nor 'interpreted'; "
            "leave it out for compiled where possible"
        )
    try:
        return load("compiled")
    except ImportError as error:
        if wanted == "compiled":
            raise ImportError(
                f"WARREN_KERNEL=compiled, but the extensions cannot be loaded ({error}); "
                "run python -m warren_broker.kernel.build_kernel, or leave WARREN_KERNEL out"
            ) from error
        return load("interpreted")


if TYPE_CHECKING:
    from warren_broker.kernel.admit import check_structure, load_block, set_deaths_apart
    from warren_broker.kernel.assemble import (
        assemble,
        count_groups,
        count_unselected,
        distinct_routes,
        first_other_user,
        flags_of,
        partition,
        select,
    )
    from warren_broker.kernel.column_block import block_of_columns
    from warren_broker.kernel.deliver import (
        fitting,
        format_confirms,
        format_deliveries,
        format_get_ok,
        format_large,
        format_return,
    )
    from warren_broker.kernel.delivery_scan import Deliveries, DeliveryScanner
    from warren_broker.kernel.digest import content_digest
    from warren_broker.kernel.even_block import even_block
    from warren_broker.kernel.join import join
    from warren_broker.kernel.properties import (
        readable,
        split_sections,
        with_headers,
        with_sections,
    )
    from warren_broker.kernel.property_columns import header_entries, split_properties
    from warren_broker.kernel.property_lists import (
        Members,
        Values,
        expirations,
        header_tables,
        property_lists,
    )
    from warren_broker.kernel.publisher_ids import publisher_ids
    from warren_broker.kernel.scan import FrameScanner
    from warren_broker.kernel.section_fields import read_fields
    from warren_broker.kernel.sections_in import is_body, map_entries, read_sections, whole_entries
    from warren_broker.kernel.sections_out import (
        is_owned,
        sections_to_keep,
        write_sections,
    )

    ACTIVE: Mode
else:
    _kernel = _choose(os.environ.get("WARREN_KERNEL", ""))
    ACTIVE = _kernel.mode
    FrameScanner = _kernel.scan.FrameScanner
    Deliveries = _kernel.delivery_scan.Deliveries
    DeliveryScanner = _kernel.delivery_scan.DeliveryScanner
    distinct_routes = _kernel.assemble.distinct_routes
    first_other_user = _kernel.assemble.first_other_user
    flags_of = _kernel.assemble.flags_of
    select = _kernel.assemble.select
    partition = _kernel.assemble.partition
    count_groups = _kernel.assemble.count_groups
    count_unselected = _kernel.assemble.count_unselected
    assemble = _kernel.assemble.assemble
    load_block = _kernel.admit.load_block
    check_structure = _kernel.admit.check_structure
    set_deaths_apart = _kernel.admit.set_deaths_apart
    fitting = _kernel.deliver.fitting
    format_deliveries = _kernel.deliver.format_deliveries
    format_large = _kernel.deliver.format_large
    format_get_ok = _kernel.deliver.format_get_ok
    format_return = _kernel.deliver.format_return
    format_confirms = _kernel.deliver.format_confirms
    readable = _kernel.deliver.readable
    with_headers = _kernel.deliver.with_headers
    content_digest = _kernel.digest.content_digest
    join = _kernel.join.join
    even_block = _kernel.even_block.even_block
    publisher_ids = _kernel.publisher_ids.publisher_ids
    split_properties = _kernel.property_columns.split_properties
    header_entries = _kernel.property_columns.header_entries
    Members = _kernel.property_lists.Members
    Values = _kernel.property_lists.Values
    expirations = _kernel.property_lists.expirations
    header_tables = _kernel.property_lists.header_tables
    property_lists = _kernel.property_lists.property_lists
    block_of_columns = _kernel.column_block.block_of_columns
    is_body = _kernel.sections_in.is_body
    map_entries = _kernel.sections_in.map_entries
    whole_entries = _kernel.sections_in.whole_entries
    read_fields = _kernel.section_fields.read_fields
    read_sections = _kernel.sections_in.read_sections
    is_owned = _kernel.sections_out.is_owned
    sections_to_keep = _kernel.sections_out.sections_to_keep
    split_sections = _kernel.deliver.split_sections
    with_sections = _kernel.deliver.with_sections
    write_sections = _kernel.sections_out.write_sections

__all__ = [
    "ACK",
    "ACTIVE",
    "AckRun",
    "BAD_EXPIRATION",
    "CC",
    "ContentRefused",
    "HAS_DEATHS",
    "DIRECT_REPLY_TO",
    "Deliveries",
    "DeliveryMalformed",
    "DeliveryScanner",
    "FrameScanner",
    "HEADERS",
    "Heartbeat",
    "Item",
    "Malformed",
    "Members",
    "MessageTable",
    "MethodItem",
    "Mode",
    "NACK_DISCARD",
    "NACK_REQUEUE",
    "PERSISTENT",
    "PRIORITY_DEFAULT",
    "PRIORITY_MAX",
    "PublishRun",
    "REJECT_DISCARD",
    "REJECT_REQUEUE",
    "Route",
    "Routes",
    "Selection",
    "TTL_NONE",
    "USER_ID",
    "Unsendable",
    "Values",
    "assemble",
    "block_of_columns",
    "check_structure",
    "content_digest",
    "count_groups",
    "count_unselected",
    "distinct_routes",
    "even_block",
    "expirations",
    "first_other_user",
    "fitting",
    "flags_of",
    "format_confirms",
    "format_deliveries",
    "format_large",
    "format_get_ok",
    "format_return",
    "header_entries",
    "header_tables",
    "is_body",
    "is_owned",
    "join",
    "lanes",
    "load",
    "load_block",
    "map_entries",
    "partition",
    "property_lists",
    "publisher_ids",
    "read_fields",
    "read_sections",
    "readable",
    "sections_to_keep",
    "select",
    "set_deaths_apart",
    "split_sections",
    "split_properties",
    "whole_entries",
    "with_headers",
    "with_sections",
    "write_sections",
]
