# What the kernel's compiled modules that read AMQP 1.0 messages call without going through Python.

cdef int put_number(bytearray out, unsigned long long value, int size) except? -1
cdef Py_ssize_t open_length(bytearray out, int kind) except? -1
cdef int close_length(bytearray out, Py_ssize_t mark) except? -1

cdef class ValueReader:
    cdef object data
    cdef const unsigned char* p
    cdef Py_ssize_t end
    cdef Py_ssize_t start
    cdef Py_ssize_t after
    cdef unsigned long long count
    cdef unsigned long long without_bytes
    cdef unsigned int section
    cdef Py_ssize_t section_at

    cdef object refuse(self, str text)
    cdef Py_ssize_t span(self, unsigned int code, Py_ssize_t at) except? -1
    cdef int element(self, Py_ssize_t at) except? -1
    cdef Py_ssize_t skip(self, Py_ssize_t at, int depth) except? -1
    cdef int deep(self, int depth, Py_ssize_t at) except? -1
    cdef Py_ssize_t counted(self, unsigned int code, Py_ssize_t start, Py_ssize_t after) except? -1
    cdef Py_ssize_t opened(self, unsigned int code, int depth) except? -1
    cdef int filled(self, Py_ssize_t at, Py_ssize_t after) except? -1
    cdef Py_ssize_t read_whole(self, Py_ssize_t at, int depth) except? -1
    cdef Py_ssize_t read_descriptor(self, Py_ssize_t at) except? -1
    cdef int read_inside(self, unsigned int code, int depth) except? -1
    cdef int read_constructor(
        self, Py_ssize_t at, Py_ssize_t after, unsigned long long count
    ) except? -1
    cdef int count_without(self, unsigned int kind, unsigned long long count) except? -1
    cdef Py_ssize_t value(self, Py_ssize_t at, bytearray out, int depth) except? -1
    cdef int field(self, unsigned int code, bytearray out, int depth) except? -1
    cdef int boolean(self, unsigned int code, Py_ssize_t at) except? -1
    cdef unsigned long long integer(
        self, unsigned int code, Py_ssize_t at, Py_ssize_t after
    ) except? -1
    cdef long long seconds(self, Py_ssize_t at) except? -1
    cdef int number(
        self, unsigned int code, Py_ssize_t at, Py_ssize_t after, bytearray out
    ) except? -1
    cdef int array(self, unsigned int code, bytearray out, int depth) except? -1
    cdef int uniform(self, unsigned int code, bytearray out, int depth) except? -1
    cdef int table(self, unsigned int code, bytearray out, int depth) except? -1
    cdef unsigned long long pairs(self, Py_ssize_t at) except? -1
    cdef Py_ssize_t entry(
        self, unsigned int code, Py_ssize_t at, Py_ssize_t end, bytearray out, int depth
    ) except? -1
