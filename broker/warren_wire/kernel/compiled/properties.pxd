# What the other compiled modules of the kernel call without going through Python.

ctypedef Py_ssize_t Size

cdef bint is_text(const unsigned char* p, Py_ssize_t at, Py_ssize_t size) except? -1
cdef long long milliseconds(
    const unsigned char* p, Py_ssize_t at, Py_ssize_t size, long long most
) noexcept
cdef long long walk(const unsigned char* p, Py_ssize_t end) noexcept
cdef Py_ssize_t own_headers(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef Py_ssize_t sections_at(const unsigned char* p, Py_ssize_t end) noexcept
cdef Py_ssize_t value_end(const unsigned char* p, Py_ssize_t at, Py_ssize_t end, int depth) noexcept
