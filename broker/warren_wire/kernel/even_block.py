# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""What the queue's machine reads of a block, where all messages of it are alike: in one look.

One source for both kernels: interpreted, the block is decoded; compiled, the numbers are read where
they are. Every member of a queue does this for every entry, and with small loads a block has one
message.
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ImportError:
    from warren_wire.kernel import no_cython as cython

from warren_wire.block.block import Block, BlockError
from warren_wire.block.layout import (
    BLOCK_BYTES_MAX,
    CODEC_NONE,
    FORM_AMQP10,
    HEADER_BYTES,
    MAGIC,
    PRIORITY_MAX,
    RUN,
    VERSION,
    Buffer,
)

if cython.compiled:
    from cython.cimports.cpython.buffer import (
        PyBUF_SIMPLE,
        PyBuffer_Release,
        PyObject_GetBuffer,
    )
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING
    from cython.cimports.libc.string import memcmp

_head = cython.declare(cython.Py_ssize_t, HEADER_BYTES)
_run = cython.declare(cython.Py_ssize_t, RUN.size)
_bytes_max = cython.declare(cython.Py_ssize_t, BLOCK_BYTES_MAX)
_priority_max = cython.declare(cython.uint, PRIORITY_MAX)
_form_max = cython.declare(cython.uint, FORM_AMQP10)
_codec_none = cython.declare(cython.uint, CODEC_NONE)
_START = MAGIC + bytes((VERSION,))


def even_block(data: Buffer) -> tuple[int, int, int, int, int] | None:
    """Return (form, messages, priority, bytes of properties of each, of the body of each).

    None: any other block, or a malformed one. Such a block has no compression, one route, one
    priority and no times to live, and all of its messages have the same size. What
    `Block.decode(verify=False)` refuses is no such block, so its error is found there.
    """
    if not cython.compiled:
        return _of_decoded(data)
    view = cython.declare(cython.Py_buffer)
    PyObject_GetBuffer(data, cython.address(view), PyBUF_SIMPLE)
    try:
        return _read(cython.cast(cython.p_uchar, view.buf), view.len)
    finally:
        PyBuffer_Release(cython.address(view))


def _of_decoded(data: Buffer) -> tuple[int, int, int, int, int] | None:
    view = memoryview(data).cast("B") if len(data) else memoryview(b"")
    if len(view) < HEADER_BYTES or view[7] != CODEC_NONE or view[6]:
        return None
    try:
        block = Block.decode(view, verify=False)
    except BlockError:
        return None
    count = block.count
    if not count or len(block.routes) != 1 or len(block.priority_runs) != 1:
        return None
    sizes = []
    for offsets in (block.properties_offsets, block.body_offsets):
        size, rest = divmod(offsets[count], count)
        if rest or offsets.tolist() != [size * i for i in range(count + 1)]:
            return None
        sizes.append(size)
    return block.form, count, block.priority_runs[0][2], sizes[0], sizes[1]


if cython.compiled:

    @cython.cfunc
    @cython.exceptval(check=False)
    def _word(p: cython.p_uchar) -> cython.Py_ssize_t:
        """Return the u32 at p."""
        low: cython.uint = p[0] | p[1] << 8 | p[2] << 16
        return low | cython.cast(cython.uint, p[3]) << 24

    @cython.cfunc
    @cython.exceptval(check=False)
    def _each(p: cython.p_uchar, count: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the size of every item of the offset column at p; -1: they differ."""
        last: cython.Py_ssize_t = _word(p + 4 * count)
        size: cython.Py_ssize_t = last // count
        i: cython.Py_ssize_t
        if size * count != last:
            return -1
        for i in range(count):
            if _word(p + 4 * i) != size * i:
                return -1
        return size

    @cython.cfunc
    def _read(p: cython.p_uchar, size: cython.Py_ssize_t) -> Any:
        if size < _head or size > _bytes_max or memcmp(p, PyBytes_AS_STRING(_START), 5):
            return None
        if p[5] > _form_max or p[6] or p[7] != _codec_none:
            return None
        count: cython.Py_ssize_t = _word(p + 8)
        routes_bytes: cython.Py_ssize_t = _word(p + 28)
        if not count or _word(p + 16) != size or _word(p + 20) != 1 or _word(p + 24) != 1:
            return None
        heads: cython.Py_ssize_t = _head + _run
        ends: cython.Py_ssize_t = heads + 4 * (count + 1)
        routes: cython.Py_ssize_t = ends + 4 * (count + 1)
        areas: cython.Py_ssize_t = routes + routes_bytes + 7 & ~7
        if areas > size or _word(p + _head) or p[_head + 4] > _priority_max:
            return None
        if routes_bytes < 2 or 1 + p[routes] >= routes_bytes:
            return None
        if 2 + p[routes] + p[routes + 1 + p[routes]] != routes_bytes:
            return None
        head: cython.Py_ssize_t = _each(p + heads, count)
        body: cython.Py_ssize_t = _each(p + ends, count)
        if head < 0 or body < 0 or areas + (head + body) * count != size:
            return None
        return p[5], count, p[_head + 4], head, body
