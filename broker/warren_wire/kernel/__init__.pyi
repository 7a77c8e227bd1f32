"""What the kernel's package exports: the types, and signatures at a glance.

`__init__.py` binds the names at run time, from the compiled modules or from the interpreted ones.
"""

from typing import Any, Literal, NamedTuple

from warren_wire.block.layout import PRIORITY_DEFAULT as PRIORITY_DEFAULT
from warren_wire.block.layout import PRIORITY_MAX as PRIORITY_MAX
from warren_wire.block.layout import TTL_NONE as TTL_NONE

# admit
#   check_structure(block)       BlockError when offsets or columns of a block are out of range
#   load_block(block, mandatory=False, exchange=None, properties_max=...) -> MessageTable
#                                a client's block, to be partitioned; BlockError when the
#                                properties of a message are malformed or too long
#   set_deaths_apart(table, first, last)
#                                x-death behind the other headers, in place (`published_deaths`)
from warren_wire.kernel.admit import check_structure as check_structure
from warren_wire.kernel.admit import load_block as load_block
from warren_wire.kernel.admit import set_deaths_apart as set_deaths_apart

# assemble
#   distinct_routes(table, first, last) -> list[int]      route ids in the order first seen
#   flags_of(table, first, last) -> int                   the flags of these messages, or-ed
#   first_other_user(table, first, last, user) -> int     the first message with another user_id
#   select(table, first, last, route_ids) -> Selection    the messages with one of these routes
#   partition(table, first, last, targets, count) -> list[Selection]
#                                targets: per route id a tuple of target numbers 0 <= t < count;
#                                one Selection per target, each in the order received
#   count_groups(selections, groups, count) -> list[int]  messages of each group of routes
#   count_unselected(selections, first, last) -> int      messages that are in no selection
#   assemble(selections, form=0, priority_max=31, priority_default=4) -> bytes
#                                one block, stable-sorted by the priorities of that queue
from warren_wire.kernel.assemble import assemble as assemble
from warren_wire.kernel.assemble import count_groups as count_groups
from warren_wire.kernel.assemble import count_unselected as count_unselected
from warren_wire.kernel.assemble import distinct_routes as distinct_routes
from warren_wire.kernel.assemble import first_other_user as first_other_user
from warren_wire.kernel.assemble import flags_of as flags_of
from warren_wire.kernel.assemble import partition as partition
from warren_wire.kernel.assemble import select as select

# column_block
#   block_of_columns(count=..., ...) -> bytes             as `encode_columns`
from warren_wire.kernel.column_block import block_of_columns as block_of_columns

# deliver: all append to `out`, a bytearray
#   format_deliveries(out, block, first, last, channel, consumer_tag, delivery_tag_first,
#                     redelivered, frame_max, headers=None)
#   format_get_ok(out, block, i, channel, delivery_tag, redelivered, message_count, frame_max,
#                 headers=None)
#   fitting(i, properties, frame_max) -> bytes            as they fit into a frame; Unsendable
#   format_return(out, table, i, channel, reply_code, reply_text, frame_max)
#   format_confirms(out, channel, up_to, tags=(), negative=False)
#                                one ack multiple up to `up_to` (0: none), then closed ranges
#                                (first, last) tag by tag; negative: basic.nack
#   with_headers(properties, headers) -> bytes            headers: {name: int}, added or replaced
#   readable(properties) -> bytes                         themselves, or a replacement
#   with_sections(properties, kept) -> bytes              AMQP 1.0 sections as the first header
#   split_sections(properties) -> (properties, kept)      the same way back
from warren_wire.kernel.deliver import fitting as fitting
from warren_wire.kernel.deliver import format_confirms as format_confirms
from warren_wire.kernel.deliver import format_deliveries as format_deliveries
from warren_wire.kernel.deliver import format_get_ok as format_get_ok
from warren_wire.kernel.deliver import format_large as format_large
from warren_wire.kernel.deliver import format_return as format_return

# delivery_scan: the client's side, for the connector
#   DeliveryScanner(channel, frame_max, message_bytes_max)
#       feed(data) -> bytes             cut deliveries; the frames of everything else come back
#       filled                          the Deliveries so far: columns that Arrow can use
#       take() -> Deliveries            those that are complete; an incomplete one stays
from warren_wire.kernel.delivery_scan import Deliveries as Deliveries
from warren_wire.kernel.delivery_scan import DeliveryScanner as DeliveryScanner

# digest
#   content_digest(selection) -> int of messages, whatever their order; adds up
from warren_wire.kernel.digest import content_digest as content_digest

# even_block
#   even_block(block) -> (form, messages, priority, bytes of each's properties, of its body)
#                                None: the messages differ, or the block is not a plain one
from warren_wire.kernel.even_block import even_block as even_block
from warren_wire.kernel.items import ACK as ACK
from warren_wire.kernel.items import BAD_EXPIRATION as BAD_EXPIRATION
from warren_wire.kernel.items import CC as CC
from warren_wire.kernel.items import DIRECT_REPLY_TO as DIRECT_REPLY_TO
from warren_wire.kernel.items import HAS_DEATHS as HAS_DEATHS
from warren_wire.kernel.items import HEADERS as HEADERS
from warren_wire.kernel.items import NACK_DISCARD as NACK_DISCARD
from warren_wire.kernel.items import NACK_REQUEUE as NACK_REQUEUE
from warren_wire.kernel.items import PERSISTENT as PERSISTENT
from warren_wire.kernel.items import REJECT_DISCARD as REJECT_DISCARD
from warren_wire.kernel.items import REJECT_REQUEUE as REJECT_REQUEUE
from warren_wire.kernel.items import USER_ID as USER_ID
from warren_wire.kernel.items import AckRun as AckRun
from warren_wire.kernel.items import ContentRefused as ContentRefused
from warren_wire.kernel.items import DeliveryMalformed as DeliveryMalformed
from warren_wire.kernel.items import Heartbeat as Heartbeat
from warren_wire.kernel.items import Item as Item
from warren_wire.kernel.items import Malformed as Malformed
from warren_wire.kernel.items import MethodItem as MethodItem
from warren_wire.kernel.items import PublishRun as PublishRun
from warren_wire.kernel.items import Route as Route
from warren_wire.kernel.items import Unsendable as Unsendable

