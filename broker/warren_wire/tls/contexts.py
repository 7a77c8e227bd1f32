"""TLS: contexts from certificates on disk, the only place where one is made; failures in words.

What `ssl` sets by itself depends on how Python was compiled: Debian's takes OpenSSL's ciphers,
among them those without forward secrecy, such as AES128-SHA. So everything is said here.
"""

from __future__ import annotations

import _ssl
import ctypes
import logging
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

log = logging.getLogger("warren.raft")
CIPHERS: Final = (
    "@SECLEVEL=2:ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE+AES:DHE+AESGCM:DHE+CHACHA20:DHE+AES"
    ":!aNULL:!eNULL:!aDSS:!SHA1:!AESCCM:!PSK:!SRP"
)
"""Of TLS 1.2: forward secrecy, AES or ChaCha20, no SHA-1. Those of TLS 1.3 are all like that."""
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")
_REASON: Final = re.compile(r"\[SSL: (\w+)\]")
_OPTIONS: Final = {"certfile": "certfile", "keyfile": "keyfile", "cacertfile": "cacertfile"}
_SET_CACHE_MODE: Final = 44
_GET_CACHE_MODE: Final = 45
_CACHE_OFF: Final = 0


class CertificatesUnusable(Exception):
    """Files of certificates or keys that cannot be used; the text names option and file."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where the certificates are, and what is asked of the other side.

    certfile    PEM: this side's certificate, then those between it and the authority's; None: none
    keyfile     PEM: its private key; None: it is in `certfile`
    cacertfile  PEM: the accepted certificate authorities; None: none is, see `calling_context`
    password    of the key
    verify      CERT_NONE, CERT_OPTIONAL (checked if there is one) or CERT_REQUIRED
    """

    certfile: str | Path | None = None
    keyfile: str | Path | None = None
    cacertfile: str | Path | None = None
    password: str | None = field(default=None, repr=False)
    verify: ssl.VerifyMode = ssl.CERT_NONE

    def paths(self) -> dict[str, Path]:
        """Return the files that exist in this configuration, by option."""
        found = {option: getattr(self, option) for option in _OPTIONS}
        return {option: Path(path) for option, path in found.items() if path}


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context of the side that is called; raises CertificatesUnusable."""
    context = _load(server_side(), files, {})
    context.verify_mode = files.verify
    return context


def peer_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context of a node that calls another one; raises CertificatesUnusable.

    Names are not checked: a peer's name is proven by the cluster's secret (`handshake`).
    """
    context = _load(client_side(checks=False), files, {})
    context.verify_mode = files.verify
    return context


def calling_context(
    files: TlsFiles, *, checks: bool = True, options: Mapping[str, str] | None = None
) -> ssl.SSLContext:
    """Return the context for calling a server; raises CertificatesUnusable.

    files    without `cacertfile` the system's authorities are accepted
    checks   the server's certificate and name are checked
    options  what the user calls the fields of `files`

    It accepts the same certificates on every Python, as the contexts above do. What
    `ssl.create_default_context` accepts depends on Python: since 3.13 it refuses an authority
    without key usage, and a certificate without the identifier of its authority's key, such as
    `openssl req -x509` and `openssl x509 -req` make (VERIFY_X509_STRICT); and an intermediate
    authority counts as a root (VERIFY_X509_PARTIAL_CHAIN). After an update of Python a node would
    no longer reach what it reached before.
    """
    context = client_side(checks=checks)
    if checks and not files.cacertfile:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return _load(context, files, options or {})


def _load(context: ssl.SSLContext, files: TlsFiles, options: Mapping[str, str]) -> ssl.SSLContext:
    named = {key: f"{options.get(key, key)}={str(path)!r}" for key, path in files.paths().items()}
    for option, path in files.paths().items():
        try:
            path.read_bytes()
        except OSError as error:
            raise CertificatesUnusable(f"cannot read {named[option]}: {error.strerror}") from error
    if files.cacertfile:
        try:
            context.load_verify_locations(files.cacertfile)
        except OSError as error:
            raise CertificatesUnusable(
                f"{named['cacertfile']} holds no certificate in PEM format"
            ) from error
    if files.certfile:
        try:
            # Without a function OpenSSL would ask for the password at the terminal.
            context.load_cert_chain(files.certfile, files.keyfile, lambda: files.password or "")
        except (OSError, ValueError) as error:
            own = ", ".join(named[key] for key in ("certfile", "keyfile") if key in named)
            raise CertificatesUnusable(f"{own}: {_unusable(files, error)}") from error
    return context


def _unusable(files: TlsFiles, error: Exception) -> str:
    reason = getattr(error, "reason", None) or ""
    if reason == "KEY_VALUES_MISMATCH":
        return "the key is not the certificate's; give the two that belong together"
    if b"ENCRYPTED" in Path(files.keyfile or files.certfile or "").read_bytes():
        return "the key cannot be decrypted; give its password (password)"
    return (
        f"not a certificate and its private key in PEM format "
        f"({reason.replace('_', ' ').lower() or error})"
    )


def refusal_in_words(
    error: BaseException, where: str, options: Mapping[str, str] | None = None
) -> str | None:
    """Return why TLS failed where another attempt would meet the same; None: it may not.

    error    also one of a library that has only OpenSSL's text, of an alert of the other side
    where    the other side
    options  what the user calls the fields of TlsFiles
    """
    names = {**_OPTIONS, **(options or {})}
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the certificate of {where} is refused: {error.verify_message}; "
            f"{names['cacertfile']} names the authorities that are accepted"
        )
    found = None if isinstance(error, ssl.SSLError) else _REASON.search(str(error))
    reason = found[1] if found else getattr(error, "reason", None) or ""
    if isinstance(error, ssl.SSLError) and reason in _NO_TLS:
        return f"{where} does not speak TLS; give its port with TLS, or write amqp://"
    if "ALERT" not in reason or "INTERNAL" in reason:
        return None
    said = reason[reason.index("ALERT") + len("ALERT") :].strip("_").replace("_", " ").lower()
    return (
        f"{where} refuses this TLS connection: {said}; {names['certfile']} and "
        f"{names['keyfile']} are the certificate that it is shown"
    )


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
