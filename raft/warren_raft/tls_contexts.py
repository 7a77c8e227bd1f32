"""What every TLS connection has in common: the only place where a context is made.

What `ssl` sets by itself depends on how Python was compiled: Debian's takes OpenSSL's ciphers,
among them those without forward secrecy, such as AES128-SHA. So everything is said here.
"""

from __future__ import annotations

import _ssl
import ctypes
import logging
import ssl
from typing import Final

log = logging.getLogger("warren.raft")
CIPHERS: Final = (
    "@SECLEVEL=2:ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE+AES:DHE+AESGCM:DHE+CHACHA20:DHE+AES"
    ":!aNULL:!eNULL:!aDSS:!SHA1:!AESCCM:!PSK:!SRP"
)
"""Of TLS 1.2: forward secrecy, AES or ChaCha20, no SHA-1. Those of TLS 1.3 are all like that."""
_SET_CACHE_MODE: Final = 44
_GET_CACHE_MODE: Final = 45
_CACHE_OFF: Final = 0


def server_side() -> ssl.SSLContext:
    """Return a context of the side that is called, without certificates.

    It resumes no session. 1. A client connects with a certificate, and is given a session.  2. The
    certificate expires, or the node's files are replaced.  3. With the session it would connect
    without being checked again.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0
    _forget_sessions(context)
    return _common(context)


def client_side(*, checks: bool = True) -> ssl.SSLContext:
    """Return a context of the side that calls, without certificates and authorities.

    checks  the certificate and the name in it are checked
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not checks:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return _common(context)


def _common(context: ssl.SSLContext) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_ciphers(CIPHERS)
    return context


def _forget_sessions(context: ssl.SSLContext) -> None:
    """Have OpenSSL keep no sessions of TLS 1.2 in memory, for which `ssl` has no function.

    The first field of Python's object is the pointer to OpenSSL's. That it is the same context is
    seen by its options, before anything is changed.
    """
    try:
        library = ctypes.CDLL(_ssl.__file__)
        options, control = library.SSL_CTX_get_options, library.SSL_CTX_ctrl
    except (OSError, AttributeError) as error:
        log.warning("TLS 1.2 sessions may be resumed: this Python's ssl is not found: %s", error)
        return
    options.restype, options.argtypes = ctypes.c_uint64, (ctypes.c_void_p,)
    control.restype = ctypes.c_long
    control.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p)
    inner = ctypes.c_void_p.from_address(id(context) + object.__basicsize__).value
    known = int(context.options) & ((1 << 64) - 1)
    assert inner is not None and options(inner) == known, (inner, known)
    control(inner, _SET_CACHE_MODE, _CACHE_OFF, None)
    assert control(inner, _GET_CACHE_MODE, 0, None) == _CACHE_OFF