# join
#   join(parts, areas) -> bytes           one block of many stored ones, as `block.concat`
from warren_wire.kernel.join import join as join

# link_runs: deliveries of AMQP 1.0 links, as addresses of Proton's
#   EngineCalls(ffi, lib): skim, read, write: many events or messages with one call
#   Gathered: messages that were read and have no outcome yet; settle, done
#   InputFrames: cuts received bytes; piece
#   Unsettled: deliveries that were sent, and the client's outcomes; take_outcomes
from warren_wire.kernel.link_runs import EngineCalls as EngineCalls
from warren_wire.kernel.link_runs import Gathered as Gathered
from warren_wire.kernel.link_runs import InputFrames as InputFrames
from warren_wire.kernel.link_runs import Unsettled as Unsettled
from warren_wire.kernel.properties import readable as readable
from warren_wire.kernel.properties import split_sections as split_sections
from warren_wire.kernel.properties import with_headers as with_headers
from warren_wire.kernel.properties import with_sections as with_sections

# property_columns: Arrow's layout, for the connector
#   split_properties(offsets, data, count, wanted) -> (list[Column | None], malformed)
#   header_entries(offsets, data, count) -> Entries       None: they need more than columns
from warren_wire.kernel.property_columns import header_entries as header_entries
from warren_wire.kernel.property_columns import split_properties as split_properties

# property_lists: the way back, for its sink
#   Values(count, first, validity, words, width, data=None, end=-1)    an Arrow array
#   property_lists(count, columns) -> (offsets, data)     of 14 Values
#   expirations(texts, ms_max) -> (ttls, bad)             times to live; the first text that is none
#   Members(kinds, kind, values)                          what the entries of headers hold
#   header_tables(rows, names, members) -> (offsets, data)     None: the codec must look at them
from warren_wire.kernel.property_lists import Members as Members
from warren_wire.kernel.property_lists import Values as Values
from warren_wire.kernel.property_lists import expirations as expirations
from warren_wire.kernel.property_lists import header_tables as header_tables
from warren_wire.kernel.property_lists import property_lists as property_lists

# publisher_ids
#   publisher_ids(block) -> list of groups of messages with ids, for queues that drop duplicates
from warren_wire.kernel.publisher_ids import publisher_ids as publisher_ids

# scan
#   FrameScanner(frame_max, message_bytes_max=16 MiB, unfinished_bytes_max=...)
#       feed(data) -> list[Item]        cut received bytes; partial frames wait for the next feed
#       table                           the MessageTable that PublishRun items point into
#       take_table() -> MessageTable    the table filled so far; a new one takes its place
#       frame_max                       set it when connection.tune-ok arrives
#       discard_channel(channel)        drop content on it until channel.close or close-ok comes
#       pending_bytes                   bytes held for messages and frames that are not complete
#       close()                         drop everything held
from warren_wire.kernel.scan import FrameScanner as FrameScanner

# section_fields: single fields of sections, for filters
#   read_fields(sections, priority, fields, names, found) -> found
from warren_wire.kernel.section_fields import read_fields as read_fields

# sections_in: AMQP 1.0 to AMQP 0.9.1
#   read_sections(data) -> SectionsRead                   MalformedSections
#   is_body(data) -> bool                                 whether they are body sections alone
#   map_entries(data, at, count) -> [(key, entry)]        of a map that was read
#   whole_entries(data) -> [(constructor, key, value)]    of a map that is checked whole
from warren_wire.kernel.sections_in import is_body as is_body
from warren_wire.kernel.sections_in import map_entries as map_entries
from warren_wire.kernel.sections_in import read_sections as read_sections
from warren_wire.kernel.sections_in import whole_entries as whole_entries

# sections_out: AMQP 0.9.1 to AMQP 1.0
#   write_sections(properties, ...) -> bytes              the sections that precede the body
#   sections_to_keep(properties, data, sections, pieces) -> bytes   that 0.9.1 cannot express
#   is_owned(name) -> bool                                whether the broker sets an annotation
from warren_wire.kernel.sections_out import is_owned as is_owned
from warren_wire.kernel.sections_out import sections_to_keep as sections_to_keep
from warren_wire.kernel.sections_out import write_sections as write_sections
from warren_wire.kernel.table import MessageTable as MessageTable
from warren_wire.kernel.table import Routes as Routes
from warren_wire.kernel.table import Selection as Selection
from warren_wire.kernel.table import lanes as lanes

Mode = Literal["compiled", "interpreted"]
ACTIVE: Mode

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
    link_runs: Any

def load(mode: Mode) -> Kernel:
    """Return the kernel in that mode; ImportError when the extensions were not built."""
