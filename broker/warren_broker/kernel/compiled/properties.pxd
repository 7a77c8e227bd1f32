# What the other compiled modules of the kernel call without going through Python.

cdef long long walk(const unsigned char* p, Py_ssize_t end) noexcept
