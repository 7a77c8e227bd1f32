# Received octets for the compiled modules of the kernel; interpreted: octets.py.

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from libc.string cimport memcpy

cdef inline unsigned int u16(const unsigned char* p, Py_ssize_t at) noexcept:
    return (<unsigned int> p[at] << 8) | p[at + 1]

cdef inline unsigned int u32(const unsigned char* p, Py_ssize_t at) noexcept:
    return (<unsigned int> p[at] << 24) | (p[at + 1] << 16) | (p[at + 2] << 8) | p[at + 3]

cdef inline unsigned long long u64(const unsigned char* p, Py_ssize_t at) noexcept:
    return (<unsigned long long> u32(p, at) << 32) | u32(p, at + 4)

cdef inline int extend(
    bytearray area, const unsigned char* p, Py_ssize_t at, Py_ssize_t end
) except -1:
    cdef Py_ssize_t old = PyByteArray_GET_SIZE(area)
    PyByteArray_Resize(area, old + end - at)
    memcpy(PyByteArray_AS_STRING(area) + old, p + at, end - at)
    return 0
