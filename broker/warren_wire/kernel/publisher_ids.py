# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The ids that publishers give their messages, for queues that drop duplicates.

One source for both kernels: interpreted, `p` is the bytes; compiled, a pointer to them.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

try:
    import cython
except ImportError:
    from warren_wire.kernel import no_cython as cython

if not cython.compiled:
    from warren_wire.kernel.properties import value_end, walk
else:
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING
    from cython.cimports.warren_wire.kernel.compiled.properties import value_end, walk

from warren_wire.block.block import FORM_AMQP091, Block

DIGEST_BYTES = 16


def publisher_ids(block: Block) -> list[tuple]:
    """Return the ids of a block's messages in groups of neighbours, ascending.

    A group is (first ordinal, number of messages, digests, producer, sequence) of

    - messages with `x-deduplication-id`: a digest of 128 bits for each; producer b"", sequence 0;
    - messages with `x-producer` and `x-sequence`, with consecutive numbers: digests None, 128 bits
      of the producer's name, and the number of the first.

    Ids and producers are strings or bytes, not empty; numbers are integers from 0 to 2^63 - 1. With
    both forms the id counts. Other values, properties that are malformed, AMQP 1.0 sections, and
    messages that were dead-lettered (`x-death`) have no id.
    """
    if block.form != FORM_AMQP091 or not block.properties_offsets[block.count]:
        return []
    area: bytes = bytes(block.properties_data)
    offsets: list = block.properties_offsets.tolist()
    headers: _Headers = _Headers()
    groups: list = []
    group: list = []
    producers: dict = {}
    digests: list | None = None
    producer: bytes | None = None
    following: cython.ulonglong = 0
    i: cython.Py_ssize_t
    count: cython.Py_ssize_t = block.count
    for i in range(count):
        headers.read(area[offsets[i] : offsets[i + 1]])
        if headers.id is not None:
            if digests is None:
                digests = []
                groups.append([i, 0, digests, b"", 0])
                producer = None
            digests.append(blake2b(headers.id, digest_size=DIGEST_BYTES).digest())
            continue
        digests = None
        if headers.producer is None or headers.sequence < 0:
            producer = None
            continue
        if (
            headers.producer != producer
            or cython.cast(cython.ulonglong, headers.sequence) != following
        ):
            producer = headers.producer
            if producer not in producers:
                producers[producer] = blake2b(producer, digest_size=DIGEST_BYTES).digest()
            group = [i, 0, None, producers[producer], headers.sequence]
            groups.append(group)
        group[1] += 1
        following = headers.sequence + 1
    for group in groups:
        if group[2] is not None:
            group[1] = len(group[2])
    return list(map(tuple, groups))


@cython.cclass
class _Headers:
    """The headers of one message that may make an id of it.

    id, producer  None: absent, or no id; sequence -1 likewise
    """

    id: Any
    producer: Any
    sequence: cython.longlong

    @cython.cfunc
    def read(self, data: bytes) -> Any:
        """Read a message's properties."""
        p: cython.p_uchar
        at: cython.Py_ssize_t = 2
        end: cython.Py_ssize_t = len(data)
        size: cython.Py_ssize_t
        value: cython.Py_ssize_t
        died: cython.bint = False
        self.id = None
        self.producer = None
        self.sequence = -1
        if cython.compiled:
            p = cython.cast(cython.p_uchar, PyBytes_AS_STRING(data))
        else:
            p = data
        if end < 2 or not p[0] & 0x20 or walk(p, end) < 0:
            return
        if p[0] & 0x80:  # content_type
            at += 1 + p[at]
        if p[0] & 0x40:  # content_encoding
            at += 1 + p[at]
        end = at + 4 + _unsigned(p, at, 4)
        at += 4
        while at < end:
            size = p[at]
            value = at + 1 + size
            if size == 18 and data[at + 1 : value] == b"x-deduplication-id":
                self.id = _text(data, p, value)
            elif size == 10 and data[at + 1 : value] == b"x-producer":
                self.producer = _text(data, p, value)
            elif size == 10 and data[at + 1 : value] == b"x-sequence":
                self.sequence = _number(p, value)
            elif size == 7 and data[at + 1 : value] == b"x-death":
                died = True
            at = value_end(p, value, end, 0)
        if died:
            self.id = None
            self.producer = None


@cython.cfunc
def _text(data: bytes, p: cython.p_const_uchar, at: cython.Py_ssize_t) -> object:
    """Return the bytes of a long string or byte array; None: another type, or empty."""
    if p[at] != 0x53 and p[at] != 0x78:  # S, x
        return None
    return data[at + 5 : at + 5 + _unsigned(p, at + 1, 4)] or None


@cython.cfunc
@cython.exceptval(check=False)
def _number(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.longlong:
    """Return an integer; -1: another type, or negative."""
    kind: cython.uchar = p[at]
    size: cython.int
    if kind in (0x42, 0x62):  # B, b
        size = 1
    elif kind in (0x75, 0x73):  # u, s
        size = 2
    elif kind in (0x69, 0x49):  # i, I
        size = 4
    elif kind in (0x6C, 0x4C):  # l, L
        size = 8
    else:
        return -1
    if p[at + 1] & 0x80 and kind not in (0x42, 0x75, 0x69):  # signed
        return -1
    return _unsigned(p, at + 1, size)


@cython.cfunc
@cython.exceptval(check=False)
def _unsigned(p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.int) -> cython.longlong:
    value: cython.longlong = 0
    i: cython.int
    for i in range(size):
        value = value << 8 | p[at + i]
    return value
